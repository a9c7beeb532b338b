//! Where records end in a stream of bytes.

use memchr::{memchr, memchr2};

/// Finds the newlines that end records.
#[derive(Clone, Copy, Debug)]
pub(super) enum Framer {
    /// Every newline ends a record.
    Lines,
    /// A newline within quotes does not.
    Csv {
        /// What stands between fields.
        delimiter: u8,
        /// Where in a field the bytes looked at so far end.
        state: Field,
    },
}

/// A place in a CSV field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// Before its first byte, where a quote opens quotes.
    Start,
    /// In it, where a quote is a byte like others.
    Plain,
    /// Within quotes.
    Quoted,
    /// Behind a quote within quotes, which ends them or is the first half of a quote that is meant.
    Quote,
}

impl Framer {
    /// A framer of CSV with newlines in quotes.
    pub(super) fn csv(delimiter: u8) -> Self {
        Self::Csv { delimiter, state: Field::Start }
    }

    /// The position of the newline that ends the record, if it is in these bytes, which follow those looked at before.
    pub(super) fn find_end(&mut self, bytes: &[u8]) -> Option<usize> {
        let Self::Csv { delimiter, state } = self else { return memchr(b'\n', bytes) };
        let mut at = 0;
        while at < bytes.len() {
            match *state {
                Field::Quoted => {
                    at += memchr(b'"', &bytes[at..])?;
                    *state = Field::Quote;
                }
                Field::Start | Field::Quote if bytes[at] == b'"' => *state = Field::Quoted,
                Field::Start | Field::Quote | Field::Plain => {
                    let Some(stop) = memchr2(b'\n', *delimiter, &bytes[at..]) else {
                        *state = Field::Plain;
                        return None;
                    };
                    at += stop;
                    *state = Field::Start;
                    if bytes[at] == b'\n' {
                        return Some(at);
                    }
                }
            }
            at += 1;
        }
        None
    }

    /// Whether these bytes, which follow those looked at before, leave no quotes open.
    pub(super) fn is_closed_behind(mut self, mut bytes: &[u8]) -> bool {
        while let Some(end) = self.find_end(bytes) {
            bytes = &bytes[end + 1..];
        }
        self.is_closed()
    }

    /// Whether the bytes looked at so far leave no quotes open.
    pub(super) fn is_closed(&self) -> bool {
        !matches!(self, Self::Csv { state: Field::Quoted, .. })
    }

    /// Starts anew, at the start of a record.
    pub(super) fn reset(&mut self) {
        if let Self::Csv { state, .. } = self {
            *state = Field::Start;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The records of a text, however it is cut into pieces.
    fn frames(bytes: &[u8], piece: usize) -> Vec<Vec<u8>> {
        let mut framer = Framer::csv(b',');
        let (mut frames, mut open) = (Vec::new(), Vec::new());
        for mut piece in bytes.chunks(piece) {
            while let Some(end) = framer.find_end(piece) {
                open.extend_from_slice(&piece[..end]);
                frames.push(std::mem::take(&mut open));
                piece = &piece[end + 1..];
            }
            open.extend_from_slice(piece);
        }
        frames.push(open);
        frames
    }

    /// The fields of all records, by the parser that also takes the frames apart.
    fn fields(mut bytes: &[u8]) -> Vec<Vec<Vec<u8>>> {
        let mut reader = csv_core::ReaderBuilder::new().terminator(csv_core::Terminator::Any(b'\n')).build();
        let (mut output, mut ends, mut records) = ([0; 256], [0; 128], Vec::new());
        let (mut wrote, mut ended) = (0, 0);
        loop {
            let (outcome, read, written, fields) = reader.read_record(bytes, &mut output[wrote..], &mut ends[ended..]);
            bytes = &bytes[read..];
            wrote += written;
            ended += fields;
            match outcome {
                csv_core::ReadRecordResult::InputEmpty => {}
                csv_core::ReadRecordResult::Record => {
                    let starts = std::iter::once(&0).chain(&ends[..ended]);
                    let field = |(start, end): (&usize, &usize)| output[*start..*end].to_vec();
                    records.push(starts.zip(&ends[..ended]).map(field).collect());
                    (wrote, ended) = (0, 0);
                }
                csv_core::ReadRecordResult::End => return records,
                full => unreachable!("the text is short: {full:?}"),
            }
        }
    }

    proptest! {
        /// Frames hold the same fields as the whole text does, whatever the text and however it comes.
        #[test]
        fn frames_are_records(text in "[ab,\"\r\n]{0,60}", piece in 1usize..10) {
            let framed: Vec<_> = frames(text.as_bytes(), piece).iter().flat_map(|frame| fields(frame)).collect();
            prop_assert_eq!(framed, fields(text.as_bytes()));
        }
    }
}

//! What an operator can reach while it is called: its output, time and randomness.
//!
//! Owns where the call is (which record, which slot) and what has not left yet. Keyed state belongs to the handles of
//! `state`, which ask here for the slot; `instance` opens and closes the scope of a call.

use std::cell::RefCell;
use std::rc::Rc;

use crate::Error;
use crate::imports::{clock, collector, keyed_state, random};
use crate::output::{Emit, NO_POSITION, Output, OutputBuffer, Part};
use crate::record::{Batch, Record};

/// What an operator can reach while it is called.
pub struct Context {
    batch: Rc<Batch>,
    /// Counts calls, so that what a handle remembers of an earlier one is seen to be void.
    call: u64,
    position: u32,
    slots: Vec<u32>,
    slot_count: usize,
    outputs: Vec<OutputBuffer>,
    /// Some output is full, or the record was given up: there is something to do when the record ends.
    attention: bool,
    /// Something that the record did cannot be taken back.
    irreversible: bool,
    rejection: Option<String>,
    tables: Vec<Rc<RefCell<dyn Table>>>,
    processing_time: Option<u64>,
}

/// What a state handle remembers within a call.
pub(crate) trait Table {
    /// Writes back what changed in this call.
    fn flush(&mut self, call: u64) -> Result<(), Error>;
    /// Takes back what the record at a position wrote, as long as it was not `irreversible`.
    fn undo(&mut self, call: u64, position: u32);
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("position", &self.position).finish_non_exhaustive()
    }
}

impl Context {
    pub(crate) fn new(side_outputs: impl IntoIterator<Item = u32>, tables: Vec<Rc<RefCell<dyn Table>>>) -> Self {
        let outputs = [Output::MAIN.0].into_iter().chain(side_outputs).map(OutputBuffer::new).collect();
        Self {
            batch: Rc::default(),
            call: 0,
            position: NO_POSITION,
            slots: Vec::new(),
            slot_count: 0,
            outputs,
            attention: false,
            irreversible: false,
            rejection: None,
            tables,
            processing_time: None,
        }
    }

    /// Sends a record to the main output, with the key and timestamp of the record being processed.
    #[inline]
    pub fn emit(&mut self, value: impl AsRef<[u8]>) {
        self.emit_to(Output::MAIN, value);
    }

    /// Sends a record with this key to the main output, with the timestamp of the record being processed.
    #[inline]
    pub fn emit_keyed(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.send(Emit::new(&value).key(&key));
    }

    /// Sends a record to an output, with the key and timestamp of the record being processed.
    #[inline]
    pub fn emit_to(&mut self, output: Output, value: impl AsRef<[u8]>) {
        self.emit_with(output, |data| data.extend_from_slice(value.as_ref()));
    }

    /// Sends a record to an output whose value is what `write` appends, with the key and timestamp of the record being
    /// processed. Saves a copy where a value is put together.
    ///
    /// ```
    /// # use tidegate_sdk::{Context, Output};
    /// use std::io::Write;
    ///
    /// # fn f(context: &mut Context) -> Result<(), tidegate_sdk::Error> {
    /// context.emit_with(Output::MAIN, |value| write!(value, "{} of {}", 1, 2))?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn emit_with<R>(&mut self, output: Output, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let buffer = &mut self.outputs[output.0 as usize];
        if !buffer.is_next(self.position) {
            return self.push(output, Part::Inherited, Part::Inherited, write);
        }
        // One record for each, in order: what most operators do.
        let result = buffer.push_next(write);
        self.attention |= buffer.is_full();
        result
    }

    /// Sends a record of which more is given than its value.
    #[inline]
    pub fn send(&mut self, record: Emit<'_>) {
        let Emit { value, key, timestamp, output } = record;
        self.push(output, key, timestamp, |data| data.extend_from_slice(value));
    }

    fn push<R>(
        &mut self,
        output: Output,
        key: Part<&[u8]>,
        timestamp: Part<i64>,
        write: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> R {
        let (key, timestamp) = if self.position == NO_POSITION {
            // There is no record to inherit from.
            (key.or_absent(), timestamp.or_absent())
        } else {
            (key, timestamp)
        };
        let (keyed, timed) = (key.is_there(self.batch.is_keyed()), timestamp.is_there(self.batch.has_timestamps()));
        let buffer = &mut self.outputs[output.0 as usize];
        if !buffer.accepts(keyed, timed) {
            self.irreversible |= buffer.flush(&self.batch, self.position);
        }
        let result = buffer.push(&self.batch, self.position, (key, timestamp), write);
        if buffer.is_full() {
            self.attention = true;
            if buffer.is_full_of(self.position) {
                self.irreversible |= buffer.flush(&self.batch, self.position);
            }
        }
        result
    }

    /// Gives up the record being processed: it is not an error of the operator, and the others go on. The job's
    /// `on-error` says what happens to it. What the record has sent and written is taken back.
    pub fn reject(&mut self, reason: impl std::fmt::Display) {
        if self.rejection.is_none() {
            self.rejection = Some(reason.to_string());
            self.attention = true;
        }
    }

    /// Calls `process` for each record of the batch, as the SDK does unless
    /// [`process_batch`](crate::Operator::process_batch) says otherwise.
    ///
    /// # Errors
    /// The first error of `process`; it ends the call, and the host learns which record it was about.
    #[inline]
    pub fn for_each(
        &mut self,
        mut process: impl FnMut(Record<'_>, &mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let batch = Rc::clone(&self.batch);
        for (position, record) in batch.records().enumerate() {
            self.position = position as u32;
            process(record, self)?;
            if self.attention {
                self.settle()?;
            }
            self.irreversible = false;
        }
        self.position = NO_POSITION;
        Ok(())
    }

    /// Deals with what a record has left behind: a rejection, full outputs.
    #[cold]
    fn settle(&mut self) -> Result<(), Error> {
        self.attention = false;
        if let Some(reason) = self.rejection.take() {
            if self.irreversible {
                // The host undoes the whole call then and makes it again without this record.
                return Err(Error::new(reason));
            }
            for table in &self.tables {
                table.borrow_mut().undo(self.call, self.position);
            }
            for output in &mut self.outputs {
                output.undo(&self.batch, self.position);
            }
            collector::reject(self.position, &reason);
        }
        for output in self.outputs.iter_mut().filter(|output| output.is_full()) {
            output.flush(&self.batch, self.position);
        }
        Ok(())
    }

    /// Processing time in milliseconds since 1970: the same for all records of a batch.
    #[inline]
    pub fn processing_time(&mut self) -> u64 {
        *self.processing_time.get_or_insert_with(clock::processing_time)
    }

    /// The watermark: no record of an earlier or equal event time is expected. None before the first.
    #[must_use]
    pub fn watermark(&self) -> Option<i64> {
        clock::watermark()
    }

    /// Nanoseconds since an unspecified moment, never falling: for measuring.
    #[must_use]
    pub fn monotonic_time(&self) -> u64 {
        clock::monotonic_time()
    }

    /// A random number. Not for secrets.
    pub fn random_u64(&mut self) -> u64 {
        random::get_u64()
    }

    /// Random bytes, at most 65536. Not for secrets.
    pub fn random_bytes(&mut self, count: u32) -> Vec<u8> {
        random::get_bytes(count)
    }
}

impl<T> Part<T> {
    fn is_there(&self, inherited: bool) -> bool {
        match self {
            Self::Inherited => inherited,
            Self::Given(_) => true,
            Self::Absent => false,
        }
    }

    fn or_absent(self) -> Self {
        if let Self::Inherited = self { Self::Absent } else { self }
    }
}

/// For the handles.
impl Context {
    pub(crate) fn call(&self) -> u64 {
        self.call
    }

    pub(crate) fn position(&self) -> u32 {
        self.position
    }

    /// The slot of the key of the record being processed.
    #[inline]
    pub(crate) fn slot(&mut self) -> Result<usize, Error> {
        match self.slots.get(self.position as usize) {
            Some(&slot) => Ok(slot as usize),
            None => self.find_slot(),
        }
    }

    #[cold]
    fn find_slot(&mut self) -> Result<usize, Error> {
        if self.position == NO_POSITION {
            return Err(Error::new(
                "keyed state belongs to the key of a record: it can only be used while one is processed",
            ));
        }
        self.slots = keyed_state::slots();
        self.slot_count = self.slots.iter().max().map_or(0, |&slot| slot as usize + 1);
        match self.slots.get(self.position as usize) {
            Some(&slot) => Ok(slot as usize),
            None => Err(Error::new(format_args!(
                "keyed state needs records that were placed by key: set partition = \"hash\" for input {}, from a node \
                 that emits keys",
                self.batch.input
            ))),
        }
    }

    /// The number of slots of the call. `slot` must have said yes.
    pub(crate) fn slot_count(&self) -> usize {
        self.slot_count
    }

    /// The record cannot be taken back from here on.
    pub(crate) fn set_irreversible(&mut self) {
        self.irreversible = true;
    }
}

/// For `instance`.
impl Context {
    /// The records of the call.
    pub(crate) fn batch(&self) -> Rc<Batch> {
        Rc::clone(&self.batch)
    }

    /// Opens the scope of a call.
    pub(crate) fn begin(&mut self, batch: Batch) {
        // A call before that failed may have left anything behind.
        for output in &mut self.outputs {
            output.discard();
        }
        self.batch = Rc::new(batch);
        self.call += 1;
        self.position = NO_POSITION;
        self.slots.clear();
        self.slot_count = 0;
        self.attention = false;
        self.irreversible = false;
        self.rejection = None;
        self.processing_time = None;
    }

    /// Sends on and writes back all that waits.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        self.position = NO_POSITION;
        if let Some(reason) = self.rejection.take() {
            return Err(Error::new(reason).context("reject needs a record being processed"));
        }
        for table in &self.tables {
            table.borrow_mut().flush(self.call)?;
        }
        for output in &mut self.outputs {
            output.flush(&self.batch, NO_POSITION);
        }
        Ok(())
    }
}

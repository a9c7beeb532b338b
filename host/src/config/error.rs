//! What is wrong with a job file, and how it is shown.
//!
//! Every problem names the place (file, line and column, or the `--set` argument), the field by its dotted path, what
//! was found, what was expected and what to do; the line itself is shown with the spot marked.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use super::value::{Origin, SourceText};

/// Why a job file cannot be used: everything that was found, in the order of the file.
#[derive(Clone, Debug)]
pub struct ConfigError {
    problems: Vec<Problem>,
}

/// One mistake.
#[derive(Clone, Debug)]
pub struct Problem {
    field: Box<str>,
    message: Box<str>,
    expected: Box<str>,
    help: Box<str>,
    origin: Option<Origin>,
}

impl Problem {
    /// A mistake in a field, given by its dotted path; the path is empty for one that belongs to no field.
    pub(super) fn new(field: impl Into<Box<str>>, message: impl Into<Box<str>>) -> Self {
        let (field, message) = (field.into(), message.into());
        Self { field, message, expected: Box::default(), help: Box::default(), origin: None }
    }

    /// Says where it is.
    pub(super) fn at(mut self, origin: Origin) -> Self {
        self.origin = Some(origin);
        self
    }

    /// Says what was expected.
    pub(super) fn expected(mut self, expected: impl Into<Box<str>>) -> Self {
        self.expected = expected.into();
        self
    }

    /// Says what to do.
    pub(super) fn help(mut self, help: impl Into<Box<str>>) -> Self {
        self.help = help.into();
        self
    }

    /// The dotted path of the field, such as `operators.count.limits.call`; empty when it is about no single field.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    /// What is wrong.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The mistake on one line, with its place in front.
    #[must_use]
    pub fn on_one_line(&self) -> String {
        let mut line = match self.place() {
            Some((path, line, column)) => format!("{}:{line}:{column}: ", path.display()),
            None => match &self.origin {
                Some(Origin::Set { argument }) => format!("--set {}: ", cut(argument)),
                _ => String::new(),
            },
        };
        if !self.field.is_empty() {
            line.push_str(&format!("{}: ", self.field));
        }
        line.push_str(&self.message);
        for (what, text) in [("expected ", &self.expected), ("", &self.help)] {
            if !text.is_empty() {
                line.push_str(&format!("; {what}{text}"));
            }
        }
        line
    }

    /// The file and the line and column in it, both counted from 1.
    #[must_use]
    pub fn place(&self) -> Option<(PathBuf, usize, usize)> {
        match self.origin.as_ref()? {
            Origin::File { file, span } => {
                let line = Line::of(file, span);
                Some((file.path.clone(), line.number, line.column))
            }
            Origin::Set { .. } => None,
        }
    }
}

impl ConfigError {
    /// Puts problems in the order of their places. There is at least one.
    pub(super) fn new(mut problems: Vec<Problem>) -> Self {
        assert!(!problems.is_empty(), "an error without a problem");
        problems.sort_by_key(|problem| match &problem.origin {
            Some(Origin::File { span, .. }) => (0, span.start),
            Some(Origin::Set { .. }) => (1, 0),
            None => (2, 0),
        });
        Self { problems }
    }

    /// All that was found.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl std::error::Error for ConfigError {}

/// Several lines for each problem, with an empty one between two problems; no newline at the end.
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            write!(f, "{}{problem}", if index == 0 { "" } else { "\n\n" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("error: ")?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)?;
        let margin = match &self.origin {
            Some(Origin::File { file, span }) => self.fmt_excerpt(f, file, span)?,
            Some(Origin::Set { argument }) => {
                write!(f, "\n  --> --set {}", cut(argument))?;
                self.fmt_note(f, 1, "expected", &self.expected)?;
                1
            }
            None => {
                self.fmt_note(f, 1, "expected", &self.expected)?;
                1
            }
        };
        self.fmt_note(f, margin, "help", &self.help)
    }
}

impl Problem {
    /// Shows the line with the spot marked, and returns the width of the line numbers' column.
    fn fmt_excerpt(
        &self,
        f: &mut fmt::Formatter<'_>,
        file: &SourceText,
        span: &Range<usize>,
    ) -> Result<usize, fmt::Error> {
        let line = Line::of(file, span);
        let number = line.number.to_string();
        let margin = number.len();
        let (excerpt, skipped) = line.excerpt();
        let marks = "^".repeat(line.marked.clamp(1, Line::WIDEST));
        let marks = format!("{}{marks} {}", " ".repeat(line.column - 1 - skipped), self.marked_text());
        write!(f, "\n{:margin$}--> {}:{number}:{}", "", file.path.display(), line.column)?;
        write!(f, "\n{:margin$} |\n{number} |{excerpt}", "")?;
        write!(f, "\n{:margin$} | {}", "", marks.trim_end())?;
        Ok(margin)
    }

    fn marked_text(&self) -> String {
        if self.expected.is_empty() { String::new() } else { format!("expected {}", self.expected) }
    }

    fn fmt_note(&self, f: &mut fmt::Formatter<'_>, margin: usize, title: &str, text: &str) -> fmt::Result {
        if text.is_empty() { Ok(()) } else { write!(f, "\n{:margin$} = {title}: {text}", "") }
    }
}

/// The beginning of a text that is longer than a line of it would be shown.
fn cut(text: &str) -> String {
    match text.char_indices().nth(Line::WIDEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// The line on which a span begins.
struct Line<'a> {
    text: &'a str,
    /// From 1.
    number: usize,
    /// From 1, in characters.
    column: usize,
    /// How many characters of the line the span covers.
    marked: usize,
}

impl<'a> Line<'a> {
    /// How many characters of a line are shown.
    const WIDEST: usize = 140;

    fn of(file: &'a SourceText, span: &Range<usize>) -> Self {
        let text = file.text.as_str();
        let on_character =
            |at: usize| (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let (start, end) = (on_character(span.start), on_character(span.end));
        let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |length| start + length);
        Self {
            text: text[line_start..line_end].trim_end_matches('\r'),
            number: text[..start].matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            marked: text[start..end.clamp(start, line_end)].trim_end().chars().count(),
        }
    }

    /// The text behind the margin, and how many characters at its beginning are not shown.
    fn excerpt(&self) -> (String, usize) {
        let shown = |c: char| if c.is_control() { ' ' } else { c };
        let skipped = if self.column + 40 > Self::WIDEST { self.column - 40 } else { 0 };
        let text: String = self.text.chars().skip(skipped).take(Self::WIDEST).map(shown).collect();
        let text = if text.is_empty() { text } else { format!(" {text}") };
        (text, skipped)
    }
}

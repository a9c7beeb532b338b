//! An error and its causes as text for people.
//!
//! Some errors repeat their cause in their own message; a cause that has been said already is left out.

use std::error::Error;

/// What is new in an error and in each of its causes, outermost first.
pub(crate) fn links(error: &dyn Error) -> Vec<String> {
    let mut links = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !links.iter().any(|link| link.contains(&text)) {
            links.push(text);
        }
        cause = error.source();
    }
    links
}

/// An error and its causes with colons between them.
pub(crate) fn on_one_line(error: &dyn Error) -> String {
    links(error).join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Example {
        #[error("it failed: {0}")]
        Repeating(#[source] Box<Example>),
        #[error("it failed")]
        Plain(#[source] Box<Example>),
        #[error("no such file")]
        Cause,
    }

    #[test]
    fn a_cause_is_said_once() {
        let cause = || Box::new(Example::Cause);
        assert_eq!(on_one_line(&Example::Repeating(cause())), "it failed: no such file");
        assert_eq!(on_one_line(&Example::Plain(cause())), "it failed: no such file");
        let nested = Example::Repeating(Box::new(Example::Plain(cause())));
        assert_eq!(links(&nested), ["it failed: it failed", "no such file"]);
    }
}

//! What the command says when it fails: the message, its causes, and a remedy where one is known.

use std::fmt;

/// An error as it is shown; without text, the reader of standard output has gone away and there is nobody to tell.
#[derive(Debug)]
pub struct Error(Option<String>);

/// Result of a command.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A message of the command itself.
    pub fn new(message: impl Into<String>) -> Error {
        Error(Some(message.into()))
    }

    /// The reader of standard output has gone away.
    pub fn closed() -> Error {
        Error(None)
    }

    /// True for [`Error::closed`].
    pub fn is_closed(&self) -> bool {
        self.0.is_none()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("standard output was closed"))
    }
}

impl<E: std::error::Error + 'static> From<E> for Error {
    fn from(error: E) -> Error {
        let mut text = error.to_string();
        let mut remedy = None;
        let mut next: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        while let Some(cause) = next {
            let words = cause.to_string();
            if !text.contains(&words) {
                text = format!("{text}: {words}");
            }
            remedy = cause.downcast_ref::<ferrane::Error>().map(ferrane::Error::remedy).or(remedy);
            next = cause.source();
        }
        if let Some(remedy) = remedy {
            text = format!("{text}\n  {remedy}");
        }
        Error(Some(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_said_once_and_the_remedy_last() {
        let device = ferrane::Error::new(ferrane::ErrorKind::QueueFull, "127 requests in flight");
        let outer = ferrane::train::step::StepError::Device { kernel: "woFwd".into(), source: device };
        let text = Error::from(outer).to_string();
        assert_eq!(text.matches("127 requests").count(), 1);
        assert!(text.starts_with("woFwd") && text.contains("\n  Wait for a submitted request"), "{text}");
    }
}

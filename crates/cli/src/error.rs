//! What the command prints when it fails: the message, its causes, and a remedy if one is known.

use std::fmt;

use crate::flags;

/// Why a command ends without success.
#[derive(Debug)]
pub struct Error {
    ending: Ending,
    /// The kind of the device's error, if a device caused this one.
    device: Option<ferrane::ErrorKind>,
}

#[derive(Debug)]
enum Ending {
    /// The text of the message.
    Message(String),
    /// The reader of standard output has gone away.
    Closed,
    /// Everything has been printed; only this status is left.
    Told(u8),
    /// The text of the message, and a status: 2 in a command whose status 1 is an answer.
    Trouble(String, u8),
}

/// Result of a command.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A message of the command itself.
    pub fn new(message: impl Into<String>) -> Error {
        Ending::Message(message.into()).into()
    }

    /// The failure is the command's result, which has been printed.
    pub fn told() -> Error {
        Error::exit(1)
    }

    /// The end with the status of another program, which has printed what there is to print.
    pub fn exit(status: u8) -> Error {
        Ending::Told(status).into()
    }

    /// The same error with status 2.
    pub fn trouble(self) -> Error {
        self.with_status(2)
    }

    /// The same error with another status.
    pub fn with_status(self, status: u8) -> Error {
        match self.ending {
            Ending::Message(text) => Ending::Trouble(text, status).into(),
            other => other.into(),
        }
    }

    /// True for [`Error::told`] and [`Error::exit`].
    pub fn is_told(&self) -> bool {
        matches!(self.ending, Ending::Told(_))
    }

    /// The status that the process exits with.
    pub fn status(&self) -> u8 {
        match self.ending {
            Ending::Told(status) | Ending::Trouble(_, status) => status,
            Ending::Message(_) | Ending::Closed => 1,
        }
    }

    /// The kind of the device's error, if a device caused this one.
    pub fn device(&self) -> Option<ferrane::ErrorKind> {
        self.device
    }

    /// The same error with a hint after it.
    pub fn hint(mut self, hint: &str) -> Error {
        if let Ending::Message(text) | Ending::Trouble(text, _) = &mut self.ending {
            *text = format!("{text}\n  {hint}");
        }
        self
    }

    /// The reader of standard output has gone away.
    pub fn closed() -> Error {
        Ending::Closed.into()
    }

    /// True for [`Error::closed`].
    pub fn is_closed(&self) -> bool {
        matches!(self.ending, Ending::Closed)
    }
}

impl From<Ending> for Error {
    fn from(ending: Ending) -> Error {
        Error { ending, device: None }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.ending {
            Ending::Message(text) | Ending::Trouble(text, _) => text,
            Ending::Closed => "standard output was closed",
            Ending::Told(_) => "see above",
        })
    }
}

impl<E: std::error::Error + 'static> From<E> for Error {
    fn from(error: E) -> Error {
        let mut text = flags::spell(&error);
        let (mut remedy, mut device) = (None, None);
        let mut next: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        while let Some(cause) = next {
            let words = flags::spell(cause);
            if !text.contains(&words) {
                text = format!("{text}: {words}");
            }
            if let Some(error) = cause.downcast_ref::<ferrane::Error>() {
                (remedy, device) = (Some(error.remedy().to_string()), Some(error.kind()));
            }
            remedy = remedy.or_else(|| flags::remedy(cause));
            next = cause.source();
        }
        if let Some(remedy) = remedy {
            text = format!("{text}\n  {remedy}");
        }
        Error { device, ..Error::new(text) }
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

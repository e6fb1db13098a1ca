//! Options of opening a device: `key=value&key=value`, the part after the `?` of a device's name.
//!
//! Numerics, limits, path and dispatch are options of opening, never of a request. A backend takes
//! the options that it knows; any other option is an error that lists the known ones, so a
//! misspelled option is never ignored.
//! goes unseen.

use crate::{Error, ErrorKind, Result};

/// Former names of options, still accepted, with their current names.
const RENAMED: [(&str, &str); 2] = [("profile", "machine"), ("profile-file", "machine-file")];

/// The options that the backend has not taken yet.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    device: &'static str,
    pairs: Vec<(String, String)>,
    known: Vec<String>,
}

impl OpenOptions {
    /// Parses `key=value&key=value`; an empty text has no options. `device` is for messages.
    ///
    /// # Errors
    /// [`ErrorKind::Option`] for a pair without `=`, or a key given twice.
    pub fn parse(device: &'static str, text: &str) -> Result<OpenOptions> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in text.split('&').filter(|p| !p.is_empty()) {
            let bad = |why: &str| Error::new(ErrorKind::Option, format!("{device} option `{pair}`: {why}"));
            let (key, value) = pair.split_once('=').ok_or_else(|| bad("expected `key=value`"))?;
            let key = RENAMED.iter().find(|(old, _)| *old == key).map_or(key, |(_, new)| new);
            if pairs.iter().any(|(k, _)| k == key) {
                return Err(bad("given twice"));
            }
            pairs.push((key.to_string(), value.to_string()));
        }
        Ok(OpenOptions { device, pairs, known: Vec::new() })
    }

    /// Takes the value of a key. `form` describes the possible values in messages, such as `NAME`.
    pub fn take(&mut self, key: &str, form: &str) -> Option<String> {
        self.known.push(format!("{key}={form}"));
        let at = self.pairs.iter().position(|(k, _)| k == key)?;
        Some(self.pairs.remove(at).1)
    }

    /// Takes a value that must be one of several words.
    ///
    /// # Errors
    /// [`ErrorKind::Option`] for another word.
    pub fn take_one_of<T: Copy>(&mut self, key: &str, words: &[(&str, T)]) -> Result<Option<T>> {
        let form = words.iter().map(|(w, _)| *w).collect::<Vec<_>>().join("|");
        let Some(value) = self.take(key, &form) else { return Ok(None) };
        let found = words.iter().find(|(w, _)| *w == value).map(|(_, t)| Some(*t));
        let device = self.device;
        found.ok_or_else(|| {
            Error::new(ErrorKind::Option, format!("{device} option `{key}={value}`: expected {key}={form}"))
        })
    }

    /// Finishes: every option must have been taken.
    ///
    /// # Errors
    /// [`ErrorKind::Option`] if an option was not taken.
    pub fn finish(self) -> Result<()> {
        let Some((key, value)) = self.pairs.first() else { return Ok(()) };
        let known = if self.known.is_empty() {
            "there are none".into()
        } else {
            format!("the known options are {}", self.known.join(", "))
        };
        Err(Error::new(ErrorKind::Option, format!("{} option `{key}={value}`: {known}", self.device)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: [(&str, u8); 2] = [("fast", 1), ("exact", 2)];

    #[test]
    fn taken_options() {
        let mut options = OpenOptions::parse("emulator", "numerics=exact&profile=m4").unwrap();
        assert_eq!(options.take_one_of("numerics", &WORDS).unwrap(), Some(2));
        assert_eq!(options.take("machine", "NAME").as_deref(), Some("m4"));
        assert_eq!(options.take("pace", "on|off"), None);
        options.finish().unwrap();
        OpenOptions::parse("emulator", "").unwrap().finish().unwrap();
    }

    #[test]
    fn wrong_options_say_what_there_is() {
        let message = |r: Result<()>| {
            let error = r.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Option);
            error.message().to_string()
        };
        assert_eq!(
            message(OpenOptions::parse("emulator", "fast").map(|_| ())),
            "emulator option `fast`: expected `key=value`"
        );
        assert!(message(OpenOptions::parse("emulator", "a=1&a=2").map(|_| ())).contains("twice"));
        let mut options = OpenOptions::parse("emulator", "numerics=slow&x=1").unwrap();
        assert!(message(options.take_one_of("numerics", &WORDS).map(|_| ())).contains("numerics=fast|exact"));
        assert_eq!(message(options.finish()), "emulator option `x=1`: the known options are numerics=fast|exact");
        assert!(message(OpenOptions::parse("ane", "x=1").unwrap().finish()).contains("there are none"));
    }
}

//! Command lines of the checks: flags, options with a value, and positional arguments.

use crate::workspace::Result;

/// A parsed command line.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Arguments {
    flags: Vec<String>,
    options: Vec<(String, String)>,
    /// Whatever is neither a flag nor an option, in order.
    pub(crate) positional: Vec<String>,
}

impl Arguments {
    /// `flags` and `options` list what the command knows; an option takes the next argument as its
    /// value.
    ///
    /// # Errors
    /// An unknown flag, or an option without a value; the message ends with `usage`.
    pub(crate) fn parse(arguments: &[String], flags: &[&str], options: &[&str], usage: &str) -> Result<Self> {
        let mut parsed = Self::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            if options.contains(&argument.as_str()) {
                let value = rest.next().ok_or_else(|| format!("{argument} needs a value\n\n{usage}"))?;
                parsed.options.push((argument.clone(), value.clone()));
            } else if flags.contains(&argument.as_str()) {
                parsed.flags.push(argument.clone());
            } else if argument.starts_with('-') {
                return Err(format!("unknown option `{argument}`\n\n{usage}"));
            } else {
                parsed.positional.push(argument.clone());
            }
        }
        Ok(parsed)
    }

    /// Whether the flag was given.
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|f| f == flag)
    }

    /// The value of an option; the last one if it was given twice.
    pub(crate) fn value(&self, option: &str) -> Option<&str> {
        self.options.iter().rev().find(|(name, _)| name == option).map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Arguments> {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        Arguments::parse(&words, &["--json"], &["--graph"], "usage: …")
    }

    #[test]
    fn flags_options_and_paths_mix() {
        let parsed = parse(&["crates/host", "--graph", "mil", "--json", "docs"]).unwrap();
        assert!(parsed.has("--json") && !parsed.has("--graph"));
        assert_eq!(parsed.value("--graph"), Some("mil"));
        assert_eq!(parsed.positional, ["crates/host", "docs"]);
    }

    #[test]
    fn an_unknown_option_and_a_missing_value_fail() {
        assert_eq!(parse(&["--jsno"]).unwrap_err(), "unknown option `--jsno`\n\nusage: …");
        assert_eq!(parse(&["--graph"]).unwrap_err(), "--graph needs a value\n\nusage: …");
    }
}

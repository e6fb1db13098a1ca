//! Options of a check.

use std::str::FromStr;

/// What a check takes into account in addition to program and profile.
#[derive(Clone, Debug, Default)]
pub struct CheckOptions<'a> {
    /// Takes every claim into account, including those that the profile overrules and those about
    /// other machines.
    pub strict: bool,
    /// Bounds of inputs, for the search for overflow. Without bounds, an input may have any value
    /// of its type.
    pub bounds: Vec<InputBounds>,
    /// The text that the program was read from, for rules about spelling.
    pub text: Option<&'a str>,
    /// The number of programs that the process compiles, including this one; 0 means 1.
    pub programs: usize,
    /// The number of findings that are kept per rule; `None` means 200. The last one states how
    /// many more there are.
    pub limit: Option<usize>,
}

/// The smallest and the largest element of an input: `x=-1..1`.
#[derive(Clone, Debug, PartialEq)]
pub struct InputBounds {
    /// The name of the input.
    pub name: String,
    /// The lower bound of every element.
    pub low: f32,
    /// The upper bound of every element.
    pub high: f32,
}

/// The error for a text that is not `NAME=LOW..HIGH`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}`: expected NAME=LOW..HIGH, `x=-1..1` for example")]
pub struct InputBoundsError {
    /// The text that was parsed.
    pub text: String,
}

impl FromStr for InputBounds {
    type Err = InputBoundsError;

    fn from_str(text: &str) -> Result<InputBounds, InputBoundsError> {
        let wrong = || InputBoundsError { text: text.to_string() };
        let (name, ends) = text.split_once('=').ok_or_else(wrong)?;
        let (low, high) = ends.split_once("..").ok_or_else(wrong)?;
        let number = |t: &str| t.trim().parse::<f32>().ok().filter(|v| v.is_finite()).ok_or_else(wrong);
        let (low, high) = (number(low)?, number(high)?);
        if low > high || name.trim().is_empty() {
            return Err(wrong());
        }
        Ok(InputBounds { name: name.trim().to_string(), low, high })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_a_name_and_two_finite_numbers_in_order() {
        let bounds: InputBounds = " x =-1..2.5".parse().unwrap();
        assert_eq!(bounds, InputBounds { name: "x".to_string(), low: -1.0, high: 2.5 });
        for wrong in ["", "x", "x=1", "=1..2", "x=2..1", "x=a..b", "x=0..inf"] {
            let error = wrong.parse::<InputBounds>().unwrap_err();
            assert!(error.to_string().contains("NAME=LOW..HIGH"), "{wrong}");
        }
    }
}

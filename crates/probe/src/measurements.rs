//! What one probe measured.

use serde_json::{Map, Value, json};

/// Values of a profile, the raw numbers they rest on, and why a question stays open.
#[derive(Clone, Debug, Default)]
pub struct Measurements {
    pub(crate) values: Map<String, Value>,
    pub(crate) raw: Map<String, Value>,
    pub(crate) open: Option<String>,
}

impl Measurements {
    /// Measurements without a value, a number or an open question.
    pub fn new() -> Measurements {
        Measurements::default()
    }

    /// Sets a value of the profile, in the JSON form that profiles use.
    pub fn value(&mut self, key: &str, value: impl Into<Value>) -> &mut Measurements {
        self.values.insert(key.to_string(), value.into());
        self
    }

    /// Keeps a number, list or text that a value rests on, or a measurement that no profile has.
    pub fn raw(&mut self, name: &str, value: impl Into<Value>) -> &mut Measurements {
        self.raw.insert(name.to_string(), value.into());
        self
    }

    /// Says why a question stays open. Several reasons are joined by semicolons.
    pub fn leave_open(&mut self, why: impl Into<String>) -> &mut Measurements {
        let why = why.into();
        self.open = Some(self.open.take().map_or(why.clone(), |before| format!("{before}; {why}")));
        self
    }

    /// Keeps a time in milliseconds, rounded to a tenth of a microsecond.
    pub fn ms(&mut self, name: &str, milliseconds: f64) -> &mut Measurements {
        let rounded = (milliseconds * 1e4).round() / 1e4;
        self.raw(name, json!(rounded))
    }
}

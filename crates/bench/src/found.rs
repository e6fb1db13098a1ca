//! What a probe found.

use serde_json::{Map, Value, json};

/// Values of a profile, raw numbers, and why something stayed open.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub(crate) values: Map<String, Value>,
    pub(crate) raw: Map<String, Value>,
    pub(crate) why: Option<String>,
}

impl Found {
    /// Nothing yet.
    pub fn new() -> Found {
        Found::default()
    }

    /// A measured value of the profile, in the form that profiles have it.
    pub fn value(&mut self, key: &str, value: impl Into<Value>) -> &mut Found {
        self.values.insert(key.to_string(), value.into());
        self
    }

    /// A number, a list or a text behind the values, or a measurement that no profile has.
    pub fn raw(&mut self, name: &str, value: impl Into<Value>) -> &mut Found {
        self.raw.insert(name.to_string(), value.into());
        self
    }

    /// Why a question stays open. Later reasons are added to it.
    pub fn open(&mut self, why: impl Into<String>) -> &mut Found {
        let why = why.into();
        self.why = Some(self.why.take().map_or(why.clone(), |before| format!("{before}; {why}")));
        self
    }

    /// A time, kept to the tenth of a microsecond.
    pub fn ms(&mut self, name: &str, milliseconds: f64) -> &mut Found {
        let rounded = (milliseconds * 1e4).round() / 1e4;
        self.raw(name, json!(rounded))
    }
}

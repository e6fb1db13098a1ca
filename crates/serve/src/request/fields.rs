//! Reading fields of a JSON object, with errors that name the field as OpenAI's do.
//!
//! A field is read once; what is left at the end was not understood. A field of `null` counts as
//! absent.

use serde_json::{Map, Value};

use crate::error::ApiError;

type Result<T> = std::result::Result<T, ApiError>;

/// The fields of an object that are not read yet.
pub struct Fields {
    /// The path of the object in the request, with a dot at its end; empty for the request itself.
    path: String,
    map: Map<String, Value>,
}

impl Fields {
    /// The fields of a request.
    pub fn of_request(value: Value) -> Result<Fields> {
        match value {
            Value::Object(map) => Ok(Fields { path: String::new(), map }),
            other => Err(ApiError::malformed(format!("the body must be a JSON object, found {}", kind(&other)))),
        }
    }

    /// The fields of the object at `path`.
    pub fn of(path: &str, value: Value) -> Result<Fields> {
        match value {
            Value::Object(map) => Ok(Fields { path: format!("{path}."), map }),
            other => Err(wrong(path, "an object", &other)),
        }
    }

    /// The name of a field with its path, as errors spell it.
    pub fn name(&self, field: &str) -> String {
        format!("{}{field}", self.path)
    }

    /// Takes a field as it is.
    pub fn value(&mut self, field: &str) -> Option<Value> {
        // The order of the fields that are left does not matter.
        self.map.swap_remove(field).filter(|value| !value.is_null())
    }

    /// The error of a field that must be present.
    pub fn missing(&self, field: &str) -> ApiError {
        let name = self.name(field);
        ApiError::invalid(&name, format!("you must provide `{name}`")).code("missing_required_parameter")
    }

    pub fn text(&mut self, field: &str) -> Result<Option<String>> {
        match self.value(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(&self.name(field), "a string", &other)),
        }
    }

    /// Takes a text that must be present.
    pub fn required_text(&mut self, field: &str) -> Result<String> {
        self.text(field)?.ok_or_else(|| self.missing(field))
    }

    /// Takes a boolean; `false` if absent.
    pub fn flag(&mut self, field: &str) -> Result<bool> {
        match self.value(field) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(value),
            Some(other) => Err(wrong(&self.name(field), "a boolean", &other)),
        }
    }

    /// Takes a whole number in `range`.
    pub fn count(&mut self, field: &str, range: std::ops::RangeInclusive<u64>) -> Result<Option<u64>> {
        let Some(value) = self.value(field) else { return Ok(None) };
        let name = self.name(field);
        // A number such as 5.0 is the same number; a client's serializer may write it so.
        let whole =
            value.as_u64().or_else(|| value.as_f64().filter(|f| f.fract() == 0.0 && *f >= 0.0).map(|f| f as u64));
        match whole {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            _ if value.is_number() => {
                let (least, most) = (range.start(), range.end());
                let bounds = if *most == u64::MAX {
                    format!("{least} or more")
                } else {
                    format!("a whole number from {least} to {most}")
                };
                Err(ApiError::invalid(&name, format!("`{name}` is {value}; it must be {bounds}")))
            }
            _ => Err(wrong(&name, "a whole number", &value)),
        }
    }

    /// Takes a number in `range`.
    pub fn number(&mut self, field: &str, range: std::ops::RangeInclusive<f64>) -> Result<Option<f32>> {
        let Some(value) = self.value(field) else { return Ok(None) };
        let name = self.name(field);
        let Some(number) = value.as_f64() else { return Err(wrong(&name, "a number", &value)) };
        if !range.contains(&number) {
            let (least, most) = (range.start(), range.end());
            let bounds = if *most == f64::from(f32::MAX) {
                format!("at least {least}")
            } else {
                format!("from {least} to {most}")
            };
            return Err(ApiError::invalid(&name, format!("`{name}` is {value}; it must be {bounds}")));
        }
        Ok(Some(number as f32))
    }

    /// Drops fields that change nothing of the reply.
    pub fn harmless(&mut self, fields: &[&str]) {
        for field in fields {
            self.map.swap_remove(*field);
        }
    }

    /// Refuses the fields that were not read.
    pub fn end(self) -> Result<()> {
        match self.map.iter().find(|(_, value)| !value.is_null()) {
            None => Ok(()),
            Some((field, _)) => {
                let name = self.name(field);
                Err(ApiError::invalid(&name, format!("unrecognized request argument `{name}`"))
                    .code("unknown_parameter"))
            }
        }
    }
}

/// The error of a value of the wrong type.
pub fn wrong(name: &str, expected: &str, found: &Value) -> ApiError {
    ApiError::invalid(name, format!("`{name}` must be {expected}, found {}", kind(found))).code("invalid_type")
}

/// What a value is, in words.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_read_once_and_unknown_ones_refused() {
        let mut fields = Fields::of_request(json!({"a": "x", "b": null, "n": 5.0, "t": 0.5, "user": 1})).unwrap();
        assert_eq!(fields.text("a").unwrap().as_deref(), Some("x"));
        assert_eq!((fields.text("a").unwrap(), fields.flag("b").unwrap()), (None, false));
        assert_eq!(fields.count("n", 1..=9).unwrap(), Some(5));
        assert_eq!(fields.number("t", 0.0..=1.0).unwrap(), Some(0.5));
        fields.harmless(&["user"]);
        assert!(fields.end().is_ok());
        let unknown = Fields::of("tools.0", json!({"b": null, "c": 1})).unwrap().end().unwrap_err();
        assert_eq!((unknown.param.as_deref(), unknown.code), (Some("tools.0.c"), Some("unknown_parameter")));
    }

    #[test]
    fn wrong_values_name_their_field() {
        let mut fields = Fields::of_request(json!({"a": 1, "f": "no", "n": 12, "m": 1.5, "t": 3, "s": "1"})).unwrap();
        let errors = [
            fields.text("a").unwrap_err(),
            fields.flag("f").unwrap_err(),
            fields.count("n", 1..=9).unwrap_err(),
            fields.count("m", 1..=u64::MAX).unwrap_err(),
            fields.number("t", 0.0..=2.0).unwrap_err(),
            fields.number("s", 0.0..=2.0).unwrap_err(),
            fields.missing("model"),
        ];
        let texts = errors.map(|e| e.message);
        assert_eq!(
            texts,
            [
                "`a` must be a string, found a number",
                "`f` must be a boolean, found a string",
                "`n` is 12; it must be a whole number from 1 to 9",
                "`m` is 1.5; it must be 1 or more",
                "`t` is 3; it must be from 0 to 2",
                "`s` must be a number, found a string",
                "you must provide `model`",
            ]
        );
        assert!(Fields::of_request(json!([1])).is_err());
    }
}

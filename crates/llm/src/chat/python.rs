//! Values as Python writes them: `str`, `repr`, and `json.dumps`.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};
use serde_json::Value as Json;

/// Depth of nested lists and objects that is written.
const DEEPEST: usize = 128;

/// `json.dumps` with the options that templates use, as the filter `tojson` of `transformers`.
pub(super) fn to_json(value: Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<Value> = options.get("indent")?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    let layout = JsonLayout {
        indent: match indent.filter(|indent| !indent.is_none()) {
            None => None,
            Some(indent) => Some(indent_of(&indent)?),
        },
        ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        separators: match separators {
            None => None,
            Some(both) => Some(both.try_into().map_err(|_| invalid("`separators` must have two strings"))?),
        },
    };
    options.assert_all_used()?;
    let mut text = String::new();
    layout.write(&mut text, &json_of(&value, 0)?, 0)?;
    Ok(Value::from_safe_string(text))
}

/// `json.dumps` without spaces.
pub(super) fn compact(value: &Json) -> Result<String, Error> {
    let layout = JsonLayout { indent: None, ascii: false, sort: false, separators: Some([",".into(), ":".into()]) };
    let mut text = String::new();
    layout.write(&mut text, value, 0)?;
    Ok(text)
}

/// A value of a template as JSON. A float without a JSON form becomes `null`.
fn json_of(value: &Value, depth: usize) -> Result<Json, Error> {
    if depth > DEEPEST {
        return Err(invalid(format!("a value is nested more than {DEEPEST} deep")));
    }
    Ok(match value.kind() {
        ValueKind::Undefined | ValueKind::None => Json::Null,
        ValueKind::Bool => Json::Bool(value.is_true()),
        ValueKind::Number => match (i64::try_from(value.clone()), u64::try_from(value.clone())) {
            (Ok(number), _) if value.is_integer() => number.into(),
            (_, Ok(number)) if value.is_integer() => number.into(),
            _ => f64::try_from(value.clone())?.into(),
        },
        ValueKind::String => value.as_str().unwrap_or_default().into(),
        ValueKind::Seq | ValueKind::Iterable => {
            Json::Array(value.try_iter()?.map(|item| json_of(&item, depth + 1)).collect::<Result<_, _>>()?)
        }
        ValueKind::Map => {
            let mut fields = serde_json::Map::new();
            for key in value.try_iter()? {
                fields.insert(text(&key)?, json_of(&value.get_item(&key)?, depth + 1)?);
            }
            Json::Object(fields)
        }
        _ => return Err(invalid(format!("a value of the type {} has no JSON form", value.kind()))),
    })
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, what.into())
}

fn indent_of(indent: &Value) -> Result<String, Error> {
    if let Some(text) = indent.as_str() {
        return Ok(text.to_string());
    }
    let width = usize::try_from(indent.clone()).ok().filter(|width| *width <= 64);
    Ok(" ".repeat(width.ok_or_else(|| invalid("`indent` must be a number from 0 to 64, or a string"))?))
}

struct JsonLayout {
    indent: Option<String>,
    ascii: bool,
    sort: bool,
    /// Between items, and between a key and its value.
    separators: Option<[String; 2]>,
}

impl JsonLayout {
    fn write(&self, out: &mut String, value: &Json, depth: usize) -> Result<(), Error> {
        if depth > DEEPEST {
            return Err(invalid(format!("a value is nested more than {DEEPEST} deep")));
        }
        match value {
            Json::Null => out.push_str("null"),
            Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Json::Number(number) => push_number(out, number),
            Json::String(text) => self.string(out, text),
            Json::Array(items) if items.is_empty() => out.push_str("[]"),
            Json::Object(fields) if fields.is_empty() => out.push_str("{}"),
            Json::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    self.separate(out, i, depth + 1);
                    self.write(out, item, depth + 1)?;
                }
                self.line(out, depth);
                out.push(']');
            }
            Json::Object(fields) => {
                let mut fields: Vec<_> = fields.iter().collect();
                if self.sort {
                    fields.sort_by_key(|(key, _)| *key);
                }
                out.push('{');
                for (i, (key, value)) in fields.into_iter().enumerate() {
                    self.separate(out, i, depth + 1);
                    self.string(out, key);
                    out.push_str(self.separators.as_ref().map_or(": ", |[_, colon]| colon));
                    self.write(out, value, depth + 1)?;
                }
                self.line(out, depth);
                out.push('}');
            }
        }
        Ok(())
    }

    fn separate(&self, out: &mut String, i: usize, depth: usize) {
        if i > 0 {
            let usual = if self.indent.is_some() { "," } else { ", " };
            out.push_str(self.separators.as_ref().map_or(usual, |[comma, _]| comma));
        }
        self.line(out, depth);
    }

    fn line(&self, out: &mut String, depth: usize) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    }

    fn string(&self, out: &mut String, text: &str) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if (c as u32) < 0x20 || (self.ascii && !(' '..='~').contains(&c)) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a string does not fail.
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

fn push_number(out: &mut String, number: &serde_json::Number) {
    match number.as_f64().filter(|_| number.is_f64()) {
        Some(value) => out.push_str(&float(value)),
        None => out.push_str(&number.to_string()),
    }
}

/// A float as Python's `repr` writes it.
fn float(value: f64) -> String {
    if !value.is_finite() {
        return match value {
            v if v.is_nan() => "nan",
            v if v > 0.0 => "inf",
            _ => "-inf",
        }
        .into();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>().unwrap_or(0) {
        e if (-4..16).contains(&e) => format!("{value:?}"),
        e => format!("{digits}e{}{:02}", if e < 0 { '-' } else { '+' }, e.abs()),
    }
}

/// What `{{ value }}` prints: Python's `str`.
pub(super) fn text(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(String::new()),
        ValueKind::String => Ok(value.as_str().unwrap_or_default().to_string()),
        ValueKind::None | ValueKind::Bool | ValueKind::Number | ValueKind::Seq | ValueKind::Map => {
            let json = json_of(value, 0)?;
            // A float without a JSON form has become `null`.
            if let (Json::Null, Ok(number)) = (&json, f64::try_from(value.clone())) {
                return Ok(float(number));
            }
            let mut text = String::new();
            repr(&mut text, &json, 0)?;
            Ok(text)
        }
        _ => Ok(value.to_string()),
    }
}

fn repr(out: &mut String, value: &Json, depth: usize) -> Result<(), Error> {
    if depth > DEEPEST {
        return Err(invalid(format!("a value is nested more than {DEEPEST} deep")));
    }
    match value {
        Json::Null => out.push_str("None"),
        Json::Bool(value) => out.push_str(if *value { "True" } else { "False" }),
        Json::Number(number) => push_number(out, number),
        Json::String(text) => repr_string(out, text),
        Json::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                repr(out, item, depth + 1)?;
            }
            out.push(']');
        }
        Json::Object(fields) => {
            out.push('{');
            for (i, (key, value)) in fields.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                repr_string(out, key);
                out.push_str(": ");
                repr(out, value, depth + 1)?;
            }
            out.push('}');
        }
    }
    Ok(())
}

fn repr_string(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if (c as u32) < 0x20 || c == '\u{7f}' => {
                // Writing to a string does not fail.
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that Python 3.11 printed for `str` and `json.dumps`.
    #[test]
    fn values_are_written_as_python_does() {
        for (value, printed) in [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1e-4, "0.0001"),
            (1.5e-5, "1.5e-05"),
            (-2.5e300, "-2.5e+300"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(text(&Value::from(value)).unwrap(), printed);
        }
        let json = serde_json::json!({"a": [1, null, true, "it's"], "b\n": {"x": 2.0, "é": "\u{1}"}, "c": []});
        let value = Value::from(minijinja::value::Serde(&json));
        assert_eq!(text(&value).unwrap(), r#"{'a': [1, None, True, "it's"], 'b\n': {'x': 2.0, 'é': '\x01'}, 'c': []}"#);
        let dumped = to_json(value, Kwargs::from_iter([("ensure_ascii", Value::from(true))])).unwrap();
        assert_eq!(
            dumped.as_str().unwrap(),
            r#"{"a": [1, null, true, "it's"], "b\n": {"x": 2.0, "\u00e9": "\u0001"}, "c": []}"#
        );
    }
}

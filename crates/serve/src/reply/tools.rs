//! Tool calls in the text of a model.
//!
//! | form | models |
//! |---|---|
//! | `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, several times, text around it | Qwen, Hermes, SmolLM |
//! | the whole output is `{"name": …, "parameters": {…}}` | Llama 3 |
//! | the whole output is `[{"name": …, "arguments": {…}}, …]` | Mistral |
//!
//! What looks like a call and is none stays text.

use serde_json::Value;

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";

/// A part of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Text that belongs to no call.
    Text(String),
    /// A call of a tool.
    Call {
        /// The name of the function.
        name: String,
        /// The arguments, as a text of JSON.
        arguments: String,
    },
}

/// Whether a text has the call of the tool `name` and no other; `names` are those of all tools.
pub fn is_call(names: &[String], text: &str, name: &str) -> bool {
    let mut found = ToolText::new(names.to_vec());
    let parts = found.push(text).into_iter().chain(found.finish());
    let mut calls = 0;
    let fits = |part: Part| match part {
        // Such as an empty thought in front of the call.
        Part::Text(_) => true,
        Part::Call { name: called, .. } => {
            calls += 1;
            called == name
        }
    };
    parts.into_iter().all(fits) && calls == 1
}

/// Finds the calls in an output that arrives in pieces.
pub struct ToolText {
    /// The names of the tools that were offered.
    names: Vec<String>,
    held: String,
    /// Whether text or a call was returned already.
    begun: bool,
}

impl ToolText {
    /// An empty output; `names` are those of the tools.
    pub fn new(names: Vec<String>) -> ToolText {
        ToolText { names, held: String::new(), begun: false }
    }

    /// Appends text and returns the parts that are certain.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        self.held += text;
        if self.may_be_json() {
            return Vec::new();
        }
        self.parts(false)
    }

    /// Ends the output and returns the rest.
    pub fn finish(&mut self) -> Vec<Part> {
        if self.may_be_json()
            && let Some(calls) = self.json_calls()
        {
            self.held.clear();
            return calls;
        }
        let mut parts = self.parts(true);
        if !self.held.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut self.held)));
        }
        parts
    }

    /// Whether the output so far may begin JSON; spaces may.
    fn may_be_json(&self) -> bool {
        let text = self.held.trim_start();
        !self.begun && (text.is_empty() || text.starts_with(['{', '[']))
    }

    /// The calls of an output that is JSON as a whole; only of tools that were offered, because any
    /// JSON could be an answer.
    fn json_calls(&self) -> Option<Vec<Part>> {
        let value: Value = serde_json::from_str(self.held.trim()).ok()?;
        let items = match value {
            Value::Array(items) if !items.is_empty() => items,
            Value::Object(_) => vec![value],
            _ => return None,
        };
        let known = |part: &Part| matches!(part, Part::Call { name, .. } if self.names.contains(name));
        items.iter().map(|item| call(item).filter(known)).collect()
    }

    fn parts(&mut self, last: bool) -> Vec<Part> {
        let mut parts = Vec::new();
        loop {
            let Some(open) = self.held.find(OPEN) else {
                let certain = self.held.len() - if last { 0 } else { partial(&self.held) };
                self.text(certain, &mut parts);
                return parts;
            };
            self.text(open, &mut parts);
            let inner = &self.held[OPEN.len()..];
            let (body, after) = match inner.find(CLOSE) {
                Some(close) => (&inner[..close], OPEN.len() + close + CLOSE.len()),
                // A model may end its output without the closing mark.
                None if last => (inner, self.held.len()),
                None => return parts,
            };
            let found = serde_json::from_str(body.trim()).ok().as_ref().and_then(call);
            match found {
                Some(call) => {
                    self.held.drain(..after);
                    self.begun = true;
                    parts.push(call);
                }
                None => self.text(after, &mut parts),
            }
        }
    }

    fn text(&mut self, length: usize, parts: &mut Vec<Part>) {
        if length > 0 {
            self.begun = true;
            parts.push(Part::Text(self.held.drain(..length).collect()));
        }
    }
}

/// The number of bytes at the end of `text` that may begin an opening mark.
fn partial(text: &str) -> usize {
    (1..OPEN.len()).rev().find(|&n| text.ends_with(&OPEN[..n])).unwrap_or(0)
}

fn call(value: &Value) -> Option<Part> {
    let name = value.get("name")?.as_str()?.to_string();
    let arguments = match value.get("arguments").or_else(|| value.get("parameters")) {
        None => "{}".to_string(),
        Some(Value::String(text)) => text.clone(),
        Some(object @ Value::Object(_)) => object.to_string(),
        Some(_) => return None,
    };
    Some(Part::Call { name, arguments })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of a text that arrives in pieces of one character, neighboring texts joined.
    fn parts(text: &str) -> Vec<Part> {
        let mut tools = ToolText::new(vec!["f".into()]);
        let mut all: Vec<Part> = text.chars().flat_map(|c| tools.push(&c.to_string())).collect();
        all.extend(tools.finish());
        let mut joined: Vec<Part> = Vec::new();
        for part in all {
            match (joined.last_mut(), part) {
                (Some(Part::Text(before)), Part::Text(text)) => *before += &text,
                (_, part) => joined.push(part),
            }
        }
        joined
    }

    fn text(text: &str) -> Part {
        Part::Text(text.into())
    }

    fn called(name: &str, arguments: &str) -> Part {
        Part::Call { name: name.into(), arguments: arguments.into() }
    }

    #[test]
    fn calls_stand_between_marks() {
        let one = "<tool_call>\n{\"name\": \"g\", \"arguments\": {\"b\": 1, \"a\": [2]}}\n</tool_call>";
        assert_eq!(parts(one), [called("g", "{\"b\":1,\"a\":[2]}")]);
        let two = format!("Let me see.\n{one}\n<tool_call>{{\"name\": \"f\"}}</tool_call>");
        let call = || called("g", "{\"b\":1,\"a\":[2]}");
        assert_eq!(parts(&two), [text("Let me see.\n"), call(), text("\n"), called("f", "{}")]);
        // Without the closing mark.
        assert_eq!(parts("<tool_call>{\"name\": \"f\"}"), [called("f", "{}")]);
    }

    #[test]
    fn what_is_no_call_stays_text() {
        for plain in [
            "a < b and <tool_ca",
            "<tool_call>{broken}</tool_call> and more",
            "<tool_call>{\"name\": 1}</tool_call>",
            "<tool_call>",
            "{\"name\": \"other\", \"parameters\": {}}",
            "{\"answer\": 1}",
            "[1, 2",
            "",
        ] {
            assert_eq!(parts(plain), if plain.is_empty() { vec![] } else { vec![text(plain)] }, "{plain}");
        }
    }

    #[test]
    fn an_output_of_json_is_a_call_of_an_offered_tool() {
        assert_eq!(parts(" {\"name\": \"f\", \"parameters\": {\"x\": \"1\"}}"), [called("f", "{\"x\":\"1\"}")]);
        assert_eq!(parts("[{\"name\": \"f\", \"arguments\": {}}]"), [called("f", "{}")]);
    }
}

//! SARIF 2.1.0: the format in which code-scanning services and editors accept results.

use serde_json::{Value, json};

use crate::diagnostic::{Code, Diagnostic, Diagnostics, Severity};
use crate::source::{Source, Span};

/// The description of a code, which becomes a rule of the log.
#[derive(Clone, Copy, Debug)]
pub struct Kind<'a> {
    /// The code that the rule describes.
    pub code: Code,
    /// The short description, of a few words.
    pub title: &'a str,
    /// The full description, which `ferrane explain` prints too.
    pub text: &'a str,
    /// The address of the page that describes it, absolute, if there is one.
    pub address: Option<&'a str>,
}

/// A log of one run of a tool over texts. The results of a code that is not among `kinds` have no
/// rule. A note without a span is added to the message; one with a span becomes a related location.
pub fn sarif(tool: &str, version: &str, kinds: &[Kind<'_>], files: &[(&Source, &Diagnostics)]) -> Value {
    let used = |k: &&Kind<'_>| files.iter().any(|(_, all)| all.iter().any(|d| d.code == k.code));
    let kinds: Vec<&Kind<'_>> = kinds.iter().filter(used).collect();
    let rules: Vec<Value> = kinds
        .iter()
        .map(|k| {
            let mut rule = json!({
                "id": k.code.to_string(),
                "shortDescription": { "text": k.title },
                "fullDescription": { "text": k.text },
                "help": { "text": k.text },
            });
            if let Some(address) = k.address {
                rule["helpUri"] = json!(address);
            }
            rule
        })
        .collect();
    let result = |d: &Diagnostic, source: &Source| {
        let mut text = d.message.clone();
        for note in d.notes.iter().filter(|n| n.span.is_none()) {
            text += &format!("\n{}", note.message);
        }
        let mut result = json!({
            "ruleId": d.code.to_string(),
            "level": level(d.severity),
            "message": { "text": text },
            "locations": [location(source, d.span, None)],
        });
        if let Some(index) = kinds.iter().position(|k| k.code == d.code) {
            result["ruleIndex"] = json!(index);
        }
        let placed = d.notes.iter().filter(|n| n.span.is_some());
        let related: Vec<Value> = placed.map(|n| location(source, n.span, Some(&n.message))).collect();
        if !related.is_empty() {
            result["relatedLocations"] = json!(related);
        }
        if let Some(s) = &d.suggestion {
            result["fixes"] = json!([{
                "description": { "text": format!("write `{}`", s.replacement) },
                "artifactChanges": [{
                    "artifactLocation": { "uri": uri(source.name()) },
                    "replacements": [{
                        "deletedRegion": region(source, s.span),
                        "insertedContent": { "text": s.replacement },
                    }],
                }],
            }]);
        }
        result
    };
    let results: Vec<Value> = files.iter().flat_map(|(source, all)| all.iter().map(|d| result(d, source))).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": tool, "version": version, "rules": rules } },
            "columnKind": "unicodeCodePoints",
            "artifacts": files.iter().map(|(s, _)| json!({ "location": { "uri": uri(s.name()) } })).collect::<Vec<_>>(),
            "results": results,
        }],
    })
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

fn location(source: &Source, span: Option<Span>, message: Option<&str>) -> Value {
    let mut location = json!({ "physicalLocation": { "artifactLocation": { "uri": uri(source.name()) } } });
    if let Some(span) = span {
        location["physicalLocation"]["region"] = region(source, span);
    }
    if let Some(message) = message {
        location["message"] = json!({ "text": message });
    }
    location
}

/// Lines and columns from 1; the end is the column after the last character.
fn region(source: &Source, span: Span) -> Value {
    let (from, to) = (source.position(span.start), source.position(span.end));
    json!({ "startLine": from.line, "startColumn": from.column, "endLine": to.line, "endColumn": to.column })
}

/// A path as a URI reference: bytes that a URI does not allow are escaped.
fn uri(path: &str) -> String {
    let mut out = String::new();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => out.push(byte as char),
            _ => out += &format!("%{byte:02X}"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_has_the_required_parts() {
        let source = Source::new("a b.mil", "one\ntwo x\n");
        let mut all = Diagnostics::new();
        let first = Diagnostic::error(Code(421), Span::new(4, 7), "too long").note(None, "it fails");
        all.push(first.note(Span::new(0, 3), "defined here").suggest(Span::new(4, 7), "short"));
        all.push(Diagnostic::warning(Code(999), None, "odd"));
        let kinds = [(400, None), (421, Some("https://example.org/e#e0421")), (999, None)];
        let kinds = kinds.map(|(code, address)| Kind { code: Code(code), title: "t", text: "long", address });
        let log = sarif("ferrane", "1.0", &kinds, &[(&source, &all)]);
        // SARIF 2.1.0 §3.13, §3.14, §3.27: what a log, a run and a result must have.
        assert_eq!(log["version"], "2.1.0");
        let run = &log["runs"][0];
        assert_eq!(run["tool"]["driver"]["name"], "ferrane");
        let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
        assert_eq!((rules.len(), &rules[0]["id"]), (2, &json!("E0421")));
        // §3.49.12: an absolute address, or none.
        assert_eq!(rules[0]["helpUri"], "https://example.org/e#e0421");
        assert!(rules[1].get("helpUri").is_none());
        let result = &run["results"][0];
        assert_eq!((&result["ruleIndex"], &result["level"]), (&json!(0), &json!("error")));
        assert_eq!(result["message"]["text"], "too long\nit fails");
        let place = &result["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"]["uri"], "a%20b.mil");
        let region = json!({ "startLine": 2, "startColumn": 1, "endLine": 2, "endColumn": 4 });
        assert_eq!(place["region"], region);
        assert_eq!(result["relatedLocations"][0]["message"]["text"], "defined here");
        assert_eq!(result["fixes"][0]["artifactChanges"][0]["replacements"][0]["insertedContent"]["text"], "short");
        let odd = &run["results"][1];
        assert!(odd["ruleIndex"] == 1 && odd["level"] == "warning");
        assert!(odd["locations"][0]["physicalLocation"].get("region").is_none());
    }
}

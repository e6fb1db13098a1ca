//! The page around the data: one file, whose policy allows only its own style and script.

use ferrane_diag::{base64, escape_xml};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::NetworkPage;

const PAGE: &str = include_str!("../assets/page.html");
const STYLE: &str = include_str!("../assets/page.css");
/// Joined to one script, in this order.
const SCRIPTS: [&str; 3] =
    [include_str!("../assets/colors.js"), include_str!("../assets/graph.js"), include_str!("../assets/page.js")];

impl NetworkPage<'_> {
    /// The page, complete HTML.
    pub fn html(&self) -> String {
        fill(PAGE, STYLE, &SCRIPTS.concat(), &self.title, &self.json())
    }
}

/// A page: the template with its policy, title, style, data and script.
pub(crate) fn fill(template: &str, style: &str, script: &str, title: &str, data: &Value) -> String {
    let script = format!("\"use strict\";\n{script}");
    let policy =
        format!("default-src 'none'; style-src '{}'; script-src '{}'; img-src data:", hash(style), hash(&script));
    let (title, data) = (escape_xml(title), embedded(data));
    let parts = [
        ("{{policy}}", policy.as_str()),
        ("{{title}}", &title),
        ("{{style}}", style),
        ("{{data}}", &data),
        ("{{script}}", &script),
    ];
    let mut page = String::with_capacity(template.len() + style.len() + script.len() + data.len());
    // One walk over the template: what is inserted is not searched for further marks.
    let mut rest = template;
    while let Some(at) = rest.find("{{") {
        let (before, from) = rest.split_at(at);
        page += before;
        match parts.iter().find(|(mark, _)| from.starts_with(mark)) {
            Some((mark, text)) => {
                page += text;
                rest = &from[mark.len()..];
            }
            None => {
                page += "{{";
                rest = &from[2..];
            }
        }
    }
    page + rest
}

/// Checks that the parts of a page can stand in their elements.
#[cfg(test)]
pub(crate) fn check_parts(template: &str, style: &str, scripts: &[&str]) {
    assert!(!style.contains("</"), "the style ends its element");
    assert!(scripts.iter().all(|s| !s.contains("</script") && !s.contains("<!--")), "the script ends its element");
    for mark in ["{{policy}}", "{{title}}", "{{style}}", "{{data}}", "{{script}}"] {
        assert!(template.contains(mark), "{mark}");
    }
}

/// The hash by which a policy names an element's text.
fn hash(text: &str) -> String {
    format!("sha256-{}", base64(&Sha256::digest(text.as_bytes())).collect::<String>())
}

/// JSON inside of a `script` element: nothing in it can end the element or begin a comment, and it
/// is the same value.
fn embedded(data: &Value) -> String {
    let text = data.to_string();
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // These stand only in strings, where an escape means the same.
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\u{7f}'..='\u{9f}' => {
                out += &format!("\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn data_stay_inside_of_their_element() {
        let hostile = json!({"</script><!--": "a & b > c \u{2028} \u{85} \" \\ ü"});
        let text = embedded(&hostile);
        assert!(!text.contains(['<', '>', '&', '\u{2028}', '\u{85}']), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), hostile);
    }

    #[test]
    fn a_hash_is_that_of_the_specification() {
        // CSP Level 3 §8.3: the hash of this text.
        assert_eq!(hash("alert('Hello, world.');"), "sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng=");
    }

    #[test]
    fn the_parts_fit_into_elements() {
        check_parts(PAGE, STYLE, &SCRIPTS);
    }
}

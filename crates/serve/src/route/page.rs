//! The chat page: one file, whose policy allows only its own script and style, and requests to this
//! server.

use std::sync::{Arc, LazyLock};

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use ferrane_diag::{base64, escape_xml};
use sha2::{Digest, Sha256};

use crate::app::App;

const PAGE: &str = include_str!("../../assets/chat.html");
const STYLE: &str = include_str!("../../assets/chat.css");
/// Joined to one script, in this order.
const SCRIPTS: [&str; 2] = [include_str!("../../assets/markup.js"), include_str!("../../assets/chat.js")];

static SCRIPT: LazyLock<String> = LazyLock::new(|| format!("\"use strict\";\n{}", SCRIPTS.concat()));
static POLICY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "default-src 'none'; style-src '{}'; script-src '{}'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        hash(STYLE),
        hash(&SCRIPT)
    )
});

/// The hash by which a policy names an element's text.
fn hash(text: &str) -> String {
    format!("sha256-{}", base64(&Sha256::digest(text.as_bytes())).collect::<String>())
}

/// The page for a model. A text that is in an attribute is escaped like one in an element.
fn html(name: &str, needs_key: bool, can_chat: bool) -> String {
    let answer = |yes: bool| if yes { "yes" } else { "no" };
    let name = escape_xml(name);
    let parts = [
        ("{{model}}", &*name),
        ("{{key}}", answer(needs_key)),
        ("{{chat}}", answer(can_chat)),
        ("{{style}}", STYLE),
        ("{{script}}", SCRIPT.as_str()),
    ];
    let mut page = String::new();
    // One walk over the template: what is inserted is not searched for further marks.
    let mut rest = PAGE;
    while let Some(at) = rest.find("{{") {
        page += &rest[..at];
        rest = &rest[at..];
        let (skip, text) =
            parts.iter().find(|(mark, _)| rest.starts_with(mark)).map_or((2, "{{"), |(mark, text)| (mark.len(), text));
        page += text;
        rest = &rest[skip..];
    }
    page + rest
}

/// `GET /`.
pub async fn page(State(app): State<Arc<App>>) -> Response {
    let policy = HeaderValue::from_str(&POLICY).unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'"));
    let headers: [(HeaderName, HeaderValue); 4] = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, html(&app.name, !app.options.keys.is_empty(), app.template.is_some())).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_fit_into_elements() {
        assert!(!STYLE.contains("</"), "the style ends its element");
        assert!(SCRIPTS.iter().all(|s| !s.contains("</script") && !s.contains("<!--")), "the script ends its element");
        for mark in ["{{model}}", "{{key}}", "{{chat}}", "{{style}}", "{{script}}"] {
            assert!(PAGE.contains(mark), "{mark}");
        }
        let page = html("<a&b>{{script}}", true, false);
        assert!(page.contains("&lt;a&amp;b&gt;{{script}}") && page.contains(STYLE) && page.contains(SCRIPT.as_str()));
    }

    #[test]
    fn the_policy_names_the_script() {
        // CSP Level 3 §8.3: the hash of this text.
        assert_eq!(hash("alert('Hello, world.');"), "sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng=");
        assert!(POLICY.contains(&hash(&SCRIPT)) && POLICY.contains(&hash(STYLE)));
    }
}

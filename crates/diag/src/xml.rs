//! Escaping of text for XML, SVG and HTML.

/// Escapes a text for use inside an element or a double-quoted attribute. Control characters, most
/// of which XML does not allow, become question marks.
pub fn escape_xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text() {
        assert_eq!(escape_xml("a<b>&\"c"), "a&lt;b&gt;&amp;&quot;c");
        assert_eq!(escape_xml("ü\0\n'"), "ü??'");
    }
}

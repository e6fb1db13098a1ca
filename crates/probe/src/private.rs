//! What a report should not hold about its owner: home folders, addresses of mail, host names.
//!
//! Messages of the framework quote paths, and a path below a home folder has a user's name in it.

use serde_json::Value;

/// Folders whose entries are users.
const HOMES: [&str; 3] = ["/Users/", "/home/", "\\Users\\"];

/// Entries of those folders that are no users.
const SHARED: [&str; 2] = ["Shared", "…"];

/// The text with user names of home folders replaced by `…`.
pub fn redact(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, home)) = first_home(rest) {
        let (before, after) = rest.split_at(at + home.len());
        let name = user_of(after);
        clean.push_str(before);
        clean.push_str(if name.is_empty() || SHARED.contains(&name) { name } else { "…" });
        rest = &after[name.len()..];
    }
    clean.push_str(rest);
    clean
}

/// Replaces user names in all texts of a JSON value.
pub(crate) fn redact_value(value: &mut Value) {
    match value {
        Value::String(text) => *text = redact(text),
        Value::Array(all) => all.iter_mut().for_each(redact_value),
        Value::Object(all) => all.values_mut().for_each(redact_value),
        _ => {}
    }
}

/// What in a text looks private: user names in paths, addresses of mail, host names of a local
/// network.
pub fn private_parts(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((at, home)) = first_home(rest) {
        let after = &rest[at + home.len()..];
        let name = user_of(after);
        if !name.is_empty() && !SHARED.contains(&name) {
            found.push(format!("{home}{name}"));
        }
        rest = &after[name.len()..];
    }
    let words = text.split(|c: char| c.is_whitespace() || "\"'<>(),;".contains(c));
    for word in words {
        let mail = word.split_once('@').is_some_and(|(user, host)| {
            !user.is_empty() && user.chars().all(plain) && host.contains('.') && host.chars().all(plain)
        });
        if mail || word.trim_end_matches('.').ends_with(".local") && word.len() > ".local".len() {
            found.push(word.to_string());
        }
    }
    found.dedup();
    found
}

/// A character of mail addresses and host names.
fn plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._-+".contains(c)
}

/// The first place where a home folder's entry begins, and the folder.
fn first_home(text: &str) -> Option<(usize, &'static str)> {
    HOMES.into_iter().filter_map(|home| Some((text.find(home)?, home))).min()
}

/// The name at the beginning of a path.
fn user_of(path: &str) -> &str {
    let end = path.find(|c: char| "/\\\"' ,;:)\n".contains(c)).unwrap_or(path.len());
    &path[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_users_are_replaced_and_found() {
        let text = "cannot write /Users/ada/Library/x, see /home/bob: no \"/Users/Shared/y\" or C:\\Users\\eve\\z";
        let clean = redact(text);
        assert_eq!(clean, "cannot write /Users/…/Library/x, see /home/…: no \"/Users/Shared/y\" or C:\\Users\\…\\z");
        assert_eq!(private_parts(text), ["/Users/ada", "/home/bob", "\\Users\\eve"]);
        assert_eq!(private_parts(&clean), [""; 0]);
        assert_eq!(redact(&clean), clean);
        assert_eq!(redact("/Users/"), "/Users/");
    }

    #[test]
    fn mail_and_hosts_are_found_and_encodings_are_not() {
        assert_eq!(private_parts("by ada@example.org on adas-mac.local."), ["ada@example.org", "adas-mac.local."]);
        // Type encodings and model paths.
        assert_eq!(private_parts("@16@0:8 @model_path/weights/weight.bin v@:I"), [""; 0]);
    }
}

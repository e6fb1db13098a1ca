//! Files that hold several programs, and the rewriting of expectations.

use std::path::Path;

use super::{Filetest, Test, split_comment};

/// The line between two programs of one file.
const BETWEEN: &str = "// ---";

/// The programs of a file. Empty lines in front of each keep its line numbers those of the file.
/// The first program's `// test:` line applies to all.
pub(super) fn parts(text: &str) -> Vec<String> {
    let header = text.lines().find(|l| l.starts_with("// test:")).unwrap_or("");
    let mut parts = vec![String::new()];
    for (i, line) in text.lines().enumerate() {
        if line.trim_end() == BETWEEN {
            parts.push(format!("{}{header}\n", "\n".repeat(i)));
        } else if let Some(part) = parts.last_mut() {
            part.push_str(line);
            part.push('\n');
        }
    }
    parts
}

/// The file's text with its expected errors and warnings replaced by those that are reported now. A
/// text that is tested for more than diagnostics is returned unchanged.
///
/// # Errors
/// The header or an expectation is malformed.
pub fn bless(path: &Path, text: &str) -> Result<String, String> {
    let bare = without_expectations(text);
    let mut found = Vec::new();
    for part in parts(&bare) {
        let test = Filetest::parse(path, &part)?;
        if test.tests != [Test::Check] {
            return Ok(text.to_string());
        }
        found.extend(test.found());
    }
    let mut blessed = String::new();
    for (i, line) in bare.lines().enumerate() {
        let here: Vec<String> =
            found.iter().filter(|f| f.line == i + 1).map(|f| format!("// {}: {} {}", f.kind, f.code, f.part)).collect();
        blessed += line;
        match &here[..] {
            // After an unterminated string the comment would be part of the string.
            [one] if line.matches('"').count() % 2 == 0 => blessed += &format!(" {one}\n"),
            _ => {
                blessed.push('\n');
                here.iter().for_each(|one| blessed += &format!("{one}\n"));
            }
        }
    }
    Ok(blessed)
}

fn without_expectations(text: &str) -> String {
    let mut bare = String::new();
    for line in text.lines() {
        let (code, comment) = split_comment(line);
        let key = comment.and_then(|c| c.trim().split_once(':')).map(|(key, _)| key);
        match key {
            Some("error" | "warning" | "note") if code.trim().is_empty() => continue,
            Some("error" | "warning" | "note") => bare += code.trim_end(),
            _ => bare += line,
        }
        bare.push('\n');
    }
    bare
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "// test: check\nprogram(1.3)\n{\n    func main<ios18>(tensor<fp16, [2]> x) {\n    } -> (y);\n}\n// ---\n\
                       program(1.9)\n{\n    func main<ios18>(tensor<fp16, [2]> x) {\n        string s = const()[val = string(\"a];\n    } -> (x);\n}\n";

    #[test]
    fn every_program_of_a_file_stands_on_its_lines() {
        let parts = parts(TWO);
        assert_eq!(parts.len(), 2);
        assert_eq!(parts[1].lines().position(|l| l == "program(1.9)"), Some(7));
    }

    #[test]
    fn blessed_files_pass_and_blessing_again_changes_nothing() {
        let path = Path::new("a.mil");
        let blessed = bless(path, TWO).unwrap();
        assert!(blessed.contains("    } -> (y); // error: E0202 `y` is not defined here\n"), "{blessed}");
        assert!(blessed.contains("string(\"a];\n// error: E0102 expected a string"), "{blessed}");
        assert_eq!(bless(path, &blessed).unwrap(), blessed);
        let run = |text: &str| {
            parts(text).iter().filter_map(|p| Filetest::parse(path, p).unwrap().run(&[], None).err()).count()
        };
        assert_eq!((run(TWO), run(&blessed)), (2, 0));
        // An expectation that is no longer reported is removed.
        assert_eq!(
            bless(path, &blessed.replace("-> (y);", "-> (x);")).unwrap(),
            bless(path, &TWO.replace("-> (y);", "-> (x);")).unwrap()
        );
    }
}

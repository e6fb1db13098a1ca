//! What the reader says of published programs that are wrong, line by line:
//! `filetests/golden/*.txt`.
//!
//! A golden file holds the name and size of a data file, and the position, code and message of each
//! of its diagnostics; the files themselves are test data. `FERRANE_BLESS=1` rewrites the golden
//! files. A data file without a golden file is skipped.

use std::fmt::Write as _;
use std::path::Path;

use ferrane_diag::Source;
use ferrane_mil::{Missing, Options, Weights, parse_with};
use ferrane_testdata::Suite;

/// The text of the golden file for a data file; `None` if there are no diagnostics.
fn golden(id: &str, text: &[u8]) -> Option<String> {
    let options = Options { missing: Missing::Keep, ..Options::default() };
    let told = parse_with(text, &Weights::new(), options).diagnostics;
    let source = Source::new(id, text);
    let mut out = format!("{id}, {} bytes\n", text.len());
    for d in &told {
        let at = d.span.map(|s| source.position(s.start)).map_or("-".into(), |p| format!("{}:{}", p.line, p.column));
        let fix = d.suggestion.as_ref().map_or(String::new(), |s| format!(" (try `{}`)", s.replacement));
        let _ = writeln!(out, "{at} {} {}: {}{fix}", d.severity, d.code, d.message);
    }
    if told.left_out() > 0 {
        let _ = writeln!(out, "and {} more", told.left_out());
    }
    (!told.is_empty()).then_some(out)
}

#[test]
fn wrong_programs_are_told_as_the_goldens_say() {
    let Some(mut suite) = Suite::open("mil-goldens", "mil") else { return };
    let folder = suite.folder().to_path_buf();
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests/golden");
    let bless = std::env::var_os("FERRANE_BLESS").is_some();
    for path in crate::files(&folder, ".mil") {
        let id = crate::id(&folder, &path);
        let text = std::fs::read(&path).unwrap();
        let at = goldens.join(format!("{}.txt", id.replace('/', "-")));
        let found = golden(&id, &text);
        if let (true, Some(found)) = (bless, &found) {
            std::fs::create_dir_all(&goldens).unwrap();
            std::fs::write(&at, found).unwrap();
        }
        let expected = std::fs::read_to_string(&at).ok();
        // Other data may have another file of the same name.
        let head = format!("{id}, {} bytes", text.len());
        match expected.filter(|e| e.lines().next() == Some(&head)) {
            None => suite.skip(&id, "no golden"),
            Some(expected) => {
                let found = found.unwrap_or_default();
                let differs = || expected.lines().zip(found.lines()).find(|(e, f)| e != f);
                let why = || format!("the golden differs, first {:?}; {} lines", differs(), found.lines().count());
                suite.case(&id, if found == expected { Ok(()) } else { Err(why()) });
            }
        }
    }
    suite.finish();
}

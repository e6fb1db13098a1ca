//! docs/cases.md follows from `filetests/cases`. `FERRANE_BLESS=1` writes it.

use std::path::Path;

use ferrane_suite::filetest::{Filetest, discover, section};

const INTRODUCTION: &str = "\
# Cases

Issues that users of the engine reported, each repeated as a small program, and what Ferrane says about it: without a Mac, before
anything runs. Generated from `filetests/cases`: `FERRANE_BLESS=1 cargo test -p ferrane-suite cases_doc`; the filetests hold every line.

The programs are ours and repeat the pattern of the thread, not its model. A note that Core ML or Core AI runs an op on the CPU or the
GPU is the answer to why a model is not on the engine; a warning is about wrong numbers or a slow form. The claims in brackets are in
[claims.md](claims.md), the codes in [errors.md](errors.md).
";

#[test]
fn cases_doc_is_what_the_filetests_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut wanted = INTRODUCTION.to_string();
    let files = discover(&root.join("filetests/cases")).expect("filetests/cases");
    assert!(files.len() > 10, "{files:?}");
    for file in files {
        let tests = Filetest::open(&file).unwrap_or_else(|e| panic!("{e}"));
        let case = &tests[0].case;
        for part in [&case.issue, &case.reported, &case.answer] {
            assert!(!part.is_empty(), "{}: a case has an issue, a report and an answer", file.display());
        }
        wanted += &section(&file, &tests);
    }
    let path = root.join("docs/cases.md");
    if std::env::var_os("FERRANE_BLESS").is_some() {
        std::fs::write(&path, &wanted).expect("docs/cases.md can be written");
    }
    let found = std::fs::read_to_string(&path).expect("docs/cases.md");
    assert!(found == wanted, "FERRANE_BLESS=1 writes docs/cases.md again");
}

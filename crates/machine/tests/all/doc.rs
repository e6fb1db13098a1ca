//! docs/claims.md follows from the claims and the profiles. `FERRANE_BLESS=1` writes it.

use std::fmt::Write as _;
use std::path::Path;

use ferrane_machine::claims::{self, Claim, Evidence};
use ferrane_machine::profile::citations;
use ferrane_machine::rules;

const INTRODUCTION: &str = "\
# Claims

What was found out about the engine, by whom, and what Ferrane makes of it. Generated: `FERRANE_BLESS=1 cargo test -p ferrane-machine
doc`.

A claim is evidence, not truth: claims contradict each other, and all are kept. The values of a profile rest on some and overrule
others; `ferrane machine show m4-macos15-inmem` shows them for one machine, `ferrane machine claims op.concat` the claims about a
subject. Ids with C are those of a published list, ids with F are further ones: findings of the same sources that a value needs, issues
of users, and the rules that Apple published, which a [table](#apples-published-rules) compares with the others.

- **where**: path, chip and system as the source words them. *inmem*: models compiled in memory; *client*: the client interface;
  *e5rt*: the E5 runtime; *coreml*: Core ML; *coreai*: Core AI; *hwx*: compiled programs and hardware; *any*: the compiler.
- **kind**: what happens to a program that does not heed it (*compile*: refused; *eval*: fails when evaluated; *silent*: wrong
  results without an error; *perf*: slow), and how it was found.
- **taken up**: the values that rest on it, with the machines they are for; ~~struck out~~ those that overrule it, with the reason;
  and the rules of `ferrane check --target` that cite it.
";

/// The subject groups, in the order of the claims.
const GROUPS: [(&str, &str); 8] = [
    ("mil", "Program text"),
    ("limit", "Limits"),
    ("op", "Ops"),
    ("type", "Element types"),
    ("surface", "Surfaces and binding"),
    ("runtime", "Runtime"),
    ("num", "Arithmetic"),
    ("perf", "Speed"),
];

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

fn taken_up(claim: &Claim) -> String {
    let mut parts: Vec<String> = Vec::new();
    for citation in citations(&claim.id) {
        let part = match &citation.overruled {
            None => citation.to_string(),
            Some(why) => format!("~~{citation}~~: {why}"),
        };
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    let rules = rules::all().iter().filter(|r| r.claims.contains(&claim.id.as_str()));
    let rules: Vec<String> = rules.map(|r| r.code.to_string()).collect();
    let left = claims::unmodeled().iter().filter(|g| g.claims.contains(&claim.id));
    parts.extend(left.map(|g| format!("nothing: {}", g.reason)));
    // A complete list of what many ops share would be too long.
    let more = parts.len().saturating_sub(6);
    parts.truncate(6);
    if more > 0 {
        parts.push(format!("and {more} more"));
    }
    if !rules.is_empty() {
        parts.push(format!("rule {}", rules.join(", ")));
    }
    parts.join("<br>")
}

fn text() -> String {
    let mut text = INTRODUCTION.to_string();
    for (group, title) in GROUPS {
        let _ = writeln!(
            text,
            "\n## {title}\n\n| id | claim | where | kind | source | taken up |\n|---|---|---|---|---|---|"
        );
        for claim in claims::about(group) {
            let stated = &claim.stated;
            let _ = writeln!(
                text,
                "| {} | `{}`: {} | {}, {}, {} | {}, {} | {} | {} |",
                claim.id,
                claim.subject,
                cell(&claim.statement),
                stated.path,
                stated.chip,
                stated.os,
                claim.effect,
                claim.evidence,
                cell(&claim.source),
                taken_up(claim).replace('|', "\\|"),
            );
        }
    }
    text + &published_rules()
}

const PUBLISHED: &str = "
## Apple's published rules

What Apple states of the engine in the repository apple/coreai-models (BSD-3-Clause; pages and models as of commit 86b363d), in our words,
and how each statement stands to the claims above: *confirms* one of them, *sharpens* it with a number, a limit or a condition,
*contradicts* it, or is *new*. Statements that come from the source of Apple's own models are marked: some contradict the pages.
";

/// The statements of Apple's pages and models, each with its relation to other claims.
fn published_rules() -> String {
    let apple: Vec<&Claim> = claims::all().iter().filter(|c| c.source.starts_with("apple/coreai-models ")).collect();
    // Issues of that repository are reports of users.
    let apple: Vec<&Claim> = apple.into_iter().filter(|c| !c.source.contains(" issue")).collect();
    let count = |of: fn(&Claim) -> bool| apple.iter().filter(|c| of(c)).count();
    let mut text = PUBLISHED.to_string();
    let _ = writeln!(
        text,
        "\n{} statements: {} confirm claims, {} sharpen them, {} contradict them, {} are new (a statement may do several).\n\n\
         | statement | claim | relation | taken up |\n|---|---|---|---|",
        apple.len(),
        count(|c| !c.known.confirms.is_empty()),
        count(|c| !c.known.sharpens.is_empty()),
        count(|c| !c.known.contradicts.is_empty()),
        count(|c| c.known.is_new()),
    );
    for claim in apple {
        let from = if claim.evidence == Evidence::Code { " (models)" } else { "" };
        let used = taken_up(claim).replace('|', "\\|");
        let _ = writeln!(text, "| {}{from} | {} | {} | {used} |", cell(&claim.statement), claim.id, claim.known);
    }
    text
}

#[test]
fn claims_doc_is_what_the_data_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/claims.md");
    let wanted = text();
    if std::env::var_os("FERRANE_BLESS").is_some() {
        std::fs::write(&path, &wanted).expect("docs/claims.md can be written");
    }
    let found = std::fs::read_to_string(&path).expect("docs/claims.md");
    assert!(found == wanted, "FERRANE_BLESS=1 writes docs/claims.md again");
    for claim in claims::all() {
        assert!(found.contains(&format!("| {} |", claim.id)), "{} is of no group", claim.id);
    }
}

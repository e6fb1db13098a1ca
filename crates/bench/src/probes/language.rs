//! What text the compiler reads.

use ferrane_device::Result;
use ferrane_mil::Dialect;
use serde_json::json;

use crate::place::{Place, plain, refusal};
use crate::probe::{Cost, Probe, Word, says};
use crate::{Draft, Found, Info, Spelling};

pub(super) const PROBES: &[Probe] = &[
    Probe {
        name: "dialect",
        question: "Which spelling of MIL, which headers and which opsets does the compiler read?",
        experiments: &[],
        cost: Cost::Light,
        values: &["dialect", "headers", "opsets"],
        says: &[
            says("C001", "dialect", Word::Is("shorthand")),
            says("C002", "dialect", Word::Is("verbose")),
            says("C003", "dialect", Word::Is("shorthand")),
            says("C005", "headers", Word::Has("1.5")),
            says("C006", "headers", Word::Lacks("1.5")),
            says("C007", "opsets", Word::Has("ios16")),
        ],
        run: dialect,
    },
    Probe {
        name: "build-info",
        question: "Must a program have `buildInfo`, and on one line?",
        experiments: &[],
        cost: Cost::Light,
        values: &["build_info_required", "build_info_one_line"],
        says: &[
            says("C008", "build_info_required", Word::Is("true")),
            says("C009", "build_info_required", Word::Is("false")),
            says("C010", "build_info_one_line", Word::Is("true")),
        ],
        run: build_info,
    },
];

fn reads(place: &mut Place<'_>, draft: &Draft, spelling: &Spelling, info: Info) -> Result<bool> {
    match place.compile_as(draft, spelling, info) {
        Ok(_) => Ok(true),
        Err(error) => refusal(error).map(|_| false),
    }
}

fn dialect(place: &mut Place<'_>) -> Result<Found> {
    let mut found = Found::new();
    let base = place.spelling()?;
    let shorthand = base.dialect == Dialect::Shorthand;
    found.value("dialect", if shorthand { "shorthand" } else { "verbose" }).raw("first", base.words());
    // One header or opset is changed at a time; that of the first spelling is known to be read.
    let mut headers = Vec::new();
    for version in [(1, 0), (1, 3), (1, 5)] {
        // `program(1.0)` is for opsets before ios18, whatever else it goes with.
        let opset = if version == (1, 0) && base.opset == "ios18" { "ios16" } else { base.opset };
        let tried = Spelling { version, opset, ..base };
        if version == base.version || reads(place, &plain(), &tried, Info::Line)? {
            headers.push(format!("{}.{}", version.0, version.1));
        }
    }
    let mut opsets = Vec::new();
    for opset in ["ios15", "ios16", "ios17", "ios18"] {
        let tried = Spelling { opset, ..base };
        if opset == base.opset || reads(place, &plain(), &tried, Info::Line)? {
            opsets.push(opset);
        }
    }
    found.value("headers", json!(headers)).value("opsets", json!(opsets));
    Ok(found)
}

fn build_info(place: &mut Place<'_>) -> Result<Found> {
    let mut found = Found::new();
    let base = place.spelling()?;
    let absent = reads(place, &plain(), &base, Info::Absent)?;
    found.value("build_info_required", !absent);
    // The printer of the verbose dialect writes one line.
    if base.dialect == Dialect::Shorthand {
        let broken = reads(place, &plain(), &base, Info::Broken)?;
        found.value("build_info_one_line", !broken);
    }
    Ok(found)
}

//! What text the compiler reads.

use ferrane_device::Result;
use ferrane_mil::Dialect;
use serde_json::json;

use crate::dut::{DeviceUnderTest, plain, refusal};
use crate::measurements::Measurements;
use crate::probe::Expectation::{Has, Is, Lacks};
use crate::probe::{Probe, ProbeCost, claim};
use crate::program::BuildInfo;
use crate::program::ProbeProgram;
use crate::program::Spelling;

pub(super) const PROBES: &[Probe] = &[
    Probe {
        name: "dialect",
        question: "Which spelling of MIL, which headers and which opsets does the compiler read?",
        experiments: &[],
        cost: ProbeCost::Cheap,
        values: &["dialect", "headers", "opsets"],
        claims: &[
            claim("C001", "dialect", Is("shorthand")),
            claim("C002", "dialect", Is("verbose")),
            claim("C003", "dialect", Is("shorthand")),
            claim("C005", "headers", Has("1.5")),
            claim("C006", "headers", Lacks("1.5")),
            claim("C007", "opsets", Has("ios16")),
        ],
        run: dialect,
    },
    Probe {
        name: "build-info",
        question: "Must a program have `buildInfo`, and on one line?",
        experiments: &[],
        cost: ProbeCost::Cheap,
        values: &["build_info_required", "build_info_one_line"],
        claims: &[
            claim("C008", "build_info_required", Is("true")),
            claim("C009", "build_info_required", Is("false")),
            claim("C010", "build_info_one_line", Is("true")),
        ],
        run: build_info,
    },
];

fn reads(dut: &mut DeviceUnderTest<'_>, program: &ProbeProgram, spelling: &Spelling, info: BuildInfo) -> Result<bool> {
    match dut.compile_as(program, spelling, info) {
        Ok(_) => Ok(true),
        Err(error) => refusal(error).map(|_| false),
    }
}

fn dialect(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let base = dut.spelling()?;
    let shorthand = base.dialect == Dialect::Shorthand;
    found.value("dialect", if shorthand { "shorthand" } else { "verbose" }).raw("first", base.describe());
    // One header or opset is changed at a time; that of the first spelling is known to be read.
    let mut headers = Vec::new();
    for version in [(1, 0), (1, 3), (1, 5)] {
        // `program(1.0)` is for opsets before ios18, whatever else it goes with.
        let opset = if version == (1, 0) && base.opset == "ios18" { "ios16" } else { base.opset };
        let tried = Spelling { version, opset, ..base };
        if version == base.version || reads(dut, &plain(), &tried, BuildInfo::Line)? {
            headers.push(format!("{}.{}", version.0, version.1));
        }
    }
    let mut opsets = Vec::new();
    for opset in ["ios15", "ios16", "ios17", "ios18"] {
        let tried = Spelling { opset, ..base };
        if opset == base.opset || reads(dut, &plain(), &tried, BuildInfo::Line)? {
            opsets.push(opset);
        }
    }
    found.value("headers", json!(headers)).value("opsets", json!(opsets));
    Ok(found)
}

fn build_info(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let base = dut.spelling()?;
    let absent = reads(dut, &plain(), &base, BuildInfo::Absent)?;
    found.value("build_info_required", !absent);
    // The printer of the verbose dialect writes one line.
    if base.dialect == Dialect::Shorthand {
        let broken = reads(dut, &plain(), &base, BuildInfo::Broken)?;
        found.value("build_info_one_line", !broken);
    }
    Ok(found)
}

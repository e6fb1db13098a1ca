//! Rules about the text itself: header, dialect, opset, `buildInfo`, functions.

use ferrane_diag::{Code, Severity};
use ferrane_mil::Opset;

use super::rule::{Context, Rule};
use crate::finding::{Effect, Fix};
use crate::findings::Findings;
use crate::profile::AcceptedDialect;

pub(super) const DIALECT: Rule = Rule {
    code: Code(401),
    title: "dialect that the compiler does not read",
    severity: Severity::Error,
    effect: Effect::INVALID,
    claims: &["C001", "C002", "C003", "C007"],
    explanation: "MIL text has two spellings. The shorthand writes scalars as `fp16(0.5)` under `program(1.3)`; the verbose one writes them as tensors of rank 0 under `program(1.0)` with ios16, as coremltools does. \
        M3, M4 and M5 read both; the shorthand was refused on M1 and M2 under macOS 26, though a trainer in it ran on M1 Pro and M1 Max under macOS 15. The verbose dialect is read everywhere.",
    rewrite: "the verbose dialect: `program(1.0)`, ios16, `tensor<T, []>` for scalars",
    run: |cx, out| {
        if cx.profile.dialect.value == AcceptedDialect::Verbose && cx.program.dialect != ferrane_mil::Dialect::Verbose {
            let found =
                out.program("the program is written in the shorthand dialect, which the compiler does not read");
            found.claims(&cx.profile.dialect.claims).fix(Fix::Verbose);
        }
    },
};

pub(super) const HEADER: Rule = Rule {
    code: Code(402),
    title: "version in the header",
    severity: Severity::Error,
    effect: Effect::INVALID,
    claims: &["C001", "C005", "C006"],
    explanation: "Published programs say `program(1.0)` (verbose) or `program(1.3)` (shorthand). About `program(1.5)` two statements from one pull request for M5 contradict each other: required for weights in blob files, and not accepted.",
    rewrite: "`program(1.3)` with the shorthand dialect, `program(1.0)` with the verbose one",
    run: header,
};

fn header(cx: &Context<'_>, out: &mut Findings) {
    let (major, minor) = cx.program.version;
    let (spelled, known) = (format!("{major}.{minor}"), &cx.profile.headers);
    if known.value.contains(&spelled) {
        return;
    }
    let message =
        format!("`program({spelled})` is not among the versions the compiler reads: {}", known.value.join(", "));
    let found = out.program(message);
    found.claims(&known.claims);
    if cx.program.dialect == ferrane_mil::Dialect::Shorthand && known.value.iter().any(|h| h == "1.3") {
        found.fix(Fix::Header(1, 3));
    }
}

pub(super) const OPSET: Rule = Rule {
    code: Code(403),
    title: "opset of a function",
    severity: Severity::Error,
    effect: Effect::INVALID,
    claims: &["C001", "C007"],
    explanation: "The tag after a function's name states the opset of its ops. ios16 worked for every pattern tried on M3 Max; ios18 is what trainers use on M3, M4 and M5.",
    rewrite: "an opset that the compiler knows; `ferrane convert --opset` rewrites what the opset can express",
    run: |cx, out| {
        for view in &cx.functions {
            // The text reader reports a tag that is not an opset.
            let Some(opset) = view.function.opset_tag().known().map(|opset| opset.to_string()) else { continue };
            if !cx.profile.opsets.value.contains(&opset) {
                let known = cx.profile.opsets.value.join(", ");
                let message = format!("function `{}` is of {opset}; the compiler accepts {known}", view.function.name);
                out.function(view, message).claims(&cx.profile.opsets.claims);
            }
        }
    },
};

pub(super) const BUILD_INFO: Rule = Rule {
    code: Code(404),
    title: "no `buildInfo`",
    severity: Severity::Error,
    effect: Effect::INVALID,
    claims: &["C008", "C009"],
    explanation: "The dictionary after the version names the tools that wrote the program. One guide says that the parser of the in-memory path requires it; programs without it compile through the E5 runtime and with the offline compiler. Its contents do not matter.",
    rewrite: "`[buildInfo = dict<string, string>({{\"coremlc-version\", \"3505.4.1\"}})]` after the version, on one line",
    run: |cx, out| {
        let there = cx.program.attributes.iter().any(|(name, _)| name == "buildInfo");
        if cx.profile.build_info_required.value && !there {
            let found = out.program("the program has no `buildInfo`, which the parser requires");
            found.claims(&cx.profile.build_info_required.claims).fix(Fix::BuildInfo);
        }
    },
};

pub(super) const LINE_BREAK: Rule = Rule {
    code: Code(405),
    title: "line break inside `buildInfo`",
    severity: Severity::Error,
    effect: Effect::INVALID,
    claims: &["C010"],
    explanation: "The parser on the client path of M5 rejects a line break inside the dictionary. `ferrane fmt` writes it on one line.",
    rewrite: "the dictionary on one line, as `ferrane fmt` writes it",
    run: |cx, out| {
        let broken = cx.options.text.is_some_and(|text| {
            let dictionary = text.split_once("buildInfo").and_then(|(_, behind)| behind.split_once("})"));
            dictionary.is_some_and(|(dictionary, _)| dictionary.contains('\n'))
        });
        if cx.profile.build_info_one_line.value && broken {
            let found = out.program("`buildInfo` is broken over several lines");
            found.claims(&cx.profile.build_info_one_line.claims).fix(Fix::BuildInfo);
        }
    },
};

pub(super) const MIXED: Rule = Rule {
    code: Code(406),
    title: "`program(1.0)` with an opset above ios17",
    severity: Severity::Error,
    effect: Effect::INVALID,
    claims: &["C004"],
    explanation: "A header of the verbose dialect with ios18 was refused on M1 under macOS 26. No published program has the two together.",
    rewrite: "`program(1.3)`, or ios16",
    run: |cx, out| {
        let newest = cx.functions.iter().filter_map(|b| Some((b, b.function.opset_tag().known()?)));
        for (view, _) in newest.filter(|(_, o)| cx.program.version == (1, 0) && *o > Opset::IOS17) {
            let message =
                format!("`program(1.0)` with function `{}` of {}", view.function.name, view.function.opset_tag());
            out.function(view, message).fix(Fix::Verbose);
        }
    },
};

pub(super) const PROCEDURES: Rule = Rule {
    code: Code(407),
    title: "several functions",
    severity: Severity::Note,
    effect: Effect::Fine,
    claims: &["C012", "F101"],
    explanation: "Each function becomes a procedure. A request for procedure N must also give N as the index of its inputs and outputs; any other index fails with error 0x2.",
    rewrite: "",
    run: |cx, out| {
        if cx.functions.len() > 1 {
            let message = format!(
                "{} functions become procedures: a request must give the procedure's index with its surfaces",
                cx.functions.len()
            );
            out.program(message);
        }
    },
};

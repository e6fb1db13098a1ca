//! The engine's raw errors as data: form, meaning and remedy.
//!
//! A failed call has a domain, a number and a text, which may contain a status word. [`find`]
//! returns the first matching row, so specific rows come before general ones. The table is the
//! evidence of apple-runtime §4 and §14. It omits the return codes of the reference's benchmarks,
//! which belong to that program, not to the engine. A spent compile budget has no error of its own
//! either; a backend has to count compiles (apple-runtime §3).

use crate::ErrorKind;

/// The error domain of the runtime.
pub const ENGINE: &str = "com.apple.appleneuralengine";
/// The error domain of the compiler.
pub const COMPILER: &str = "com.apple.appleneuralengine.compiler";
/// The error domain of the Espresso front end.
pub const ESPRESSO: &str = "com.apple.appleneuralengine.espresso";

/// A known raw error. `None` or an empty text matches anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// A short name, unique in the table.
    pub id: &'static str,
    /// The complete error domain.
    pub domain: Option<&'static str>,
    /// The error code. IOReturn codes are compared as 32-bit words.
    pub code: Option<i64>,
    /// A substring of the text.
    pub text: &'static str,
    /// The status word in the text.
    pub status: Option<u32>,
    /// The kind of failure that it is mapped to.
    pub kind: ErrorKind,
    /// The meaning that was observed.
    pub meaning: &'static str,
    /// What to do about it.
    pub remedy: &'static str,
    /// The source of the row.
    pub source: &'static str,
}

const fn row(
    id: &'static str,
    (domain, code, text, status): (Option<&'static str>, Option<i64>, &'static str, Option<u32>),
    kind: ErrorKind,
    meaning: &'static str,
    remedy: &'static str,
    source: &'static str,
) -> Row {
    Row { id, domain, code, text, status, kind, meaning, remedy, source }
}

const PROCESS: &str = "ANEProgramProcessRequestDirect() Failed";
const S4: &str = "apple-runtime §4";
const S14: &str = "apple-runtime §14";

/// A row for an IOReturn code of the driver, which appears in several domains.
const fn io(id: &'static str, code: i64, kind: ErrorKind, meaning: &'static str, remedy: &'static str) -> Row {
    row(id, (None, Some(code), "", None), kind, meaning, remedy, S14)
}

/// Every known raw error, specific rows first.
pub const ROWS: &[Row] = &[
    row(
        "surface-mismatch",
        (Some(ENGINE), Some(8), PROCESS, Some(0x1d)),
        ErrorKind::Evaluate,
        "a surface does not have the size or the order that the program expects",
        "Allocate every surface from the executable's ports, and give several inputs in the order that the ports report.",
        S4,
    ),
    row(
        "inference-failure",
        (Some(ENGINE), Some(8), PROCESS, Some(0x16)),
        ErrorKind::Evaluate,
        "the engine failed while running the program",
        "Run the program on the emulator with this machine's profile; if it passes there, unload, load and try again.",
        S4,
    ),
    row(
        "wrong-symbol-index",
        (Some(ENGINE), Some(8), PROCESS, Some(0x2)),
        ErrorKind::Evaluate,
        "the surface indices belong to another procedure",
        "Procedure N uses its own surface indices: take them from the ports of that procedure.",
        "mil-text §1",
    ),
    row(
        "request-failed",
        (Some(ENGINE), Some(8), PROCESS, None),
        ErrorKind::Evaluate,
        "the engine refused or failed the request",
        "Check the surfaces against the ports; the status word may help in a search.",
        S4,
    ),
    row(
        "chaining",
        (None, Some(15), "ANEProgramChainingPrepare() Failed", None),
        ErrorKind::Unavailable,
        "this model cannot be chained",
        "Submit the requests one after another; `prepare_chain` does this automatically if the machine cannot chain.",
        S4,
    ),
    row(
        "load-0x20004",
        (None, Some(6), "", Some(0x20004)),
        ErrorKind::Load,
        "the program could not be loaded",
        "Unload executables you no longer use; if it stays, compile again and restart the process.",
        S4,
    ),
    row(
        "invalid-mil",
        (None, None, "InvalidMILProgram", None),
        ErrorKind::InvalidProgram,
        "the text is not a valid program for this compiler: syntax, a type, or a dialect that it does not read",
        "Check the program first; on M1 and M2 print it in the verbose dialect (`program(1.0)`, ios16).",
        S4,
    ),
    row(
        "compile-failed",
        (Some(COMPILER), Some(1), "ANECCompile() FAILED", None),
        ErrorKind::Unsupported,
        "the compiler has no way to run an op or a shape of the program",
        "Check the program against this machine's profile; halve the program until the op at fault is found.",
        S4,
    ),
    row(
        "espresso-network",
        (Some(ESPRESSO), Some(-1), "Cannot load network", None),
        ErrorKind::Load,
        "the client looked for an Espresso network but found a MIL program",
        "Load MIL programs through the in-memory model, not through the client.",
        S4,
    ),
    row(
        "e5-stream-reset",
        (None, None, "Reset stream to add more operations", None),
        ErrorKind::Busy,
        "operations were added to an E5 stream that has run",
        "Reset the stream, or prepare the whole plan before the first run.",
        S4,
    ),
    row(
        "e5-port-in-use",
        (None, None, "Port bindings cannot be changed while operation is in use", None),
        ErrorKind::Busy,
        "a port was bound again while its operation is part of an E5 stream",
        "Prepare another request for other surfaces instead of changing one.",
        S4,
    ),
    row(
        "e5-silent-no-op",
        (None, None, "silent no-op", None),
        ErrorKind::Evaluate,
        "a prediction of the E5 runtime reported success and computed nothing",
        "Run the program on the in-memory path (`path=inmem`), and report the program and the system.",
        "apple-runtime §9",
    ),
    io(
        "io-error",
        0xe000_0001,
        ErrorKind::System,
        "the driver reports an error without a name",
        "Unload, load and try again.",
    ),
    io("io-busy", 0xe000_0007, ErrorKind::Busy, "the driver is busy", "Wait for requests in flight, then try again."),
    io(
        "io-no-memory",
        0xe000_02bd,
        ErrorKind::OutOfMemory,
        "the driver has no memory",
        "Free executables and surfaces, or use smaller shapes.",
    ),
    io(
        "io-no-resources",
        0xe000_02be,
        ErrorKind::QueueFull,
        "the driver's queue or its slots are used up",
        "Wait for a submitted request before you submit another.",
    ),
    io(
        "io-not-privileged",
        0xe000_02c1,
        ErrorKind::Unavailable,
        "the process is not permitted to do this",
        "Use the standard path, which needs no entitlements.",
    ),
    io(
        "io-bad-argument",
        0xe000_02c2,
        ErrorKind::Evaluate,
        "the driver refused an argument of the request",
        "Check the number, the order and the sizes of the surfaces.",
    ),
    io(
        "io-unsupported",
        0xe000_02c7,
        ErrorKind::Unavailable,
        "the driver does not do this, or an entitlement is missing",
        "Use the standard path.",
    ),
    io("io-not-ready", 0xe000_02d0, ErrorKind::Busy, "the engine is not ready", "Try again after a moment."),
    io(
        "io-aborted",
        0xe000_02eb,
        ErrorKind::Evaluate,
        "the request was aborted",
        "Load the program again and try again.",
    ),
    io(
        "io-not-found",
        0xe000_02f0,
        ErrorKind::Unloaded,
        "the engine no longer has the program or the process",
        "Load the artifact again.",
    ),
    io(
        "io-timeout",
        0xe000_0404,
        ErrorKind::Evaluate,
        "the engine did not answer in time",
        "Use smaller programs, or load the program again and try again.",
    ),
];

/// The first matching row. `status` is the result of [`status`] for the text.
pub fn find(domain: &str, code: i64, text: &str) -> Option<&'static Row> {
    let word = status(text);
    ROWS.iter().find(|row| {
        row.domain.is_none_or(|d| d == domain)
            // The driver's codes are negative as 32-bit integers and positive as words; both are
            // the same code.
            && row.code.is_none_or(|c| c == code || (c > i64::from(i32::MAX) && c as u32 == code as u32))
            && text.contains(row.text)
            && row.status.is_none_or(|s| Some(s) == word)
    })
}

/// The row with this id.
pub fn named(id: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.id == id)
}

/// The status word of a text: the hexadecimal number after `status=`, `status ` or `failure (`, as
/// in `Failed with status=0x1d` and `Program load failure (0x20004)` (apple/ml-stable-diffusion
/// issue 38).
pub fn status(text: &str) -> Option<u32> {
    ["status=", "status ", "failure ("].into_iter().find_map(|key| {
        text.match_indices(key).find_map(|(at, key)| {
            let rest = text[at + key.len()..].trim_start();
            let digits = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X"))?;
            let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
            u32::from_str_radix(&digits[..end], 16).ok()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    /// A raw error that matches the row.
    fn sample(row: &Row) -> (&'static str, i64, String) {
        let status = row.status.map(|s| format!(" with status={s:#x} : statusType=0x9")).unwrap_or_default();
        (row.domain.unwrap_or("com.example"), row.code.unwrap_or(0), format!("call: {}{status}: error", row.text))
    }

    #[test]
    fn each_row_is_found_by_what_it_describes_and_says_what_to_do() {
        for row in ROWS {
            let (domain, code, text) = sample(row);
            assert_eq!(find(domain, code, &text).map(|r| r.id), Some(row.id));
            let error = Error::from_raw(domain, code, &text);
            assert_eq!((error.kind(), error.remedy()), (row.kind, row.remedy));
            assert_eq!((error.domain(), error.raw_code(), error.status()), (Some(domain), Some(code), row.status));
            assert!(error.message().contains(row.text) && error.message().contains(row.meaning), "{error}");
            assert!(!row.meaning.is_empty() && row.remedy.ends_with('.') && row.source.contains('§'));
            assert!(ROWS.iter().filter(|r| r.id == row.id).count() == 1, "{} twice", row.id);
        }
    }

    #[test]
    fn a_part_that_differs_is_another_row() {
        for row in ROWS.iter().filter(|r| r.code.is_some()) {
            let (domain, code, text) = sample(row);
            assert_ne!(find(domain, code + 1000, &text).map(|r| r.id), Some(row.id));
        }
        for row in ROWS.iter().filter(|r| r.status.is_some()) {
            let (domain, code, text) = sample(row);
            let other = text.replace("status=0x", "status=0x7");
            assert_ne!(find(domain, code, &other).map(|r| r.id), Some(row.id));
        }
        for row in ROWS.iter().filter(|r| r.domain.is_some()) {
            let (_, code, text) = sample(row);
            assert_ne!(find("com.example", code, &text).map(|r| r.id), Some(row.id));
        }
    }

    #[test]
    fn the_published_texts() {
        let text = "processRequest:model:qos:qIndex:modelStringID:options:returnValue:error:: ANEProgramProcessRequestDirect() \
                    Failed with status=0x1d : statusType=0x9: Program Inference error";
        let error = Error::from_raw(ENGINE, 8, text);
        assert_eq!((error.kind(), error.status()), (ErrorKind::Evaluate, Some(0x1d)));
        assert!(error.to_string().ends_with("[com.apple.appleneuralengine code 8 status=0x1d]"), "{error}");
        let error = Error::from_raw(COMPILER, 1, "_ANECompiler : ANECCompile() FAILED: err=(InvalidMILProgram)");
        assert_eq!(error.kind(), ErrorKind::InvalidProgram);
        let error = Error::from_raw(ENGINE, 6, "program load failure status 0x20004");
        assert_eq!((error.kind(), error.status()), (ErrorKind::Load, Some(0x20004)));
        // As a 32-bit integer, the form of a kern_return_t.
        assert_eq!(Error::from_raw("NSMachErrorDomain", -536_870_210, "").kind(), ErrorKind::QueueFull);
    }

    #[test]
    fn unknown_errors_keep_their_words() {
        let error = Error::from_raw("com.example", 77, "something else, status=0xzz");
        assert_eq!((error.kind(), error.raw_code(), error.status()), (ErrorKind::System, Some(77), None));
        assert_eq!(error.message(), "something else, status=0xzz");
        assert_eq!(error.remedy(), crate::remedy(ErrorKind::System));
    }

    #[test]
    fn status_words() {
        let cases = [
            ("Failed with status=0x1d : statusType=0x9", Some(0x1d)),
            ("load failure status 0x20004", Some(0x20004)),
            ("Program load failure (0x20004)", Some(0x20004)),
            ("failure (0x20004): Failed with status=0x1d", Some(0x1d)),
            ("failure (20004)", None),
            ("statusType=0x9", None),
            ("statusType=0x9 status=0X16", Some(0x16)),
            ("status=0x", None),
            ("status=0x123456789", None),
            ("status", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(status(text), expected, "{text}");
        }
    }
}

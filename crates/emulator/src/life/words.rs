//! Failures with the engine's own messages (apple-runtime §4), each followed by its reason.

use ferrane_device::catalog::{COMPILER, ENGINE};
use ferrane_device::{Error, ErrorKind};

/// Status of an evaluation whose surfaces the program did not expect, and of every evaluation of a
/// poisoned process.
pub(crate) const MISMATCH: u32 = 0x1d;
/// Status of an evaluation that failed inside; only injected, because no published limit leads to
/// it.
pub(crate) const INFERENCE: u32 = 0x16;
/// Status of a load that failed.
pub(crate) const LOAD: u32 = 0x20004;

/// The compiler cannot map the program to the engine.
pub(crate) fn compile_failed(why: &str) -> Error {
    Error::from_raw(COMPILER, 1, &format!("_ANECompiler : ANECCompile() FAILED: err=(CompilationFailure): {why}"))
}

/// The compiler cannot read the program.
pub(crate) fn invalid_program(why: &str) -> Error {
    Error::from_raw(COMPILER, 1, &format!("_ANECompiler : ANECCompile() FAILED: err=(InvalidMILProgram): {why}"))
}

/// The budget is spent. The engine has no message for it: its compiles fail with an empty error.
pub(crate) fn budget(why: &str) -> Error {
    let message = format!("_ANECompiler : ANECCompile() FAILED: err=(): {why}");
    Error::new(ErrorKind::CompileBudget, message).with_raw(COMPILER, 1, None)
}

/// The budget is spent, and so loads fail, too.
pub(crate) fn budget_at_load(why: &str) -> Error {
    let message = format!("program load failure status {LOAD:#x}: {why}");
    Error::new(ErrorKind::CompileBudget, message).with_raw(ENGINE, 6, Some(LOAD))
}

/// A program could not be loaded.
pub(crate) fn load(status: u32, why: &str) -> Error {
    let text = format!("program load failure status {status:#x}: {why}");
    match Error::from_raw(ENGINE, 6, &text) {
        error if error.kind() == ErrorKind::Load => error,
        _ => Error::new(ErrorKind::Load, text).with_raw(ENGINE, 6, Some(status)),
    }
}

/// An evaluation failed with this status.
pub(crate) fn evaluation(status: u32, why: &str) -> Error {
    let text = format!(
        "processRequest:model:qos:qIndex:modelStringID:options:returnValue:error:: ANEProgramProcessRequestDirect() Failed with \
         status={status:#x} : statusType=0x9: Program Inference error: {why}"
    );
    Error::from_raw(ENGINE, 8, &text)
}

/// The engine hangs and the driver gives up (apple-runtime §14).
pub(crate) fn timeout(why: &str) -> Error {
    Error::from_raw(ENGINE, 0xe000_0404, &format!("the engine did not answer: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_the_catalog_and_keep_the_reason() {
        let cases = [
            (compile_failed("a"), ErrorKind::Unsupported, Some(1), None),
            (invalid_program("b"), ErrorKind::InvalidProgram, Some(1), None),
            (budget("c"), ErrorKind::CompileBudget, Some(1), None),
            (budget_at_load("d"), ErrorKind::CompileBudget, Some(6), Some(LOAD)),
            (load(LOAD, "e"), ErrorKind::Load, Some(6), Some(LOAD)),
            (load(0x77, "f"), ErrorKind::Load, Some(6), Some(0x77)),
            (evaluation(MISMATCH, "g"), ErrorKind::Evaluate, Some(8), Some(MISMATCH)),
            (evaluation(INFERENCE, "h"), ErrorKind::Evaluate, Some(8), Some(INFERENCE)),
            (timeout("i"), ErrorKind::Evaluate, Some(0xe000_0404), None),
            (evaluation(0x99, "j"), ErrorKind::Evaluate, Some(8), Some(0x99)),
        ];
        for ((error, kind, code, status), why) in cases.into_iter().zip('a'..) {
            assert_eq!((error.kind(), error.raw_code(), error.status()), (kind, code, status), "{error}");
            assert!(error.message().contains(&format!(": {why}")), "{error}");
        }
    }
}

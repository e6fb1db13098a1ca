//! The result of a call: the status, its text, and the guard around every function.
//!
//! The text is thread-local and belongs to the last call on that thread.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use ferrane::{Error, ErrorKind};

/// The result of a call: FERRANE_OK or the kind of failure. Numbers from 600 on are those of
/// Ferrane's error codes (E0601 is 601).
pub type FerraneStatus = i32;

/// The call succeeded; its results are valid.
pub const FERRANE_OK: FerraneStatus = 0;
/// An argument is invalid: a null pointer, a wrong size, a misaligned array, text that is not
/// UTF-8, a number out of range.
pub const FERRANE_INVALID_ARGUMENT: FerraneStatus = 1;
/// A handle is null, was freed, or was never valid.
pub const FERRANE_INVALID_HANDLE: FerraneStatus = 2;
/// The buffer is too small; the required length was returned.
pub const FERRANE_BUFFER_TOO_SMALL: FerraneStatus = 3;
/// An internal error of Ferrane. This is a bug.
pub const FERRANE_INTERNAL: FerraneStatus = 4;
/// The program is not valid MIL.
pub const FERRANE_INVALID_PROGRAM: FerraneStatus = 601;
/// The device has no way to run an op or shape.
pub const FERRANE_UNSUPPORTED: FerraneStatus = 602;
/// The compile budget of the process is spent.
pub const FERRANE_COMPILE_BUDGET: FerraneStatus = 603;
/// A compiled program could not be loaded.
pub const FERRANE_LOAD: FerraneStatus = 604;
/// An evaluation failed; the outputs must be discarded.
pub const FERRANE_EVALUATE: FerraneStatus = 605;
/// A surface or port does not match: size, type, name.
pub const FERRANE_BINDING: FerraneStatus = 606;
/// A layout is invalid.
pub const FERRANE_LAYOUT: FerraneStatus = 607;
/// A surface or kernel is in use.
pub const FERRANE_BUSY: FerraneStatus = 608;
/// The device's queue holds as many requests as it can.
pub const FERRANE_QUEUE_FULL: FerraneStatus = 609;
/// The program was unloaded.
pub const FERRANE_UNLOADED: FerraneStatus = 610;
/// The device, or a feature of it, is not available here.
pub const FERRANE_UNAVAILABLE: FerraneStatus = 611;
/// A device name or option is unknown or has an invalid value.
pub const FERRANE_OPTION: FerraneStatus = 612;
/// Memory could not be allocated.
pub const FERRANE_OUT_OF_MEMORY: FerraneStatus = 613;
/// The underlying system failed with an error of its own.
pub const FERRANE_SYSTEM: FerraneStatus = 614;
/// The process that the device runs in has died or hung.
pub const FERRANE_CRASHED: FerraneStatus = 615;

/// A failed call: status, text and remedy for C.
#[derive(Clone, Debug)]
pub(crate) struct CallFailure {
    pub status: FerraneStatus,
    pub text: String,
    pub remedy: &'static str,
}

/// The result of a function's implementation.
pub(crate) type Result<T> = std::result::Result<T, CallFailure>;

impl CallFailure {
    /// The failure for an invalid argument.
    pub(crate) fn argument(text: impl Into<String>) -> CallFailure {
        CallFailure {
            status: FERRANE_INVALID_ARGUMENT,
            text: text.into(),
            remedy: "Pass the arguments that include/ferrane.h describes.",
        }
    }

    /// A failure of a kind that devices also report.
    pub(crate) fn of(kind: ErrorKind, text: impl Into<String>) -> CallFailure {
        Error::new(kind, text).into()
    }

    fn panicked(payload: &(dyn std::any::Any + Send)) -> CallFailure {
        let said = payload.downcast_ref::<&str>().copied();
        let said = said.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic");
        CallFailure {
            status: FERRANE_INTERNAL,
            text: format!("Ferrane failed inside: {said}"),
            remedy: "Report this with the program that was compiled.",
        }
    }

    /// The text as a C string.
    pub(crate) fn c_text(&self) -> CString {
        c_text(&self.text)
    }
}

impl From<Error> for CallFailure {
    fn from(error: Error) -> CallFailure {
        let number = error.kind().code().strip_prefix('E').and_then(|n| n.parse().ok());
        CallFailure { status: number.unwrap_or(FERRANE_SYSTEM), text: error.to_string(), remedy: error.remedy() }
    }
}

/// A C string ends at the first zero byte, so zero bytes are replaced.
fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{FFFD}")).unwrap_or_default()
}

struct Last {
    status: Cell<FerraneStatus>,
    text: RefCell<CString>,
    remedy: RefCell<CString>,
}

thread_local! {
    static LAST: Last = Last { status: Cell::new(FERRANE_OK), text: RefCell::default(), remedy: RefCell::default() };
}

/// Stores the result of the call for this thread.
fn remember(outcome: std::result::Result<(), &CallFailure>) -> FerraneStatus {
    let (status, text, remedy) = match outcome {
        Ok(()) => (FERRANE_OK, CString::default(), CString::default()),
        Err(failure) => (failure.status, failure.c_text(), c_text(failure.remedy)),
    };
    // A thread that is ending may have no thread-local memory left; the status is still returned.
    let _ = LAST.try_with(|last| {
        last.status.set(status);
        last.text.replace(text);
        last.remedy.replace(remedy);
    });
    status
}

/// Runs the body of a function: converts a panic to a failure and stores the result.
fn run<T>(body: impl FnOnce() -> Result<T>) -> std::result::Result<T, FerraneStatus> {
    // Unwinding drops the values of the body. Shared state is in locks under which no code panics
    // halfway (`handle`, `flight`, `kernel`), so it stays consistent.
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| Err(CallFailure::panicked(&*payload)));
    let status = remember(result.as_ref().map(|_| ()));
    result.map_err(|_| status)
}

/// Runs the body of a function that returns its status.
pub(crate) fn guard(body: impl FnOnce() -> Result<()>) -> FerraneStatus {
    run(body).err().unwrap_or(FERRANE_OK)
}

/// Runs the body of a function that returns a value; `failed` is the value after a failure.
pub(crate) fn guarded<T>(failed: T, body: impl FnOnce() -> Result<T>) -> T {
    run(body).unwrap_or(failed)
}

/// The version of the library, such as "0.1.0". The text is static.
#[unsafe(no_mangle)]
pub extern "C" fn ferrane_version() -> *const c_char {
    const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };
    VERSION.as_ptr()
}

/// The status of the last call on this thread, of either family. The functions ferrane_version,
/// ferrane_last_status, ferrane_last_error and ferrane_last_remedy do not count as calls.
#[unsafe(no_mangle)]
pub extern "C" fn ferrane_last_status() -> FerraneStatus {
    LAST.try_with(|last| last.status.get()).unwrap_or(FERRANE_OK)
}

/// The error text of the last call on this thread, UTF-8; empty after a success. The text is valid
/// until the next call on this thread and never null.
#[unsafe(no_mangle)]
pub extern "C" fn ferrane_last_error() -> *const c_char {
    LAST.try_with(|last| last.text.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The remedy for the last error, one or two sentences; otherwise as ferrane_last_error.
#[unsafe(no_mangle)]
pub extern "C" fn ferrane_last_remedy() -> *const c_char {
    LAST.try_with(|last| last.remedy.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> (FerraneStatus, String) {
        // SAFETY: the pointer is never null; the text is valid until this thread's next call.
        let text = unsafe { CStr::from_ptr(ferrane_last_error()) };
        (ferrane_last_status(), text.to_str().expect("UTF-8").to_string())
    }

    #[test]
    fn a_panic_is_a_failure_with_its_words() {
        assert_eq!(guard(|| panic!("number {}", 7)), FERRANE_INTERNAL);
        assert_eq!(last(), (FERRANE_INTERNAL, "Ferrane failed inside: number 7".into()));
        assert_eq!(guarded(-1, || panic!("plain")), -1);
        assert_eq!(last().1, "Ferrane failed inside: plain");
        assert_eq!(guard(|| std::panic::panic_any(7)), FERRANE_INTERNAL);
        assert_eq!(last().1, "Ferrane failed inside: a panic");
        assert_eq!(guard(|| Ok(())), FERRANE_OK);
        assert_eq!(last(), (FERRANE_OK, String::new()));
    }

    #[test]
    fn a_failure_belongs_to_its_thread() {
        guard(|| Err(CallFailure::argument("one\0two")));
        std::thread::spawn(|| assert_eq!(last(), (FERRANE_OK, String::new()))).join().expect("no failure");
        assert_eq!(last(), (FERRANE_INVALID_ARGUMENT, "one\u{FFFD}two".into()));
    }

    #[test]
    fn numbers_are_those_of_the_error_codes() {
        let named = [
            (ErrorKind::InvalidProgram, FERRANE_INVALID_PROGRAM),
            (ErrorKind::Unsupported, FERRANE_UNSUPPORTED),
            (ErrorKind::CompileBudget, FERRANE_COMPILE_BUDGET),
            (ErrorKind::Load, FERRANE_LOAD),
            (ErrorKind::Evaluate, FERRANE_EVALUATE),
            (ErrorKind::Binding, FERRANE_BINDING),
            (ErrorKind::Layout, FERRANE_LAYOUT),
            (ErrorKind::Busy, FERRANE_BUSY),
            (ErrorKind::QueueFull, FERRANE_QUEUE_FULL),
            (ErrorKind::Unloaded, FERRANE_UNLOADED),
            (ErrorKind::Unavailable, FERRANE_UNAVAILABLE),
            (ErrorKind::Option, FERRANE_OPTION),
            (ErrorKind::OutOfMemory, FERRANE_OUT_OF_MEMORY),
            (ErrorKind::System, FERRANE_SYSTEM),
            (ErrorKind::Crashed, FERRANE_CRASHED),
        ];
        // Every kind of the device crate has a constant; a new one fails here.
        assert_eq!(named.map(|(kind, _)| kind), ErrorKind::ALL);
        for (kind, status) in named {
            assert_eq!(CallFailure::of(kind, "").status, status, "{kind:?}");
        }
    }
}

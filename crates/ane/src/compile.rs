//! The cost of compiles to the process: a budget, and recovery time after a failure.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_host::sync::lock;
use ferrane_machine::Profile;

/// Successful compiles of this process; all devices share the budget.
static SPENT: AtomicUsize = AtomicUsize::new(0);

/// The time of the last failed compile in this process.
static FAILED: Mutex<Option<Instant>> = Mutex::new(None);

/// The number of compiles that this process has spent of the engine's budget. Programs from the
/// cache do not count.
pub fn compiles() -> usize {
    SPENT.load(Ordering::Relaxed)
}

/// The number of compiles that are left to this process; `None` on engines without a budget.
pub(crate) fn left(profile: &Profile) -> Option<usize> {
    Some(profile.compile_budget.value.0?.saturating_sub(compiles()))
}

/// Runs a compile. After a recent failure, it first waits until the compile service has recovered:
/// failures in quick succession stall the compiles of all processes (apple-runtime §14).
pub(crate) fn paced(profile: &Profile, recovery: Duration, compile: impl FnOnce() -> Result<()>) -> Result<()> {
    let failed = *lock(&FAILED);
    if let Some(left) = failed.and_then(|at| recovery.checked_sub(at.elapsed())) {
        thread::sleep(left);
    }
    let result = compile();
    match &result {
        Ok(()) => drop(SPENT.fetch_add(1, Ordering::Relaxed)),
        Err(_) => *lock(&FAILED) = Some(Instant::now()),
    }
    result.map_err(|e| budget(profile, e))
}

/// Returns a compile to the budget on engines that do so.
pub(crate) fn returned(profile: &Profile) {
    if profile.budget_returns.value {
        let _ = SPENT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
    }
}

/// A spent budget has no error of its own: compiles and loads fail (apple-runtime §3).
fn budget(profile: &Profile, error: Error) -> Error {
    let (spent, budget) = (compiles(), profile.compile_budget.value);
    if !budget.exceeded_by(spent.saturating_add(1)) || error.kind() == ErrorKind::InvalidProgram {
        return error;
    }
    let message = format!("{spent} programs were compiled in this process, and the budget is about {budget}");
    Error::new(ErrorKind::CompileBudget, message).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_waited_out_and_a_spent_budget_is_named() {
        let mut profile = Profile::named(Profile::DEFAULT).unwrap();
        let fail = || Err(Error::new(ErrorKind::Unsupported, "no"));
        let recovery = Duration::from_millis(80);
        assert_eq!(paced(&profile, recovery, fail).unwrap_err().kind(), ErrorKind::Unsupported);
        let begun = Instant::now();
        paced(&profile, recovery, || Ok(())).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(40), "{:?}", begun.elapsed());
        assert_eq!(compiles(), 1);
        // A success leaves the timestamp alone, but the waiting time is finite.
        std::thread::sleep(recovery);
        let begun = Instant::now();
        paced(&profile, recovery, || Ok(())).unwrap();
        assert!(begun.elapsed() < recovery);

        profile.compile_budget.value = ferrane_machine::profile::Limit(Some(2));
        let error = paced(&profile, Duration::ZERO, fail).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CompileBudget);
        assert!(error.message().starts_with("2 programs"), "{error}");
        assert_eq!(left(&profile), Some(0));
        let invalid = paced(&profile, Duration::ZERO, || Err(Error::new(ErrorKind::InvalidProgram, "no")));
        assert_eq!(invalid.unwrap_err().kind(), ErrorKind::InvalidProgram);
        returned(&profile);
        assert_eq!(compiles(), 2, "this engine returns nothing to the budget");
        profile.budget_returns.value = true;
        returned(&profile);
        assert_eq!(compiles(), 1);
    }
}

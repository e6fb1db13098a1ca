//! Memory of this process, as the system counts it.

/// The largest resident memory that this process has had so far, in bytes; `None` on a system that
/// does not report it.
///
/// On Linux it is `VmHWM` of `/proc/self/status`, with `getrusage` where `/proc` is not mounted.
/// `getrusage` is the second choice because Linux starts its count of a new program at the peak of
/// the process that executed it: started from a Python process of 1 GiB, a program of 14 MiB
/// reports 1 GiB.
pub fn peak_resident() -> Option<usize> {
    high_water_mark().or_else(from_rusage)
}

/// The kernel's account of this program's memory, Linux only.
fn high_water_mark() -> Option<usize> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    let kib: usize = line.split_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(unix)]
fn from_rusage() -> Option<usize> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is writable for the size of one `rusage`, all that the call writes.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: an `rusage` is integers only, for which the zeros it began with are valid too.
    let peak = usize::try_from(unsafe { usage.assume_init() }.ru_maxrss).ok()?;
    // Apple's systems count bytes, the others KiB.
    let unit = if cfg!(target_vendor = "apple") { 1 } else { 1024 };
    if failed == 0 { peak.checked_mul(unit) } else { None }
}

#[cfg(not(unix))]
fn from_rusage() -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn the_peak_grows_with_what_is_touched() {
        const SIZE: usize = 64 << 20;
        let before = (peak_resident().unwrap(), from_rusage().unwrap());
        let touched = std::hint::black_box(vec![1u8; SIZE]);
        let after = (peak_resident().unwrap(), from_rusage().unwrap());
        assert!(after.0 >= SIZE && after.1 >= SIZE, "{after:?} of {SIZE} bytes");
        assert!(after.0 >= before.0 && after.1 >= before.1 && after.0 < 1 << 40, "{before:?}, then {after:?}");
        drop(touched);
    }
}

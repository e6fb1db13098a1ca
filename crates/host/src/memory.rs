//! Memory and processor time of this process, as the system counts them.

use std::time::Duration;

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

/// The memory of this process that is resident now, in bytes; `None` on systems other than Linux.
pub fn resident() -> Option<usize> {
    status("VmRSS:")
}

/// The memory that processes can still take, in bytes; `None` on a system that does not report it.
///
/// On Linux it is `MemAvailable` and the free swap space, at most the limit of the control group
/// that a container or service runs in. Elsewhere it is the size of the physical memory, since
/// these systems count most of what is in use as something that they can write to the disk.
pub fn available() -> Option<usize> {
    match meminfo("MemAvailable:") {
        Some(memory) => {
            let all = memory.saturating_add(meminfo("SwapFree:").unwrap_or(0));
            Some(group_limit().map_or(all, |limit| limit.min(all)))
        }
        None => physical(),
    }
}

/// The processor time that all threads of this process have used so far, that of the system
/// included; `None` on a system that does not report it.
pub fn cpu_time() -> Option<Duration> {
    #[cfg(unix)]
    {
        let usage = rusage()?;
        let time = |time: libc::timeval| {
            Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0))
                + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
        };
        Some(time(usage.ru_utime) + time(usage.ru_stime))
    }
    #[cfg(not(unix))]
    None
}

/// The kernel's account of the largest resident memory of this program, Linux only.
fn high_water_mark() -> Option<usize> {
    status("VmHWM:")
}

/// An amount of memory in `/proc/self/status`, in bytes.
fn status(name: &str) -> Option<usize> {
    listed("/proc/self/status", name)
}

/// An amount of memory of the whole system, in bytes.
fn meminfo(name: &str) -> Option<usize> {
    listed("/proc/meminfo", name)
}

/// An amount in KiB that a file of the kernel lists by name, in bytes.
fn listed(file: &str, name: &str) -> Option<usize> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|l| l.starts_with(name))?;
    let kib: usize = line.split_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The limit of this process's control group, of either version; `None` without one.
fn group_limit() -> Option<usize> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|l| l.strip_prefix("0::")).unwrap_or("/");
    // A container sees its own group as the root.
    let files = [
        format!("/sys/fs/cgroup{}/memory.max", path.trim_end_matches('/')),
        "/sys/fs/cgroup/memory.max".to_string(),
        "/sys/fs/cgroup/memory/memory.limit_in_bytes".to_string(),
    ];
    // A group without a limit has the word `max`, or a number close to 2^63.
    files.iter().find_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok())
}

#[cfg(unix)]
fn physical() -> Option<usize> {
    // SAFETY: the function only reads its argument.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    usize::try_from(pages).ok()?.checked_mul(usize::try_from(size).ok()?)
}

#[cfg(not(unix))]
fn physical() -> Option<usize> {
    None
}

#[cfg(unix)]
fn rusage() -> Option<libc::rusage> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is writable for the size of one `rusage`, all that the call writes.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: an `rusage` is integers only, for which the zeros it began with are valid too.
    let usage = unsafe { usage.assume_init() };
    (failed == 0).then_some(usage)
}

#[cfg(unix)]
fn from_rusage() -> Option<usize> {
    // Apple's systems count bytes, the others KiB.
    let unit = if cfg!(target_vendor = "apple") { 1 } else { 1024 };
    usize::try_from(rusage()?.ru_maxrss).ok()?.checked_mul(unit)
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
        if let Some(now) = resident() {
            assert!(now >= SIZE && now <= after.0.max(peak_resident().unwrap()), "{now} of {SIZE} bytes");
        }
        drop(touched);
    }

    #[cfg(unix)]
    #[test]
    fn some_memory_is_available() {
        let (available, physical) = (available().unwrap(), physical().unwrap());
        let swap = meminfo("SwapTotal:").unwrap_or(0);
        assert!(available > 16 << 20 && available <= physical + swap, "{available} of {physical} and {swap}");
    }

    #[cfg(unix)]
    #[test]
    fn processor_time_grows_with_work() {
        let before = cpu_time().unwrap();
        while cpu_time().unwrap() < before + Duration::from_millis(30) {
            std::hint::black_box(vec![1u8; 1 << 16]);
        }
    }
}

//! A clock that is set back while a run trains.

use std::process::Command;

use crate::place::{Outcome, Place, TINY};

/// The time of day is an hour earlier with every question. Timers do not change.
const SHIM: &str = r"
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    static long calls;
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec -= 3600 * __sync_add_and_fetch(&calls, 1);
    return failed;
}
";

#[test]
fn a_clock_that_goes_backwards_changes_no_result() {
    let place = Place::new();
    place.write("shim.c", SHIM);
    let library = place.path("shim.so");
    let mut cc = Command::new("cc");
    let built = cc.args(["-shared", "-fPIC", "-o"]).args([&library, &place.path("shim.c")]).status();
    assert!(built.expect("this test needs a C compiler, as linking does").success());
    place.run(&format!("{TINY} --out whole")).ok();
    let shown =
        Outcome::of(place.command(&format!("{TINY} --out back --tensorboard --memory")).env("LD_PRELOAD", &library));
    let shown = shown.ok().out;
    assert!(shown.contains("3 updates, 3 micro-steps"), "{shown}");
    assert!(place.state("whole", 3) == place.state("back", 3));
    // Both look at the times in the run's folder.
    for command in ["runs back --compare", "watch back --once"] {
        Outcome::of(place.command(command).env("LD_PRELOAD", &library)).ok();
    }
    place.run("train --resume --out back --steps 5").ok();
}

//! `ferrane train` as one of several processes that a launcher of MPI started.

use crate::place::{Outcome, Place, TINY};

/// A build without MPI must not let several processes write the same run.
#[cfg(not(feature = "mpi"))]
#[test]
fn a_build_without_mpi_does_not_train_as_one_of_several() {
    for name in ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"] {
        let place = Place::new();
        Outcome::of(place.command(TINY).env(name, "2")).refused(1, &["one of 2", "--features mpi"]);
        assert!(!place.path("runs").exists());
        Outcome::of(place.command(TINY).env(name, "1")).ok();
    }
}

#[test]
fn a_world_of_no_process_is_refused() {
    for name in ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"] {
        let place = Place::new();
        Outcome::of(place.command(TINY).env(name, "0")).refused(1, &["a run of 0 processes", "mpirun -n N"]);
        assert!(!place.path("runs").exists());
    }
}

#[test]
fn groups_are_an_option_that_a_resumed_run_keeps() {
    let place = Place::new();
    let begin = TINY.replace("--accum 1", "--accum 4 --groups 3");
    place.run(&format!("{begin} --out run")).ok();
    let resumed = place.run("train --resume --out run --steps 5").ok();
    assert!(!resumed.err.contains("groups"), "{}", resumed.err);
    place
        .run("train --resume --out run --steps 6 --groups 5")
        .refused(1, &["--groups 5: must be at most the windows of an update", "fewer ranks"]);
    let changed = place.run("train --resume --out run --steps 6 --groups 2").ok();
    assert!(changed.err.contains("changed groups: 3 before, 2 now"), "{}", changed.err);
}

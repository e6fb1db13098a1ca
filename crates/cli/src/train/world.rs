//! The ranks of a run, if a launcher of MPI started this process as one of several.

use ferrane::train::ranks::Ranks;

use crate::error::{Error, Result};

/// Variables by which launchers pass the number of processes: Open MPI; MPICH and Intel
/// MPI, and Slurm's `srun` with PMI.
const SIZES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];

/// Number of processes that a launcher started; 1 without a launcher.
fn launched() -> usize {
    SIZES.iter().find_map(|name| std::env::var(name).ok()?.trim().parse().ok()).unwrap_or(1)
}

/// Does some work as a rank. An error ends the processes of all ranks, since the others would wait
/// for this one.
pub fn join(work: impl FnOnce(Ranks) -> Result<()>) -> Result<()> {
    match launched() {
        0 => Err(Error::new(format!(
            "a run of 0 processes: {} is 0; unset it, or start the command with `mpirun -n N`",
            SIZES.join(" or ")
        ))),
        1 => work(Ranks::default()),
        size => join_world(size, work),
    }
}

#[cfg(feature = "mpi")]
fn join_world(size: usize, work: impl FnOnce(Ranks) -> Result<()>) -> Result<()> {
    use ferrane::train::ranks::Mpi;

    let Some((universe, world)) = Mpi::connect() else {
        return Err(Error::new(format!("this process was started as one of {size}, but MPI cannot be initialized")));
    };
    let ranks = Ranks::new(world)?;
    if ranks.size() != size {
        let found = ranks.size();
        return Err(Error::new(format!(
            "the launcher started {size} processes, but MPI connects {found}: `mpirun` must be of the MPI that this \
             command was built with"
        )));
    }
    let rank = ranks.rank();
    let result = work(ranks);
    if let Err(error) = &result {
        if !error.is_told() {
            crate::out::note(format_args!("rank {rank}: error: {error}"));
        }
        Mpi::abort(1);
    }
    // Waits for the other ranks.
    drop(universe);
    result
}

#[cfg(not(feature = "mpi"))]
fn join_world(size: usize, _: impl FnOnce(Ranks) -> Result<()>) -> Result<()> {
    Err(Error::new(format!(
        "this process was started as one of {size}, but this build of ferrane has no MPI: install it with `cargo install \
         ferrane-cli --features mpi`, or start one process (docs/many-machines.md)"
    )))
}

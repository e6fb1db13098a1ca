//! The ranks of an MPI world: Open MPI, MPICH, and what speaks their interface.

use mpi::Threading;
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator as _, Destination as _, Equivalence as _, Source as _};

use super::{Communicator, RankError};

/// The ranks that `mpirun` or a cluster's launcher started.
///
/// A message goes to MPI as bytes. After an error MPI ends all ranks, which is its default.
pub struct Mpi {
    rank: usize,
    size: usize,
}

impl Mpi {
    /// Connects this process to the others. The universe ends the connection when it is dropped,
    /// which waits for all ranks; [`Mpi::abort`] does not. `None` if the process was connected
    /// before.
    pub fn connect() -> Option<(Universe, Mpi)> {
        // One thread at a time calls, which need not be the one that connected.
        let (universe, _) = mpi::initialize_with_threading(Threading::Serialized)?;
        let world = universe.world();
        let (rank, size) = (world.rank().try_into().ok()?, world.size().try_into().ok()?);
        Some((universe, Mpi { rank, size }))
    }

    /// Ends the processes of all ranks, this one with `status`.
    pub fn abort(status: i32) -> ! {
        SimpleCommunicator::world().abort(status)
    }
}

impl Communicator for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn send(&mut self, to: usize, bytes: &[u8]) -> Result<(), RankError> {
        SimpleCommunicator::world().process_at_rank(known(to)?).send(bytes);
        Ok(())
    }

    fn receive(&mut self, from: usize, bytes: &mut [u8]) -> Result<(), RankError> {
        let status = SimpleCommunicator::world().process_at_rank(known(from)?).receive_into(bytes);
        let count = usize::try_from(status.count(u8::equivalent_datatype())).unwrap_or(0);
        match count == bytes.len() {
            true => Ok(()),
            false => {
                Err(RankError::Message { rank: from, reason: format!("{count} bytes instead of {}", bytes.len()) })
            }
        }
    }
}

/// A rank in MPI's type.
fn known(rank: usize) -> Result<i32, RankError> {
    rank.try_into().map_err(|_| RankError::Lost { rank, reason: "MPI has no such rank".into() })
}

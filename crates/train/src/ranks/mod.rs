//! Training in several processes: ranks, in the words of MPI.
//!
//! Every rank has the whole model and computes some of the windows of each update. Then all ranks
//! get the sum of all gradients, make the same update, and have the same weights again. Only the
//! first rank writes: checkpoints, metrics, reports.
//!
//! If the optimizer's moments are sharded, each rank updates the weights whose moments it holds,
//! and all get them from it: the same bits, because every weight is updated on its own.
//!
//! Sums of floating-point numbers depend on their order, and a collective sum of MPI leaves it
//! open. Here the order is fixed by one number that a run keeps, its *groups*: the windows of an
//! update are cut into that many parts ([`group_of`]), those of a group are summed one after the
//! other, and the sums of groups are added in their order, along a chain of ranks. So a run has the
//! same bits on any number of ranks, as long as its number of groups is the same; a rank may have
//! several groups, and one rank may have all.
//!
//! [`Communicator`] is what a transport provides. With the feature `mpi`, `Mpi` is one.

mod gather;
mod link;
mod sum;

#[cfg(feature = "mpi")]
mod mpi;

use std::ops::Range;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use link::{LINKS, Link};
#[cfg(feature = "mpi")]
pub use mpi::Mpi;

/// Largest message of an exchange: the results of many windows and a set of rows are far below.
const LARGEST: u64 = 1 << 28;

/// Why ranks cannot work together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
    /// The transport reports no ranks, or a rank that is not one of them.
    #[error("rank {rank} of {size}: a world has at least one rank, and ranks count from 0")]
    World {
        /// The rank of this process.
        rank: usize,
        /// Number of ranks, as the transport reports it.
        size: usize,
    },
    /// Another rank has ended or cannot be reached.
    #[error("rank {rank} is lost: {reason}")]
    Lost {
        /// The rank that a message was sent to or expected from.
        rank: usize,
        /// The cause, as the transport reports it.
        reason: String,
    },
    /// A message of another rank cannot be understood.
    #[error("rank {rank} sent a message that is none of this version: {reason}")]
    Message {
        /// The rank that sent it.
        rank: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A rank was started differently.
    #[error("rank {rank} has {found}, but rank 0 has {expected}: all ranks need the same {what}")]
    Different {
        /// The first such rank.
        rank: usize,
        /// What all ranks need the same of: `version`, `data`, `checkpoint` or `options`.
        what: &'static str,
        /// Its value on rank 0.
        expected: String,
        /// Its value on `rank`.
        found: String,
    },
    /// The weights of a rank are not those of rank 0 any more.
    #[error(
        "after update {step} the weights of rank {rank} are not those of rank 0; ranks need the same build of Ferrane, \
         and processors with the same instructions"
    )]
    Drifted {
        /// The first such rank.
        rank: usize,
        /// Number of updates done.
        step: u64,
    },
}

/// A transport of messages between ranks, which arrive whole and in the order in which they were
/// sent.
pub trait Communicator: Send {
    /// The rank of this process, from 0.
    fn rank(&self) -> usize;

    /// Number of ranks, at least 1.
    fn size(&self) -> usize;

    /// Sends a message; returns when `bytes` may be reused.
    ///
    /// # Errors
    /// [`RankError::Lost`].
    fn send(&mut self, to: usize, bytes: &[u8]) -> Result<(), RankError>;

    /// Waits for a message of exactly this length.
    ///
    /// # Errors
    /// [`RankError::Lost`]; [`RankError::Message`] for another length.
    fn receive(&mut self, from: usize, bytes: &mut [u8]) -> Result<(), RankError>;
}

/// The ranks of a run. By default there is one.
#[derive(Default)]
pub struct Ranks {
    with: Option<Box<dyn Communicator>>,
}

impl Ranks {
    /// The ranks that a communicator connects.
    ///
    /// # Errors
    /// [`RankError::World`].
    pub fn new(communicator: impl Communicator + 'static) -> Result<Ranks, RankError> {
        let (rank, size) = (communicator.rank(), communicator.size());
        if rank >= size {
            return Err(RankError::World { rank, size });
        }
        Ok(Ranks { with: (size > 1).then(|| Box::new(communicator) as Box<dyn Communicator>) })
    }

    /// The rank of this process, from 0.
    pub fn rank(&self) -> usize {
        self.with.as_ref().map_or(0, |with| with.rank())
    }

    /// Number of ranks, at least 1.
    pub fn size(&self) -> usize {
        self.with.as_ref().map_or(1, |with| with.size())
    }

    /// Whether this is the rank that writes files.
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// The groups of this rank, if there are at least as many groups as ranks.
    pub(crate) fn groups(&self, groups: usize) -> Range<usize> {
        part(groups, self.size(), self.rank())
    }

    /// Sends a value to all ranks and returns those of all ranks, in their order.
    ///
    /// # Errors
    /// [`RankError::Lost`], [`RankError::Message`].
    pub(crate) fn exchange<T: Serialize + DeserializeOwned>(&mut self, own: T) -> Result<Vec<T>, RankError> {
        let Some(with) = &mut self.with else { return Ok(vec![own]) };
        let bad = |rank, e: serde_json::Error| RankError::Message { rank, reason: e.to_string() };
        let rank = with.rank();
        let mut message = serde_json::to_vec(&own).map_err(|e| bad(rank, e))?;
        // The first rank collects all, as a list, and sends it to the others.
        if rank > 0 {
            send(&mut **with, 0, &message)?;
            message = receive(&mut **with, 0)?;
        } else {
            let mut all = vec![own];
            for other in 1..with.size() {
                let text = receive(&mut **with, other)?;
                all.push(serde_json::from_slice(&text).map_err(|e| bad(other, e))?);
            }
            message = serde_json::to_vec(&all).map_err(|e| bad(rank, e))?;
            for other in 1..with.size() {
                send(&mut **with, other, &message)?;
            }
        }
        let all: Vec<T> = serde_json::from_slice(&message).map_err(|e| bad(0, e))?;
        match all.len() == with.size() {
            true => Ok(all),
            false => {
                Err(RankError::Message { rank: 0, reason: format!("{} values for {} ranks", all.len(), with.size()) })
            }
        }
    }

    /// Returns when all ranks have called this.
    ///
    /// # Errors
    /// As [`Ranks::exchange`].
    pub(crate) fn wait(&mut self) -> Result<(), RankError> {
        self.exchange(()).map(drop)
    }

    /// Does some work on the first rank, and then on all others.
    ///
    /// # Errors
    /// Those of the work, and as [`Ranks::wait`].
    pub(crate) fn first_alone<T, E: From<RankError>>(&mut self, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        if self.is_first() {
            let done = work()?;
            self.wait()?;
            return Ok(done);
        }
        self.wait()?;
        work()
    }

    /// Checks that this value is the same on all ranks.
    ///
    /// # Errors
    /// [`RankError::Different`], and as [`Ranks::exchange`].
    pub(crate) fn same(&mut self, what: &'static str, own: &str) -> Result<(), RankError> {
        let all = self.exchange(own.to_string())?;
        match all.iter().position(|value| *value != all[0]) {
            None => Ok(()),
            Some(rank) => Err(RankError::Different { rank, what, expected: all[0].clone(), found: all[rank].clone() }),
        }
    }
}

/// Part `index` of `0..whole` in `parts` parts of nearly equal size.
fn part(whole: usize, parts: usize, index: usize) -> Range<usize> {
    // Without overflow for any size of a run.
    let at = |index: usize| (whole as u128 * index as u128 / parts.max(1) as u128) as usize;
    at(index)..at(index + 1)
}

/// The windows of group `group` of `groups`, if an update has `windows`.
pub fn group_of(windows: usize, groups: usize, group: usize) -> Range<usize> {
    part(windows, groups, group)
}

/// Sends a message with its length.
fn send(with: &mut dyn Communicator, to: usize, message: &[u8]) -> Result<(), RankError> {
    with.send(to, &(message.len() as u64).to_le_bytes())?;
    with.send(to, message)
}

/// Receives a message with its length.
fn receive(with: &mut dyn Communicator, from: usize) -> Result<Vec<u8>, RankError> {
    let mut length = [0; 8];
    with.receive(from, &mut length)?;
    let length = u64::from_le_bytes(length);
    if length > LARGEST {
        return Err(RankError::Message { rank: from, reason: format!("{length} bytes") });
    }
    let mut message = vec![0; length as usize];
    with.receive(from, &mut message)?;
    Ok(message)
}

//! Drawing training windows.

use ferrane_llm::random::Rng;
use serde::{Deserialize, Serialize};

use super::Split;

/// Draws window positions, all equally likely, from a seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sampler {
    rng: Rng,
    drawn: u64,
}

/// A sampler as a checkpoint keeps it. A sampler made from it goes on with the same draws.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplerState {
    /// The generator's state.
    pub rng: [u64; 4],
    /// Windows drawn so far.
    pub drawn: u64,
}

impl Sampler {
    /// A sampler at its beginning. The draws are a stream of their own under `seed`, apart from the
    /// initialization's.
    pub fn new(seed: u64) -> Sampler {
        Sampler { rng: Rng::stream(seed, 0x7361_6d70_6c65), drawn: 0 }
    }

    /// Where the next window of `seq` + 1 training ids starts.
    pub fn draw(&mut self, split: &Split, seq: usize) -> usize {
        self.drawn += 1;
        split.train.start + self.rng.below(split.positions(seq) as u64) as usize
    }

    /// Windows drawn so far.
    pub fn drawn(&self) -> u64 {
        self.drawn
    }

    /// What a checkpoint keeps.
    pub fn state(&self) -> SamplerState {
        SamplerState { rng: self.rng.state(), drawn: self.drawn }
    }

    /// The sampler that had this state.
    pub fn from_state(state: &SamplerState) -> Sampler {
        Sampler { rng: Rng::from_state(state.rng), drawn: state.drawn }
    }
}

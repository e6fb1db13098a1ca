//! The memory of a training process by owner.

use std::fmt;

use ferrane_host::buffer;
use ferrane_llm::config::Config;
use serde::ser::{Serialize, SerializeMap, Serializer};

/// The memory of an engine without the model, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineMemory {
    /// Surfaces: inputs with weights and activations, outputs.
    pub surfaces: usize,
    /// Activations kept for the backward pass, and the buffers of both passes.
    pub activations: usize,
    /// Intermediate values of evaluations, where the device keeps them in this process.
    pub arenas: usize,
    /// Constants of loaded programs, where the device keeps them in this process.
    pub constants: usize,
}

/// Bytes by owner, and the peak resident memory of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// The model's fp32 weights, with the frozen copies of adapted matrices.
    pub weights: usize,
    /// The accumulated gradients in fp32.
    pub gradients: usize,
    /// Both moments of the optimizer.
    pub moments: usize,
    /// Surfaces, activations, arenas and constants of the engine.
    pub engine: EngineMemory,
    /// Aligned scratch memory of this process without arenas and constants: widened and packed
    /// operands of products.
    pub scratch: usize,
    /// Peak resident memory; `None` if the system does not report it.
    pub peak: Option<usize>,
}

impl Memory {
    /// The memory of a run with this model. `peak` is the system's figure.
    pub fn new(config: &Config, engine: EngineMemory, peak: Option<usize>) -> Memory {
        let parameters = config.parameters() * size_of::<f32>();
        let scratch = buffer::aligned_bytes().saturating_sub(engine.arenas + engine.constants);
        Memory { weights: parameters, gradients: parameters, moments: 2 * parameters, engine, scratch, peak }
    }

    /// The memory that a run of windows of `seq` tokens needs at least. `layers` is the number of
    /// layers whose activations are kept: none for the reference, which keeps other ones.
    pub fn least(config: &Config, seq: usize, layers: usize) -> Memory {
        let engine = EngineMemory { activations: layers * layer_activations(config, seq), ..EngineMemory::default() };
        Memory { scratch: 0, ..Memory::new(config, engine, None) }
    }

    /// The sum of all owners but the rest of the peak.
    pub fn owned(&self) -> usize {
        let parts = Memory { peak: None, ..*self }.parts();
        parts.iter().map(|part| part.1).fold(0, usize::saturating_add)
    }

    /// The memory of a run that trains `trained` values and holds `frozen` bytes of matrices in
    /// addition to the weights.
    #[must_use]
    pub fn of_trained(self, trained: usize, frozen: usize) -> Memory {
        let values = trained * size_of::<f32>();
        Memory { weights: self.weights + frozen, gradients: values, moments: 2 * values, ..self }
    }

    /// Owners with their bytes. The last entry is the rest of the peak: code, mapped files,
    /// temporary allocations, and memory that was freed but still resident.
    pub fn parts(&self) -> Vec<(&'static str, usize)> {
        let EngineMemory { surfaces, activations, arenas, constants } = self.engine;
        let mut parts = vec![
            ("weights", self.weights),
            ("gradients", self.gradients),
            ("moments", self.moments),
            ("surfaces", surfaces),
            ("activations", activations),
            ("arenas", arenas),
            ("constants", constants),
            ("scratch", self.scratch),
        ];
        parts.extend(self.peak.map(|peak| ("other", peak.saturating_sub(self.owned()))));
        parts
    }
}

/// Bytes of the activations of a layer that the backward pass reads: the residual stream twice in
/// fp32, and in fp16 the two norms' outputs, queries, keys, values and their mix, and three
/// activations of the feed-forward part.
pub(crate) fn layer_activations(config: &Config, seq: usize) -> usize {
    let pre = if config.qk_norm { config.q_dim() + config.kv_dim() } else { 0 };
    let half = 2 * config.dim + 2 * config.q_dim() + 2 * config.kv_dim() + 3 * config.hidden + pre;
    seq * (4 * 2 * config.dim + 2 * half)
}

impl fmt::Display for Memory {
    /// A line for each of [`Memory::parts`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts().iter().try_for_each(|(name, bytes)| writeln!(f, "    {name:20} {:9.1} MB", *bytes as f64 / 1e6))
    }
}

impl Serialize for Memory {
    /// The bytes of [`Memory::parts`] by name, and the peak.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let parts = self.parts();
        let mut map = serializer.serialize_map(Some(parts.len() + 1))?;
        parts.iter().try_for_each(|(name, bytes)| map.serialize_entry(name, bytes))?;
        map.serialize_entry("peak", &self.peak)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrane_llm::config::preset;

    #[test]
    fn the_parts_are_the_whole() {
        let config = preset("stories260k").unwrap();
        let engine = EngineMemory { surfaces: 1 << 20, activations: 2, arenas: 3, constants: 4 };
        let memory = Memory::new(&config, engine, Some(100 << 20));
        assert_eq!((memory.moments, memory.gradients), (2 * memory.weights, memory.weights));
        assert_eq!(memory.parts().iter().map(|p| p.1).sum::<usize>(), 100 << 20);
        assert_eq!(memory.parts().last().unwrap().0, "other");
        let untold = Memory { peak: None, ..memory };
        assert_eq!((untold.parts().len(), untold.owned(), memory.owned()), (8, memory.owned(), untold.owned()));
        let json = serde_json::to_value(memory).unwrap();
        assert_eq!((&json["surfaces"], &json["peak"]), (&(1 << 20).into(), &(100 << 20).into()));
    }
}

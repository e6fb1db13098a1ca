//! What a program is made for.

use std::collections::BTreeMap;

use ferrane_mil::Opset;

use crate::tensor::Tensor;

/// The float type of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Precision {
    /// That of the model: FLOAT and DOUBLE are fp32, FLOAT16 is fp16.
    #[default]
    Model,
    /// Every float is fp16, ports and weights included, as engines compute. Finite numbers beyond
    /// fp16 become its largest.
    Fp16,
}

/// Options of [`Model::to_mil`](crate::Model::to_mil). The default makes a program for iOS 18 of a
/// model whose inputs have fixed extents.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// The number of each named extent: `batch` is 1. An extent without a name has the name of its
    /// input and its axis: `x.0`.
    pub dimensions: BTreeMap<String, usize>,
    /// Inputs with a value that does not change: they become constants, and what depends on them
    /// alone is computed when the program is made.
    pub values: BTreeMap<String, Tensor>,
    /// The float type of ports, weights and arithmetic.
    pub precision: Precision,
    /// The opset of the program. The default is iOS 18, or iOS 16 if the model has a
    /// `NonMaxSuppression`, which later opsets express only in part.
    pub opset: Option<Opset>,
}

impl Options {
    /// With a number for a named extent.
    pub fn dimension(mut self, name: &str, extent: usize) -> Options {
        self.dimensions.insert(name.to_string(), extent);
        self
    }

    /// With the numbers of a list such as `batch=1,seq=128`.
    ///
    /// # Errors
    /// An item is not `NAME=NUMBER`, or a name occurs twice.
    pub fn dimension_list(mut self, list: &str) -> Result<Options, String> {
        for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let parsed = item.rsplit_once('=').and_then(|(name, n)| Some((name.trim(), n.trim().parse().ok()?)));
            let Some((name, extent)) = parsed.filter(|(name, _)| !name.is_empty()) else {
                return Err(format!("`{item}` does not give an extent its number; write it as `batch=1`"));
            };
            if self.dimensions.insert(name.to_string(), extent).is_some_and(|old| old != extent) {
                return Err(format!("`{name}` has two numbers"));
            }
        }
        Ok(self)
    }

    /// With a fixed value for an input.
    pub fn value(mut self, input: &str, value: Tensor) -> Options {
        self.values.insert(input.to_string(), value);
        self
    }

    /// With this float type.
    pub fn precision(mut self, precision: Precision) -> Options {
        self.precision = precision;
        self
    }

    /// With this opset of the program instead of the default one.
    pub fn opset(mut self, opset: Opset) -> Options {
        self.opset = Some(opset);
        self
    }
}

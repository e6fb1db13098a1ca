//! The demand of an op: arithmetic and bytes, from its name and the types of its operands and
//! results.

/// The unit that carries out an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemandKind {
    /// The multiply-accumulate array with one constant operand: convolutions, `linear`.
    Array,
    /// The array with two runtime operands, which reaches a share of the rate.
    Product,
    /// The planar engine and copies, bound by their traffic.
    Planar,
    /// Outside the engine: the op's traffic, and leaving and returning to the engine.
    Host,
}

/// Arithmetic and bytes of an op. Bytes are those of the types without padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The unit that carries it out.
    pub kind: DemandKind,
    /// The number of multiplications and additions.
    pub flops: u64,
    /// Bytes of constant weights, as they are in memory at run time.
    pub weights: u64,
    /// Bytes of activations read.
    pub bytes_in: u64,
    /// Bytes of activations written.
    pub bytes_out: u64,
    /// Bytes of activations that pass between the stages of one op, such as the scores of an
    /// attention.
    pub inner: u64,
    /// The length of a row of the weights in elements: the input channels.
    pub row: u64,
    /// True if both operands are int8.
    pub int8: bool,
}

impl Demand {
    /// The demand of an op of the planar engine.
    pub fn planar(flops: u64, bytes_in: u64, bytes_out: u64) -> Demand {
        Demand { kind: DemandKind::Planar, flops, weights: 0, bytes_in, bytes_out, inner: 0, row: 0, int8: false }
    }

    /// The demand of a 1×1 convolution of `inputs` to `outputs` channels over `positions`, in fp16
    /// unless both operands are int8. `None` if a size overflows.
    pub fn conv(inputs: u64, outputs: u64, positions: u64, int8: bool) -> Option<Demand> {
        let taps = inputs.checked_mul(outputs)?;
        let width = if int8 { 1 } else { 2 };
        Some(Demand {
            kind: DemandKind::Array,
            flops: taps.checked_mul(positions)?.checked_mul(2)?,
            weights: taps.checked_mul(width)?,
            bytes_in: inputs.checked_mul(positions)?.checked_mul(width)?,
            bytes_out: outputs.checked_mul(positions)?.checked_mul(width)?,
            inner: 0,
            row: inputs,
            int8,
        })
    }

    /// Bytes of activations read and written.
    pub fn traffic(&self) -> u64 {
        self.bytes_in.saturating_add(self.bytes_out)
    }
}

//! What an op asks of the machine: arithmetic and bytes, from its name and the types around it.

/// What carries an op out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemandKind {
    /// The multiply-accumulate array, one operand constant: convolutions, `linear`.
    Array,
    /// The array, both operands made at run time, which reaches a share of its rate.
    Product,
    /// The planar engine and the copies: its time is its traffic.
    Planar,
    /// Not the engine: its traffic, and the way there and back.
    Host,
}

/// What an op asks of the machine. Bytes are those of the types, packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// What carries it out.
    pub kind: DemandKind,
    /// Multiplications and additions.
    pub flops: u64,
    /// Constant weights, as they lie in memory at run time.
    pub weights: u64,
    /// Activations read.
    pub bytes_in: u64,
    /// Activations written.
    pub bytes_out: u64,
    /// Activations that pass between the stages of one op: the scores of an attention.
    pub inner: u64,
    /// Elements between two rows of the weights: the input channels.
    pub row: u64,
    /// Both operands are int8.
    pub int8: bool,
}

impl Demand {
    /// Demand of the planar engine.
    pub fn planar(flops: u64, bytes_in: u64, bytes_out: u64) -> Demand {
        Demand { kind: DemandKind::Planar, flops, weights: 0, bytes_in, bytes_out, inner: 0, row: 0, int8: false }
    }

    /// A 1×1 convolution of `inputs` to `outputs` channels over `positions`, fp16 but for int8
    /// operands. `None` if a size overflows.
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

    /// Activations read and written.
    pub fn traffic(&self) -> u64 {
        self.bytes_in.saturating_add(self.bytes_out)
    }
}

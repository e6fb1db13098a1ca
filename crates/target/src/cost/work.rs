//! What an op asks of the machine: arithmetic and bytes, from its name and the types around it.

/// What carries an op out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The multiply-accumulate array, one operand constant: convolutions, `linear`.
    Array,
    /// The array, both operands made at run time, which reaches a share of its rate.
    Product,
    /// The planar engine and the copies: its time is its traffic.
    Planar,
}

/// What an op asks of the machine. Bytes are those of the types, packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// What carries it out.
    pub unit: Unit,
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

impl Work {
    /// Work of the planar engine.
    pub fn planar(flops: u64, bytes_in: u64, bytes_out: u64) -> Work {
        Work { unit: Unit::Planar, flops, weights: 0, bytes_in, bytes_out, inner: 0, row: 0, int8: false }
    }

    /// A 1×1 convolution of `inputs` to `outputs` channels over `positions`, fp16 but for int8 operands. `None` if a size
    /// overflows.
    pub fn conv(inputs: u64, outputs: u64, positions: u64, int8: bool) -> Option<Work> {
        let taps = inputs.checked_mul(outputs)?;
        let width = if int8 { 1 } else { 2 };
        Some(Work {
            unit: Unit::Array,
            flops: taps.checked_mul(positions)?.checked_mul(2)?,
            weights: taps.checked_mul(width)?,
            bytes_in: inputs.checked_mul(positions)?.checked_mul(width)?,
            bytes_out: outputs.checked_mul(positions)?.checked_mul(width)?,
            inner: 0,
            row: inputs,
            int8,
        })
    }

    /// A product `[rows, inner] · [inner, columns]` of two runtime operands in fp16, `batch` times. `None` if a size overflows.
    pub fn product(batch: u64, rows: u64, inner: u64, columns: u64) -> Option<Work> {
        let bytes = |a: u64, b: u64| batch.checked_mul(a)?.checked_mul(b)?.checked_mul(2);
        Some(Work {
            unit: Unit::Product,
            flops: bytes(rows, inner)?.checked_mul(columns)?,
            weights: 0,
            bytes_in: bytes(rows, inner)?.checked_add(bytes(inner, columns)?)?,
            bytes_out: bytes(rows, columns)?,
            inner: 0,
            row: inner,
            int8: false,
        })
    }

    /// Activations read and written.
    pub fn traffic(&self) -> u64 {
        self.bytes_in.saturating_add(self.bytes_out)
    }
}

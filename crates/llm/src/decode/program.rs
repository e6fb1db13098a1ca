//! The programs of a layer: `attnDecode` and `ffnDecode`, and `kvDecode`, which computes only the
//! last layer's keys and values.
//!
//! A window of `queries` positions is laid out in rows, `[1, queries, 1, channels]`, so that a
//! window of one position has rows as wide as one of 256. Matrices are inputs in their stored
//! layout, `[1, out, 1, in]`: one compile serves every layer, and all programs can bind the surface
//! of a matrix. Projections that read the same rows are one matrix: `wqkv` has the rows of Wq, Wk
//! and Wv, `w13` those of W1 and W3.
//!
//! | program | inputs | output, concatenated in each row |
//! |---|---|---|
//! | `attnDecode` | `x` normed rows, `wqkv`, `wo`, `rope`; with a cache also `keys`, `values` and `mask`; `bias`, `gain` if the model has them | `o` `[dim]`, the keys `[kv_dim]` and values `[kv_dim]` of the window |
//! | `ffnDecode` | `x` normed rows, `w13`, `w2` | `[dim]` |
//! | `kvDecode` | `x` normed rows, `wqkv`, `rope`; `bias`, `gain` | the keys `[kv_dim]` and values `[kv_dim]` of the window |
//!
//! `attnDecode` also exists for several sequences, one position of each: row `i` of the window
//! belongs to the sequence in slot `i`, whose caches are `keys`, `keys1`, … and `values`,
//! `values1`, …. Only the attention itself is computed for each sequence alone.
//!
//! With int8 weights each matrix `w…` has a second input `u…` `[1, 1, 1, out]`, see
//! [`super::quantize`]. int4 weights are constants, see [`super::constants`]: such programs belong to
//! a layer and have no inputs `w…`.
//!
//! With room for an adapter each matrix has two more inputs, `a…` `[1, width, 1, in]` and `b…` `[1,
//! out, 1, width]`, and the product is `x · wᵀ + (x · aᵀ) · bᵀ`. Each projection has `adapter_rank`
//! rows of `a…` and as many columns of `b…`; the columns of other projections are zero in its rows.
//! One product for all projections of a matrix costs less than one for each, which would have to be
//! put together again.
//!
//! *Everything that changes from token to token is an input.* The rotation of the window's
//! positions is `rope`, and `mask` says which cached positions a query sees, so one program serves
//! every sequence length up to the size of its cache. The mask of the first window of a sequence,
//! which has no cache, is a constant, unless only some layers have a window. A row of `rope` holds
//! the cosines, then the sines, of its position; a row of the mask has the cache's columns, then
//! the window's own. Both are padded to widths that are multiples of 32 (C138, C139), and so are
//! the rows of the cache `[1, kv_heads, cached, head_dim]`.
//!
//! The elements of a rotated pair are `head_dim / 2` elements away from each other. For models with
//! interleaved pairs, or with heads of which only a part is rotated, the rows of the projections
//! are permuted to that order ([`head_order`]), which changes no score. Pairs that are not rotated
//! have cosine 1 and sine 0.

use std::ops::Range;

use ferrane_mil::{Builder, DataType, MilError, Opset, Program, Transpose, Type, ValueId};

use super::constants::LayerMatrices;
use super::quantize::{ONE, WeightType};
use crate::config::{Activation, Config};
use crate::kernels;
use crate::kernels::ops::{self, OpResult, int};
use crate::layout::OUTPUT;
use crate::weights::Part;

/// The width of a row of a surface is a multiple of this, in elements.
const WIDTH: usize = 32;

/// Largest number of sequences in one program.
pub const MAX_SLOTS: usize = 16;

/// Names of the caches, by slot.
const KEYS: [&str; MAX_SLOTS] = [
    "keys", "keys1", "keys2", "keys3", "keys4", "keys5", "keys6", "keys7", "keys8", "keys9", "keys10", "keys11",
    "keys12", "keys13", "keys14", "keys15",
];
const VALUES: [&str; MAX_SLOTS] = [
    "values", "values1", "values2", "values3", "values4", "values5", "values6", "values7", "values8", "values9",
    "values10", "values11", "values12", "values13", "values14", "values15",
];

/// A kernel of generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DecodeKernel {
    /// Projections, rotation, attention, output projection.
    Attention,
    /// The feed-forward part: `W2 · (f(W1·x) ∘ W3·x)` with the activation `f`.
    FeedForward,
    /// Only keys and values: nothing reads the last layer's output at positions whose next token is
    /// given.
    KeysValues,
}

impl DecodeKernel {
    /// `attnDecode`, `ffnDecode` or `kvDecode`.
    pub fn name(self) -> &'static str {
        match self {
            DecodeKernel::Attention => "attnDecode",
            DecodeKernel::FeedForward => "ffnDecode",
            DecodeKernel::KeysValues => "kvDecode",
        }
    }
}

/// A matrix input of a layer: one stored matrix, or several that read the same rows, concatenated
/// along their rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DecodeMatrix {
    /// Query, key and value projections, `[q_dim + 2 · kv_dim, dim]`.
    Qkv,
    /// Output projection, `[dim, q_dim]`.
    O,
    /// `W1` and `W3`, `[2 · hidden, dim]`.
    W13,
    /// `W2`, `[dim, hidden]`.
    W2,
}

impl DecodeMatrix {
    /// The suffix of the names of its inputs, after `w`, `u`, `a` or `b`.
    fn suffix(self) -> &'static str {
        match self {
            DecodeMatrix::Qkv => "qkv",
            DecodeMatrix::O => "o",
            DecodeMatrix::W13 => "13",
            DecodeMatrix::W2 => "2",
        }
    }

    /// The stored matrices, in the order of their rows.
    pub fn parts(self) -> &'static [Part] {
        match self {
            DecodeMatrix::Qkv => &[Part::Wq, Part::Wk, Part::Wv],
            DecodeMatrix::O => &[Part::Wo],
            DecodeMatrix::W13 => &[Part::W1, Part::W3],
            DecodeMatrix::W2 => &[Part::W2],
        }
    }
}

/// An input of the programs. It holds weights or the cache of one layer, unless it is marked as
/// shared by all layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DecodeInput {
    /// The residual stream after RMSNorm; shared.
    X,
    /// Cosines and sines of each position; shared by the layers of a kind of attention.
    Rope,
    /// The additive mask of each query; shared by the layers of a kind of attention.
    Mask,
    /// The cache of keys of the sequence in this slot, `[1, kv_heads, cached, cache_width]`.
    Keys(usize),
    /// The cache of values of the sequence in this slot, with the shape of the keys.
    Values(usize),
    /// A matrix: fp16 values, or int8 codes.
    Weight(DecodeMatrix),
    /// The units of the rows of an int8 matrix, `[1, 1, 1, rows]` in fp16.
    Units(DecodeMatrix),
    /// The matrices A of an adapter, `[1, width, 1, in]` in fp16.
    Down(DecodeMatrix),
    /// The matrices B of an adapter, `[1, rows, 1, width]` in fp16.
    Up(DecodeMatrix),
    /// Biases of the query, key and value projections, concatenated.
    Bias,
    /// Gains of the QK-norm, one row for each query and key head.
    Gain,
}

impl DecodeInput {
    /// The name of the program's parameter.
    pub fn name(self) -> &'static str {
        match self {
            DecodeInput::X => "x",
            DecodeInput::Rope => "rope",
            DecodeInput::Mask => "mask",
            DecodeInput::Keys(slot) => KEYS[slot % MAX_SLOTS],
            DecodeInput::Values(slot) => VALUES[slot % MAX_SLOTS],
            DecodeInput::Weight(DecodeMatrix::Qkv) => "wqkv",
            DecodeInput::Weight(DecodeMatrix::O) => "wo",
            DecodeInput::Weight(DecodeMatrix::W13) => "w13",
            DecodeInput::Weight(DecodeMatrix::W2) => "w2",
            DecodeInput::Units(DecodeMatrix::Qkv) => "uqkv",
            DecodeInput::Units(DecodeMatrix::O) => "uo",
            DecodeInput::Units(DecodeMatrix::W13) => "u13",
            DecodeInput::Units(DecodeMatrix::W2) => "u2",
            DecodeInput::Down(DecodeMatrix::Qkv) => "aqkv",
            DecodeInput::Down(DecodeMatrix::O) => "ao",
            DecodeInput::Down(DecodeMatrix::W13) => "a13",
            DecodeInput::Down(DecodeMatrix::W2) => "a2",
            DecodeInput::Up(DecodeMatrix::Qkv) => "bqkv",
            DecodeInput::Up(DecodeMatrix::O) => "bo",
            DecodeInput::Up(DecodeMatrix::W13) => "b13",
            DecodeInput::Up(DecodeMatrix::W2) => "b2",
            DecodeInput::Bias => "bias",
            DecodeInput::Gain => "gain",
        }
    }

    /// Whether layers share a surface for this input.
    pub fn is_shared(self) -> bool {
        self == DecodeInput::X || self.is_of_kind()
    }

    /// Whether each kind of attention has its own surface for this input, which its layers share.
    pub fn is_of_kind(self) -> bool {
        matches!(self, DecodeInput::Rope | DecodeInput::Mask)
    }
}

/// What determines the programs.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodeShape {
    /// The model; must have passed [`Config::validate`].
    pub config: Config,
    /// Positions in a window; with several sequences, one for each.
    pub queries: usize,
    /// Number of sequences, each with its cache: 1, or up to [`MAX_SLOTS`].
    pub slots: usize,
    /// Positions that the cache holds; 0 for the first window of a sequence, which has no inputs
    /// `keys` and `values`.
    pub cached: usize,
    /// Element type of the matrices.
    pub weights: WeightType,
    /// Largest rank of an adapter; 0 for programs without inputs for one.
    pub adapter_rank: usize,
}

/// The permutation of a head's `head_dim` elements: element `i` of the programs is the stored
/// element `head_order[i]`.
pub fn head_order(config: &Config) -> Vec<usize> {
    let pairs = || (0..config.head_dim / 2).map(|i| config.rope.pair(config.head_dim, i));
    pairs().map(|(first, _)| first).chain(pairs().map(|(_, second)| second)).collect()
}

impl DecodeShape {
    /// Whether the mask is an input: with a cache, and if only some layers have a window.
    pub fn has_mask(&self) -> bool {
        let windows = self.config.attention_kinds().into_iter().map(|kind| self.config.window(kind));
        self.cached > 0 || windows.collect::<std::collections::HashSet<_>>().len() > 1
    }

    /// Elements in a row of the mask: the cache's columns, the window's, and padding.
    pub fn mask_width(&self) -> usize {
        (self.cached + self.own()).next_multiple_of(WIDTH)
    }

    /// Positions of the window that belong to one sequence.
    fn own(&self) -> usize {
        if self.slots > 1 { 1 } else { self.queries }
    }

    /// Elements in a row of the rotation: cosines, sines and padding.
    pub fn rope_width(&self) -> usize {
        self.config.head_dim.next_multiple_of(WIDTH)
    }

    /// Elements in a row of the cache: a head and padding.
    pub fn cache_width(&self) -> usize {
        self.config.head_dim.next_multiple_of(WIDTH)
    }

    /// Rows of A and columns of B in the inputs of an adapter: those of each stored matrix, and
    /// padding.
    pub fn adapter_width(&self, matrix: DecodeMatrix) -> usize {
        (matrix.parts().len() * self.adapter_rank).next_multiple_of(WIDTH)
    }

    /// Elements in a row of a kernel's output.
    pub fn out_width(&self, part: DecodeKernel) -> usize {
        match part {
            DecodeKernel::Attention => self.config.dim + 2 * self.config.kv_dim(),
            DecodeKernel::FeedForward => self.config.dim,
            DecodeKernel::KeysValues => 2 * self.config.kv_dim(),
        }
    }

    /// The inputs of a kernel in order of declaration. That is the alphabetical order of their
    /// names, because engines bind in alphabetical order (mil-text §6).
    pub fn inputs(&self, part: DecodeKernel) -> Vec<(DecodeInput, DataType, [usize; 4])> {
        let c = &self.config;
        let (heads, kv_heads, hd, t) = (c.heads, c.kv_heads, c.head_dim, self.queries);
        let half = DataType::Fp16;
        let mut inputs = vec![(DecodeInput::X, half, [1, t, 1, c.dim])];
        let mut matrix = |matrix, rows, cols| {
            let weight = DecodeInput::Weight(matrix);
            match self.weights {
                WeightType::Fp16 => inputs.push((weight, half, [1, rows, 1, cols])),
                WeightType::Int8 => {
                    inputs.push((weight, DataType::Int8, [1, rows, 1, cols]));
                    inputs.push((DecodeInput::Units(matrix), half, [1, 1, 1, rows]));
                }
                // Constants.
                WeightType::Int4 => {}
            }
            if self.adapter_rank > 0 {
                let width = self.adapter_width(matrix);
                inputs.push((DecodeInput::Down(matrix), half, [1, width, 1, cols]));
                inputs.push((DecodeInput::Up(matrix), half, [1, rows, 1, width]));
            }
        };
        match part {
            DecodeKernel::Attention => {
                matrix(DecodeMatrix::Qkv, c.q_dim() + 2 * c.kv_dim(), c.dim);
                matrix(DecodeMatrix::O, c.dim, c.q_dim());
                if self.has_mask() {
                    inputs.push((DecodeInput::Mask, half, [1, t, 1, self.mask_width()]));
                }
                if self.cached > 0 {
                    let cache = [1, kv_heads, self.cached, self.cache_width()];
                    for slot in 0..self.slots {
                        inputs.push((DecodeInput::Keys(slot), half, cache));
                        inputs.push((DecodeInput::Values(slot), half, cache));
                    }
                }
            }
            DecodeKernel::FeedForward => {
                matrix(DecodeMatrix::W13, 2 * c.hidden, c.dim);
                matrix(DecodeMatrix::W2, c.dim, c.hidden);
            }
            DecodeKernel::KeysValues => matrix(DecodeMatrix::Qkv, c.q_dim() + 2 * c.kv_dim(), c.dim),
        }
        if part != DecodeKernel::FeedForward {
            inputs.push((DecodeInput::Rope, half, [1, t, 1, self.rope_width()]));
            if c.qkv_bias {
                inputs.push((DecodeInput::Bias, half, [1, 1, 1, c.q_dim() + 2 * c.kv_dim()]));
            }
            if c.qk_norm {
                inputs.push((DecodeInput::Gain, half, [1, heads + kv_heads, 1, hd]));
            }
        }
        inputs.sort_by_key(|input| input.0.name());
        inputs
    }

    /// Builds the program of a kernel whose weights are inputs.
    ///
    /// # Errors
    /// A window of 0 positions, a number of sequences that it cannot have, or a size that does not
    /// fit MIL's int32 shapes; int4 weights, which are constants.
    pub fn build(&self, part: DecodeKernel) -> Result<Program, MilError> {
        self.build_over(part, None)
    }

    /// Builds the program of a kernel for one layer, whose matrices are constants if `layer` has
    /// them.
    ///
    /// # Errors
    /// As [`DecodeShape::build`].
    pub fn build_over(&self, part: DecodeKernel, layer: Option<&LayerMatrices>) -> Result<Program, MilError> {
        let c = &self.config;
        let sizes = [
            self.queries.checked_mul(c.gqa_ratio()),
            self.queries.checked_mul(c.q_dim() + 2 * c.kv_dim()),
            self.queries.checked_mul(c.hidden),
            self.queries.checked_mul(self.queries),
            self.cached.checked_add(self.queries).and_then(|n| n.checked_mul(c.heads)),
            (c.kv_dim()).checked_mul(self.cached),
            self.adapter_rank.checked_mul(4).and_then(|n| n.checked_mul(c.q_dim().max(c.dim).max(c.hidden))),
        ];
        let limit = i32::MAX as usize / 4;
        let several = (2..=MAX_SLOTS).contains(&self.slots) && self.slots == self.queries && self.cached > 0;
        let slots = self.slots == 1 || several;
        if !slots || self.queries == 0 || sizes.iter().any(|n| n.is_none_or(|n| n > limit)) {
            let (queries, cached) = (self.queries, self.cached);
            let reason = format!(
                "a window of {queries} positions of {} sequences after {cached} cached ones does not fit this model",
                self.slots
            );
            return Err(MilError::Invalid { reason });
        }
        let records = layer.map(LayerMatrices::records).unwrap_or_default();
        let mut b = Builder::over("main", Opset::IOS18, records);
        let mut inputs = Vec::new();
        for (input, dtype, shape) in self.inputs(part) {
            inputs.push((input, b.input(input.name(), Type::tensor(dtype, &shape))?));
        }
        let build = Build { shape: self, b, inputs, layer };
        match part {
            DecodeKernel::Attention => build.attention(),
            DecodeKernel::FeedForward => build.feed_forward(),
            DecodeKernel::KeysValues => build.keys_values(),
        }
    }
}

struct Build<'a> {
    shape: &'a DecodeShape,
    b: Builder,
    inputs: Vec<(DecodeInput, ValueId)>,
    /// The layer's matrices, if they are constants.
    layer: Option<&'a LayerMatrices>,
}

impl Build<'_> {
    fn input(&self, input: DecodeInput) -> OpResult {
        let found = self.inputs.iter().find(|(known, _)| *known == input).map(|(_, value)| *value);
        found.ok_or_else(|| MilError::Invalid { reason: format!("no input `{}`", input.name()) })
    }

    fn reshape(&mut self, name: &str, x: ValueId, shape: [usize; 4]) -> OpResult {
        ops::reshape(&mut self.b, name, x, shape)
    }

    /// `size` elements of each axis from `begin` on; `x` itself if that is its whole shape.
    fn slice(&mut self, name: &str, x: ValueId, begin: [usize; 4], size: [usize; 4]) -> OpResult {
        if self.b.shape(x)? == size {
            return Ok(x);
        }
        self.b.slice_by_size(name, x, &begin.map(int), &size.map(int))
    }

    /// Product with the rows `of` a matrix, and with those of the adapter, if there is room for
    /// one.
    fn linear(&mut self, name: &str, rows: ValueId, matrix: DecodeMatrix, of: Range<usize>) -> OpResult {
        if self.shape.adapter_rank == 0 {
            return self.product(name, rows, matrix, of);
        }
        let width = self.shape.adapter_width(matrix);
        let base = self.product(&format!("{name}_base"), rows, matrix, of.clone())?;
        let (a, b) = (self.input(DecodeInput::Down(matrix))?, self.input(DecodeInput::Up(matrix))?);
        let extent = |shape: &[usize], axis: usize| shape.get(axis).copied().unwrap_or(0);
        let (cols, all) = (extent(&self.b.shape(a)?, 3), extent(&self.b.shape(b)?, 1));
        let matrix = matrix.suffix();
        let a = self.reshape(&format!("a{matrix}_2d"), a, [1, 1, width, cols])?;
        let b = self.reshape(&format!("b{matrix}_2d"), b, [1, 1, all, width])?;
        let b = self.slice(&format!("b{matrix}_rows"), b, [0, 0, of.start, 0], [1, 1, of.len(), width])?;
        let low = self.b.matmul(&format!("{name}_low"), rows, a, Transpose::Y)?;
        let change = self.b.matmul(&format!("{name}_change"), low, b, Transpose::Y)?;
        self.b.add(name, base, change)
    }

    /// Product with the rows `of` a matrix: `y[t, o] = Σ_i x[t, i] · w[o, i]`. An int8 code is a
    /// multiple of 1/128 of its row's unit; `rows` are divided by 128 before the product, so that
    /// the product does not overflow where the result would not.
    fn product(&mut self, name: &str, rows: ValueId, matrix: DecodeMatrix, of: Range<usize>) -> OpResult {
        if self.shape.weights == WeightType::Int4 {
            return self.constant_product(name, rows, matrix, of);
        }
        let weight = self.input(DecodeInput::Weight(matrix))?;
        let units = DecodeInput::Units(matrix);
        let matrix = matrix.suffix();
        let [_, all, _, width] = self.b.shape(weight)?[..] else {
            return Err(MilError::Invalid { reason: format!("`w{matrix}` is not a matrix of a layer") });
        };
        let weight = self.reshape(&format!("w{matrix}_2d"), weight, [1, 1, all, width])?;
        let (begin, size) = ([0, 0, of.start, 0], [1, 1, of.len(), width]);
        let weight = self.slice(&format!("w{matrix}_rows"), weight, begin, size)?;
        match self.shape.weights {
            WeightType::Fp16 | WeightType::Int4 => self.b.matmul(name, rows, weight, Transpose::Y),
            WeightType::Int8 => {
                let unit = self.input(units)?;
                let unit = self.slice(&format!("u{matrix}_rows"), unit, [0, 0, 0, of.start], [1, 1, 1, of.len()])?;
                let codes = self.b.cast(&format!("w{matrix}_codes"), weight, DataType::Fp16)?;
                let rows = self.b.scale(&format!("{name}_small"), rows, 1.0 / ONE)?;
                let product = self.b.matmul(&format!("{name}_codes"), rows, codes, Transpose::Y)?;
                self.b.mul(name, product, unit)
            }
        }
    }

    /// The same with a constant matrix, which is multiplied as a whole: a part of its codes would
    /// be decoded.
    fn constant_product(&mut self, name: &str, rows: ValueId, matrix: DecodeMatrix, of: Range<usize>) -> OpResult {
        let suffix = matrix.suffix();
        let none = || MilError::Invalid { reason: format!("the matrix `w{suffix}` is no constant of a layer") };
        let weight = self.layer.ok_or_else(none)?.value(&mut self.b, &format!("w{suffix}"), matrix)?;
        let all = self.b.shape(weight)?[2];
        if of == (0..all) {
            return self.b.matmul(name, rows, weight, Transpose::Y);
        }
        let product = self.b.matmul(&format!("{name}_all"), rows, weight, Transpose::Y)?;
        self.slice(name, product, [0, 0, 0, of.start], [1, 1, self.shape.queries, of.len()])
    }

    fn feed_forward(mut self) -> Result<Program, MilError> {
        let c = &self.shape.config;
        let (t, dim, hidden) = (self.shape.queries, c.dim, c.hidden);
        let x = self.input(DecodeInput::X)?;
        let rows = self.reshape("x_rows", x, [1, 1, t, dim])?;
        let both = self.linear("h13", rows, DecodeMatrix::W13, 0..2 * hidden)?;
        let h1 = self.slice("h1", both, [0; 4], [1, 1, t, hidden])?;
        let h3 = self.slice("h3", both, [0, 0, 0, hidden], [1, 1, t, hidden])?;
        let turn = match c.activation {
            Activation::Silu => h1,
            Activation::GeluTanh => ops::gelu_inner(&mut self.b, h1)?,
        };
        let sig = self.b.sigmoid("sig", turn)?;
        let active = self.b.mul("silu", h1, sig)?;
        let gate = self.b.mul("gate", active, h3)?;
        let out = self.linear("ffn", gate, DecodeMatrix::W2, 0..dim)?;
        let out = self.reshape(OUTPUT, out, [1, t, 1, dim])?;
        self.b.finish(&[(OUTPUT, out)])
    }

    fn attention(mut self) -> Result<Program, MilError> {
        let (shape, c) = (self.shape, &self.shape.config);
        let (t, hd, heads, kv_heads) = (shape.queries, c.head_dim, c.heads, c.kv_heads);
        let (dim, kv) = (c.dim, c.kv_dim());
        let (qk, v_rows) = self.projections(0)?;
        let v = self.rows_to_heads("v", v_rows, kv_heads)?;
        let queries = self.slice("q_rope", qk, [0; 4], [1, heads, t, hd])?;
        let k = self.slice("k_rope", qk, [0, heads, 0, 0], [1, kv_heads, t, hd])?;
        let attended = self.attend(queries, k, v)?;

        let attended = self.heads_to_rows("attn_rows", attended, heads)?;
        let o = self.linear("o", attended, DecodeMatrix::O, 0..dim)?;
        let k_rows = self.heads_to_rows("k_rows", k, kv_heads)?;
        let out = self.b.concat("out_rows", &[o, k_rows, v_rows], 3)?;
        let out = self.reshape(OUTPUT, out, [1, t, 1, dim + 2 * kv])?;
        self.b.finish(&[(OUTPUT, out)])
    }

    fn keys_values(mut self) -> Result<Program, MilError> {
        let c = &self.shape.config;
        let (t, heads, kv_heads, kv) = (self.shape.queries, c.heads, c.kv_heads, c.kv_dim());
        let (k, v_rows) = self.projections(heads)?;
        let k_rows = self.heads_to_rows("k_rows", k, kv_heads)?;
        let out = self.b.concat("out_rows", &[k_rows, v_rows], 3)?;
        let out = self.reshape(OUTPUT, out, [1, t, 1, 2 * kv])?;
        self.b.finish(&[(OUTPUT, out)])
    }

    /// Query and key heads from head `first` on, normalized and rotated together, `[1, heads, t,
    /// head_dim]`, and the rows of the values.
    fn projections(&mut self, first: usize) -> Result<(ValueId, ValueId), MilError> {
        let c = &self.shape.config;
        let (t, dim, kv, heads) = (self.shape.queries, c.dim, c.kv_dim(), c.heads + c.kv_heads - first);
        let (begin, turned) = (first * c.head_dim, heads * c.head_dim);
        let all = turned + kv;
        let x = self.input(DecodeInput::X)?;
        let rows = self.reshape("x_rows", x, [1, 1, t, dim])?;
        let mut qkv = self.linear("qkv", rows, DecodeMatrix::Qkv, begin..begin + all)?;
        if c.qkv_bias {
            let bias = self.input(DecodeInput::Bias)?;
            let bias = self.slice("bias_in", bias, [0, 0, 0, begin], [1, 1, 1, all])?;
            qkv = self.b.add("qkv_biased", qkv, bias)?;
        }
        let qk = self.slice("qk", qkv, [0; 4], [1, 1, t, turned])?;
        let v_rows = self.slice("v_rows", qkv, [0, 0, 0, turned], [1, 1, t, kv])?;
        let qk = self.rows_to_heads("qk", qk, heads)?;
        let qk = if c.qk_norm { self.head_norm(qk, first)? } else { qk };
        Ok((self.rotate(qk, heads)?, v_rows))
    }

    /// Rows `[1, 1, t, heads · head_dim]` as `[1, heads, t, head_dim]`.
    fn rows_to_heads(&mut self, name: &str, x: ValueId, heads: usize) -> OpResult {
        let (t, hd) = (self.shape.queries, self.shape.config.head_dim);
        let split = self.reshape(&format!("{name}_split"), x, [1, t, heads, hd])?;
        self.b.transpose(&format!("{name}_heads"), split, &[0, 2, 1, 3])
    }

    /// `[1, heads, t, head_dim]` as rows `[1, 1, t, heads · head_dim]`.
    fn heads_to_rows(&mut self, name: &str, x: ValueId, heads: usize) -> OpResult {
        let (t, hd) = (self.shape.queries, self.shape.config.head_dim);
        let split = self.b.transpose(&format!("{name}_split"), x, &[0, 2, 1, 3])?;
        self.reshape(name, split, [1, 1, t, heads * hd])
    }

    /// RMSNorm of each head, with the gains of the heads from `first` on.
    fn head_norm(&mut self, x: ValueId, first: usize) -> OpResult {
        let config = &self.shape.config;
        let heads = config.heads + config.kv_heads - first;
        let gain = self.input(DecodeInput::Gain)?;
        let gain = self.slice("gain_in", gain, [0, first, 0, 0], [1, heads, 1, config.head_dim])?;
        ops::head_norm(&mut self.b, config, "qk", x, gain)
    }

    /// Rotates the halves (a, b) of each head: (a · cos − b · sin, b · cos + a · sin).
    fn rotate(&mut self, x: ValueId, heads: usize) -> OpResult {
        let (t, hd) = (self.shape.queries, self.shape.config.head_dim);
        let (half, angles) = ([1, heads, t, hd / 2], [1, 1, t, hd / 2]);
        let rope = self.input(DecodeInput::Rope)?;
        let table = self.reshape("rope_rows", rope, [1, 1, t, self.shape.rope_width()])?;
        let cos = self.slice("rope_cos", table, [0; 4], angles)?;
        let sin = self.slice("rope_sin", table, [0, 0, 0, hd / 2], angles)?;
        let a = self.slice("qk_a", x, [0; 4], half)?;
        let b = self.slice("qk_b", x, [0, 0, 0, hd / 2], half)?;
        let (a_cos, b_sin) = (self.b.mul("qk_a_cos", a, cos)?, self.b.mul("qk_b_sin", b, sin)?);
        let (b_cos, a_sin) = (self.b.mul("qk_b_cos", b, cos)?, self.b.mul("qk_a_sin", a, sin)?);
        let first = self.b.sub("qk_first", a_cos, b_sin)?;
        let second = self.b.add("qk_second", b_cos, a_sin)?;
        self.b.concat("qk_rope", &[first, second], 3)
    }

    /// Attention of each sequence's part of the window over its cache and itself.
    fn attend(&mut self, q: ValueId, k: ValueId, v: ValueId) -> OpResult {
        let shape = self.shape;
        let mask = match shape.has_mask() {
            false => kernels::mask(&mut self.b, shape.queries, shape.config.window(shape.config.attention(0)))?,
            true => {
                let mask = self.input(DecodeInput::Mask)?;
                self.reshape("mask_rows", mask, [1, 1, shape.queries, shape.mask_width()])?
            }
        };
        if shape.slots == 1 {
            return self.attend_slot(0, [q, k, v], mask);
        }
        let mut parts = Vec::new();
        for slot in 0..shape.slots {
            let mut row = |name: &str, x: ValueId| {
                let heads = self.b.shape(x)?[1];
                self.slice(&format!("{name}_{slot}"), x, [0, 0, slot, 0], [1, heads, 1, shape.config.head_dim])
            };
            let rows = [row("q", q)?, row("k", k)?, row("v", v)?];
            parts.push(self.attend_slot(slot, rows, mask)?);
        }
        self.b.concat("attn_slots", &parts, 2)
    }

    /// Attention of a sequence's queries `[1, heads, own, head_dim]` over its cache and its own
    /// keys and values `[1, kv_heads, own, head_dim]`. The query heads of a kv head are adjacent,
    /// so `[1, heads, own, n]` is `[1, kv_heads, ratio · own, n]` and keys and values are not
    /// repeated.
    fn attend_slot(&mut self, slot: usize, [q, k, v]: [ValueId; 3], mask: ValueId) -> OpResult {
        let (shape, c) = (self.shape, &self.shape.config);
        let (t, hd, heads, kv_heads) = (shape.own(), c.head_dim, c.heads, c.kv_heads);
        let (cached, tall) = (shape.cached, t * c.gqa_ratio());
        let seen = cached + t;
        let of = |name: &str| if shape.slots == 1 { name.to_string() } else { format!("{name}_{slot}") };
        let q = self.regroup(&of("q_group"), q, [1, kv_heads, tall, hd])?;
        let own = self.b.matmul(&of("scores_own"), q, k, Transpose::Y)?;
        let cache = [1, kv_heads, cached, hd];
        let scores = match cached {
            0 => own,
            _ => {
                let keys = self.input(DecodeInput::Keys(slot))?;
                let keys = self.slice(&of("keys_in"), keys, [0; 4], cache)?;
                let before = self.b.matmul(&of("scores_before"), q, keys, Transpose::Y)?;
                self.b.concat(&of("scores"), &[before, own], 3)?
            }
        };
        let scores = self.regroup(&of("scores_heads"), scores, [1, heads, t, seen])?;
        let scaled = match c.attn_softcap {
            None => self.b.scale(&of("scaled"), scores, c.score_scale() as f32)?,
            Some(cap) => {
                let small = self.b.scale(&of("scores_small"), scores, c.score_scale() as f32 / cap)?;
                let tanh = self.b.tanh(&of("scores_tanh"), small)?;
                self.b.scale(&of("scaled"), tanh, cap)?
            }
        };
        let mask = match shape.has_mask() {
            false => mask,
            true => self.slice(&of("mask_in"), mask, [0, 0, slot, 0], [1, 1, t, seen])?,
        };
        let masked = self.b.add(&of("masked"), scaled, mask)?;
        let probs = self.b.softmax(&of("probs"), masked, -1)?;
        let probs = self.regroup(&of("probs_group"), probs, [1, kv_heads, tall, seen])?;
        let own = self.slice(&of("probs_own"), probs, [0, 0, 0, cached], [1, kv_heads, tall, t])?;
        let mut attended = self.b.matmul(&of("attn_own"), own, v, Transpose::Neither)?;
        if cached > 0 {
            let values = self.input(DecodeInput::Values(slot))?;
            let values = self.slice(&of("values_in"), values, [0; 4], cache)?;
            let before = self.slice(&of("probs_before"), probs, [0; 4], [1, kv_heads, tall, cached])?;
            let before = self.b.matmul(&of("attn_before"), before, values, Transpose::Neither)?;
            attended = self.b.add(&of("attn"), before, attended)?;
        }
        self.regroup(&of("attn_heads"), attended, [1, heads, t, hd])
    }

    /// Reshapes `x` unless it has that shape already.
    fn regroup(&mut self, name: &str, x: ValueId, shape: [usize; 4]) -> OpResult {
        if self.b.shape(x)? == shape { Ok(x) } else { self.reshape(name, x, shape) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::preset;

    #[test]
    fn every_option_builds() {
        for bits in 0..64 {
            let on = |bit: u32| bits & (1 << bit) != 0;
            let mut config = preset("stories260k").unwrap();
            (config.qk_norm, config.qkv_bias) = (on(0), on(1));
            config.kv_heads = if on(2) { config.heads } else { config.heads / 2 };
            let weights = if on(3) { WeightType::Fp16 } else { WeightType::Int8 };
            let adapter_rank = if on(5) { 12 } else { 0 };
            for (queries, slots, cached) in [(1, 1, 32), (4, 1, 256), (32, 1, 0), (3, 3, 64), (16, 16, 128)] {
                let shape = DecodeShape { config: config.clone(), queries, slots, cached, weights, adapter_rank };
                for part in [DecodeKernel::Attention, DecodeKernel::FeedForward, DecodeKernel::KeysValues] {
                    let program = shape.build(part).unwrap();
                    let main = program.function("main").unwrap();
                    let out = main.value(main.body().outputs[0]);
                    assert_eq!(out.ty.shape().unwrap(), [1, queries, 1, shape.out_width(part)]);
                    let names: Vec<_> = main.inputs.iter().map(|v| main.value(*v).name.as_str()).collect();
                    assert!(names.is_sorted() && names.iter().all(|n| n.to_lowercase() == **n), "{names:?}");
                    for input in &main.inputs {
                        let width = *main.value(*input).ty.shape().unwrap().last().unwrap();
                        assert!(width.is_multiple_of(4) && (width >= 32 || config.qk_norm), "{width}");
                    }
                    assert!(main.values.iter().map(|v| v.ty.rank().unwrap_or(0)).max() <= Some(4));
                }
            }
        }
    }

    #[test]
    fn sizes_that_mil_cannot_write_are_errors() {
        let config = preset("stories260k").unwrap();
        let sizes = [(0, 1, 0), (usize::MAX / 2, 1, 0), (1, 1, usize::MAX / 2), (1 << 29, 1, 0)];
        // Sequences without a query each, without caches, or too many.
        let slots = [(4, 2, 64), (1, 0, 64), (2, 2, 0), (17, 17, 64)];
        for (queries, slots, cached) in sizes.into_iter().chain(slots) {
            let (config, weights) = (config.clone(), WeightType::Fp16);
            let shape = DecodeShape { config, queries, slots, cached, weights, adapter_rank: 0 };
            assert!(shape.build(DecodeKernel::Attention).is_err(), "{queries} {slots} {cached}");
        }
    }
}

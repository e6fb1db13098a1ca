//! The functions of a package. Both read the same records of weights and the same states.
//!
//! Activations are `[1, channels, 1, tokens]`, a head's values lie along axis 2 of `[1, heads,
//! head_dim, tokens]`, and every projection is a 1×1 convolution. Nothing has more than four axes,
//! and all extents are known.
//!
//! *What depends on the position is computed at the start*: rows of the embedding, cosines and
//! sines, and the mask are parts of constant tables at a computed place. A row of the mask depends
//! only on the distance of a key from the first token, so the mask of every position is a piece of
//! one table of twice the context. The layers between are free of computed places.
//!
//! *The caches are read at the start and written at the end.* A layer attends to the cache as it
//! was, followed by the keys and values of the window itself, so it need not wait for a write; and
//! a state is written once, where its rows are replaced by those of all layers.
//!
//! RMSNorm divides its input by the largest magnitude first. The squares are then at most 1, where
//! those of real models overflow fp16.

use ferrane_mil::{
    Builder, Constant, Conv, DataType, MilError, Opset, Program, ReducedDims, Transpose, Type, ValueId, op,
};
use half::f16;

use super::store::{Matrix, StoredLayer, StoredModel, Vector, ints};
use crate::config::{Activation, AttentionKind, Config};
use crate::kernels::ops::{self, OpResult, int};
use crate::kernels::{MASKED, causal_mask};

/// Ids of the tokens, int32 `[1, tokens]`.
pub const INPUT_IDS: &str = "input_ids";
/// Position of the first token, int32 `[1]`.
pub const CURRENT_POS: &str = "current_pos";
/// Which of the tokens the logits belong to, int32 `[1]`; only of `prefill`.
pub const LAST_INDEX: &str = "last_index";
/// The state of keys, fp16 `[layers, kv_heads, context, head_dim]`.
pub const KEY_CACHE: &str = "key_cache";
/// The state of values, with the shape of the keys.
pub const VALUE_CACHE: &str = "value_cache";
/// The logits of the next token, fp16 `[parts, vocab / parts]` in the order of the ids.
pub const LOGITS: &str = "logits";
/// The residual stream from the part before, fp16 `[1, dim, 1, tokens]`: an input of every part but
/// the first.
pub const HIDDEN: &str = "hidden";
/// The residual stream for the part after: the output of every part but the last.
pub const HIDDEN_OUT: &str = "hidden_out";

/// The smallest magnitude that RMSNorm divides by. Smaller inputs are divided by it and stay
/// normal numbers of fp16 down to a thousandth of it; with a smaller one a quotient could overflow.
const LEAST: f32 = 9.765_625e-4;

/// The sizes of a function.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallShape {
    /// Positions in the caches.
    pub(super) context: usize,
    /// Tokens of a call.
    pub(super) tokens: usize,
}

impl CallShape {
    /// Bytes of the constant tables of a kind of attention.
    pub(super) fn table_bytes(&self, config: &Config) -> u64 {
        let masks = self.tokens * (2 * self.context + self.tokens);
        (2 * (masks + config.head_dim * self.context)) as u64
    }
}

/// A cache as it was at the start, and a layer's place in it.
type Cached = (ValueId, usize);

/// What layers of a kind of attention share.
struct Shared {
    kind: AttentionKind,
    /// `[1, 1, tokens, context + tokens]`, added to the scores.
    mask: ValueId,
    /// Cosines and sines `[1, 1, head_dim / 2, tokens]`; `None` if nothing is rotated.
    rotation: Option<(ValueId, ValueId)>,
}

/// A function that is being built.
struct FunctionBuild<'a> {
    config: &'a Config,
    window: CallShape,
    b: Builder,
}

/// The caches of a function's layers.
struct Caches {
    states: [ValueId; 2],
    /// Keys and values as they were at the start.
    before: [ValueId; 2],
}

/// Adds a function to the records that are in `program`, or to those of the store.
pub(super) fn function(
    config: &Config,
    window: CallShape,
    store: &StoredModel,
    records: ferrane_mil::Weights,
    name: &str,
) -> Result<Program, MilError> {
    let tokens = window.tokens;
    let mut b = Builder::over(name, Opset::IOS18, records);
    let number = |b: &mut Builder, name| b.input(name, Type::tensor(DataType::Int32, &[1]));
    let position = if store.layers.is_empty() { None } else { Some(number(&mut b, CURRENT_POS)?) };
    let from = match &store.embed {
        Some(_) => b.input(INPUT_IDS, Type::tensor(DataType::Int32, &[1, tokens]))?,
        None => b.input(HIDDEN, Type::tensor(DataType::Fp16, &[1, config.dim, 1, tokens]))?,
    };
    let last = if store.norm.is_some() && tokens > 1 { Some(number(&mut b, LAST_INDEX)?) } else { None };
    let mut g = FunctionBuild { config, window, b };
    let mut x = match &store.embed {
        Some(embed) => g.embedding(embed, from)?,
        None => from,
    };
    if let Some(position) = position {
        x = g.layers(store, x, position)?;
    }
    match &store.norm {
        Some(norm) => {
            let logits = g.logits(norm, &store.classifier, x, last)?;
            g.b.finish(&[(LOGITS, logits)])
        }
        None => g.b.finish(&[(HIDDEN_OUT, x)]),
    }
}

impl FunctionBuild<'_> {
    /// The stream after the layers of the store, whose caches are updated.
    fn layers(&mut self, store: &StoredModel, mut x: ValueId, position: ValueId) -> OpResult {
        let (config, context) = (self.config, self.window.context);
        let cache = Type::tensor(DataType::Fp16, &[store.layers.len(), config.kv_heads, context, config.head_dim]);
        let state = |b: &mut Builder, name| b.input(name, Type::State(Box::new(cache.clone())));
        let states = [state(&mut self.b, KEY_CACHE)?, state(&mut self.b, VALUE_CACHE)?];
        let read = |b: &mut Builder, name: &str, state: ValueId| b.op(op::READ_STATE, name, [("input", state.into())]);
        let before = [read(&mut self.b, "keys_before", states[0])?, read(&mut self.b, "values_before", states[1])?];
        let caches = Caches { states, before };
        let indices = || store.first..store.first + store.layers.len();
        let kinds = config.attention_kinds_of(indices());
        let shared = kinds.into_iter().map(|kind| self.shared(kind, position));
        let shared = shared.collect::<Result<Vec<_>, _>>()?;
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for (index, layer) in indices().zip(&store.layers) {
            let kind = config.attention(index);
            // Every kind of the layers has its entry.
            let shared = shared.iter().find(|shared| shared.kind == kind).unwrap_or(&shared[0]);
            let own = keys.len();
            let cached = caches.before.map(|cache| (cache, own));
            let (next, k, v) = self.layer(index, layer, shared, cached, x)?;
            x = next;
            keys.push(k);
            values.push(v);
        }
        for (name, which, rows) in [("keys", 0, keys), ("values", 1, values)] {
            self.write(name, caches.states[which], caches.before[which], &rows, position)?;
        }
        Ok(x)
    }

    /// The rows of the tokens in the embedding, `[1, dim, 1, tokens]`.
    fn embedding(&mut self, embed: &Matrix, ids: ValueId) -> OpResult {
        let table = embed.table(&mut self.b, "embed")?;
        let rows = self.b.gather("embed_rows", table, ids, 0)?;
        let columns = self.b.transpose("embed_columns", rows, &[0, 2, 1])?;
        let x = self.b.expand_dims("x", columns, &[2])?;
        match self.config.embed_scale {
            1.0 => Ok(x),
            scale => self.b.scale("x_scaled", x, scale),
        }
    }

    /// A place in a tensor of rank 4: `value` along `axis`, 0 along the others.
    fn place(&mut self, name: &str, value: ValueId, axis: usize) -> OpResult {
        let zeros = |count: usize| ints(&vec![0; count]);
        let mut parts = Vec::new();
        if axis > 0 {
            parts.push(self.b.constant(&format!("{name}_before"), zeros(axis))?);
        }
        parts.push(value);
        if axis < 3 {
            parts.push(self.b.constant(&format!("{name}_after"), zeros(3 - axis))?);
        }
        self.b.concat(name, &parts, 0)
    }

    /// `columns` columns of a constant table `[1, 1, rows, …]` from a computed one on.
    fn columns(&mut self, name: &str, table: ValueId, begin: ValueId, columns: usize) -> OpResult {
        let rows = self.b.shape(table)?[2];
        let size = ints(&[1, 1, rows, columns]);
        self.b.op(op::SLICE_BY_SIZE, name, [("x", table.into()), ("begin", begin.into()), ("size", size.into())])
    }

    fn table(&mut self, name: &str, [rows, columns]: [usize; 2], value: impl Fn(usize, usize) -> f16) -> OpResult {
        let cells = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        let bytes: Vec<u8> = cells.flat_map(|(row, column)| value(row, column).to_le_bytes()).collect();
        let path = "@model_path/weights/weight.bin";
        self.b.weight(name, path, DataType::Fp16, &[1, 1, rows, columns], bytes)
    }

    /// Mask and rotation of a kind of attention.
    fn shared(&mut self, kind: AttentionKind, position: ValueId) -> Result<Shared, MilError> {
        let CallShape { context, tokens } = self.window;
        let reach = self.config.window(kind);
        // Column c of the table is the key at distance c − context from the first token.
        let seen =
            |row: usize, column: usize| column < context && reach.is_none_or(|reach| row + context - column < reach);
        let masked = f16::from_f32(MASKED);
        let cell = |row, column| if seen(row, column) { f16::ZERO } else { masked };
        let table = self.table("mask_table", [tokens, 2 * context], cell)?;
        let begin = self.b.sub("mask_begin", ints(&[context]), position)?;
        let begin = self.place("mask_place", begin, 3)?;
        let before = self.columns("mask_before", table, begin, context)?;
        let own = causal_mask(tokens, reach);
        let own = self.table("mask_own", [tokens, tokens], |row, column| own[row * tokens + column])?;
        let mask = self.b.concat("mask", &[before, own], 3)?;

        let rotation = self.config.rotation(kind, context);
        if rotation.pairs() == 0 {
            return Ok(Shared { kind, mask, rotation: None });
        }
        let half = self.config.head_dim / 2;
        let cosines = |pair, position| f16::from_f64(rotation.at(pair, position).0);
        let sines = |pair, position| f16::from_f64(rotation.at(pair, position).1);
        let cos = self.table("cos_table", [half, context], cosines)?;
        let sin = self.table("sin_table", [half, context], sines)?;
        let begin = self.place("rope_place", position, 3)?;
        let (cos, sin) = (self.columns("cos", cos, begin, tokens)?, self.columns("sin", sin, begin, tokens)?);
        Ok(Shared { kind, mask, rotation: Some((cos, sin)) })
    }

    /// RMSNorm along an axis, times a gain.
    fn norm(&mut self, name: &str, x: ValueId, axis: i32, gain: &Vector) -> OpResult {
        let of = |part: &str| format!("{name}_{part}");
        let axis_at = axis as usize;
        let b = &mut self.b;
        let magnitude = b.abs(&of("abs"), x)?;
        let top = b.reduce_max(&of("max"), magnitude, &[axis], ReducedDims::Keep)?;
        let least = b.scalar_like(top, LEAST)?;
        let top = b.maximum(&of("top"), top, least)?;
        let one = b.scalar_like(top, 1.0)?;
        let inverse = b.real_div(&of("inverse"), one, top)?;
        let small = b.mul(&of("small"), x, inverse)?;
        // They are within these bounds but for a rounding; the checker of ranges cannot know that.
        let bounds =
            [("x", small.into()), ("alpha", Constant::fp16(-1.0).into()), ("beta", Constant::fp16(1.0).into())];
        let small = b.op(op::CLIP, &of("unit"), bounds)?;
        let squares = b.mul(&of("squares"), small, small)?;
        let mean = b.reduce_mean(&of("mean"), squares, &[axis], ReducedDims::Keep)?;
        // The epsilon is divided by the same square.
        let root = b.scale(&of("eps_root"), inverse, self.config.norm_eps.sqrt())?;
        let eps = b.mul(&of("eps"), root, root)?;
        let mean = b.add(&of("mean_eps"), mean, eps)?;
        let power = b.scalar_like(mean, -0.5)?;
        let scale = b.pow(&of("inverse_rms"), mean, power)?;
        let normed = b.mul(&of("normed"), small, scale)?;
        let gain = gain.along(b, &of("gain"), axis_at)?;
        b.mul(name, normed, gain)
    }

    fn product(&mut self, name: &str, x: ValueId, matrix: &Matrix, bias: Option<&Vector>) -> OpResult {
        let filter = matrix.filter(&mut self.b, &format!("{name}_weight"))?;
        let y = self.b.conv(name, x, filter, None, &Conv::default())?;
        let Some(bias) = bias else { return Ok(y) };
        let bias = bias.along(&mut self.b, &format!("{name}_bias"), 1)?;
        self.b.add(&format!("{name}_biased"), y, bias)
    }

    /// A layer: the stream after it, and the rows of its keys and values `[1, kv_heads, tokens,
    /// head_dim]`.
    fn layer(
        &mut self,
        index: usize,
        layer: &StoredLayer,
        shared: &Shared,
        cached: [Cached; 2],
        x: ValueId,
    ) -> Result<(ValueId, ValueId, ValueId), MilError> {
        let of = |part: &str| format!("l{index}_{part}");
        let normed = self.norm(&of("attn_norm"), x, 1, &layer.attn_norm)?;
        let (attended, k, v) = self.attention(index, layer, shared, cached, normed)?;
        let mut branch = self.product(&of("o"), attended, &layer.o, None)?;
        if let Some(gain) = &layer.post_attn_norm {
            branch = self.norm(&of("post_attn_norm"), branch, 1, gain)?;
        }
        let x = self.b.add(&of("middle"), x, branch)?;

        let normed = self.norm(&of("ffn_norm"), x, 1, &layer.ffn_norm)?;
        let h1 = self.product(&of("h1"), normed, &layer.w1, None)?;
        let h3 = self.product(&of("h3"), normed, &layer.w3, None)?;
        let turn = match self.config.activation {
            Activation::Silu => h1,
            Activation::GeluTanh => {
                // Beyond these bounds the sigmoid is 0 or 1 in fp16, and the cube could overflow.
                let (least, most) = (Constant::fp16(-10.0), Constant::fp16(10.0));
                let args = [("x", h1.into()), ("alpha", least.into()), ("beta", most.into())];
                let near = self.b.op(op::CLIP, &of("gelu_near"), args)?;
                ops::gelu_inner(&mut self.b, near)?
            }
        };
        let sigmoid = self.b.sigmoid(&of("sigmoid"), turn)?;
        let active = self.b.mul(&of("active"), h1, sigmoid)?;
        let gate = self.b.mul(&of("gate"), active, h3)?;
        let mut branch = self.product(&of("ffn"), gate, &layer.w2, None)?;
        if let Some(gain) = &layer.post_ffn_norm {
            branch = self.norm(&of("post_ffn_norm"), branch, 1, gain)?;
        }
        Ok((self.b.add(&of("out"), x, branch)?, k, v))
    }

    /// A projection as heads `[1, heads, head_dim, tokens]`, normalized and rotated.
    fn heads(
        &mut self,
        name: &str,
        x: ValueId,
        (matrix, bias): &(Matrix, Option<Vector>),
        gain: Option<&Vector>,
        rotation: Option<(ValueId, ValueId)>,
    ) -> OpResult {
        let (head, tokens) = (self.config.head_dim, self.window.tokens);
        let heads = matrix.rows() / head;
        let x = self.product(name, x, matrix, bias.as_ref())?;
        let mut x = ops::reshape(&mut self.b, &format!("{name}_heads"), x, [1, heads, head, tokens])?;
        if let Some(gain) = gain {
            x = self.norm(&format!("{name}_norm"), x, 2, gain)?;
        }
        let Some((cos, sin)) = rotation else { return Ok(x) };
        // Halves (a, b) become (a · cos − b · sin, b · cos + a · sin).
        let of = |part: &str| format!("{name}_{part}");
        let size = [1, int(heads), int(head / 2), int(tokens)];
        let first = self.b.slice_by_size(&of("a"), x, &[0; 4], &size)?;
        let second = self.b.slice_by_size(&of("b"), x, &[0, 0, int(head / 2), 0], &size)?;
        let (a_cos, b_sin) = (self.b.mul(&of("a_cos"), first, cos)?, self.b.mul(&of("b_sin"), second, sin)?);
        let (b_cos, a_sin) = (self.b.mul(&of("b_cos"), second, cos)?, self.b.mul(&of("a_sin"), first, sin)?);
        let first = self.b.sub(&of("first"), a_cos, b_sin)?;
        let second = self.b.add(&of("second"), b_cos, a_sin)?;
        self.b.concat(&of("turned"), &[first, second], 2)
    }

    /// Attention: `[1, q_dim, 1, tokens]`, and the rows of keys and values. The query heads of a kv
    /// head are adjacent, so their rows are one matrix, and keys and values are not repeated.
    fn attention(
        &mut self,
        index: usize,
        layer: &StoredLayer,
        shared: &Shared,
        [cached_keys, cached_values]: [Cached; 2],
        x: ValueId,
    ) -> Result<(ValueId, ValueId, ValueId), MilError> {
        let (c, CallShape { context, tokens }) = (self.config, self.window);
        let (heads, kv_heads, head) = (c.heads, c.kv_heads, c.head_dim);
        let (tall, seen) = (c.gqa_ratio() * tokens, context + tokens);
        let of = |part: &str| format!("l{index}_{part}");
        let q = self.heads(&of("q"), x, &layer.q, layer.q_norm.as_ref(), shared.rotation)?;
        let k = self.heads(&of("k"), x, &layer.k, layer.k_norm.as_ref(), shared.rotation)?;
        let v = self.heads(&of("v"), x, &layer.v, None, None)?;
        let rows = |g: &mut Self, part: &str, x| g.b.transpose(&of(part), x, &[0, 1, 3, 2]);
        let (q, k, v) = (rows(self, "q_rows", q)?, rows(self, "k_rows", k)?, rows(self, "v_rows", v)?);

        // Scaled before the product, so that the sums stay small.
        let scale = c.score_scale() as f32 / c.attn_softcap.unwrap_or(1.0);
        let q = self.b.scale(&of("q_scaled"), q, scale)?;
        let q = ops::reshape(&mut self.b, &of("q_group"), q, [1, kv_heads, tall, head])?;
        let keys = self.with_cache(&of("keys"), cached_keys, k)?;
        let scores = self.b.matmul(&of("scores"), q, keys, Transpose::Y)?;
        let mut scores = ops::reshape(&mut self.b, &of("scores_heads"), scores, [1, heads, tokens, seen])?;
        if let Some(cap) = c.attn_softcap {
            scores = self.b.tanh(&of("scores_tanh"), scores)?;
            scores = self.b.scale(&of("scores_capped"), scores, cap)?;
        }
        let masked = self.b.add(&of("masked"), scores, shared.mask)?;
        let probs = self.b.softmax(&of("probs"), masked, -1)?;
        let probs = ops::reshape(&mut self.b, &of("probs_group"), probs, [1, kv_heads, tall, seen])?;
        let values = self.with_cache(&of("values"), cached_values, v)?;
        let attended = self.b.matmul(&of("attended"), probs, values, Transpose::Neither)?;
        let attended = ops::reshape(&mut self.b, &of("attended_heads"), attended, [1, heads, tokens, head])?;
        let attended = self.b.transpose(&of("attended_columns"), attended, &[0, 1, 3, 2])?;
        let attended = ops::reshape(&mut self.b, &of("attended_all"), attended, [1, c.q_dim(), 1, tokens])?;
        Ok((attended, k, v))
    }

    /// A layer's cache, followed by the window's own rows: `[1, kv_heads, context + tokens,
    /// head_dim]`.
    fn with_cache(&mut self, name: &str, (cache, layer): Cached, own: ValueId) -> OpResult {
        let (c, context) = (self.config, self.window.context);
        let (begin, size) = ([int(layer), 0, 0, 0], [1, int(c.kv_heads), int(context), int(c.head_dim)]);
        let before = self.b.slice_by_size(&format!("{name}_before"), cache, &begin, &size)?;
        self.b.concat(name, &[before, own], 2)
    }

    /// Replaces the rows from `position` on, in all layers of a state.
    fn write(
        &mut self,
        name: &str,
        state: ValueId,
        cache: ValueId,
        rows: &[ValueId],
        position: ValueId,
    ) -> Result<(), MilError> {
        let (c, CallShape { tokens, .. }) = (self.config, self.window);
        let of = |part: &str| format!("{name}_{part}");
        let layers = rows.len();
        let rows = self.b.concat(&of("new"), rows, 0)?;
        let begin = self.place(&of("begin"), position, 2)?;
        let size = ints(&[layers, c.kv_heads, tokens, c.head_dim]);
        let end = self.b.add(&of("end"), begin, size)?;
        let args = [("x", cache.into()), ("update", rows.into()), ("begin", begin.into()), ("end", end.into())];
        let after = self.b.op(op::SLICE_UPDATE, &of("after"), args)?;
        self.b.op(op::COREML_UPDATE_STATE, &of("stored"), [("state", state.into()), ("value", after.into())])?;
        Ok(())
    }

    /// The logits of one token, `[parts, vocab / parts]`.
    fn logits(&mut self, norm: &Vector, classifier: &[Matrix], mut x: ValueId, last: Option<ValueId>) -> OpResult {
        if let Some(last) = last {
            let begin = self.place("last_place", last, 3)?;
            let size = ints(&[1, self.config.dim, 1, 1]);
            let args = [("x", x.into()), ("begin", begin.into()), ("size", size.into())];
            x = self.b.op(op::SLICE_BY_SIZE, "last", args)?;
        }
        let normed = self.norm("norm", x, 1, norm)?;
        let mut parts = Vec::new();
        for matrix in classifier {
            let part = self.product("classifier", normed, matrix, None)?;
            parts.push(self.b.reshape("logits_part", part, &[1, int(matrix.rows())])?);
        }
        let logits = match parts.as_slice() {
            [only] => *only,
            _ => self.b.concat("logits_parts", &parts, 0)?,
        };
        let Some(cap) = self.config.logit_softcap else { return Ok(logits) };
        let small = self.b.scale("logits_small", logits, 1.0 / cap)?;
        let tanh = self.b.tanh("logits_tanh", small)?;
        self.b.scale("logits_capped", tanh, cap)
    }
}

//! Rules about weights: records of blob files, their number and size.

use std::collections::BTreeMap;

use ferrane_diag::{Code, Severity};
use ferrane_mil::program::Payload;
use ferrane_mil::weights::blob;
use ferrane_mil::{Arg, Constant, Op, OpId, Strictness, WeightId};

use super::rule::{Context, Rule};
use crate::finding::Effect;
use crate::findings::Findings;
use crate::profile::WeightRoute;
use crate::view::FunctionView;

/// Every constant of an op that is stored in a blob file.
fn records(op: &Op) -> impl Iterator<Item = WeightId> + '_ {
    let inline = op.args.iter().filter_map(|(_, a)| if let Arg::Const(c) = a { Some(c) } else { None });
    inline.chain(op.attributes.iter().map(|(_, c)| c)).filter_map(|c| match c {
        Constant::Tensor { payload: Payload::Weight(id), .. } => Some(*id),
        _ => None,
    })
}

/// Ops that may hold weights: constants and `constexpr_*`; other ops only have literals.
fn holders<'b>(view: &'b FunctionView<'_>) -> impl Iterator<Item = (OpId, WeightId)> + 'b {
    view.ops().flat_map(|(id, op)| records(op).map(move |w| (id, w)))
}

fn bytes(cx: &Context<'_>, id: WeightId) -> usize {
    let bits = cx.program.weights.dtype(id).and_then(|d| d.bits()).unwrap_or(0);
    cx.program.weights.elements(id).unwrap_or(0).saturating_mul(bits).div_ceil(8)
}

pub(super) const STRICT: Rule = Rule {
    code: Code(445),
    title: "blob record that a strict reader refuses",
    severity: Severity::Error,
    effect: Effect::INVALID,
    claims: &["C166", "C167", "C168"],
    explanation: "Several published benchmarks write records whose size is 0x80000 and whose payload offset is 0. macOS 15 refuses them, except at 512 channels, where that happens to be the size; macOS 26 reads the payload after the record. The limit is that of the reader, not of the engine.",
    rewrite: "files with true sizes, offsets and types: `ferrane convert` writes them",
    run: strict,
};

fn strict(cx: &Context<'_>, out: &mut Findings) {
    if !cx.profile.strict_blobs.value {
        return;
    }
    let mut files: BTreeMap<&str, Option<&[u8]>> = BTreeMap::new();
    for view in &cx.functions {
        for (op, id) in holders(view) {
            let weights = &cx.program.weights;
            let (Some((file, offset)), Some(dtype), Some(elements)) =
                (weights.location(id), weights.dtype(id), weights.elements(id))
            else {
                continue;
            };
            let Some(held) = *files.entry(file).or_insert_with(|| weights.opened(file)) else { continue };
            // A record that was added to an opened file comes after its end.
            if offset as usize >= held.len() {
                continue;
            }
            if let Err(why) = blob::find(held, offset, dtype, elements, Strictness::Strict) {
                let message = format!("\"{file}\" at {offset}: {why}");
                out.op(view, op, message).claims(&cx.profile.strict_blobs.claims);
            }
        }
    }
}

pub(super) const COUNT: Rule = Rule {
    code: Code(446),
    title: "more weight blobs than a program may have",
    severity: Severity::Error,
    effect: Effect::INVALID,
    claims: &["C036", "C037"],
    explanation: "Orion counts at most 16 blobs in a program on M4 Max, biases included, and an inline scalar operand of add, mul or pow as one more. Benchmarks with 128 blobs in one program ran on M1 to M5.",
    rewrite: "weights next to each other in one blob, and slices of it; or several programs",
    run: |cx, out| {
        let most = &cx.profile.max_blobs;
        if most.value.0.is_none() {
            return;
        }
        for view in &cx.functions {
            let mut places: Vec<_> = holders(view).filter_map(|(_, id)| cx.program.weights.location(id)).collect();
            places.sort_unstable();
            places.dedup();
            let scalars =
                view.any(&["add", "mul", "pow"]).filter(|(_, op)| ["x", "y"].iter().any(|a| scalar(view, op, a)));
            let scalars = if cx.profile.scalar_costs_blob.value { scalars.count() } else { 0 };
            let count = places.len() + scalars;
            if !places.is_empty() && most.value.exceeded_by(count) {
                let more = if scalars > 0 { format!(" and {scalars} scalar operands") } else { String::new() };
                let message = format!("{} weight blobs{more}; the compiler accepts {}", places.len(), most.value);
                out.function(view, message).claims(&most.claims);
            }
        }
    },
};

fn scalar(view: &FunctionView<'_>, op: &Op, arg: &str) -> bool {
    view.function.arg_constant(op, arg).is_some_and(|c| c.ty().rank() == Some(0))
}

pub(super) const BYTES: Rule = Rule {
    code: Code(447),
    title: "more weights than a program may have",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C035", "C037"],
    explanation: "One source on M3 Pro splits programs at about 8 MB of fp16 weights. Convolution chains with 64 MB ran on M1 to M5.",
    rewrite: "several programs",
    run: |cx, out| {
        let most = &cx.profile.max_weight_bytes;
        for view in cx.functions.iter().filter(|_| most.value.0.is_some()) {
            let sum = holders(view).map(|(_, id)| bytes(cx, id)).fold(0, usize::saturating_add);
            if most.value.exceeded_by(sum) {
                out.function(view, format!("{sum} bytes of weights; the compiler accepts {}", most.value))
                    .claims(&most.claims);
            }
        }
    },
};

pub(super) const SPLIT: Rule = Rule {
    code: Code(448),
    title: "weight beyond the kernel memory",
    severity: Severity::Note,
    effect: Effect::Slow,
    claims: &["C038"],
    explanation: "A weight above 16 MB (on H13 a dense one above 64 KB) does not fit the memory for kernels; the compiler splits the op into several, each with its own pass over the input.",
    rewrite: "",
    run: |cx, out| {
        let most = &cx.profile.kernel_memory;
        for view in &cx.functions {
            for (op, id) in holders(view).filter(|(_, id)| bytes(cx, *id) > most.value) {
                let message =
                    format!("a weight of {} bytes, above {}: its op is split into several", bytes(cx, id), most.value);
                out.op(view, op, message).claims(&most.claims);
            }
        }
    },
};

pub(super) const FOLDED: Rule = Rule {
    code: Code(449),
    title: "compressed weights that are not read compressed",
    severity: Severity::Note,
    effect: Effect::Slow,
    claims: &["C220", "C221", "C222"],
    explanation: "Affine int8 weights are read compressed from H14 on, which halves the latency of large products; on H13 they are expanded to fp16 at compile and are smaller on disk only. Blockwise weights are read compressed from H15 on according to the tables, but not at all according to one measurement on M5 Pro.",
    rewrite: "4-bit palettes (`constexpr_lut_to_dense`), which every family reads compressed",
    run: |cx, out| {
        for (name, route) in [
            ("constexpr_affine_dequantize", &cx.profile.int8_weights),
            ("constexpr_blockwise_shift_scale", &cx.profile.blockwise_weights),
        ] {
            for view in cx.functions.iter().filter(|_| route.value == WeightRoute::Folds) {
                for (id, _) in view.named(name) {
                    let message = format!("`{name}` is expanded to fp16 at compile: smaller on disk, not faster");
                    out.op(view, id, message).claims(&route.claims);
                }
            }
        }
    },
};

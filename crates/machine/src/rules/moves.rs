//! Rules about slices, concat, gather, tile, and ops with size limits of their own.

use ferrane_diag::{Code, Severity};
use ferrane_mil::{Op, ValueId};

use super::rule::{Context, Rule};
use crate::finding::Effect;
use crate::findings::Findings;
use crate::select::Unit;
use crate::view::{FunctionView, width};

/// The value that `value` is a slice of along the last axis, and whether the slice begins after 0.
/// Looks through products with constants and similar ops, which a rotation puts between slice and
/// concat.
fn width_slice(view: &FunctionView<'_>, value: ValueId) -> Option<(ValueId, bool)> {
    let mut value = value;
    for _ in 0..8 {
        let (_, op) = view.def(value)?;
        match op.name.as_str() {
            "slice_by_size" | "slice_by_index" => {
                let x = view.arg(op, "x")?;
                let (whole, part) = (width(view.ty(x))?, width(view.ty(*op.outputs.first()?))?);
                let begin = *view.ints(op, "begin")?.last()?;
                // A negative index counts from the end.
                return (part < whole).then_some((x, begin != 0));
            }
            "mul" | "real_div" | "add" | "sub" => {
                let (x, y) = (view.arg(op, "x"), view.arg(op, "y"));
                value = match (x, y) {
                    (Some(x), y) if y.is_none_or(|y| view.constant(y)) => x,
                    (Some(x), Some(y)) if view.constant(x) => y,
                    (None, Some(y)) => y,
                    _ => return None,
                };
            }
            "neg" | "identity" | "abs" | "cast" => value = view.arg(op, "x")?,
            _ => return None,
        }
    }
    None
}

/// The concats along the last axis.
fn width_concats<'b>(view: &'b FunctionView<'_>) -> impl Iterator<Item = (ferrane_mil::OpId, &'b Op)> + 'b {
    view.named("concat").filter(|(_, op)| {
        let rank = op.outputs.first().and_then(|v| view.ty(*v).rank()).unwrap_or(0);
        rank > 0 && view.axis(op, "axis", rank) == Some(rank - 1)
    })
}

pub(super) const ROPE: Rule = Rule {
    code: Code(470),
    title: "rotation by slices and concat of the last axis",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C042", "C121", "F092"],
    explanation: "Rotary embeddings turn pairs (e, o) to (−o, e). Written as a reshape to pairs, slices of the last axis and a concat of them, M3 Ultra refuses it; it accepts the product with a constant rotation matrix. Otherwise M1 to M5 run the first form in every trainer.",
    rewrite: "a matmul with a constant matrix of 0, 1 and −1 that rotates the pairs",
    run: |cx, out| {
        let refused = &cx.profile.rope_width_refused;
        for view in cx.functions.iter().filter(|_| refused.value) {
            for (id, op) in width_concats(view) {
                let parts: Vec<_> = view.list(op, "values").iter().map(|v| width_slice(view, *v)).collect();
                let one = parts.first().copied().flatten().map(|(x, _)| x);
                let behind = parts.iter().flatten().any(|(_, behind)| *behind);
                if parts.len() > 1 && behind && one.is_some() && parts.iter().all(|p| p.map(|(x, _)| x) == one) {
                    let message = "slices of the last axis concatenated along it again, as in a rotation";
                    out.op(view, id, message).claims(&refused.claims);
                }
            }
        }
    },
};

pub(super) const CONCAT_SLICES: Rule = Rule {
    code: Code(471),
    title: "concat of several width slices",
    severity: Severity::Error,
    effect: Effect::SilentlyWrong,
    claims: &["C045"],
    explanation: "On the class of A14 (H13, H14) a concat of two or more slices of the last axis that begin after 0 returns wrong elements; with one such slice it is exact.",
    rewrite: "slices and concat along another axis, after a transpose; or a matmul with a constant selection",
    run: |cx, out| {
        let wrong = &cx.profile.concat_slices_wrong;
        for view in cx.functions.iter().filter(|_| wrong.value) {
            for (id, op) in view.named("concat") {
                let direct = |v: &&ValueId| {
                    let crop = view.def(**v).is_some_and(|(id, _)| view.selection.unit(id) == Some(Unit::Crop));
                    crop && width_slice(view, **v).is_some_and(|(_, behind)| behind)
                };
                let count = view.list(op, "values").iter().filter(direct).count();
                if count > 1 {
                    let message = format!("{count} slices of the last axis that begin after 0 in one `concat`");
                    out.op(view, id, message).claims(&wrong.claims);
                }
            }
        }
    },
};

const GATHERS: &[&str] = &["gather", "gather_along_axis", "gather_nd"];

pub(super) const GATHER_LAST: Rule = Rule {
    code: Code(472),
    title: "gather along the last axis",
    severity: Severity::Error,
    effect: Effect::SilentlyWrong,
    claims: &["C096"],
    explanation: "On H13 and H14 a gather along the last axis returns wrong elements.",
    rewrite: "a transpose, the gather along another axis, and a transpose back",
    run: |cx, out| {
        let wrong = &cx.profile.gather_last_wrong;
        for view in cx.functions.iter().filter(|_| wrong.value) {
            for (id, op) in view.any(&GATHERS[..2]).filter(|(_, op)| !view.constant_arg(op, "x")) {
                let rank = view.shape(op, "x").map_or(0, |x| x.len());
                let axis = if op.arg("axis").is_some() { view.axis(op, "axis", rank) } else { Some(0) };
                if rank > 1 && axis == Some(rank - 1) {
                    out.op(view, id, format!("`{}` along the last axis", op.name)).claims(&wrong.claims);
                }
            }
        }
    },
};

pub(super) const GATHER_DYNAMIC: Rule = Rule {
    code: Code(473),
    title: "gather with computed indices",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C094", "C095"],
    explanation: "On the in-memory path of M3 Pro a gather whose indices are not constant is rejected; constant gathers work as decompression of a table or as a product with one-hot rows.",
    rewrite: "a matmul with one-hot rows, or the gather on the CPU",
    run: |cx, out| {
        let allowed = &cx.profile.gather_dynamic;
        for view in cx.functions.iter().filter(|_| !allowed.value) {
            for (id, op) in view.any(GATHERS).filter(|(_, op)| !view.constant_arg(op, "indices")) {
                out.op(view, id, format!("the indices of `{}` are not constant", op.name)).claims(&allowed.claims);
            }
        }
    },
};

pub(super) const GATHER_BATCH: Rule = Rule {
    code: Code(474),
    title: "gather over a batch",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C095"],
    explanation: "On H13 gather has a batch and a depth of 1 and an index channel of three elements; the hardware's own path exists from H14 on.",
    rewrite: "a gather for each element of the batch",
    run: |cx, out| {
        let most = &cx.profile.gather_batch;
        for view in cx.functions.iter().filter(|_| most.value.0.is_some()) {
            for (id, op) in view.any(GATHERS).filter(|(_, op)| !view.constant_arg(op, "x")) {
                let batch = view.shape(op, "x").filter(|x| x.len() >= 4).map_or(1, |x| x[0]);
                if most.value.exceeded_by(batch) {
                    let message = format!("`{}` over a batch of {batch}; at most {}", op.name, most.value);
                    out.op(view, id, message).claims(&most.claims);
                }
            }
        }
    },
};

pub(super) const TOPK: Rule = Rule {
    code: Code(475),
    title: "`k` of topk",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C100"],
    explanation: "On M5 Pro topk with k of 3 or 4 does not compile; with other k it does.",
    rewrite: "k = 5, and a slice of the result",
    run: |cx, out| {
        let refused = &cx.profile.refused_topk;
        for view in cx.functions.iter().filter(|_| !refused.value.is_empty()) {
            for (id, op) in view.named("topk") {
                let k = view.int(op, "k").and_then(|k| usize::try_from(k).ok());
                if let Some(k) = k.filter(|k| refused.value.contains(k)) {
                    out.op(view, id, format!("`topk` with k = {k}")).claims(&refused.claims);
                }
            }
        }
    },
};

pub(super) const LRN: Rule = Rule {
    code: Code(476),
    title: "channels of local_response_norm",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C118"],
    explanation: "On M5 Pro local response normalization over 16 channels or more fails.",
    rewrite: "its formula over mul, reduce_sum of shifted slices, add and pow",
    run: |cx, out| {
        let most = &cx.profile.max_lrn_channels;
        for view in &cx.functions {
            for (id, op) in view.named("local_response_norm") {
                let channels = view.shape(op, "x").and_then(|x| x.get(1).copied());
                if let Some(channels) = channels.filter(|c| most.value.exceeded_by(*c)) {
                    let message = format!("`local_response_norm` over {channels} channels; at most {}", most.value);
                    out.op(view, id, message).claims(&most.claims);
                }
            }
        }
    },
};

pub(super) const NORM_TILE: Rule = Rule {
    code: Code(477),
    title: "image of a norm",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C120"],
    explanation: "On M5 Pro a group or instance norm fails when the larger of the channels of a group and the image, H·W, is above 65536.",
    rewrite: "the norm's formula over reduce_mean, mul, add and pow",
    run: |cx, out| {
        let most = &cx.profile.max_norm_tile;
        for view in &cx.functions {
            for (id, op) in view.named("instance_norm") {
                let Some(x) = view.shape(op, "x") else { continue };
                let image = x.iter().skip(2).fold(1usize, |n, d| n.saturating_mul(*d));
                if most.value.exceeded_by(image) {
                    out.op(view, id, format!("a norm over {image} elements; at most {}", most.value))
                        .claims(&most.claims);
                }
            }
        }
    },
};

pub(super) const TILE: Rule = Rule {
    code: Code(478),
    title: "factor of tile",
    severity: Severity::Note,
    effect: Effect::Slow,
    claims: &["C069"],
    explanation: "`tile` is native with factors 2, 3, 4 and 8; others are composed of these.",
    rewrite: "broadcasting, or factors that are native",
    run: tile,
};

fn tile(cx: &Context<'_>, out: &mut Findings) {
    let native = &cx.profile.tile_factors;
    for view in &cx.functions {
        for (id, op) in view.named("tile") {
            let odd = |r: &i64| *r > 1 && !usize::try_from(*r).is_ok_and(|r| native.value.contains(&r));
            if let Some(r) = view.ints(op, "reps").and_then(|reps| reps.into_iter().find(odd)) {
                out.op(view, id, format!("`tile` by {r}, which is not a native factor")).claims(&native.claims);
            }
        }
    }
}

pub(super) const PAD: Rule = Rule {
    code: Code(459),
    title: "mode of pad",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["F002"],
    explanation: "Padding with a constant is native on every family; by reflection or with the edge from H14 on.",
    rewrite: "slices of the edge put around the value by `concat`",
    run: |cx, out| {
        let modes = &cx.profile.pad_modes;
        for view in &cx.functions {
            for (id, op) in view.named("pad") {
                let mode = view.function.arg_constant(op, "mode").and_then(|c| c.as_str());
                if let Some(mode) = mode.filter(|m| !modes.value.iter().any(|known| known == m)) {
                    let message = format!("`pad` with the mode {mode}; the engine has {}", modes.value.join(", "));
                    out.op(view, id, message).claims(&modes.claims);
                }
            }
        }
    },
};

pub(super) const SLICE_DYNAMIC: Rule = Rule {
    code: Code(469),
    title: "slice at a computed offset",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C099", "F002"],
    explanation: "Slices whose begin is computed pass validation and fail code generation on H13; they are native from H14 on.",
    rewrite: "a constant begin, or a product with a selection matrix",
    run: |cx, out| {
        let allowed = &cx.profile.dynamic_slices;
        for view in cx.functions.iter().filter(|_| !allowed.value) {
            for (id, op) in view.any(&["slice_by_size", "slice_by_index"]) {
                if op.arg("begin").is_some() && !view.constant_arg(op, "begin") {
                    out.op(view, id, format!("the begin of `{}` is not constant", op.name)).claims(&allowed.claims);
                }
            }
        }
    },
};

pub(super) const ARGMAX: Rule = Rule {
    code: Code(479),
    title: "argmax over a whole tensor",
    severity: Severity::Error,
    effect: Effect::REFUSED,
    claims: &["C101", "F003"],
    explanation: "Below H15 argmax over a whole tensor is refused from program text; along one of several axes it runs on every family.",
    rewrite: "a leading axis of extent 1, and argmax along the last",
    run: |cx, out| {
        let allowed = &cx.profile.whole_tensor_argmax;
        for view in cx.functions.iter().filter(|_| !allowed.value) {
            for (id, op) in view.any(&["reduce_argmax", "reduce_argmin"]) {
                if view.arg_ty(op, "x").and_then(|t| t.rank()) == Some(1) {
                    out.op(view, id, format!("`{}` over a whole tensor", op.name)).claims(&allowed.claims);
                }
            }
        }
    },
};

//! Rules about strides, dilations and kernels that run, but cost more than others.

use ferrane_diag::{Code, Severity};
use ferrane_mil::{Op, OpId};

use super::rule::{Context, Rule};
use crate::finding::Effect;
use crate::findings::Findings;
use crate::view::FunctionView;

/// Calls `look` for every convolution with its positive integers of that name.
fn each(cx: &Context<'_>, name: &str, mut look: impl FnMut(&FunctionView<'_>, OpId, &Op, &[usize])) {
    for view in &cx.functions {
        for (id, op) in view.any(&["conv", "conv_transpose"]) {
            if let Some(numbers) = positive(view, op, name) {
                look(view, id, op, &numbers);
            }
        }
    }
}

fn positive(view: &FunctionView<'_>, op: &Op, name: &str) -> Option<Vec<usize>> {
    view.ints(op, name)?.into_iter().map(|n| usize::try_from(n).ok().filter(|n| *n > 0)).collect()
}

/// True for a product of powers of the factors.
fn factors(mut n: usize, of: &[usize]) -> bool {
    for &f in of.iter().filter(|f| **f > 1) {
        while n > 1 && n.is_multiple_of(f) {
            n /= f;
        }
    }
    n == 1
}

pub(super) const STRIDE: Rule = Rule {
    code: Code(1007),
    title: "stride with another factor than 2 and 3",
    severity: Severity::Note,
    effect: Effect::Slow,
    claims: &["F068", "F069"],
    explanation: "Apple states that strides of the factors 2 and 3 map to the engine well (4, 6, 8, 9, 12, 16, 24, 32) and that others cost more; of two unequal strides one should be 2, and the other 3, 4, 8 or 9.",
    rewrite: "equal strides of the factors 2 and 3, or 2 with 3, 4, 8 or 9; a smaller stride and a slice give the same values",
    run: |cx, out| {
        let of = &cx.profile.stride_factors;
        each(cx, "strides", |view, id, op, strides| {
            let odd = strides.iter().find(|s| !factors(**s, &of.value));
            let unequal = strides.iter().any(|s| *s != strides[0]) && strides.iter().all(|s| *s > 2);
            if let Some(stride) = odd {
                out.op(view, id, format!("`{}` with a stride of {stride}", op.name)).claims(&of.claims);
            } else if unequal {
                let message = format!("`{}` with unequal strides {strides:?}, none of which is 2", op.name);
                out.op(view, id, message).claims(&of.claims);
            }
        });
    },
};

pub(super) const POOL_STRIDE: Rule = Rule {
    code: Code(1008),
    title: "stride of a pooling",
    severity: Severity::Note,
    effect: Effect::Slow,
    claims: &["F074"],
    explanation: "Apple states that pooling is fast with strides of 2 and 4, and that others, such as 3 and 5, cost more.",
    rewrite: "a stride of 2 or 4",
    run: |cx, out| {
        let known = &cx.profile.pool_strides;
        for view in &cx.functions {
            for (id, op) in view.any(&["max_pool", "avg_pool", "l2_pool"]) {
                let strides = positive(view, op, "strides").unwrap_or_default();
                // A pooling over the whole image has one result, whatever its stride.
                let whole = view.result(op).is_some_and(|s| s.iter().skip(2).all(|n| *n == 1));
                if let Some(s) = strides.iter().find(|s| !whole && !known.value.contains(s)) {
                    out.op(view, id, format!("`{}` with a stride of {s}", op.name)).claims(&known.claims);
                }
            }
        }
    },
};

pub(super) const PALETTE_STRIDE: Rule = Rule {
    code: Code(1009),
    title: "stride of a convolution with a palette",
    severity: Severity::Note,
    effect: Effect::Slow,
    claims: &["F070"],
    explanation: "Apple states that convolutions whose weights are a palette support few strides: up to 2.",
    rewrite: "plain fp16 weights for this convolution, or strides of at most 2",
    run: |cx, out| {
        let most = &cx.profile.max_palette_stride;
        each(cx, "strides", |view, id, op, strides| {
            let palette = || {
                let weight = view.arg(op, "weight").and_then(|w| view.def(w));
                weight.is_some_and(|(_, o)| o.name == "constexpr_lut_to_dense")
            };
            if let Some(s) = strides.iter().find(|s| **s > most.value).filter(|_| palette()) {
                let message = format!("a stride of {s} with a palette as weight; up to {} are supported", most.value);
                out.op(view, id, message).claims(&most.claims);
            }
        });
    },
};

pub(super) const DILATION: Rule = Rule {
    code: Code(1010),
    title: "large dilation",
    severity: Severity::Note,
    effect: Effect::Slow,
    claims: &["F073"],
    explanation: "Apple states that large dilations are expensive and replaces one of 8 by three convolutions with 2, one of 6 by 2 and 3. The model then has other weights.",
    rewrite: "a chain of convolutions with dilations of 2 and 3, trained again",
    run: |cx, out| {
        let most = &cx.profile.max_dilation;
        each(cx, "dilations", |view, id, op, dilations| {
            let taps = view.shape(op, "weight").is_none_or(|w| w.iter().skip(2).any(|n| *n > 1));
            if let Some(d) = dilations.iter().find(|d| taps && **d > most.value) {
                out.op(view, id, format!("`{}` with a dilation of {d}", op.name)).claims(&most.claims);
            }
        });
    },
};

pub(super) const LARGE_KERNEL: Rule = Rule {
    code: Code(1011),
    title: "large kernel",
    severity: Severity::Note,
    effect: Effect::Slow,
    claims: &["F071", "F072", "C031"],
    explanation: "Apple states that large kernels are expensive, wide ones above all, and replaces one of 9 by two of 5, which cover the same area: k = k1 + k2 − 1. The model then has other weights. Small convolutions without a function between them may be fused the other way round.",
    rewrite: "two smaller kernels in sequence, trained again",
    run: large,
};

fn large(cx: &Context<'_>, out: &mut Findings) {
    let from = &cx.profile.large_kernel;
    for view in &cx.functions {
        for (id, op) in view.any(&["conv", "conv_transpose"]) {
            let kernel = view.shape(op, "weight").filter(|w| w.len() == 4).map(|w| [w[2], w[3]]);
            // A kernel that stands on its own stride is a patch embedding: no two kernels replace
            // it.
            let patch = kernel.is_some_and(|k| positive(view, op, "strides").is_some_and(|s| s[..] == k[..]));
            if let Some([h, w]) = kernel.filter(|k| !patch && k.iter().any(|n| *n >= from.value)) {
                out.op(view, id, format!("a kernel of {h}×{w}")).claims(&from.claims);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::factors;

    #[test]
    fn strides_are_products_of_the_factors() {
        for good in [1, 2, 3, 4, 6, 8, 9, 12, 16, 24, 32] {
            assert!(factors(good, &[2, 3]), "{good}");
        }
        for bad in [5, 7, 10, 11, 14] {
            assert!(!factors(bad, &[2, 3]), "{bad}");
        }
        assert!(factors(5, &[5, 0, 1]) && !factors(0, &[2]));
    }
}

//! Rules: properties of programs that a machine refuses or computes differently, one function each.
//!
//! A rule reads values of the profile and the selection of [`select`](mod@crate::select); it never
//! names a chip. It has a code, the claims that it rests on, the consequence on the machine and a
//! remedy; its explanation is the text of `ferrane explain`. Rules ignore what they cannot decide:
//! unknown ops, unknown extents, arguments that are not constant.
//!
//! | file | codes | about |
//! |---|---|---|
//! | `text` | 0401–0407 | header, dialect, `buildInfo` |
//! | `types` | 0408–0410, 0416, 0417, 0419 | element types and epsilons |
//! | `ops` | 0411–0415, 0418 | ops regardless of their arguments |
//! | `shape` | 0421–0428 | extents and ranks |
//! | `ports` | 0429–0444, 1015 | inputs and outputs |
//! | `weights` | 0445–0449 | blob files |
//! | `conv` | 0450–0458 | convolutions |
//! | `product` | 0460–0464 | matrix products |
//! | `attention` | 0465–0468 | attention and softmax |
//! | `moves` | 0459, 0469–0479 | slices, concat, gather, tile, pad |
//! | `pattern` | 0420, 0480–0489 | combinations of ops |
//! | `masks` | 1001, 1012, 1014 | masks, the form of attention, the axis of softmax |
//! | `lowering` | 1002–1006, 1013, 1016, 1017 | ops that a framework lowers otherwise, or wrongly |
//! | `strides` | 1007–1011 | strides, dilations and kernels that cost more |
//! | `range` | 0490–0496 | values beyond a limit |
//! | `speed` | 0497, 0498 | memory |
//! | `budget` | 0499 | several programs |

mod attention;
mod budget;
mod conv;
mod lowering;
mod masks;
mod moves;
mod ops;
mod pattern;
mod ports;
mod product;
mod range;
mod rule;
mod shape;
mod speed;
mod strides;
mod text;
mod types;
mod weights;

pub(crate) use rule::Context;
pub use rule::Rule;

/// Every rule, sorted by code.
pub fn all() -> &'static [Rule] {
    RULES
}

const RULES: &[Rule] = &[
    text::DIALECT,
    text::HEADER,
    text::OPSET,
    text::BUILD_INFO,
    text::LINE_BREAK,
    text::MIXED,
    text::PROCEDURES,
    types::ZERO_EPSILON,
    types::SMALL_EPSILON,
    types::INT4,
    ops::REFUSED,
    ops::NEEDS_EPSILON,
    ops::FAILS,
    ops::POISONS,
    ops::DECOMPOSED,
    types::FP32,
    types::INT8,
    ops::COUNT,
    types::CAST,
    pattern::LONE_MOVES,
    shape::AXIS,
    shape::CHANNELS,
    shape::RANK,
    shape::ZERO,
    shape::SYMBOLIC,
    shape::PRODUCT_RANK,
    shape::PORT_RANK,
    shape::TRANSPOSE,
    ports::NCHW,
    ports::FP32,
    ports::INPUT_TYPE,
    ports::OUTPUT_TYPE,
    ports::WIDTH,
    ports::WIDTH_MULTIPLE,
    ports::NARROW,
    ports::SURFACE,
    ports::INPUT_SIZES,
    ports::OUTPUT_SIZES,
    ports::INPUT_ORDER,
    ports::OUTPUT_ORDER,
    ports::LIVE,
    ports::NAMES,
    ports::SEVERAL,
    ports::ALIGNED,
    weights::STRICT,
    weights::COUNT,
    weights::BYTES,
    weights::SPLIT,
    weights::FOLDED,
    conv::KERNEL_HEIGHT,
    conv::KERNEL_WIDTH,
    conv::INPUT_CHANNELS,
    conv::RUNTIME_IGNORED,
    conv::RUNTIME_DEPTHWISE,
    conv::RUNTIME_BATCH,
    conv::BIAS,
    conv::RANK,
    conv::STRIDED,
    moves::PAD,
    product::INNER,
    product::CONSTANT,
    product::ORDER,
    product::FLAGS,
    product::AS_CONV,
    attention::MASK,
    attention::EXTENT,
    attention::QUERIES,
    attention::SOFTMAX,
    moves::SLICE_DYNAMIC,
    moves::ROPE,
    moves::CONCAT_SLICES,
    moves::GATHER_LAST,
    moves::GATHER_DYNAMIC,
    moves::GATHER_BATCH,
    moves::TOPK,
    moves::LRN,
    moves::NORM_TILE,
    moves::TILE,
    moves::ARGMAX,
    pattern::OUTER_BROADCAST,
    pattern::CHANNEL_BROADCAST,
    pattern::SQRT_BROADCAST,
    pattern::ROUND_SCALE,
    pattern::SQUARE,
    pattern::ELEMENTWISE_ONLY,
    pattern::FLAT,
    pattern::DEAD,
    pattern::SPLIT,
    pattern::QDQ,
    range::CEILING,
    range::OVERFLOW,
    range::CROP,
    range::INT8_MATMUL,
    range::SOFTPLUS,
    range::ROUND,
    range::VANISH,
    speed::WORKING_SET,
    speed::RESIDENT,
    budget::COMPILES,
    masks::INFINITY,
    lowering::FP32_LOWERED,
    lowering::ARGMAX16,
    lowering::TOPK_GATHER,
    lowering::BLOCKS,
    lowering::HARD_SWISH,
    strides::STRIDE,
    strides::POOL_STRIDE,
    strides::PALETTE_STRIDE,
    strides::DILATION,
    strides::LARGE_KERNEL,
    masks::PER_HEAD,
    lowering::STATE_WRITE,
    masks::SPATIAL,
    ports::PADDED_ROWS,
    lowering::GATHER_RANK,
    lowering::PALETTE,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    #[test]
    fn codes_are_of_this_crate_and_in_order() {
        for pair in RULES.windows(2) {
            assert!(pair[0].code < pair[1].code, "{} and {}", pair[0].code, pair[1].code);
        }
        for rule in RULES {
            assert!((400..500).contains(&rule.code.0) || (1000..1100).contains(&rule.code.0), "{}", rule.code);
            assert!(!rule.claims.is_empty() && !rule.explanation.is_empty(), "{}", rule.code);
        }
    }

    #[test]
    fn rules_and_the_strict_profile_cite_claims_that_exist() {
        for rule in RULES {
            for claim in rule.claims {
                assert!(crate::claims::find(claim).is_some(), "{}: {claim}", rule.code);
            }
        }
        for name in Profile::names() {
            let strict = Profile::named(&name).unwrap().strict().unwrap();
            for claim in strict.entries().iter().flat_map(|e| &e.claims) {
                assert!(crate::claims::find(claim).is_some(), "{claim}");
            }
            assert_eq!(strict.max_blobs.value.0, Some(16));
        }
    }
}

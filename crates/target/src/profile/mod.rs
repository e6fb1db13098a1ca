//! Profiles: typed values, each with its evidence, resolved from overlays.
//!
//! An overlay is a TOML table `[[overlay]]` with `match = { … }` and the values it sets, `set` for the machine and `ops` for single
//! ops. A condition is a word or a list of words that a field of the [`Subject`] may have; an overlay with more conditions is more
//! specific and wins. Two overlays of the same specificity that set the same value differently are an error: the data say too
//! little and a person must decide. The overlays of a file that a user gives stand above all that are built in.

mod chips;
mod citations;
mod values;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

pub use chips::{Chip, Subject, chips, paths, systems};
pub use citations::{Citation, citations, plain};
pub use values::{
    Acceptance, Accumulator, AttnMask, Dialect, GeluTable, Limit, PortOrder, RoundOp, Rounding, SigmoidTable,
    SliceCrop, Subnormals, SumWidth, WeightRoute,
};

/// A value with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Ids of the claims it rests on.
    pub claims: Vec<String>,
    /// Claims it overrules, each with the reason.
    pub overrules: BTreeMap<String, String>,
}

/// One value of a profile as text, for lists and for checks of the data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Its name; `op.NAME` for one of an op.
    pub name: String,
    /// What it is.
    pub doc: String,
    /// The value as JSON has it.
    pub value: serde_json::Value,
    /// Ids of the claims it rests on.
    pub claims: Vec<String>,
    /// Claims it overrules, each with the reason.
    pub overrules: BTreeMap<String, String>,
}

impl Entry {
    fn new<T: Serialize>(name: &str, doc: &str, given: &Sourced<T>) -> Entry {
        Entry {
            name: name.to_string(),
            doc: doc.trim().to_string(),
            value: serde_json::to_value(&given.value).unwrap_or_default(),
            claims: given.claims.clone(),
            overrules: given.overrules.clone(),
        }
    }

    fn given<T: Serialize + Clone>(name: &str, doc: &str, given: &Given<T>) -> Entry {
        Entry::new(name, doc, &given.sourced())
    }
}

macro_rules! values {
    ($($(#[doc = $doc:literal])* $name:ident : $ty:ty),* $(,)?) => {
        /// What a machine allows. Each value says where it comes from.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        pub struct Profile {
            /// The machine.
            pub subject: Subject,
            /// Ops that are not simply native, by their MIL name.
            pub ops: BTreeMap<String, Sourced<Acceptance>>,
            $($(#[doc = $doc])* pub $name: Sourced<$ty>,)*
        }

        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Values { $($name: Option<Given<$ty>>,)* }

        impl Values {
            /// The values that are set.
            fn entries(&self) -> Vec<Entry> {
                let all = [$(self.$name.as_ref().map(|g| Entry::given(stringify!($name), concat!($($doc),*), g))),*];
                all.into_iter().flatten().collect()
            }
        }

        impl Profile {
            fn from_overlays(subject: Subject, overlays: &[(Rank, &Overlay)]) -> Result<Profile, ProfileError> {
                $(let $name = pick(&subject, stringify!($name), overlays, |o| o.set.$name.as_ref())?;)*
                let ops = ops(&subject, overlays)?;
                Ok(Profile { subject, ops, $($name,)* })
            }

            /// Every value, in the order of the declaration, then the ops.
            pub fn entries(&self) -> Vec<Entry> {
                let mut all = vec![$(Entry::new(stringify!($name), concat!($($doc),*), &self.$name)),*];
                all.extend(self.ops.iter().map(|(name, given)| Entry::new(&format!("op.{name}"), "", given)));
                all
            }
        }
    };
}

values! {
    /// Text dialect the compiler accepts (mil-text §2, §3).
    dialect: Dialect,
    /// Versions that the header `program(…)` may name.
    headers: Vec<String>,
    /// Opsets that a function may name.
    opsets: Vec<String>,
    /// True where a program without `buildInfo` is refused.
    build_info_required: bool,
    /// True where a line break inside `buildInfo` is refused (mil-text §7).
    build_info_one_line: bool,
    /// True where an extent may be unknown until a request.
    symbolic_shapes: bool,
    /// True where an unused part that reduces to width 1 makes the compiler refuse the program.
    dead_width_one_refused: bool,
    /// True where the blob reader rejects wrong sizes and offsets (weight-blob §4).
    strict_blobs: bool,
    /// True where what the engine refuses runs on the CPU or the GPU instead.
    elsewhere: bool,
    /// True where the op `cast` runs.
    cast: bool,
    /// Element types that `cast` may name.
    cast_types: Vec<String>,
    /// Element types that a function may take.
    input_types: Vec<String>,
    /// Element types that a function may return.
    output_types: Vec<String>,
    /// True where ops take fp32 operands; elsewhere fp32 is for ports that are cast at once.
    fp32_arithmetic: bool,
    /// True where arithmetic takes int8 or uint8 operands; elsewhere they are cast or dequantised first (int8 §3).
    int8_arithmetic: bool,
    /// True where fp32 ports cost noticeably more than fp16 ones (apple-runtime §7).
    fp32_ports_slow: bool,
    /// True where 4-bit types are accepted in `constexpr_*` ops.
    int4: bool,
    /// True where the transpose flags of `matmul` must be named constants.
    matmul_named_flags: bool,
    /// Longest extent of an axis other than channels and batch; elements (mil-text §8).
    max_axis: usize,
    /// Most channels of a tensor (mil-text §8).
    max_channels: usize,
    /// Largest batch (mil-text §8).
    max_batch: usize,
    /// Highest rank of a tensor (mil-text §6).
    max_rank: usize,
    /// True where an extent may be 0.
    zero_extents: bool,
    /// Largest height and width that a transpose takes in one pass; elements (mil-text §8).
    max_transpose: usize,
    /// Widest fp16 convolution kernel; elements (mil-text §8).
    max_kernel_width: usize,
    /// Highest convolution kernel; elements (mil-text §8).
    max_kernel_height: usize,
    /// Most input channels of a convolution (mil-text §6).
    max_conv_input_channels: Limit,
    /// Largest batch of a convolution whose weight is no constant.
    runtime_conv_batch: Limit,
    /// True where a depthwise convolution may have a weight that is no constant.
    runtime_conv_depthwise: bool,
    /// True where `conv` takes a bias.
    conv_bias: bool,
    /// Highest rank of the input of a convolution (mil-text §6).
    max_conv_rank: usize,
    /// True where a strided convolution of one group is slower than the same after a slice.
    strided_conv_slow: bool,
    /// True where a 1×1 convolution is faster than a `matmul` by the same constant.
    matmul_slower_than_conv: bool,
    /// Highest rank of an operand of `matmul` and `linear`.
    max_product_rank: usize,
    /// True where an operand of `matmul` may be a constant.
    matmul_constant: bool,
    /// True where a product of two runtime operands is zero unless the weight comes first.
    matmul_weight_first: bool,
    /// True where a function may have several inputs.
    several_inputs: bool,
    /// Highest rank of an input where there are several.
    max_rank_of_several_inputs: usize,
    /// True where values must not be named `var`, `mean`, `x`, `c` and the like.
    reserved_names: bool,
    /// True where an output must be computed by an op.
    live_outputs: bool,
    /// Most weight blobs in a program.
    max_blobs: Limit,
    /// Most weights in a program; bytes.
    max_weight_bytes: Limit,
    /// True where an inline scalar counts as a weight blob.
    scalar_costs_blob: bool,
    /// Most ops in a program.
    max_ops: Limit,
    /// Largest batch of a `gather`.
    gather_batch: Limit,
    /// True where the indices of a `gather` may be computed.
    gather_dynamic: bool,
    /// True where the begin of a slice may be computed.
    dynamic_slices: bool,
    /// Values of `k` with which `topk` fails to compile.
    refused_topk: Vec<usize>,
    /// True where `reduce_argmax` takes a whole tensor (one of rank 1).
    whole_tensor_argmax: bool,
    /// Factors by which `tile` repeats in one step.
    tile_factors: Vec<usize>,
    /// Modes of `pad`.
    pad_modes: Vec<String>,
    /// Most keys of an attention; with more the result is wrong without an error.
    attention_max_length: Limit,
    /// Largest shorter one of the extents of queries and keys of an attention; beyond it the result is wrong without an error.
    attention_max_side: Limit,
    /// Fewest query positions of an attention; programs with fewer fail at evaluation.
    min_queries: usize,
    /// True where the axis of a softmax must be a power of two.
    softmax_power_of_two: bool,
    /// Most channels of `local_response_norm`.
    max_lrn_channels: Limit,
    /// Longest tiled axis of a group or instance norm.
    max_norm_tile: Limit,
    /// True where a `square` in front of a function table is refused if the width, modulo 128, is above 64.
    square_width_refused: bool,
    /// True where a program with `split`, `matmul`, `softmax` and `tile` is refused, though each compiles alone.
    split_refused: bool,
    /// True where a program of nothing but element-wise ops may be refused at load.
    elementwise_refused: bool,
    /// Most elements of an element-wise op on tensors without channels; beyond it an evaluation hangs.
    max_flat_elements: Limit,
    /// True where a program of nothing but `reshape`, `slice_by_index` or `tile` is refused (mil-text §7).
    lone_moves_refused: bool,
    /// Extent of a reduced axis from which a transpose comes before the reduction (mil-text §8).
    reduce_route_axis: usize,
    /// What the inner extent of a matmul must be a multiple of; otherwise the result is silently zero.
    matmul_inner_multiple: usize,
    /// True where the width-axis form of RoPE (reshape, slice, concat) is refused.
    rope_width_refused: bool,
    /// True where a convolution with a weight that is no constant ignores it.
    runtime_conv_weight_ignored: bool,
    /// On-chip working set of one op; bytes (benchmarks §15).
    working_set: usize,
    /// Weights of a program that stay on the chip between evaluations; bytes (emulator §10).
    resident_weights: usize,
    /// Dense weights of a convolution beyond which it runs as several; bytes (mil-text §8).
    kernel_dense: usize,
    /// Weights of any form beyond which an op runs as several; bytes (mil-text §8).
    kernel_memory: usize,
    /// Smallest surface; bytes, 0 for none (mil-text §6).
    min_surface: usize,
    /// What the size of a surface must be a multiple of; bytes.
    surface_multiple: usize,
    /// True where several inputs must have surfaces of one size.
    uniform_inputs: bool,
    /// True where several outputs must have surfaces of one size.
    uniform_outputs: bool,
    /// Order of the inputs of a request.
    input_order: PortOrder,
    /// Order of the outputs of a request.
    output_order: PortOrder,
    /// Smallest width of a port; elements, 1 for none.
    min_width: usize,
    /// What the width of a port must be a multiple of; elements. Other widths are read back wrongly.
    width_multiple: usize,
    /// Most channels of a port that is narrower than 32 elements.
    narrow_channels: Limit,
    /// True where ports have rank 4 (batch, channels, height, width), whatever the program declares.
    ports_nchw: bool,
    /// Bytes to which the rows of a surface are padded; 1 is packed (apple-runtime §7, §11).
    row_alignment: usize,
    /// Compiles allowed in one process before the engine fails (apple-runtime §3).
    compile_budget: Limit,
    /// True where unloading a program gives its compile back to the budget.
    budget_returns: bool,
    /// Seconds to leave between compiles that fail; faster ones stall other programs' compiles.
    failed_compile_pause: usize,
    /// Programs that may be loaded at once.
    max_loaded: Limit,
    /// Requests that may be in flight at once (apple-runtime §2).
    queue_depth: usize,
    /// Requests in flight beyond which more gain nothing.
    useful_depth: usize,
    /// Evaluations in one process after which they become slower.
    degrades_after: Limit,
    /// Cost of ending the process and starting it anew, as trainers do where the budget ends; milliseconds.
    restart_ms: usize,
    /// True where the caller writes `model.mil` and the weights into a folder named by the program's identifier (apple-runtime §2).
    staged_files: bool,
    /// True where programs without weights must be given an empty dictionary of weights, not nil.
    nil_weights_refused: bool,
    /// True where unload, overwriting the weight files and load changes the weights without a compile.
    weights_reload: bool,
    /// True where the request's weights buffer has an effect (apple-runtime §6).
    weights_buffer: bool,
    /// True where programs can be chained (apple-runtime §8).
    chaining: bool,
    /// True where the quality of service changes no latency.
    qos_ignored: bool,
    /// True where a real-time task can be begun (apple-runtime §5).
    real_time_task: bool,
    /// True where the same request gives the same bits, over runs, compiles and places in a batch (emulator §9).
    deterministic: bool,
    /// Rounding of results to fp16 (emulator §2).
    rounding: Rounding,
    /// How products are summed (emulator §3).
    accumulator: Accumulator,
    /// Magnitude from which a sum of products is infinite (emulator §4).
    mac_ceiling: usize,
    /// Subnormal operands of products (emulator §5).
    mac_subnormals: Subnormals,
    /// Width of a stand-alone `reduce_sum` (emulator §2).
    reduce_sum: SumWidth,
    /// Route of a width slice that does not begin at 0 (emulator §4).
    slice_crop: SliceCrop,
    /// Table of a user's `sigmoid` (emulator §6.2).
    sigmoid_table: SigmoidTable,
    /// Table of `gelu` (emulator §6.2).
    gelu_table: GeluTable,
    /// True where functions are piecewise linear tables and NaN, infinity and zero have the engine's own results (emulator §5, §6).
    tables: bool,
    /// What `round` does (emulator §5).
    round_op: RoundOp,
    /// True where a multiplication by a scalar after `floor`, `ceil` or `round` is lost.
    round_scale_lost: bool,
    /// True where `softplus` is 0 from ln 65504 on (emulator §5).
    softplus_zero: bool,
    /// Ties of `quantize` (int8 §2).
    quantize_rounding: Rounding,
    /// True where a product of two dequantised branches takes one scale for the other's (int8 §2).
    qdq_multiply_defect: bool,
    /// What `attn_mask` does.
    attn_mask: AttnMask,
    /// True where a `concat` of two or more width slices that do not begin at 0 takes wrong elements.
    concat_slices_wrong: bool,
    /// True where a `gather` along the last axis takes wrong elements.
    gather_last_wrong: bool,
    /// True where `mul` with an operand repeated along the batch is unreliable among other ops.
    outer_broadcast_unreliable: bool,
    /// True where a `mul` of `[1, C, S]` with `[1, C, 1]` or `[1, 1, 1]` is wrong.
    channel_broadcast_wrong: bool,
    /// True where a `sqrt` in front of a broadcast or a division gives wrong values.
    sqrt_broadcast_wrong: bool,
    /// True where int8 weights of a matmul send its activations through the crop's encoding: beyond 4094 infinite (int8 §3).
    int8_matmul_crop: bool,
    /// How affine int8 weights reach the engine (int8 §3).
    int8_weights: WeightRoute,
    /// How blockwise weights reach the engine (int8 §3).
    blockwise_weights: WeightRoute,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given<T> {
    value: T,
    #[serde(default)]
    claims: Vec<String>,
    #[serde(default)]
    overrules: BTreeMap<String, String>,
}

impl<T: Clone> Given<T> {
    fn sourced(&self) -> Sourced<T> {
        Sourced { value: self.value.clone(), claims: self.claims.clone(), overrules: self.overrules.clone() }
    }
}

/// A condition: the words that fit.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Words {
    One(String),
    Any(Vec<String>),
}

impl Words {
    fn fit(&self, found: &str) -> bool {
        match self {
            Words::One(word) => word == found,
            Words::Any(words) => words.iter().any(|w| w == found),
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Overlay {
    #[serde(default)]
    r#match: BTreeMap<String, Words>,
    #[serde(default)]
    set: Values,
    #[serde(default)]
    ops: BTreeMap<String, Given<Acceptance>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    overlay: Vec<Overlay>,
}

/// Why a profile could not be resolved.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file is not TOML of this form.
    #[error("profile file: {0}")]
    Syntax(String),
    /// No profile of that name.
    #[error(
        "no profile `{name}`{hint}; a profile is CHIP-OS-PATH, chips are {chips}, systems {systems}, paths {paths}"
    )]
    Unknown {
        /// The name asked for.
        name: String,
        /// The nearest name, as `, did you mean …?`.
        hint: String,
        /// The chips there are.
        chips: String,
        /// The systems there are.
        systems: String,
        /// The paths there are.
        paths: String,
    },
    /// Nothing sets a value.
    #[error("profile `{profile}`: no overlay sets `{value}`")]
    Missing {
        /// The profile.
        profile: String,
        /// The value.
        value: String,
    },
    /// Two equally specific overlays disagree.
    #[error("profile `{profile}`: two overlays of the same specificity set `{value}` differently")]
    Tie {
        /// The profile.
        profile: String,
        /// The value.
        value: String,
    },
    /// A condition names something a subject does not have.
    #[error("overlay condition `{0}` is none of family, variant, chip, os, path, name")]
    Condition(String),
}

/// What decides between overlays: the file (built in, a user's), then the number of conditions.
type Rank = (usize, usize);

fn pick<T: Clone + PartialEq>(
    subject: &Subject,
    value: &str,
    overlays: &[(Rank, &Overlay)],
    get: impl Fn(&Overlay) -> Option<&Given<T>>,
) -> Result<Sourced<T>, ProfileError> {
    let set = || overlays.iter().filter_map(|(rank, o)| get(o).map(|given| (*rank, given)));
    let missing = || ProfileError::Missing { profile: subject.name.clone(), value: value.to_string() };
    let most = set().map(|(rank, _)| rank).max().ok_or_else(missing)?;
    let mut best = set().filter(|(rank, _)| *rank == most).map(|(_, given)| given);
    let given = best.next().ok_or_else(missing)?;
    if best.any(|other| other.value != given.value) {
        return Err(ProfileError::Tie { profile: subject.name.clone(), value: value.to_string() });
    }
    Ok(given.sourced())
}

fn ops(
    subject: &Subject,
    overlays: &[(Rank, &Overlay)],
) -> Result<BTreeMap<String, Sourced<Acceptance>>, ProfileError> {
    let mut names: Vec<&String> = overlays.iter().flat_map(|(_, o)| o.ops.keys()).collect();
    names.sort();
    names.dedup();
    let one = |name: &String| Ok((name.clone(), pick(subject, &format!("op.{name}"), overlays, |o| o.ops.get(name))?));
    names.into_iter().map(one).collect()
}

/// The overlays that come with the crate, in files by subject.
const BUILT_IN: &[&str] = &[
    include_str!("../../data/profiles/text.toml"),
    include_str!("../../data/profiles/limits.toml"),
    include_str!("../../data/profiles/ops.toml"),
    include_str!("../../data/profiles/surfaces.toml"),
    include_str!("../../data/profiles/life.toml"),
    include_str!("../../data/profiles/numerics.toml"),
];

/// The hardest claim about each value: what a strict check reads above a profile.
const STRICT: &str = include_str!("../../data/strict.toml");

static OVERLAYS: LazyLock<Result<Vec<Overlay>, ProfileError>> = LazyLock::new(|| {
    let mut all = Vec::new();
    for text in BUILT_IN {
        all.extend(read(text)?);
    }
    Ok(all)
});

fn read(text: &str) -> Result<Vec<Overlay>, ProfileError> {
    let file: File = toml::from_str(text).map_err(|e| ProfileError::Syntax(e.to_string()))?;
    Ok(file.overlay)
}

fn resolve(subject: &Subject, files: &[&[Overlay]]) -> Result<Profile, ProfileError> {
    let mut matching = Vec::new();
    for (file, overlays) in files.iter().enumerate() {
        for overlay in *overlays {
            let mut all = true;
            for (key, wanted) in &overlay.r#match {
                let found = subject.field(key).ok_or_else(|| ProfileError::Condition(key.clone()))?;
                all &= wanted.fit(found);
            }
            if all {
                matching.push(((file, overlay.r#match.len()), overlay));
            }
        }
    }
    Profile::from_overlays(subject.clone(), &matching)
}

fn subject(name: &str) -> Result<Subject, ProfileError> {
    let words = |words: &[String]| words.join(", ");
    let chips: Vec<String> = chips().iter().map(|c| c.name.clone()).collect();
    Subject::parse(name).ok_or_else(|| ProfileError::Unknown {
        name: name.to_string(),
        hint: ferrane_diag::nearest(
            name,
            Profile::names().iter().map(String::as_str).chain(chips.iter().map(String::as_str)),
        )
        .map_or_else(String::new, |n| format!(", did you mean `{n}`?")),
        chips: words(&chips),
        systems: words(systems()),
        paths: words(paths()),
    })
}

impl Profile {
    /// The machine assumed where none is named: an M4 under macOS 15 on the in-memory path.
    pub const DEFAULT: &str = "m4-macos15-inmem";

    /// Resolves a built-in profile. A short name is completed: `m4` is `m4-macos15-inmem`.
    ///
    /// # Errors
    /// An unknown name.
    pub fn named(name: &str) -> Result<Profile, ProfileError> {
        Profile::measured(name, "")
    }

    /// Resolves a profile with the overlays of a TOML text above the built-in ones: what a user has measured.
    ///
    /// # Errors
    /// An unknown name, wrong syntax, a tie.
    pub fn measured(name: &str, text: &str) -> Result<Profile, ProfileError> {
        let built_in = OVERLAYS.as_ref().map_err(ProfileError::clone)?;
        resolve(&subject(name)?, &[built_in, &read(text)?])
    }

    /// The same machine with the hardest claim about each value, wherever it was made.
    ///
    /// # Errors
    /// None that a test does not find: the overlays are built in.
    pub fn strict(&self) -> Result<Profile, ProfileError> {
        let built_in = OVERLAYS.as_ref().map_err(ProfileError::clone)?;
        resolve(&self.subject, &[built_in, &read(STRICT)?])
    }

    /// Names of all profiles.
    pub fn names() -> Vec<String> {
        Subject::all().into_iter().map(|s| s.name).collect()
    }

    /// What the machine does with an op, and the claims; a native op has no entry of its own.
    pub fn op(&self, name: &str) -> Option<&Sourced<Acceptance>> {
        self.ops.get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_resolves() {
        let names = Profile::names();
        assert!(names.iter().any(|n| n == Profile::DEFAULT));
        for name in names {
            Profile::named(&name).unwrap_or_else(|e| panic!("{e}"));
        }
    }

    #[test]
    fn the_more_specific_overlay_wins() {
        let m1 = Profile::named("m1-macos15-inmem").unwrap();
        let m4 = Profile::named("m4-macos15-inmem").unwrap();
        assert_eq!((m1.max_axis.value, m4.max_axis.value), (16384, 65536));
        assert!(!m4.max_axis.claims.is_empty());
    }

    #[test]
    fn a_users_file_stands_above() {
        let text = "[[overlay]]\n[overlay.set]\nmax_axis = { value = 7 }\n[overlay.ops]\nrelu = { value = 'refused' }";
        let profile = Profile::measured("m4", text).unwrap();
        assert_eq!(profile.max_axis.value, 7);
        assert_eq!(profile.op("relu").unwrap().value, Acceptance::Refused);
        assert_eq!(profile.entries().last().map(|e| e.name.starts_with("op.")), Some(true));
    }

    fn of(text: &str) -> Result<Profile, ProfileError> {
        resolve(&Subject::parse("m1").unwrap(), &[&read(text)?])
    }

    #[test]
    fn a_tie_is_an_error() {
        let text = "[[overlay]]\nmatch={family='h13'}\nset={dialect={value='verbose'}}\n\
                    [[overlay]]\nmatch={os=['macos15', 'macos26']}\nset={dialect={value='shorthand'}}\n";
        assert!(matches!(of(text), Err(ProfileError::Tie { value, .. }) if value == "dialect"));
        // One that is more specific decides, wherever it stands: then another value is the missing one.
        let decided = "[[overlay]]\nmatch={family='h13',os='macos15'}\nset={dialect={value='verbose'}}\n";
        for text in [format!("{text}{decided}"), format!("{decided}{text}")] {
            assert!(matches!(of(&text), Err(ProfileError::Missing { value, .. }) if value == "headers"));
        }
    }

    #[test]
    fn a_missing_value_an_unknown_name_and_a_wrong_condition_are_errors() {
        assert!(matches!(of(""), Err(ProfileError::Missing { .. })));
        let unknown = Profile::named("m4-macos15-inmen").unwrap_err().to_string();
        assert!(unknown.contains("did you mean `m4-macos15-inmem`"), "{unknown}");
        let wrong = "[[overlay]]\nmatch={moon='full'}\n";
        assert!(matches!(of(wrong), Err(ProfileError::Condition(_))));
        assert!(matches!(of("[[overlay]]\nnope=1"), Err(ProfileError::Syntax(_))));
    }
}

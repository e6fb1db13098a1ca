//! Profiles: typed values, each with its evidence, resolved from overlays.
//!
//! An overlay is a TOML table `[[overlay]]` with `match = { … }` and the values it sets, `set` for the machine and `ops` for single
//! ops. A condition is a word or a list of words that a field of the [`Subject`] may have; an overlay with more conditions is more
//! specific and wins. Two overlays of the same specificity that set the same value differently are an error: the data say too
//! little and a person must decide. The overlays of a file that a user gives stand above all that are built in.

mod chips;
mod values;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

pub use chips::{Chip, Subject, chips, paths, systems};
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
    /// True where the blob reader rejects wrong sizes and offsets (weight-blob §4).
    strict_blobs: bool,
    /// True where the op `cast` runs.
    cast: bool,
    /// Element types that a function may take.
    input_types: Vec<String>,
    /// True where 4-bit types are accepted in `constexpr_*` ops.
    int4: bool,
    /// Longest extent of an axis other than channels and batch; elements (mil-text §8).
    max_axis: usize,
    /// Most channels of a tensor (mil-text §8).
    max_channels: usize,
    /// Largest batch (mil-text §8).
    max_batch: usize,
    /// Highest rank of a tensor (mil-text §6).
    max_rank: usize,
    /// Widest fp16 convolution kernel; elements (mil-text §8).
    max_kernel_width: usize,
    /// Most input channels of a convolution (mil-text §6).
    max_conv_input_channels: Limit,
    /// Most weight blobs in a program.
    max_blobs: Limit,
    /// Most ops in a program.
    max_ops: Limit,
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
    /// Smallest surface; bytes, 0 for none (mil-text §6).
    min_surface: usize,
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
    /// Bytes to which the rows of a surface are padded; 1 is packed (apple-runtime §7, §11).
    row_alignment: usize,
    /// Compiles allowed in one process before the engine fails (apple-runtime §3).
    compile_budget: Limit,
    /// True where unloading a program gives its compile back to the budget.
    budget_returns: bool,
    /// Programs that may be loaded at once.
    max_loaded: Limit,
    /// Requests that may be in flight at once (apple-runtime §2).
    queue_depth: usize,
    /// True where unload, overwriting the weight files and load changes the weights without a compile.
    weights_reload: bool,
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
    /// Ties of `quantize` (int8 §2).
    quantize_rounding: Rounding,
    /// True where a product of two dequantised branches takes one scale for the other's (int8 §2).
    qdq_multiply_defect: bool,
    /// What `attn_mask` does.
    attn_mask: AttnMask,
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
    Ok(Sourced { value: given.value.clone(), claims: given.claims.clone(), overrules: given.overrules.clone() })
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
const BUILT_IN: &[&str] = &[include_str!("../../data/profiles/base.toml")];

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

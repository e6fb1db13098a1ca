//! The cost constants of a chip, looked up by chip, by family and for all chips; each has its
//! source.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

/// A constant with its source.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// The value, in the unit at the end of the field's name.
    pub value: f64,
    /// A section of the specification, a published record, or the fit.
    pub source: String,
}

/// Why the constants of a chip could not be resolved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConstantsError {
    /// The text is not valid TOML of this form.
    #[error("constants of the cost model: {0}")]
    Syntax(String),
    /// The chip is not known.
    #[error("no cost constants for chip `{name}`; known: {known}")]
    Unknown {
        /// The name that was looked up.
        name: String,
        /// The known chips, separated by commas.
        known: String,
    },
    /// No file gives a positive value for a constant.
    #[error("chip `{chip}`: no usable value for `{name}`")]
    Missing {
        /// The chip whose constants were resolved.
        chip: String,
        /// The name of the constant.
        name: &'static str,
    },
}

macro_rules! constants {
    (
        required { $($(#[$doc:meta])* $name:ident,)* }
        optional { $($(#[$odoc:meta])* $oname:ident,)* }
    ) => {
        /// The constants of the cost model for one chip on one path.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Constants {
            /// The chip, such as `m4` or `m4-pro`.
            pub chip: String,
            /// The compiler family, from `h13` to `h17`.
            pub family: String,
            $($(#[$doc])* pub $name: Constant,)*
            $($(#[$odoc])* pub $oname: Option<Constant>,)*
        }

        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct ConstantsTable {
            family: Option<String>,
            $($name: Option<Constant>,)*
            $($oname: Option<Constant>,)*
        }

        impl Constants {
            fn collect(chip: &str, family: &str, tables: &[&ConstantsTable]) -> Result<Constants, ConstantsError> {
                let missing = |name| ConstantsError::Missing { chip: chip.to_string(), name };
                let usable = |c: &&Constant| c.value.is_finite() && c.value > 0.0;
                $(let $name = tables.iter().find_map(|t| t.$name.as_ref()).filter(usable).cloned()
                    .ok_or_else(|| missing(stringify!($name)))?;)*
                $(let $oname = tables.iter().find_map(|t| t.$oname.as_ref()).filter(usable).cloned();)*
                Ok(Constants { chip: chip.to_string(), family: family.to_string(), $($name,)* $($oname,)* })
            }

            /// Every constant that the chip has, by name.
            pub fn all(&self) -> Vec<(&'static str, &Constant)> {
                let mut all = vec![$((stringify!($name), &self.$name),)*];
                $(all.extend(self.$oname.as_ref().map(|c| (stringify!($oname), c)));)*
                all
            }
        }
    };
}

constants! {
    required {
        /// The fixed cost of a dispatch from the call to the result, in microseconds.
        dispatch_us,
        /// The time of the ops that passes during the fixed cost, in microseconds: a program whose
        /// ops take less costs no more than one without ops.
        hidden_us,
        /// The fp16 rate of the multiply-accumulate array for an op of at least `ramp_mflop`, in
        /// TFLOP/s.
        rate_tflops,
        /// The size of an op from which the array reaches the full rate, in MFLOP.
        ramp_mflop,
        /// Below that size, the rate falls with this power of the size.
        ramp_power,
        /// The factor on the rate if both operands are int8.
        int8_gain,
        /// The share of the rate that a product of two runtime operands reaches.
        matmul_share,
        /// The weights of an op that are loaded during the previous op, in MiB.
        buffer_mb,
        /// The rate at which the remaining weights of an op stream from memory, in GB/s, for an op
        /// with at least `stream_ramp_mb` of weights.
        stream_gb_s,
        /// The weights of an op, in MiB, from which they stream at the full rate.
        stream_ramp_mb,
        /// Below that size, the streaming rate falls with this power of the size.
        stream_power,
        /// The same rate if the rows of the weights are a power of two of at least 4096 elements
        /// long.
        alias_gb_s,
        /// The rate of reading and writing activations, in GB/s.
        traffic_gb_s,
        /// The size of on-chip memory in MiB: array ops whose activations fit have no traffic.
        sram_mb,
        /// The cost of leaving the engine for an op that it does not run, and of returning, in
        /// microseconds.
        cut_us,
        /// The fixed cost of compiling a program, in milliseconds.
        compile_ms,
        /// The factor on the compile time of ops and weights.
        compile_scale,
        /// The compile time per op, in milliseconds.
        compile_op_ms,
        /// The compile time per MiB of weights, in milliseconds.
        compile_mb_ms,
        /// The share of the dispatch cost that applies on the path; 1 on `inmem`.
        path_share,
        /// The time to load a compiled program, in milliseconds.
        load_ms,
        /// The time of the first load of a process, in milliseconds.
        first_load_ms,
        /// The time to unload a program, in milliseconds.
        unload_ms,
        /// The share of the compile time that is left if a cache has the compiled program.
        cached_share,
        /// The time by which the first evaluation of a program exceeds the later ones, in
        /// microseconds.
        first_us,
        /// The time by which an evaluation is longer if the one before was of another program, in
        /// microseconds.
        switch_us,
        /// The time of an evaluation with two or more requests in flight, as a share of the time
        /// with one.
        flight_share,
        /// The rate at which the CPU copies large arrays, in GB/s, counting reads and writes.
        memcpy_gb_s,
    }
    optional {
        /// The power under load, in watts; `None` if none is published.
        power_w,
        /// The rate of conversions between fp32 activations and fp16 surfaces in GB/s, counting
        /// reads and writes.
        io_gb_s,
        /// The CPU time of the derivative of SiLU per element, in nanoseconds.
        silu_ns,
        /// The CPU time of RMSNorm per element and pass, in nanoseconds.
        rms_ns,
        /// The CPU time of softmax and loss per logit, in nanoseconds.
        softmax_ns,
        /// The rate of fp32 matrix products on the CPU, in TFLOP/s.
        sgemm_tflops,
        /// The rate of simple passes over arrays on the CPU (copies, sums, the inverse rotation) in
        /// GB/s, counting all operands.
        copy_gb_s,
        /// The rate at which the static trainers copy the operands of the weight gradients in GB/s,
        /// counting reads and writes; `None` if it is not known to differ from `copy_gb_s`.
        static_copy_gb_s,
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConstantsFile {
    #[serde(default)]
    shared: ConstantsTable,
    #[serde(default)]
    family: BTreeMap<String, ConstantsTable>,
    #[serde(default)]
    chip: BTreeMap<String, ConstantsTable>,
    #[serde(default)]
    path: BTreeMap<String, ConstantsTable>,
}

/// The constants that the fit wrote.
const FITTED: &str = include_str!("../../data/cost/fitted.toml");
/// The constants from published measurements.
const PUBLISHED: &str = include_str!("../../data/cost/published.toml");

impl Constants {
    /// The built-in constants of a chip on a path.
    ///
    /// # Errors
    /// [`ConstantsError::Unknown`] if the chip is not known.
    pub fn of(chip: &str, path: &str) -> Result<Constants, ConstantsError> {
        Constants::resolve(&[FITTED, PUBLISHED], chip, path)
    }

    /// The constants of a chip without the fitted ones: the starting point of the fit. `shape`
    /// replaces the fitted file.
    ///
    /// # Errors
    /// The chip is not known, or the two files do not define every constant.
    pub fn before_fit(shape: &str, chip: &str) -> Result<Constants, ConstantsError> {
        Constants::resolve(&[shape, PUBLISHED], chip, "inmem")
    }

    /// The names of the chips with constants.
    pub fn chips() -> &'static [String] {
        static CHIPS: LazyLock<Vec<String>> = LazyLock::new(|| {
            toml::from_str::<ConstantsFile>(PUBLISHED).map_or_else(|_| Vec::new(), |f| f.chip.into_keys().collect())
        });
        &CHIPS
    }

    /// Resolves the constants of a chip from several files; the first file wins at each level.
    ///
    /// # Errors
    /// Invalid syntax, an unknown chip or a missing value.
    pub fn resolve(texts: &[&str], chip: &str, path: &str) -> Result<Constants, ConstantsError> {
        let read = |text: &&str| toml::from_str(text).map_err(|e| ConstantsError::Syntax(e.to_string()));
        let files: Vec<ConstantsFile> = texts.iter().map(read).collect::<Result<_, _>>()?;
        let family = files.iter().find_map(|f| f.chip.get(chip)?.family.clone()).ok_or_else(|| {
            let known: Vec<_> = files.iter().flat_map(|f| f.chip.keys()).map(String::as_str).collect();
            ConstantsError::Unknown { name: chip.to_string(), known: known.join(", ") }
        })?;
        let on = |get: fn(&ConstantsFile) -> &BTreeMap<String, ConstantsTable>, key: &str| {
            files.iter().filter_map(|f| get(f).get(key)).collect::<Vec<_>>()
        };
        let mut tables = on(|f| &f.path, path);
        tables.extend(on(|f| &f.chip, chip));
        tables.extend(on(|f| &f.family, &family));
        tables.extend(files.iter().map(|f| &f.shared));
        Constants::collect(chip, &family, &tables)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chip_resolves_and_every_constant_has_a_source() {
        let chips = Constants::chips();
        assert!(chips.iter().any(|c| c == "m4") && chips.iter().any(|c| c == "m1"));
        for chip in chips {
            let constants = Constants::of(chip, "inmem").unwrap();
            assert!(constants.all().iter().all(|(_, c)| !c.source.is_empty()), "{chip}");
        }
    }

    #[test]
    fn the_chip_wins_over_the_family_and_the_first_file_over_the_second() {
        let all: String = Constants::of("m4", "inmem")
            .unwrap()
            .all()
            .iter()
            .map(|(name, _)| format!("{name} = {{ value = 1.0, source = 's' }}\n"))
            .collect();
        let base =
            format!("[shared]\n{all}[chip.a]\nfamily = 'f'\n[family.f]\nsram_mb = {{ value = 2.0, source = 'f' }}\n");
        let own = "[chip.a]\nrate_tflops = { value = 3.0, source = 'c' }\n";
        let low = "[shared]\nsram_mb = { value = 9.0, source = 's' }\nstream_gb_s = { value = 5.0, source = 's' }\n";
        let c = Constants::resolve(&[own, low, &base], "a", "inmem").unwrap();
        assert_eq!(
            (c.rate_tflops.value, c.sram_mb.value, c.stream_gb_s.value, c.buffer_mb.value),
            (3.0, 2.0, 5.0, 1.0)
        );
    }

    #[test]
    fn what_is_missing_or_no_number_is_an_error() {
        assert!(matches!(Constants::of("m0", "inmem"), Err(ConstantsError::Unknown { .. })));
        let none = "[chip.a]\nfamily = 'f'\n";
        assert!(matches!(Constants::resolve(&[none], "a", "inmem"), Err(ConstantsError::Missing { .. })));
        let zero = "[chip.a]\nfamily = 'f'\ndispatch_us = { value = 0.0, source = 's' }\n";
        let error = Constants::resolve(&[zero], "a", "inmem").unwrap_err();
        assert!(matches!(error, ConstantsError::Missing { name: "dispatch_us", .. }));
        assert!(matches!(Constants::resolve(&["nope = 1"], "a", "inmem"), Err(ConstantsError::Syntax(_))));
    }
}

//! The constants of a chip: looked up by chip, family and for all, each with its source.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

/// A constant with its source.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// The value, in the unit that the field's name ends in.
    pub value: f64,
    /// A section of the specification, a published record, or the fit.
    pub source: String,
}

/// Why there are no constants for a chip.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConstantsError {
    /// The file is not TOML of this form.
    #[error("constants of the cost model: {0}")]
    Syntax(String),
    /// No chip of that name.
    #[error("no cost constants for chip `{name}`; known: {known}")]
    Unknown {
        /// The chip asked for.
        name: String,
        /// The chips there are.
        known: String,
    },
    /// Nothing gives a value, or it is not a positive number.
    #[error("chip `{chip}`: no usable value for `{name}`")]
    Missing {
        /// The chip.
        chip: String,
        /// The constant.
        name: &'static str,
    },
}

macro_rules! constants {
    (
        required { $($(#[$doc:meta])* $name:ident,)* }
        optional { $($(#[$odoc:meta])* $oname:ident,)* }
    ) => {
        /// What the model knows of a chip.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Constants {
            /// The chip: `m4`, `m4-pro`, …
            pub chip: String,
            /// The compiler family: `h13` … `h17`.
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
        /// Floor of a dispatch, from the call to the result.
        dispatch_us,
        /// Rate of the multiply-accumulate array in fp16 for an op of at least `ramp_mflop`.
        rate_tflops,
        /// Size of an op from which the full rate is reached.
        ramp_mflop,
        /// The rate falls as the size below it to this power.
        ramp_power,
        /// Factor of the rate where both operands are int8.
        int8_gain,
        /// Share of the rate that a product of two runtime operands reaches.
        matmul_share,
        /// Weights of an op that are loaded behind the work before it.
        buffer_mb,
        /// Rate at which the rest of an op's weights comes from memory.
        stream_gb_s,
        /// The same where the weights' rows are a power of two of at least 4096 elements apart.
        alias_gb_s,
        /// Rate of reading and writing activations.
        traffic_gb_s,
        /// Memory on chip: an op of the array whose activations fit has no traffic.
        sram_mb,
        /// Leaving the engine for an op that it does not run, and coming back.
        cut_us,
        /// Compiling a program, whatever is in it.
        compile_ms,
        /// Factor on what ops and weights add to the compile.
        compile_scale,
        /// What an op adds to the compile.
        compile_op_ms,
        /// What a MiB of weights adds to the compile.
        compile_mb_ms,
        /// Share of the floor on the path; 1 on `inmem`.
        path_share,
    }
    optional {
        /// Power at work. None where none is published.
        power_w,
        /// Rate of converting between fp32 activations and fp16 surfaces, both sides counted.
        io_gb_s,
        /// The CPU's derivative of SiLU, per element.
        silu_ns,
        /// The CPU's RMSNorm, per element and pass.
        rms_ns,
        /// The CPU's softmax and loss, per logit.
        softmax_ns,
        /// Single precision products on the CPU.
        sgemm_tflops,
        /// Plain passes over arrays of the CPU (copies, sums, the inverse rotation), all sides
        /// counted.
        copy_gb_s,
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

/// What the fit gives.
const FITTED: &str = include_str!("../../data/cost/fitted.toml");
/// What is published.
const PUBLISHED: &str = include_str!("../../data/cost/published.toml");

impl Constants {
    /// The built-in constants of a chip on a path.
    ///
    /// # Errors
    /// The chip is not known.
    pub fn of(chip: &str, path: &str) -> Result<Constants, ConstantsError> {
        Constants::resolve(&[FITTED, PUBLISHED], chip, path)
    }

    /// The constants of a chip without those of the fit, where it starts from. `shape` stands in
    /// for the fitted file.
    ///
    /// # Errors
    /// The chip is not known, or the two leave a value open.
    pub fn before_fit(shape: &str, chip: &str) -> Result<Constants, ConstantsError> {
        Constants::resolve(&[shape, PUBLISHED], chip, "inmem")
    }

    /// Names of the chips.
    pub fn chips() -> &'static [String] {
        static CHIPS: LazyLock<Vec<String>> = LazyLock::new(|| {
            toml::from_str::<ConstantsFile>(PUBLISHED).map_or_else(|_| Vec::new(), |f| f.chip.into_keys().collect())
        });
        &CHIPS
    }

    /// Resolves a chip from files, the first of which wins at each level.
    ///
    /// # Errors
    /// Wrong syntax, an unknown chip, a missing value.
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

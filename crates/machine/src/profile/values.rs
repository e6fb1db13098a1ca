//! The types of profile values.

use serde::{Deserialize, Serialize};

/// A number, or no limit (`none` in TOML).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(pub Option<usize>);

impl Limit {
    /// True if `n` exceeds the limit.
    pub fn exceeded_by(self, n: usize) -> bool {
        self.0.is_some_and(|limit| n > limit)
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(n) => write!(f, "{n}"),
            None => f.write_str("none"),
        }
    }
}

impl Serialize for Limit {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(n) => serializer.serialize_u64(n as u64),
            None => serializer.serialize_str("none"),
        }
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Limit, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Spelled {
            Number(usize),
            Word(String),
        }
        match Spelled::deserialize(deserializer)? {
            Spelled::Number(n) => Ok(Limit(Some(n))),
            Spelled::Word(word) if word == "none" => Ok(Limit(None)),
            Spelled::Word(word) => {
                Err(serde::de::Error::custom(format!("expected a number or `none`, found `{word}`")))
            }
        }
    }
}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $word:ident = $text:literal),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum $name { $($(#[$word_doc])* #[serde(rename = $text)] $word),* }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $($name::$word => $text),* })
            }
        }
    )*};
}

words! {
    /// A spelling of MIL text (mil-text §2, §3).
    AcceptedDialect {
        /// `program(1.3)` with shorthand scalar types; the verbose spelling is also accepted.
        Shorthand = "shorthand",
        /// `tensor<T, []>` for scalars, `program(1.0)`, ios16; nothing else is accepted.
        Verbose = "verbose",
    }
    /// The order of ports in the compiled program.
    PortOrder {
        /// As in the attributes of the compiled program; there is no other rule.
        Attributes = "attributes",
        /// In the order of declaration.
        Declaration = "declaration",
        /// Sorted by name.
        Alphabetical = "alphabetical",
        /// Sorted by size, smallest first.
        AscendingSize = "ascending-size",
        /// Sorted by size, largest first.
        DescendingSize = "descending-size",
    }
    /// The rounding of ties to fp16 or to an integer.
    Rounding {
        /// Ties to even.
        Even = "even",
        /// Ties away from zero.
        Away = "away",
    }
    /// The accumulation of the multiply-accumulate unit (numerics §3).
    Accumulator {
        /// fp32 sums of exact products.
        Fp32 = "fp32",
        /// Products rounded to multiples of 2⁻¹⁶, exact sums (numerics §3.1).
        Grid16 = "grid16",
        /// Tiles of four lanes that lose low bits, exact sums of tiles (numerics §3.2).
        Tile4 = "tile4",
    }
    /// The treatment of subnormal fp16 values.
    Subnormals {
        /// They become zero.
        Flushed = "flushed",
        /// They keep their values.
        Kept = "kept",
    }
    /// Width of the sum of a stand-alone `reduce_sum` (numerics §2).
    SumWidth {
        /// fp16 at every addition: integers are exact up to 2048.
        Narrow = "narrow",
        /// Like the sums of a product with ones.
        Wide = "wide",
    }
    /// The implementation of a width slice that does not begin at 0 (numerics §4).
    SliceCrop {
        /// Plain fp16 copies.
        Plain = "plain",
        /// Multiplication by 16 in fixed point: values beyond 4094 become infinite.
        Times16 = "times16",
    }
    /// The function table of `sigmoid` (numerics §6.2).
    SigmoidTable {
        /// Steps of ½ from −8 to 8.
        Plain = "plain",
        /// ½ plus an odd table with steps of ¼.
        HighPrecision = "high-precision",
    }
    /// The function table of `gelu` (numerics §6.2).
    GeluTable {
        /// As decoded from H13 payloads and observed on M5: gelu(0) = −0.00075388.
        Decoded = "decoded",
        /// As ane-guide states for M1: gelu(0) = −0.000543. Its knots are not published.
        Guide = "guide",
    }
    /// The behavior of `round` (numerics §5).
    RoundOp {
        /// To nearest, ties to even, as in MIL.
        NearestEven = "nearest-even",
        /// Adds ½ in fp16 and truncates: wrong from 1024 on.
        AddHalf = "add-half",
    }
    /// The behavior of `attn_mask` in `scaled_dot_product_attention`.
    AttnMask {
        /// The mask is added to the scores.
        Honored = "honored",
        /// The mask has no effect.
        Ignored = "ignored",
    }
    /// The form in which compressed weights reach the engine (int8 §3).
    WeightRoute {
        /// Expanded to fp16 at compile time: smaller on disk only.
        Folds = "folds",
        /// Read by the engine in compressed form.
        Streams = "streams",
    }
    /// The acceptance of an op, independent of its arguments.
    Acceptance {
        /// The op compiles and runs.
        Native = "native",
        /// The op runs as several others, with their rounding.
        Decomposed = "decomposed",
        /// The op compiles only with an explicit `epsilon`, though MIL has a default.
        NeedsEpsilon = "needs-epsilon",
        /// The compiler cannot lower the op.
        Refused = "refused",
        /// The op compiles, and every evaluation fails.
        FailsAtEvaluation = "fails-at-evaluation",
        /// The op runs once and breaks every later evaluation (C068).
        Poisons = "poisons",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct One {
        limit: Limit,
    }

    #[test]
    fn limits() {
        let read = |s: &str| toml::from_str::<One>(s).map(|o| o.limit);
        assert_eq!(read("limit = 119").unwrap(), Limit(Some(119)));
        let none = read("limit = 'none'").unwrap();
        assert!(!none.exceeded_by(usize::MAX));
        assert!(Limit(Some(2)).exceeded_by(3) && !Limit(Some(2)).exceeded_by(2));
        assert!(read("limit = 'many'").is_err());
        assert!(read("limit = -1").is_err());
    }
}

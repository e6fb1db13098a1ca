//! The words that profile values are made of.

use serde::{Deserialize, Serialize};

/// A number, or no limit: `none` in TOML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(pub Option<usize>);

impl Limit {
    /// True if `n` is beyond the limit.
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
        /// `program(1.3)` with scalar shorthand types; the verbose spelling is read, too.
        Shorthand = "shorthand",
        /// `tensor<T, []>` for scalars, `program(1.0)`, ios16; nothing else is read.
        Verbose = "verbose",
    }
    /// How ports are ordered by the compiled program.
    PortOrder {
        /// As the attributes of the compiled program say; nothing else tells.
        Attributes = "attributes",
        /// As the program declares them.
        Declaration = "declaration",
        /// By name.
        Alphabetical = "alphabetical",
        /// By size, smallest first.
        AscendingSize = "ascending-size",
        /// By size, largest first.
        DescendingSize = "descending-size",
    }
    /// Rounding to fp16, or to an integer, of a value halfway between two.
    Rounding {
        /// To the even one.
        Even = "even",
        /// Away from zero.
        Away = "away",
    }
    /// How the multiply-accumulate unit adds (numerics §3).
    Accumulator {
        /// fp32 sums of exact products.
        Fp32 = "fp32",
        /// Products rounded to multiples of 2⁻¹⁶, exact sums (numerics §3.1).
        Grid16 = "grid16",
        /// Tiles of four lanes that lose low bits, exact sums of tiles (numerics §3.2).
        Tile4 = "tile4",
    }
    /// What happens to subnormal fp16 values.
    Subnormals {
        /// They become zero.
        Flushed = "flushed",
        /// They are kept.
        Kept = "kept",
    }
    /// Width of the sum of a stand-alone `reduce_sum` (numerics §2).
    SumWidth {
        /// fp16 at every addition: integers exact to 2048.
        Narrow = "narrow",
        /// As in a product against ones.
        Wide = "wide",
    }
    /// The route of a width slice that does not begin at 0 (numerics §4).
    SliceCrop {
        /// Plain fp16.
        Plain = "plain",
        /// Times 16 in fixed point: beyond 4094 infinite.
        Times16 = "times16",
    }
    /// The table behind a user's `sigmoid` (numerics §6.2).
    SigmoidTable {
        /// Step ½ over −8…8.
        Plain = "plain",
        /// Half and an odd part with step ¼.
        HighPrecision = "high-precision",
    }
    /// The table behind `gelu` (numerics §6.2).
    GeluTable {
        /// As decoded from H13 payloads and seen on M5: gelu(0) = −0.00075388.
        Decoded = "decoded",
        /// As ane-guide states for M1: gelu(0) = −0.000543. Its knots are not published.
        Guide = "guide",
    }
    /// What `round` does (numerics §5).
    RoundOp {
        /// To nearest, ties to even, as MIL says.
        NearestEven = "nearest-even",
        /// Adds ½ in fp16 and truncates: wrong from 1024 on.
        AddHalf = "add-half",
    }
    /// What `attn_mask` of `scaled_dot_product_attention` does.
    AttnMask {
        /// It is added to the scores.
        Honored = "honored",
        /// Nothing.
        Ignored = "ignored",
    }
    /// How compressed weights reach the engine (int8 §3).
    WeightRoute {
        /// Expanded to fp16 at compile: smaller on disk only.
        Folds = "folds",
        /// Read compressed.
        Streams = "streams",
    }
    /// What a machine does with an op, apart from its arguments.
    Acceptance {
        /// It compiles and runs.
        Native = "native",
        /// It runs as several others, with their rounding.
        Decomposed = "decomposed",
        /// It compiles when `epsilon` is given, though MIL has a default.
        NeedsEpsilon = "needs-epsilon",
        /// The compiler has no way to run it.
        Refused = "refused",
        /// It compiles, and every evaluation fails.
        FailsAtEvaluation = "fails-at-evaluation",
        /// It runs once and breaks every evaluation after it (C068).
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

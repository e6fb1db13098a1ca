//! A small program as its text, in whatever spelling the machine reads.

use std::fmt::Write as _;

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_mil::{DataType, Dialect, Weights, parse, print};
use half::f16;

/// How a program's text begins and is spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spelling {
    /// `program(major.minor)`.
    pub version: (u32, u32),
    /// The dialect.
    pub dialect: Dialect,
    /// The opset of the function, `ios18`.
    pub opset: &'static str,
}

impl Spelling {
    /// What is tried, the newest first.
    pub(crate) const TRIED: [Spelling; 4] = [
        Spelling { version: (1, 3), dialect: Dialect::Shorthand, opset: "ios18" },
        Spelling { version: (1, 3), dialect: Dialect::Shorthand, opset: "ios17" },
        Spelling { version: (1, 3), dialect: Dialect::Shorthand, opset: "ios16" },
        Spelling { version: (1, 0), dialect: Dialect::Verbose, opset: "ios16" },
    ];

    /// In words, for reports: `program(1.3) shorthand ios18`.
    pub fn words(&self) -> String {
        let dialect = if self.dialect == Dialect::Verbose { "verbose" } else { "shorthand" };
        format!("program({}.{}) {dialect} {}", self.version.0, self.version.1, self.opset)
    }
}

/// The dictionary `buildInfo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Info {
    /// On one line, as compilers write it.
    Line,
    /// With a line break inside.
    Broken,
    /// None.
    Absent,
}

/// The type of a tensor in the shorthand dialect: `tensor<fp16, [1, 64, 1, 64]>`.
pub(crate) fn tensor(dtype: &str, shape: &[usize]) -> String {
    if shape.is_empty() { dtype.to_string() } else { format!("tensor<{dtype}, {shape:?}>") }
}

/// A program of one function, in the making. Ops are written in the shorthand dialect; [`Draft::text`] respells them.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    pub(crate) inputs: Vec<(String, &'static str, Vec<usize>)>,
    lines: String,
    pub(crate) outputs: Vec<String>,
    pub(crate) weights: Weights,
    needs: u16,
}

impl Draft {
    /// Nothing yet.
    pub fn new() -> Draft {
        Draft::default()
    }

    /// A parameter.
    #[must_use]
    pub fn input(mut self, name: &str, dtype: &'static str, shape: &[usize]) -> Draft {
        self.inputs.push((name.to_string(), dtype, shape.to_vec()));
        self
    }

    /// Says that its ops begin with an opset: 18 for ios18. Other programs are of ios16 and up.
    #[must_use]
    pub fn since(mut self, opset: u16) -> Draft {
        self.needs = opset;
        self
    }

    /// True if its ops are of the spelling's opset.
    pub fn fits(&self, spelling: &Spelling) -> bool {
        spelling.opset.strip_prefix("ios").and_then(|n| n.parse().ok()).is_some_and(|n: u16| n >= self.needs)
    }

    fn line(mut self, ty: &str, name: &str, right: &str) -> Draft {
        // Writing to a text does not fail.
        let _ = writeln!(self.lines, "        {ty} {name} = {right}[name = string(\"{name}\")];");
        self
    }

    fn constant(mut self, ty: &str, name: &str, value: &str) -> Draft {
        let _ = writeln!(self.lines, "        {ty} {name} = const()[name = string(\"{name}\"), val = {ty}({value})];");
        self
    }

    /// An op with one result.
    #[must_use]
    pub fn op(self, dtype: &str, shape: &[usize], name: &str, call: &str) -> Draft {
        self.line(&tensor(dtype, shape), name, call)
    }

    /// An op with several results, each with its type.
    #[must_use]
    pub fn ops(mut self, results: &[(String, &str)], call: &str) -> Draft {
        let names: Vec<String> = results.iter().map(|(ty, name)| format!("{ty} {name}")).collect();
        let _ = writeln!(self.lines, "        {} = {call}[name = string(\"{}\")];", names.join(", "), results[0].1);
        self
    }

    /// A constant whole number.
    #[must_use]
    pub fn int(self, name: &str, value: i64) -> Draft {
        self.constant("int32", name, &value.to_string())
    }

    /// A constant list of whole numbers.
    #[must_use]
    pub fn ints(self, name: &str, values: &[i64]) -> Draft {
        self.constant(&tensor("int32", &[values.len()]), name, &format!("{values:?}"))
    }

    /// A constant flag.
    #[must_use]
    pub fn flag(self, name: &str, value: bool) -> Draft {
        self.constant("bool", name, if value { "true" } else { "false" })
    }

    /// A constant word.
    #[must_use]
    pub fn word(self, name: &str, value: &str) -> Draft {
        self.constant("string", name, &format!("\"{value}\""))
    }

    /// A constant number of fp16.
    #[must_use]
    pub fn half(self, name: &str, value: f32) -> Draft {
        self.constant("fp16", name, &f16::from_f32(value).to_f32().to_string())
    }

    /// A constant tensor of fp16, written into the text.
    #[must_use]
    pub fn halves(self, name: &str, shape: &[usize], values: &[f32]) -> Draft {
        let values: Vec<String> = values.iter().map(|v| f16::from_f32(*v).to_f32().to_string()).collect();
        self.constant(&tensor("fp16", shape), name, &format!("[{}]", values.join(", ")))
    }

    /// A constant tensor of fp16 in a blob file of its own, `@model_path/weights/NAME.bin`.
    #[must_use]
    pub fn weight(mut self, name: &str, shape: &[usize], values: &[f32]) -> Draft {
        let bytes: Vec<u8> = values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect();
        let path = format!("@model_path/weights/{name}.bin");
        self.weights.add(&path, DataType::Fp16, bytes);
        let blob = format!("BLOBFILE(path = string(\"{path}\"), offset = uint64(64))");
        self.constant(&tensor("fp16", shape), name, &blob)
    }

    /// Results.
    #[must_use]
    pub fn output(mut self, names: &[&str]) -> Draft {
        self.outputs.extend(names.iter().map(|n| (*n).to_string()));
        self
    }

    /// The text in a spelling.
    ///
    /// # Errors
    /// The text is no MIL: a mistake of the probe.
    pub fn text(&self, spelling: &Spelling, info: Info) -> Result<String> {
        let info = match info {
            Info::Line => "[buildInfo = dict<string, string>({{\"coremlc-version\", \"3505.4.1\"}})]\n",
            Info::Broken => "[buildInfo = dict<string, string>({\n{\"coremlc-version\", \"3505.4.1\"}})]\n",
            Info::Absent => "",
        };
        let inputs: Vec<String> = self.inputs.iter().map(|(n, d, s)| format!("{} {n}", tensor(d, s))).collect();
        let (inputs, outputs) = (inputs.join(", "), self.outputs.join(", "));
        let verbose = spelling.dialect == Dialect::Verbose;
        let (major, minor) = if verbose { (1, 3) } else { spelling.version };
        let opset = spelling.opset;
        let lines = &self.lines;
        let text = format!(
            "program({major}.{minor})\n{info}{{\n    func main<{opset}>({inputs}) {{\n{lines}    }} -> ({outputs});\n}}\n"
        );
        if !verbose {
            return Ok(text);
        }
        // Of another kind than what a machine says of a program.
        let bad = |e| Error::new(ErrorKind::System, format!("the program of the probe is none: {e}"));
        let mut program = parse(text.as_bytes(), &self.weights).map_err(bad)?;
        (program.dialect, program.version) = (Dialect::Verbose, spelling.version);
        Ok(print(&program))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_is_a_program_in_every_spelling() {
        let draft = Draft::new()
            .input("x", "fp16", &[1, 2, 1, 4])
            .weight("w", &[1, 2, 1, 1], &[1.0, 2.0])
            .half("half", 0.5)
            .op("fp16", &[1, 2, 1, 4], "h", "mul(x = x, y = w)")
            .op("fp16", &[1, 2, 1, 4], "r", "add(x = h, y = half)")
            .output(&["r"]);
        for spelling in Spelling::TRIED {
            for info in [Info::Line, Info::Absent] {
                let text = draft.text(&spelling, info).unwrap();
                let program = parse(text.as_bytes(), &draft.weights).unwrap();
                assert_eq!((program.version, program.dialect), (spelling.version, spelling.dialect), "{text}");
                assert_eq!(program.functions[0].opset(), spelling.opset);
                assert_eq!(program.attributes.is_empty(), info == Info::Absent);
            }
        }
        let broken = draft.text(&Spelling::TRIED[0], Info::Broken).unwrap();
        assert!(parse(broken.as_bytes(), &draft.weights).is_ok());
        assert!(draft.fits(&Spelling::TRIED[2]) && !draft.since(18).fits(&Spelling::TRIED[2]));
    }
}

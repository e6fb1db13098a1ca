//! A small program that a probe writes, as text in the spelling that the machine reads.

use std::fmt::Write as _;

use ferrane_device::{Error, ErrorKind, Result};
use ferrane_mil::{DataType, Dialect, Weights, parse, print};
use half::f16;

/// Header, dialect and opset of a program's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spelling {
    /// `program(major.minor)`.
    pub version: (u32, u32),
    /// How types and scalars are written.
    pub dialect: Dialect,
    /// The opset of the function, `ios18`.
    pub opset: &'static str,
}

impl Spelling {
    /// The spellings to try, newest first.
    pub(crate) const TRIED: [Spelling; 4] = [
        Spelling { version: (1, 3), dialect: Dialect::Shorthand, opset: "ios18" },
        Spelling { version: (1, 3), dialect: Dialect::Shorthand, opset: "ios17" },
        Spelling { version: (1, 3), dialect: Dialect::Shorthand, opset: "ios16" },
        Spelling { version: (1, 0), dialect: Dialect::Verbose, opset: "ios16" },
    ];

    /// A line for reports: `program(1.3) shorthand ios18`.
    pub fn describe(&self) -> String {
        let dialect = if self.dialect == Dialect::Verbose { "verbose" } else { "shorthand" };
        format!("program({}.{}) {dialect} {}", self.version.0, self.version.1, self.opset)
    }
}

/// How the dictionary `buildInfo` is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildInfo {
    /// On one line, as compilers write it.
    Line,
    /// With a line break inside.
    Broken,
    /// Not in the text.
    Absent,
}

/// The type of a tensor in the shorthand dialect: `tensor<fp16, [1, 64, 1, 64]>`.
pub(crate) fn tensor(dtype: &str, shape: &[usize]) -> String {
    if shape.is_empty() { dtype.to_string() } else { format!("tensor<{dtype}, {shape:?}>") }
}

/// A program of one function under construction. Ops are written in the shorthand dialect;
/// [`ProbeProgram::text`] converts them to the spelling that the machine reads.
#[derive(Clone, Debug, Default)]
pub struct ProbeProgram {
    pub(crate) inputs: Vec<(String, &'static str, Vec<usize>)>,
    lines: String,
    pub(crate) outputs: Vec<String>,
    pub(crate) weights: Weights,
    needs: u16,
}

impl ProbeProgram {
    /// A program without inputs, ops or outputs.
    pub fn new() -> ProbeProgram {
        ProbeProgram::default()
    }

    /// Adds an input with its name, element type and shape.
    #[must_use]
    pub fn input(mut self, name: &str, dtype: &'static str, shape: &[usize]) -> ProbeProgram {
        self.inputs.push((name.to_string(), dtype, shape.to_vec()));
        self
    }

    /// Sets the oldest opset that has the program's ops: 18 for ios18. The default is ios16.
    #[must_use]
    pub fn since(mut self, opset: u16) -> ProbeProgram {
        self.needs = opset;
        self
    }

    /// True if the spelling's opset has the program's ops.
    pub fn fits(&self, spelling: &Spelling) -> bool {
        spelling.opset.strip_prefix("ios").and_then(|n| n.parse().ok()).is_some_and(|n: u16| n >= self.needs)
    }

    fn line(mut self, ty: &str, name: &str, right: &str) -> ProbeProgram {
        // Writing to a `String` does not fail.
        let _ = writeln!(self.lines, "        {ty} {name} = {right}[name = string(\"{name}\")];");
        self
    }

    fn constant(mut self, ty: &str, name: &str, value: &str) -> ProbeProgram {
        let _ = writeln!(self.lines, "        {ty} {name} = const()[name = string(\"{name}\"), val = {ty}({value})];");
        self
    }

    /// Adds an op with one result: its element type, shape and name, and the call.
    #[must_use]
    pub fn op(self, dtype: &str, shape: &[usize], name: &str, call: &str) -> ProbeProgram {
        self.line(&tensor(dtype, shape), name, call)
    }

    /// Adds an op with several results, each given as type and name.
    #[must_use]
    pub fn ops(mut self, results: &[(String, &str)], call: &str) -> ProbeProgram {
        let names: Vec<String> = results.iter().map(|(ty, name)| format!("{ty} {name}")).collect();
        let _ = writeln!(self.lines, "        {} = {call}[name = string(\"{}\")];", names.join(", "), results[0].1);
        self
    }

    /// Adds an int32 constant.
    #[must_use]
    pub fn int(self, name: &str, value: i64) -> ProbeProgram {
        self.constant("int32", name, &value.to_string())
    }

    /// Adds a constant list of int32.
    #[must_use]
    pub fn ints(self, name: &str, values: &[i64]) -> ProbeProgram {
        self.constant(&tensor("int32", &[values.len()]), name, &format!("{values:?}"))
    }

    /// Adds a bool constant.
    #[must_use]
    pub fn flag(self, name: &str, value: bool) -> ProbeProgram {
        self.constant("bool", name, if value { "true" } else { "false" })
    }

    /// Adds a string constant.
    #[must_use]
    pub fn word(self, name: &str, value: &str) -> ProbeProgram {
        self.constant("string", name, &format!("\"{value}\""))
    }

    /// Adds an fp16 scalar constant.
    #[must_use]
    pub fn half(self, name: &str, value: f32) -> ProbeProgram {
        self.constant("fp16", name, &f16::from_f32(value).to_f32().to_string())
    }

    /// Adds an fp16 tensor constant that is written into the text.
    #[must_use]
    pub fn halves(self, name: &str, shape: &[usize], values: &[f32]) -> ProbeProgram {
        let values: Vec<String> = values.iter().map(|v| f16::from_f32(*v).to_f32().to_string()).collect();
        self.constant(&tensor("fp16", shape), name, &format!("[{}]", values.join(", ")))
    }

    /// Adds an fp16 tensor constant in a separate blob file, `@model_path/weights/NAME.bin`.
    #[must_use]
    pub fn weight(mut self, name: &str, shape: &[usize], values: &[f32]) -> ProbeProgram {
        let bytes: Vec<u8> = values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect();
        let path = format!("@model_path/weights/{name}.bin");
        self.weights.add(&path, DataType::Fp16, bytes);
        let blob = format!("BLOBFILE(path = string(\"{path}\"), offset = uint64(64))");
        self.constant(&tensor("fp16", shape), name, &blob)
    }

    /// Adds values to the outputs, by name.
    #[must_use]
    pub fn output(mut self, names: &[&str]) -> ProbeProgram {
        self.outputs.extend(names.iter().map(|n| (*n).to_string()));
        self
    }

    /// The program's text in a spelling.
    ///
    /// # Errors
    /// [`ErrorKind::System`] if the ops do not parse, which is a bug of the probe.
    pub fn text(&self, spelling: &Spelling, info: BuildInfo) -> Result<String> {
        let info = match info {
            BuildInfo::Line => "[buildInfo = dict<string, string>({{\"coremlc-version\", \"3505.4.1\"}})]\n",
            BuildInfo::Broken => "[buildInfo = dict<string, string>({\n{\"coremlc-version\", \"3505.4.1\"}})]\n",
            BuildInfo::Absent => "",
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
        // A kind that no machine returns for a program.
        let bad = |e| Error::new(ErrorKind::System, format!("the probe's program does not parse: {e}"));
        let mut program = parse(text.as_bytes(), &self.weights).map_err(bad)?;
        (program.dialect, program.version) = (Dialect::Verbose, spelling.version);
        Ok(print(&program))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_program_parses_in_every_spelling() {
        let program = ProbeProgram::new()
            .input("x", "fp16", &[1, 2, 1, 4])
            .weight("w", &[1, 2, 1, 1], &[1.0, 2.0])
            .half("half", 0.5)
            .op("fp16", &[1, 2, 1, 4], "h", "mul(x = x, y = w)")
            .op("fp16", &[1, 2, 1, 4], "r", "add(x = h, y = half)")
            .output(&["r"]);
        for spelling in Spelling::TRIED {
            for info in [BuildInfo::Line, BuildInfo::Absent] {
                let text = program.text(&spelling, info).unwrap();
                let program = parse(text.as_bytes(), &program.weights).unwrap();
                assert_eq!((program.version, program.dialect), (spelling.version, spelling.dialect), "{text}");
                assert_eq!(program.functions[0].opset_tag().to_string(), spelling.opset);
                assert_eq!(program.attributes.is_empty(), info == BuildInfo::Absent);
            }
        }
        let broken = program.text(&Spelling::TRIED[0], BuildInfo::Broken).unwrap();
        assert!(parse(broken.as_bytes(), &program.weights).is_ok());
        assert!(program.fits(&Spelling::TRIED[2]) && !program.since(18).fits(&Spelling::TRIED[2]));
    }
}

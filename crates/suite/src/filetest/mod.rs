//! Filetests: MIL files with a header, and expectations next to the lines.
//!
//! The file is a program with comments (`//` to the end of the line, outside of strings), which are
//! blanked before the program is read, so that lines keep their numbers. The comments at the top
//! are the header:
//!
//! ```text
//! // test: check run fmt            what is tested: one or more of the three
//! // profile: m4-macos15-inmem      the machine; without it, the default profile, and a check is of the language only
//! // strict: yes                     a check with every claim, also those that the profile overrules
//! // bounds: x=-1..1                 what an input lies between, for a check
//! // weight: @model_path/weights/w.bin fp16 [1, 0, 0, 1]      a blob file with one record
//! // weight: @model_path/weights/v.bin fp16 512*random:7:-0.1:0.1      the same with 512 uniform draws
//! ```
//!
//! *check*: the text is read and its ops are checked. Each error has a comment on its line, `//
//! error: E0102 a part of the message`, or comments on lines of their own below it; any other error
//! fails the test. Warnings are written the same way (`// warning: E0110 …`), except that of an
//! unknown op, which the check reports as an error. With a `profile:`, the rules of that machine
//! check the program, too; their findings are written the same way, and notes as `// note: E0464
//! …`. Each program of a file names its own profile. A file that is only checked may hold several
//! programs, separated by lines `// ---`. `FERRANE_BLESS=1 cargo test -p ferrane-suite` writes the
//! expectations of such files.
//!
//! `// fixed: E1002` states that the fixes which findings name remove every finding of these codes;
//! `// audit: main(x=[12]) shows y` that y is the first value that deviates from exact under the
//! numerics of the machine, and that none does in the fixed program, if `fixed:` is given too. A
//! case, which repeats an issue, has `// issue: URL`, `// reported: …` and `// answer: …`;
//! docs/cases.md is written from them.
//!
//! *fmt*: printing and reading again changes nothing; `// fmt: same` in the header states that
//! printing reproduces the file as it is.
//!
//! *run*: each `// run: main(x=[1, 2], w=3) ~ [2, 4]` is evaluated on every device. One number
//! fills a whole port; several outputs are written `~ y=[…] z=[…]`. `random:SEED` fills a port with
//! uniform draws from -1 to 1, `random:SEED:LOW:HIGH` with draws from another range. `~ exact
//! within 1e-3` compares with what the oracle computes for the same inputs; the tolerance is a
//! share of an output's largest magnitude. `==` requires equal numbers; `~` allows two units in the
//! last place of fp16, or the tolerance that `// within: 0.01` in the header sets.

mod case;
mod expect;
mod fixes;
mod parts;

use std::path::{Path, PathBuf};
use std::{fs, io};

use ferrane_device::{CompileOptions, Device, Executable, ProgramSource, Tensors};
use ferrane_diag::Source as Shown;
use ferrane_mil::text::{Missing, Options};
use ferrane_mil::{DataType, Program, Strictness, Type, Weights, codes};
use ferrane_tensor_io::{TensorSource, Unnamed, values};

pub use case::{Case, section};
pub use expect::{Outputs, RunDirective};
pub use parts::bless;

/// One program of a filetest, with its header and expectations parsed.
pub struct Filetest {
    /// The path of the file, for messages.
    pub path: PathBuf,
    /// The tests that the header requests, at least one.
    pub tests: Vec<Test>,
    /// The profile that the header names, if any.
    pub profile: Option<String>,
    strict: bool,
    bounds: Vec<ferrane_machine::InputBounds>,
    program: String,
    weights: Weights,
    expected: Vec<Told>,
    runs: Vec<(usize, RunDirective)>,
    /// The text without whole-line comments, if the header has `fmt: same`.
    same: Option<String>,
    within: Option<f32>,
    /// The codes that fixes remove, with the line that states them.
    fixed: Option<(usize, Vec<String>)>,
    audits: Vec<(usize, fixes::AuditDirective)>,
    /// The issue that the program repeats; empty for other tests.
    pub case: Case,
}

/// A diagnostic, expected or reported.
#[derive(Clone, Debug)]
struct Told {
    line: usize,
    /// `error`, `warning` or `note`.
    kind: &'static str,
    code: String,
    /// Of an expectation, a part of the message; of a reported diagnostic, the whole message.
    part: String,
}

/// The tests that a header can request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Test {
    Check,
    Run,
    Fmt,
}

/// Every `.mil` file under a folder, sorted.
///
/// # Errors
/// A folder cannot be read.
pub fn discover(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "mil") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

impl Filetest {
    /// Reads the programs of a file.
    ///
    /// # Errors
    /// The file cannot be read, or a header or an expectation is malformed.
    pub fn open(path: &Path) -> Result<Vec<Filetest>, String> {
        let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let read = |part: &String| Filetest::parse(path, part).map_err(|e| format!("{}:{e}", path.display()));
        parts::parts(&text).iter().map(read).collect()
    }

    /// Parses one program of a file.
    ///
    /// # Errors
    /// The line number and what is wrong on that line.
    pub fn parse(path: &Path, text: &str) -> Result<Filetest, String> {
        let mut test = Filetest {
            path: path.to_path_buf(),
            tests: Vec::new(),
            profile: None,
            strict: false,
            bounds: Vec::new(),
            program: String::new(),
            weights: Weights::new(),
            expected: Vec::new(),
            runs: Vec::new(),
            same: None,
            within: None,
            fixed: None,
            audits: Vec::new(),
            case: Case::default(),
        };
        let (mut bare, mut same, mut above) = (String::new(), false, 1);
        for (i, line) in text.lines().enumerate() {
            let (code, comment) = split_comment(line);
            test.program += code;
            test.program.push('\n');
            if comment.is_none() || !code.trim().is_empty() {
                bare += code.trim_end();
                bare.push('\n');
            }
            if !code.trim().is_empty() {
                above = i + 1;
            }
            let Some((key, value)) = comment.and_then(|c| c.trim().split_once(':')) else { continue };
            let value = value.trim();
            let at = |why: String| format!("{}: {why}", i + 1);
            match key {
                "test" => {
                    for word in value.split_whitespace() {
                        test.tests.push(match word {
                            "check" => Test::Check,
                            "run" => Test::Run,
                            "fmt" => Test::Fmt,
                            _ => return Err(at(format!("unknown test `{word}`"))),
                        });
                    }
                }
                "machine" | "profile" => test.profile = Some(value.to_string()),
                "fmt" if value == "same" => same = true,
                "within" => test.within = Some(value.parse().map_err(|e| at(format!("`{value}`: {e}")))?),
                "weight" => test.weight(value).map_err(at)?,
                "strict" => test.strict = value == "yes",
                "bounds" => {
                    test.bounds.push(value.parse().map_err(|e: ferrane_machine::InputBoundsError| at(e.to_string()))?)
                }
                "error" | "warning" | "note" => {
                    let (code, part) = value.split_once(' ').unwrap_or((value, ""));
                    let kind = ["error", "warning", "note"].into_iter().find(|k| *k == key).unwrap_or("note");
                    let (code, part) = (code.to_string(), part.trim().to_string());
                    test.expected.push(Told { line: above, kind, code, part });
                }
                "fixed" => test.fixed = Some((i + 1, value.split_whitespace().map(String::from).collect())),
                "audit" => test.audits.push((i + 1, fixes::AuditDirective::parse(value).map_err(at)?)),
                "issue" | "reported" | "answer" => test.case.add(key, value),
                "run" => test.runs.push((i + 1, RunDirective::parse(value).map_err(at)?)),
                _ => return Err(at(format!("unknown key `{key}`"))),
            }
        }
        test.same = same.then_some(bare);
        if test.tests.is_empty() {
            return Err("1: no `// test:` line".into());
        }
        if test.tests.contains(&Test::Run) == test.runs.is_empty() {
            return Err("1: `run` in the header and `// run:` lines go together".into());
        }
        if !test.expected.is_empty() && test.tests != [Test::Check] {
            return Err("1: a program with errors can only be checked".into());
        }
        Ok(test)
    }

    fn weight(&mut self, value: &str) -> Result<(), String> {
        let mut parts = value.splitn(3, ' ');
        let (Some(path), Some(dtype), Some(values)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("expected `weight: PATH TYPE [values]`".into());
        };
        let dtype = match DataType::from_name(dtype) {
            Some(dtype @ (DataType::Fp32 | DataType::Fp16 | DataType::Int8)) => dtype,
            _ => return Err(format!("weights are fp32, fp16 or int8 here, not {dtype}")),
        };
        let (count, source) = match values.split_once('*') {
            Some((count, drawn)) => {
                let count: u32 = count.trim().parse().map_err(|e| format!("`{count}`: {e}"))?;
                (count as usize, expect::values(drawn)?)
            }
            None => match expect::values(values)? {
                TensorSource::Literal(list) => (list.len(), TensorSource::Literal(list)),
                _ => return Err("expected a list, or a number of draws: `512*random:7`".into()),
            },
        };
        let tensor = source.tensor(path, &Type::tensor(dtype, &[count])).map_err(|e| e.to_string())?;
        self.weights.add(path, dtype, tensor.bytes().to_vec());
        Ok(())
    }

    /// Runs the requested tests. `devices` execute the runs; `oracle` computes what `~ exact`
    /// compares with.
    ///
    /// # Errors
    /// Every failure, with its line.
    pub fn run(&self, devices: &[Device], oracle: Option<&Device>) -> Result<(), Vec<String>> {
        let mut failures = Vec::new();
        for test in &self.tests {
            let found = match test {
                Test::Check => self.check(),
                Test::Fmt => self.fmt().err().into_iter().map(|e| (1, e)).collect(),
                Test::Run => devices.iter().flat_map(|d| self.evaluate(d, oracle)).collect(),
            };
            failures.extend(found.into_iter().map(|(line, why)| format!("{}:{line}: {why}", self.path.display())));
        }
        if failures.is_empty() { Ok(()) } else { Err(failures) }
    }

    fn parsed(&self) -> ferrane_mil::Parsed {
        // With a machine, the machine's rules decide how strictly records are read.
        let strictness = if self.profile.is_some() { Strictness::Lenient } else { Strictness::Strict };
        let options = Options { missing: Missing::Refuse, strictness, ..Options::default() };
        ferrane_mil::parse_with(&self.program, &self.weights, options)
    }

    /// The diagnostics that reading and checking the program reports.
    fn found(&self) -> Vec<Told> {
        let shown = Shown::new("", &self.program);
        // A diagnostic at the end of the text is reported on the last line that is not empty.
        let last =
            self.program.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()).last().map_or(1, |(i, _)| i + 1);
        // A diagnostic without a place is reported at the top; for a program on a machine, on the
        // first line of the program.
        let first = self.program.lines().position(|l| !l.trim().is_empty()).map_or(1, |i| i + 1);
        let top = if self.profile.is_some() { first } else { 1 };
        let line = |span: Option<ferrane_diag::Span>| span.map_or(top, |s| shown.position(s.start).line).min(last);
        let parsed = self.parsed();
        let mut found: Vec<Told> = Vec::new();
        for d in parsed.diagnostics.iter() {
            let kind = match d.severity {
                ferrane_diag::Severity::Error => "error",
                // The reader accepts unknown ops with a warning; the check of ops reports them as
                // errors.
                ferrane_diag::Severity::Warning if d.code != codes::UNKNOWN_OP => "warning",
                _ => continue,
            };
            found.push(Told { line: line(d.span), kind, code: d.code.to_string(), part: d.message.clone() });
        }
        for function in parsed.program.iter().flat_map(|p| &p.functions) {
            for (op, error) in
                ferrane_mil::check(function, parsed.program.as_ref().map_or(&self.weights, |p| &p.weights))
            {
                let line = line(function.op(op).span);
                found.push(Told { line, kind: "error", code: error.code().to_string(), part: error.to_string() });
            }
        }
        for f in parsed.program.iter().flat_map(|p| self.findings(p)) {
            let kind = match f.severity {
                ferrane_diag::Severity::Error => "error",
                ferrane_diag::Severity::Warning => "warning",
                ferrane_diag::Severity::Note => "note",
            };
            found.push(Told { line: line(f.span), kind, code: f.code.to_string(), part: f.message });
        }
        found
    }

    /// The findings of the rules of the profile's machine.
    fn findings(&self, program: &Program) -> Vec<ferrane_machine::Finding> {
        self.machine().map_or_else(Vec::new, |profile| ferrane_machine::check(program, &profile, &self.options()))
    }

    /// The profile that the header names.
    fn machine(&self) -> Option<ferrane_machine::Profile> {
        self.profile.as_ref().and_then(|name| ferrane_machine::Profile::named(name).ok())
    }

    fn options(&self) -> ferrane_machine::CheckOptions<'_> {
        ferrane_machine::CheckOptions {
            strict: self.strict,
            bounds: self.bounds.clone(),
            text: Some(&self.program),
            ..Default::default()
        }
    }

    fn check(&self) -> Vec<(usize, String)> {
        let mut found = self.found();
        let mut failures = Vec::new();
        for Told { line, kind, code, part } in &self.expected {
            match found.iter().position(|f| (f.line, f.kind, &f.code) == (*line, *kind, code) && f.part.contains(part))
            {
                Some(i) => drop(found.remove(i)),
                None => failures.push((*line, format!("expected {kind} {code} {part}"))),
            }
        }
        failures.extend(found.into_iter().map(|f| (f.line, format!("{} {} {}", f.kind, f.code, f.part))));
        failures.extend(self.consequences());
        failures
    }

    fn fmt(&self) -> Result<(), String> {
        let read = |text: &str| ferrane_mil::parse(text, &self.weights).map_err(|e| e.to_string());
        let once = ferrane_mil::print(&read(&self.program)?);
        let twice = ferrane_mil::print(&read(&once)?);
        if let Some(line) = differs(&once, &twice) {
            return Err(format!("printing is not a fixpoint, first at printed line {line}"));
        }
        match self.same.as_deref().and_then(|same| differs(same, &once).map(|line| (same, line))) {
            None => Ok(()),
            Some((same, line)) => {
                let show = |t: &str| t.lines().nth(line - 1).unwrap_or("the end").to_string();
                Err(format!("printed line {line} is\n  {}\nnot\n  {}", show(&once), show(same)))
            }
        }
    }

    fn evaluate(&self, device: &Device, oracle: Option<&Device>) -> Vec<(usize, String)> {
        let named = |device: &Device, why: String| format!("{}: {why}", device.name());
        let executable = match self.load(device) {
            Ok(executable) => executable,
            Err(why) => return vec![(1, named(device, why))],
        };
        let one = |run: &RunDirective| -> Result<(), String> {
            let found = outputs(&executable, run)?;
            let found: Vec<_> = found.iter().map(|(n, v)| (n.as_str(), v.clone())).collect();
            let Outputs::Oracle(share) = run.outputs else { return run.compare(&found, self.within) };
            let oracle = oracle.ok_or("`~ exact` needs an oracle, and none was given")?;
            let wanted = outputs(&self.load(oracle)?, run).map_err(|e| named(oracle, e))?;
            RunDirective::near(share, &found, &wanted.iter().map(|(n, v)| (n.as_str(), v.clone())).collect::<Vec<_>>())
        };
        let failed = |(line, run): &(usize, RunDirective)| one(run).err().map(|why| (*line, named(device, why)));
        self.runs.iter().filter_map(failed).collect()
    }

    fn load(&self, device: &Device) -> Result<Executable, String> {
        let source = ProgramSource::Text { mil: self.program.as_bytes(), weights: &self.weights };
        let options = CompileOptions::labeled(self.path.display().to_string());
        device.compile(source, &options).and_then(|a| a.load()).map_err(|e| e.to_string())
    }
}

/// Evaluates a run and returns the outputs by name, elements in row-major order.
fn outputs(executable: &Executable, run: &RunDirective) -> Result<Vec<(String, Vec<f32>)>, String> {
    let bound = executable.bind(Some(&run.procedure)).map_err(|e| e.to_string())?;
    let types: Vec<Type> =
        bound.procedure().inputs.iter().map(|p| Type::tensor(p.layout.dtype, &p.layout.shape)).collect();
    let ports: Vec<(&str, &Type)> = bound.procedure().inputs.iter().map(|p| p.name.as_str()).zip(&types).collect();
    let inputs = values(&run.procedure, &ports, &run.inputs, Unnamed::Refuse).map_err(|e| e.to_string())?;
    let returned = bound.call(&inputs, &Tensors::new()).map_err(|e| e.to_string())?;
    Ok(returned.outputs.into_iter().map(|(name, tensor)| (name, tensor.to_f32())).collect())
}

/// The first line, counted from 1, in which two texts differ.
fn differs(a: &str, b: &str) -> Option<usize> {
    let (mut a, mut b) = (a.lines(), b.lines());
    (1..).map(|n| (n, a.next(), b.next())).find_map(|(n, a, b)| match (a, b) {
        (None, None) => Some(None),
        _ if a != b => Some(Some(n)),
        _ => None,
    })?
}

/// Splits a line into code and comment; `//` inside a string is code.
fn split_comment(line: &str) -> (&str, Option<&str>) {
    let (mut inside, mut escaped) = (false, false);
    for (i, byte) in line.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if inside => escaped = true,
            b'"' => inside = !inside,
            b'/' if !inside && line[i..].starts_with("//") => return (&line[..i], Some(&line[i + 2..])),
            _ => {}
        }
    }
    (line, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_end_outside_of_strings_only() {
        assert_eq!(split_comment("a // b"), ("a ", Some(" b")));
        assert_eq!(split_comment(r#"string("a//b\"//c") // d"#), (r#"string("a//b\"//c") "#, Some(" d")));
        assert_eq!(split_comment("a / b"), ("a / b", None));
    }

    #[test]
    fn the_first_line_that_differs() {
        assert_eq!(differs("a\nb", "a\nb\n"), None);
        assert_eq!(differs("a\nb", "a\nc"), Some(2));
        assert_eq!(differs("a", "a\nc"), Some(2));
    }

    #[test]
    fn files_that_make_no_sense_are_refused() {
        for (text, why) in [
            ("program(1.3)", "no `// test:`"),
            ("// test: fly", "unknown test `fly`"),
            ("// test: run", "go together"),
            ("// test: check\n// run: main() ~ 1", "go together"),
            ("// test: fmt\nx // error: E0101", "only be checked"),
            ("// test: fmt\n// color: red", "2: unknown key `color`"),
            ("// test: run\n// run: main(x=[1, 2) ~ 1", "2: "),
            ("// test: fmt\n// within: wide", "2: `wide`"),
            ("// test: fmt\n// weight: p int4 [1]", "not int4"),
            ("// test: fmt\n// weight: p fp16 random:1", "512*random:7"),
        ] {
            let error = Filetest::parse(Path::new("a.mil"), text).map(|_| ()).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn wrong_expectations_are_failures() {
        let head = "program(1.3)\n[buildInfo = dict<string, string>({{\"a\", \"b\"}})]\n{\n    func main<ios18>(tensor<fp16, [2]> x) {";
        let body = "        tensor<fp16, [2]> y = identity(x = x)[name = string(\"y\")];\n    } -> (y);\n}";
        let failures = |text: String| {
            let test = Filetest::parse(Path::new("a.mil"), &text).unwrap();
            test.run(&[], None).err().unwrap_or_default()
        };
        assert_eq!(failures(format!("// test: check fmt\n{head}\n{body}")), [""; 0]);
        let expected = failures(format!("// test: check\n{head} // error: E0202 nothing\n{body}"));
        assert_eq!(expected, ["a.mil:5: expected error E0202 nothing"]);
        let unexpected = failures(format!("// test: check\n{head}\n{}", body.replace("x = x", "x = z")));
        assert!(unexpected.len() == 1 && unexpected[0].starts_with("a.mil:6: error E0202"), "{unexpected:?}");
        let printed = failures(format!("// test: fmt\n// fmt: same\n{head}\n{}", body.replace("x = x", "x=x")));
        assert!(printed.len() == 1 && printed[0].contains("printed line"), "{printed:?}");
    }
}

//! Filetests as programs to record: MIL texts whose comments hold weights and inputs
//! (filetests/README.md).
//!
//! Only what a recording needs is read: `// test:`, `// weight:` and `// run:` lines without their
//! expectations. The reader of the test suite is stricter.

use ferrane_mil::{DataType, Missing, Options, Strictness, Type, Weights, parse_with};
use ferrane_tensor_io::TensorSource;

use super::SuiteCase;

/// True for a text with such a header.
pub(super) fn is(text: &str) -> bool {
    value(text, "test").next().is_some()
}

/// The values of a key.
fn value<'a>(text: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| Some(line.strip_prefix("// ")?.strip_prefix(key)?.strip_prefix(':')?.trim()))
}

/// One for each `// run:` line; none if the file is not for running.
pub(super) fn cases(text: &str) -> Result<Vec<SuiteCase>, String> {
    let mut weights = Weights::new();
    for line in value(text, "weight") {
        weight(line, &mut weights)?;
    }
    let mut cases = Vec::new();
    for line in value(text, "run") {
        let (function, sources) = call(line).map_err(|e| format!("`{line}`: {e}"))?;
        let options = Options { missing: Missing::Refuse, strictness: Strictness::Strict, ..Options::default() };
        let parsed = parse_with(text, &weights, options);
        let first = || parsed.diagnostics.iter().next().map_or(String::new(), |d| d.to_string());
        let program = parsed.program.ok_or_else(first)?;
        cases.push(SuiteCase { program, function, sources });
    }
    Ok(cases)
}

fn parse(text: &str) -> Result<TensorSource, String> {
    TensorSource::parse(text).map_err(|e| e.to_string())
}

/// `PATH TYPE [values]`, or `PATH TYPE COUNT*random:SEED`.
fn weight(line: &str, weights: &mut Weights) -> Result<(), String> {
    let mut parts = line.splitn(3, ' ');
    let (Some(path), Some(dtype), Some(values)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(format!("`{line}`: expected `weight: PATH TYPE VALUES`"));
    };
    let dtype = DataType::from_name(dtype).ok_or_else(|| format!("unknown type `{dtype}`"))?;
    let (count, source) = match values.split_once('*') {
        Some((count, drawn)) => {
            let count: u32 = count.trim().parse().map_err(|e| format!("`{count}`: {e}"))?;
            (count as usize, parse(drawn)?)
        }
        None => match parse(values)? {
            TensorSource::Literal(tensor) => (tensor.len(), TensorSource::Literal(tensor)),
            _ => return Err(format!("`{values}`: expected a list, or a number of draws")),
        },
    };
    let ty = Type::tensor(dtype, &[count]);
    let tensor = source.tensor(path, &ty).map_err(|e| e.to_string())?;
    weights.add(path, dtype, tensor.bytes().to_vec());
    Ok(())
}

/// `main(x=[1, 2], w=3) ~ …`.
fn call(line: &str) -> Result<(String, Vec<(String, TensorSource)>), String> {
    let (call, _) = line.split_once(')').ok_or("expected `function(inputs) ~ outputs`")?;
    let (function, inputs) = call.split_once('(').ok_or("expected `function(inputs)`")?;
    let (mut depth, mut start, mut parts) = (0usize, 0, Vec::new());
    for (i, c) in inputs.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&inputs[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&inputs[start..]);
    let named = |part: &&str| {
        let (name, source) = part.split_once('=').ok_or_else(|| format!("`{part}`: expected NAME=VALUES"))?;
        Ok((name.trim().to_string(), parse(source)?))
    };
    let sources = parts.iter().filter(|p| !p.trim().is_empty()).map(named).collect::<Result<_, String>>()?;
    Ok((function.trim().to_string(), sources))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_of_a_run() {
        let (function, sources) = call("main(x=[1, 2], w=random:3:0:1) ~ [2, 4]").unwrap();
        assert_eq!(function, "main");
        let names: Vec<&str> = sources.iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(names, ["x", "w"]);
        assert_eq!(sources[1].1, TensorSource::Random { seed: 3, bounds: Some((0.0, 1.0)) });
        assert_eq!(call("f() ~ 1").unwrap(), ("f".to_string(), Vec::new()));
        assert!(call("main(x) ~ 1").is_err() && call("main").is_err());
    }

    #[test]
    fn weights_are_blob_records() {
        let mut weights = Weights::new();
        weight("@model_path/weights/w.bin fp16 [1, -2]", &mut weights).unwrap();
        weight("@model_path/weights/v.bin int8 5*random:7:0:9", &mut weights).unwrap();
        let first = ferrane_mil::WeightId(0);
        assert_eq!(weights.bytes(first), Some(&[0, 0x3C, 0, 0xC0][..]));
        assert_eq!(weights.elements(ferrane_mil::WeightId(1)), Some(5));
        for line in ["a fp16", "a fp17 [1]", "a fp16 x*random:1", "a fp16 1"] {
            assert!(weight(line, &mut weights).is_err(), "{line}");
        }
    }
}

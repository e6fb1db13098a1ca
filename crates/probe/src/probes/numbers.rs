//! The arithmetic: what happens to halves, small, large and special numbers.
//!
//! Where a value chooses between models of the engine's arithmetic, the results are compared with
//! those of `ferrane_arith` under each model.

use ferrane_arith::{Function, Rounding, Rules, SigmoidTable};
use ferrane_device::Result;
use half::f16;
use serde_json::json;

use crate::dut::{DeviceUnderTest, ELEMENTS, SHAPE};
use crate::measurements::Measurements;
use crate::probe::Expectation::Is;
use crate::probe::{Probe, ProbeCost, claim};
use crate::program::ProbeProgram;

pub(super) const PROBES: &[Probe] = &[
    Probe {
        name: "rounding",
        question: "How are values halfway between two rounded: sums, `round`, `quantize`?",
        experiments: &[],
        cost: ProbeCost::Cheap,
        values: &["rounding", "round_op", "quantize_rounding"],
        claims: &[
            claim("C112", "round_op", Is("nearest-even")),
            claim("C113", "round_op", Is("add-half")),
            claim("C191", "rounding", Is("even")),
            claim("C192", "rounding", Is("away")),
            claim("C200", "quantize_rounding", Is("away")),
            claim("C201", "quantize_rounding", Is("even")),
        ],
        run: rounding,
    },
    Probe {
        name: "accumulator",
        question: "How are products summed: which bits are lost, and where does a sum become infinite?",
        experiments: &[],
        cost: ProbeCost::Cheap,
        values: &["accumulator", "mac_ceiling", "mac_subnormals"],
        claims: &[
            claim("C183", "mac_ceiling", Is("32768")),
            claim("C188", "mac_subnormals", Is("flushed")),
            claim("C189", "mac_subnormals", Is("kept")),
            claim("C195", "accumulator", Is("grid16")),
        ],
        run: accumulator,
    },
    Probe {
        name: "sums",
        question: "How wide is a stand-alone `reduce_sum`?",
        experiments: &[],
        cost: ProbeCost::Cheap,
        values: &["reduce_sum"],
        claims: &[claim("C061", "reduce_sum", Is("narrow")), claim("C062", "reduce_sum", Is("wide"))],
        run: sums,
    },
    Probe {
        name: "slice-crop",
        question: "Does a slice of the last axis lose values beyond 4094?",
        experiments: &[],
        cost: ProbeCost::Cheap,
        values: &["slice_crop"],
        claims: &[claim("C184", "slice_crop", Is("times16")), claim("C185", "slice_crop", Is("plain"))],
        run: crop,
    },
    Probe {
        name: "tables",
        question: "Do functions come from tables, and from which?",
        experiments: &[],
        cost: ProbeCost::Cheap,
        values: &["tables", "sigmoid_table", "gelu_table", "softplus_zero"],
        claims: &[
            claim("C051", "gelu_table", Is("decoded")),
            claim("C052", "gelu_table", Is("guide")),
            claim("C115", "softplus_zero", Is("true")),
            claim("C198", "tables", Is("true")),
            claim("C205", "sigmoid_table", Is("plain")),
            claim("C206", "sigmoid_table", Is("high-precision")),
        ],
        run: tables,
    },
];

fn start() -> ProbeProgram {
    ProbeProgram::new().input("x", "fp16", &SHAPE)
}

/// The results of a program whose input holds these values at its beginning, and the last of them
/// elsewhere.
fn results(dut: &mut DeviceUnderTest<'_>, program: &ProbeProgram, values: &[f32]) -> Result<Vec<f32>> {
    let last = values.last().copied().unwrap_or(0.0);
    let x = (0..ELEMENTS).map(|i| values.get(i).copied().unwrap_or(last)).collect();
    let mut out = dut.first_output(program, &[x])?;
    out.truncate(values.len());
    Ok(out)
}

fn function(op: &str) -> ProbeProgram {
    start().op("fp16", &SHAPE, "r", &format!("{op}(x = x)")).output(&["r"])
}

/// One of several readings of a number.
fn read(found: &mut Measurements, key: &str, seen: f32, readings: &[(f32, &str)]) {
    match readings.iter().find(|(value, _)| *value == seen) {
        Some((_, word)) => {
            found.value(key, *word);
        }
        None => {
            found.leave_open(format!("{key}: {seen} fits no model"));
        }
    }
}

fn rounding(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    // 2049 lies between 2048, which is even, and 2050.
    let add = start().half("one", 1.0).op("fp16", &SHAPE, "r", "add(x = x, y = one)").output(&["r"]);
    let sum = results(dut, &add, &[2048.0])?[0];
    found.raw("2048 + 1", json!(sum));
    read(&mut found, "rounding", sum, &[(2048.0, "even"), (2050.0, "away")]);
    match results(dut, &function("round"), &[0.5, 2.5, 1024.0]) {
        Ok(seen) => {
            found.raw("round of 0.5, 2.5, 1024", json!(seen));
            match seen[..] {
                [0.0, 2.0, 1024.0] => {
                    found.value("round_op", "nearest-even");
                }
                [1.0, 3.0, 1025.0] => {
                    found.value("round_op", "add-half");
                }
                _ => {
                    found.leave_open("round_op: the results fit no model");
                }
            }
        }
        Err(error) => {
            found.leave_open(format!("round: {error}"));
        }
    }
    let quantize = start()
        .since(17)
        .half("scale", 1.0)
        .word("int8", "int8")
        .op("int8", &SHAPE, "q", "quantize(input = x, output_dtype = int8, scale = scale)")
        .op("fp16", &SHAPE, "r", "dequantize(input = q, scale = scale)")
        .output(&["r"]);
    match results(dut, &quantize, &[2.5, 0.5]) {
        Ok(seen) => {
            found.raw("quantize of 2.5, 0.5", json!(seen));
            match seen[..] {
                [2.0, 0.0] => {
                    found.value("quantize_rounding", "even");
                }
                [3.0, 1.0] => {
                    found.value("quantize_rounding", "away");
                }
                _ => {
                    found.leave_open("quantize_rounding: the results fit no model");
                }
            }
        }
        Err(error) => {
            found.leave_open(format!("quantize: {error}"));
        }
    }
    Ok(found)
}

/// Sums of products: each pair of rows is one.
fn dots(dut: &mut DeviceUnderTest<'_>, pairs: &[(Vec<f32>, Vec<f32>)]) -> Result<Vec<f32>> {
    let shape = [1, 64, 64];
    let program = ProbeProgram::new()
        .input("p", "fp16", &shape)
        .input("q", "fp16", &shape)
        .flag("no", false)
        .flag("yes", true)
        .op("fp16", &shape, "r", "matmul(transpose_x = no, transpose_y = yes, x = p, y = q)")
        .output(&["r"]);
    let (mut p, mut q) = (vec![0.0; 4096], vec![0.0; 4096]);
    for (row, (a, b)) in pairs.iter().enumerate() {
        p[64 * row..][..a.len()].copy_from_slice(a);
        q[64 * row..][..b.len()].copy_from_slice(b);
    }
    let out = dut.first_output(&program, &[p, q])?;
    Ok((0..pairs.len()).map(|row| out.get(65 * row).copied().unwrap_or(f32::NAN)).collect())
}

fn accumulator(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let power = |n: i32| 2f32.powi(n);
    let tiny = power(-12);
    let seen = dots(
        dut,
        &[
            // Sixty-four products of a quarter of a grid unit each.
            (vec![power(-9); 64], vec![power(-9); 64]),
            // Three products next to a large one in a tile: with 11 fraction bits they are gone.
            (vec![1.0, tiny, tiny, tiny], vec![1.0; 4]),
            (vec![16376.0; 2], vec![1.0; 2]),
            (vec![16384.0; 2], vec![1.0; 2]),
            // A subnormal operand.
            (vec![power(-20)], vec![1024.0]),
        ],
    )?;
    let names = ["64 of 2^-18", "1 and three of 2^-12", "16376 + 16376", "16384 + 16384", "2^-20 times 1024"];
    for (name, value) in names.into_iter().zip(&seen) {
        found.raw(name, json!(value.to_string()));
    }
    let above = 1.0 + power(-10);
    match (seen[0], seen[1]) {
        (0.0, _) => found.value("accumulator", "grid16"),
        (sum, rest) if sum == power(-12) && rest == above => found.value("accumulator", "fp32"),
        (sum, rest) if sum == power(-12) && rest == 1.0 => found.value("accumulator", "tile4"),
        _ => found.leave_open("accumulator: the sums fit no model"),
    };
    match (seen[2], seen[3]) {
        (32752.0, f32::INFINITY) => found.value("mac_ceiling", 32768),
        (32752.0, 32768.0) => found.value("mac_ceiling", 65536),
        _ => found.leave_open("mac_ceiling: the sums fit no model"),
    };
    match seen[4] {
        0.0 => found.value("mac_subnormals", "flushed"),
        product if product == power(-10) => found.value("mac_subnormals", "kept"),
        _ => found.leave_open("mac_subnormals: the product fits no model"),
    };
    Ok(found)
}

fn sums(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    // Short enough that no machine makes a product of it (constraints C063).
    let shape = [1, 1, 1, 128];
    let program = ProbeProgram::new()
        .input("x", "fp16", &shape)
        .ints("axes", &[3])
        .flag("keep", true)
        .op("fp16", &[1, 1, 1, 1], "r", "reduce_sum(axes = axes, keep_dims = keep, x = x)")
        .output(&["r"]);
    let mut x = vec![1.0; 128];
    x[0] = 2048.0;
    let sum = dut.first_output(&program, &[x])?.first().copied().unwrap_or(f32::NAN);
    found.raw("2048 and 127 ones", json!(sum.to_string()));
    // 2175 is rounded once; 2049 is rounded each time, back to 2048 or up by two.
    read(&mut found, "reduce_sum", sum, &[(2176.0, "wide"), (2048.0, "narrow"), (2302.0, "narrow")]);
    Ok(found)
}

fn crop(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let program = start()
        .op("fp16", &SHAPE, "h", "add(x = x, y = x)")
        .ints("begin", &[0, 0, 0, 16])
        .ints("size", &[1, 64, 1, 32])
        .op("fp16", &[1, 64, 1, 32], "r", "slice_by_size(begin = begin, size = size, x = h)")
        .output(&["r"]);
    let seen = results(dut, &program, &[2500.0])?[0];
    found.raw("5000 after a slice", json!(seen.to_string()));
    read(&mut found, "slice_crop", seen, &[(5000.0, "plain"), (f32::INFINITY, "times16")]);
    Ok(found)
}

/// The models under which a function gives what was seen.
fn models<'n>(
    seen: &[f32],
    at: &[f32],
    models: &[(&'n str, Rules)],
    value: impl Fn(&Rules, f32) -> Option<f32>,
) -> Vec<&'n str> {
    let fits = |rules: &Rules| at.iter().zip(seen).all(|(x, seen)| value(rules, *x) == Some(*seen));
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in models.iter().filter(|(_, rules)| fits(rules)) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    names
}

fn tables(dut: &mut DeviceUnderTest<'_>) -> Result<Measurements> {
    let mut found = Measurements::new();
    let at: Vec<f32> = (1..32).map(|i| f16::from_f32(i as f32 * 0.13 - 2.0).to_f32()).collect();
    let both = [Rounding::Even, Rounding::Away];
    let with = |sigmoid| both.map(|rounding| Rules { tables: true, sigmoid, rounding, ..Rules::default() });

    let tanh = results(dut, &function("tanh"), &at)?;
    let table = both.map(|rounding| ("true", Rules { tables: true, rounding, ..Rules::default() }));
    let exact = |x: f32| f16::from_f64(f64::from(x).tanh()).to_f32();
    if !models(&tanh, &at, &table, |rules, x| rules.function(Function::Tanh, x)).is_empty() {
        found.value("tables", true);
    } else if at.iter().zip(&tanh).all(|(x, seen)| (exact(*x) - seen).abs() <= exact(*x).abs() / 512.0) {
        found.value("tables", false);
    } else {
        found.leave_open("tanh is neither the table's nor exact");
    }
    found.raw("tanh", json!(at.iter().zip(&tanh).collect::<Vec<_>>()));

    let sigmoid = results(dut, &function("sigmoid"), &at)?;
    let candidates: Vec<(&str, Rules)> = with(SigmoidTable::Plain)
        .map(|rules| ("plain", rules))
        .into_iter()
        .chain(with(SigmoidTable::HighPrecision).map(|rules| ("high-precision", rules)))
        .collect();
    match models(&sigmoid, &at, &candidates, |rules, x| rules.function(Function::Sigmoid, x))[..] {
        [one] => {
            found.value("sigmoid_table", one);
        }
        [] => {
            found.leave_open("sigmoid is that of no table");
        }
        _ => {
            found.leave_open("sigmoid is that of both tables");
        }
    }
    found.raw("sigmoid", json!(at.iter().zip(&sigmoid).collect::<Vec<_>>()));

    let gelu = start().word("mode", "EXACT").op("fp16", &SHAPE, "r", "gelu(mode = mode, x = x)").output(&["r"]);
    match results(dut, &gelu, &[0.0]) {
        Ok(seen) => {
            found.raw("gelu(0)", json!(seen[0]));
            // The two published values, each to the digits that were published.
            match seen[0] {
                zero if (zero + 0.000_753_88).abs() < 1e-6 => {
                    found.value("gelu_table", "decoded");
                }
                zero if (zero + 0.000_543).abs() < 1e-6 => {
                    found.value("gelu_table", "guide");
                }
                _ => {
                    found.leave_open("gelu(0) is that of no table");
                }
            }
        }
        Err(error) => {
            found.leave_open(format!("gelu: {error}"));
        }
    }
    match results(dut, &function("softplus"), &[12.0]) {
        Ok(seen) => {
            found.raw("softplus(12)", json!(seen[0]));
            found.value("softplus_zero", seen[0] == 0.0);
        }
        Err(error) => {
            found.leave_open(format!("softplus: {error}"));
        }
    }
    Ok(found)
}

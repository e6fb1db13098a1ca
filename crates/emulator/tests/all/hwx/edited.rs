//! Samples with one register changed: what is known of it shows in the result, and what is not
//! known is refused by its name.

use std::collections::BTreeMap;

use ferrane_emulator::Numerics;
use ferrane_hwx::task::Task;
use ferrane_hwx::{Hwx, text};
use ferrane_testdata::Suite;

use super::samples::programs;
use super::{inputs, interpreter, names_a_register, run, tasks, weighted};
use crate::harness::Tensor;

/// The byte of a file that a register of a task is at.
fn place(hwx: &Hwx, task: &Task, address: u32) -> Option<usize> {
    let mut at = hwx.task_sections()[0].0.offset as usize + task.offset + 4 * task.header.len();
    for record in &task.records {
        if let Some(i) = record.addresses().iter().position(|a| *a == address) {
            return Some(at + 4 * (1 + i));
        }
        at += 4 * (1 + record.words().len());
    }
    None
}

/// The samples whose one task is a convolution, with the place of a register.
fn convolutions(suite: &Suite, register: (&str, &str)) -> Vec<(String, Vec<u8>, usize)> {
    let mut all = Vec::new();
    for (name, bytes) in programs(suite) {
        let Ok(hwx) = Hwx::read(&bytes) else { continue };
        let (bytes, weights) = weighted(&bytes, 3);
        let found = match (hwx.generation(), &tasks(&hwx)[..], &weights[..]) {
            (Some(generation), [task], [Some(_)]) => {
                generation.address(register.0, register.1).and_then(|address| place(&hwx, task, address))
            }
            _ => None,
        };
        all.extend(found.map(|at| (name, bytes, at)));
    }
    all
}

fn change(bytes: &[u8], at: usize, change: impl Fn(u32) -> u32) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let word = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    bytes[at..at + 4].copy_from_slice(&change(word).to_le_bytes());
    bytes
}

/// The only output of a program.
fn output(bytes: &[u8]) -> Vec<f64> {
    let interpreter = interpreter(Numerics::Hardware, bytes).unwrap();
    let inputs = inputs(&interpreter, 5);
    run(&interpreter, &inputs).unwrap().remove(0).1.values
}

#[test]
fn relu_and_the_factor_follow_a_convolution() {
    let Some(suite) = Suite::open("hwx-run-edited", "hwx") else { return };
    for (name, bytes, at) in convolutions(&suite, ("NE", "MACCfg")) {
        let plain = output(&bytes);
        assert!(plain.iter().any(|v| *v < 0.0), "{name}");
        let relu = output(&change(&bytes, at, |w| w & !0x3_0000 | 0x1_0000));
        assert_eq!(relu, plain.iter().map(|v| v.max(0.0)).collect::<Vec<_>>(), "{name}");
    }
    for (name, bytes, at) in convolutions(&suite, ("NE", "PostScale")) {
        // Half of it: exact in fp16 as long as results are normal numbers.
        let (plain, half) = (output(&bytes), output(&change(&bytes, at, |w| w & !0xffff | 0x3800)));
        for (p, h) in plain.iter().zip(half) {
            assert!(p.abs() < 2f64.powi(-13) || h == p / 2.0, "{name}: {p} {h}");
        }
    }
    suite.finish();
}

#[test]
fn what_is_not_known_is_refused_by_its_name() {
    let Some(suite) = Suite::open("hwx-run-refused", "hwx") else { return };
    type Case = (&'static str, &'static str, fn(u32) -> u32);
    let cases: [Case; 9] = [
        // A bias for each channel, another operation, another binary point, a bit without a name.
        ("NE", "MACCfg", |w| w | 1 << 4),
        ("NE", "MACCfg", |w| w | 2),
        ("NE", "MACCfg", |w| w ^ 0x800),
        ("NE", "MACCfg", |w| w | 1 << 30),
        ("NE", "PostScale", |w| w | 1 << 16),
        // Channels beyond the tensor, another element type of the tensor, more lanes than rows, no
        // stride.
        ("TileDMADst", "Fmt", |w| w & !0x3000),
        ("TileDMADst", "PlaneStride", |_| 0),
        ("TileDMADst", "PlaneStride", |_| 0x4000_0000),
        ("KernelDMASrc", "CoeffDMAConfig[0]", |w| w & !1),
    ];
    for (block, register, edit) in cases {
        for (name, bytes, at) in convolutions(&suite, (block, register)) {
            let error = interpreter(Numerics::Hardware, &change(&bytes, at, edit)).err();
            let error = error.unwrap_or_else(|| panic!("{name}: {block}.{register} is taken"));
            assert!(names_a_register(&error), "{name}: {error}");
        }
    }
    suite.finish();
}

/// A program whose tensors say other numbers of themselves.
fn retensored(bytes: &[u8], change: impl Fn(&mut BTreeMap<String, u64>)) -> Vec<u8> {
    let (mut text, mut block) = (String::new(), None::<Vec<String>>);
    let number = |line: &str| {
        let (key, value) = line.trim().split_once(" = ")?;
        let value = value.strip_prefix("0x").map_or(value.parse(), |hex| u64::from_str_radix(hex, 16));
        Some((key.to_string(), value.ok()?))
    };
    for line in text::print(&Hwx::read(bytes).unwrap()).lines() {
        match &mut block {
            Some(lines) if line == "}" => {
                let mut numbers: BTreeMap<String, u64> = lines.iter().filter_map(|l| number(l)).collect();
                change(&mut numbers);
                for line in block.take().unwrap_or_default() {
                    let line = number(&line).map_or(line, |(key, _)| format!("    {key} = {}", numbers[&key]));
                    text += &format!("{line}\n");
                }
                text += "}\n";
            }
            Some(lines) => lines.push(line.to_string()),
            None => {
                text += &format!("{line}\n");
                block = (line == "tensor {").then(Vec::new);
            }
        }
    }
    text::assemble(&text).unwrap_or_else(|e| panic!("{e:?}")).write()
}

/// The same memory under another shape: what was a tensor's second half of channels is a second
/// batch; what were a row's columns by two are two channels that stand side by side.
#[test]
fn batches_and_interleave_of_tensors_are_places() {
    let Some(mut suite) = Suite::open("hwx-run-tensors", "hwx") else { return };
    let same = |values: &[f64], _: &[usize]| values.to_vec();
    let apart = |values: &[f64], shape: &[usize]| {
        let (rows, columns) = (shape[2], shape[3]);
        let mut moved = vec![0.0; values.len()];
        for (i, value) in values.iter().enumerate() {
            let (channel, row, column) = (i / (rows * columns), i / columns % rows, i % columns);
            moved[((2 * channel + column % 2) * rows + row) * (columns / 2) + column / 2] = *value;
        }
        moved
    };
    type Moved<'a> = &'a dyn Fn(&[f64], &[usize]) -> Vec<f64>;
    type Change = fn(&mut BTreeMap<String, u64>);
    let cases: [(usize, Change, Moved<'_>); 2] = [
        (
            1,
            |tensor| {
                tensor.insert("n".into(), 2);
                tensor.insert("c".into(), tensor["c"] / 2);
                tensor.insert("batch_stride".into(), tensor["c"] * tensor["plane_stride"]);
            },
            &same,
        ),
        (
            3,
            |tensor| {
                tensor.insert("c".into(), 2 * tensor["c"]);
                tensor.insert("w".into(), tensor["w"] / 2);
                tensor.insert("interleave".into(), 2);
            },
            &apart,
        ),
    ];
    for (name, bytes) in programs(&suite) {
        let (bytes, _) = weighted(&bytes, 3);
        let Ok(before) = interpreter(Numerics::Hardware, &bytes) else { continue };
        let given = inputs(&before, 5);
        let plain = run(&before, &given).unwrap();
        for (axis, change, moved) in &cases {
            let id = format!("{name}, axis {axis}");
            if !before.inputs().chain(before.outputs()).all(|port| port.shape[*axis] % 2 == 0) {
                suite.skip(&id, "a tensor of odd extent");
                continue;
            }
            let case = || {
                let after = interpreter(Numerics::Hardware, &retensored(&bytes, change)).map_err(|e| e.to_string())?;
                let given: Vec<_> = after
                    .inputs()
                    .zip(&given)
                    .map(|(port, (name, t))| {
                        (name.clone(), Tensor::new(t.dtype, &port.shape, moved(&t.values, &t.shape)))
                    })
                    .collect();
                let found = run(&after, &given).map_err(|e| e.to_string())?;
                for ((output, found), (_, plain)) in found.iter().zip(&plain) {
                    if found.values != moved(&plain.values, &plain.shape) {
                        return Err(format!("`{output}` has other values"));
                    }
                }
                Ok(())
            };
            suite.case(&id, case());
        }
    }
    suite.finish();
}

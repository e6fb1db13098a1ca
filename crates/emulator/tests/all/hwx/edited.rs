//! Samples with one register changed: what is known of it shows in the result, and what is not known is refused by its name.

use ferrane_emulator::Numerics;
use ferrane_hwx::Hwx;
use ferrane_hwx::task::Task;
use ferrane_testdata::Suite;

use super::samples::programs;
use super::{inputs, interpreter, names_a_register, run, tasks, weighted};

/// The byte of a file that a register of a task is at.
fn place(hwx: &Hwx, task: &Task, address: u32) -> Option<usize> {
    let mut at = hwx.texts()[0].0.offset as usize + task.offset + 4 * task.header.len();
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
        // Channels beyond the tensor, another element type of the tensor, more lanes than rows, no stride.
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

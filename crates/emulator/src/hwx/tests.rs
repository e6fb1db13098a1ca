//! Single tasks of the planar engine on H16, from their registers: what its bits do to values in
//! L2.

use ferrane_arith::Rounding;
use ferrane_device::Result;
use ferrane_hwx::registers::by_name;
use ferrane_hwx::task::{RegisterRecord, Task as Descriptor};

use super::memory::{Buffers, half, store};
use super::task::Task;
use super::{Interpreter, arithmetic};
use crate::{Emulator, EmulatorOptions};

/// Where the operands lie.
const PLACES: [u32; 3] = [0, 0x400, 0x800];
/// Bytes from channel to channel and row to row.
const STRIDES: [u32; 2] = [0x40, 0x10];

/// Registers of a task over these extents (channels, rows, columns), its operands in L2.
fn registers([c, h, w]: [u32; 3], more: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let [source, second, result] = PLACES;
    let [channel, row] = STRIDES;
    let mut all = vec![(0x4, w), (0x8, h), (0xc, c), (0x14, w), (0x18, h), (0x1c, c), (0x24, 1)];
    for (base, place) in [(0x4110, source), (0x4124, second), (0x414c, result)] {
        all.extend([(base, place), (base + 4, channel), (base + 8, row)]);
    }
    all.extend(more);
    all
}

/// Runs a task on sources whose rows begin at 0x10, whose channels at 0x40; the result by channels,
/// rows and columns in memory.
fn run(set: &[(u32, u32)], sources: [&[&[&[f32]]]; 2], result: [usize; 3]) -> Result<Vec<f32>> {
    let record = |&(address, word): &(u32, u32)| RegisterRecord::Dense { address, words: vec![word] };
    let descriptor = Descriptor { offset: 0, header: vec![0; 9], records: set.iter().map(record).collect() };
    let mut buffers = Buffers::of_l2();
    buffers.settle();
    let emulator = Emulator::new(EmulatorOptions::default());
    let step = Task::new(by_name("h16").unwrap(), &descriptor).step(&mut buffers)?;
    let plan = arithmetic::plan(&emulator, &step)?;
    let mut bytes = buffers.fresh();
    for (base, channels) in PLACES.iter().zip(sources) {
        for (c, rows) in channels.iter().enumerate() {
            for (h, row) in rows.iter().enumerate() {
                let mut span = step.result.clone();
                span.base = *base as usize + c * STRIDES[0] as usize + h * STRIDES[1] as usize;
                (span.extents, span.turned) = ([1, 1, 1, row.len()], false);
                store(&mut bytes, &span, row.iter().copied());
            }
        }
    }
    let interpreter = Interpreter {
        name: String::new(),
        ports: Vec::new(),
        buffers,
        tasks: Vec::new(),
        notes: Vec::new(),
        rounding: Rounding::Even,
        memory: usize::MAX,
    };
    interpreter.run_task(&step, &plan, &mut bytes)?;
    let [channels, rows, columns] = result;
    let place = |i: usize| {
        let (c, h, w) = (i / (rows * columns), i / columns % rows, i % columns);
        PLACES[2] as usize + c * STRIDES[0] as usize + h * STRIDES[1] as usize + 2 * w
    };
    Ok((0..channels * rows * columns).map(|i| half(&bytes[0], place(i))).collect())
}

const ADD: (u32, u32) = (0x4500, 0x8_0000);
const TWO: (u32, u32) = (0x3c, 0x30);
const X: &[&[&[f32]]] = &[&[&[1.0, -2.0, 3.0, 4.0]], &[&[5.0, 6.0, -7.0, 8.0]]];
const EXTENTS: [u32; 3] = [2, 1, 4];

#[test]
fn sources_are_spread_and_turned() {
    let add = |bits: u32, y| run(&registers(EXTENTS, &[TWO, ADD, (0x48, bits)]), [X, y], [2, 1, 4]).unwrap();
    // One column, one channel, both, and a row that is treated as channels.
    assert_eq!(add(0x10, &[&[&[10.0]], &[&[20.0]]]), [11.0, 8.0, 13.0, 14.0, 25.0, 26.0, 13.0, 28.0]);
    assert_eq!(add(0x80, &[&[&[10.0, 20.0, 30.0, 40.0]]]), [11.0, 18.0, 33.0, 44.0, 15.0, 26.0, 23.0, 48.0]);
    assert_eq!(add(0x90, &[&[&[10.0]]]), [11.0, 8.0, 13.0, 14.0, 15.0, 16.0, 3.0, 18.0]);
    assert_eq!(add(0x210, &[&[&[10.0, 20.0]]]), [11.0, 8.0, 13.0, 14.0, 25.0, 26.0, 13.0, 28.0]);
    // A whole plane of four channels and two columns.
    let turned: &[&[&[f32]]] = &[&[&[10.0, 50.0]], &[&[20.0, 60.0]], &[&[30.0, 70.0]], &[&[40.0, 80.0]]];
    assert_eq!(add(0x200, turned), [11.0, 18.0, 33.0, 44.0, 55.0, 66.0, 63.0, 88.0]);
    // Rows.
    let set = registers([1, 2, 2], &[TWO, ADD, (0x48, 0x20)]);
    let x: &[&[&[f32]]] = &[&[&[1.0, 2.0], &[3.0, 4.0]]];
    assert_eq!(run(&set, [x, &[&[&[10.0, 20.0]]]], [1, 2, 2]).unwrap(), [11.0, 22.0, 13.0, 24.0]);
}

#[test]
fn results_are_turned() {
    let set = registers(EXTENTS, &[TWO, ADD, (0x48, 0x400)]);
    let found = run(&set, [X, X], [4, 1, 2]).unwrap();
    assert_eq!(found, [2.0, 10.0, -4.0, 12.0, 6.0, -14.0, 8.0, 16.0]);
    // The sums of all rows.
    let set = registers(EXTENTS, &[(0x3c, 0x50), (0x4500, 0), (0x48, 0x400)]);
    assert_eq!(run(&set, [X, &[]], [1, 1, 2]).unwrap(), [6.0, 12.0]);
}

#[test]
fn comparisons_give_one_and_zero() {
    let y: &[&[&[f32]]] = &[&[&[1.0, 1.0, 1.0, 9.0]], &[&[5.0, -6.0, 7.0, 8.5]]];
    let cases: [(u32, [f32; 8]); 6] = [
        (0xc_0040, [0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0]),
        (0xc_0080, [0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0]),
        (0xc_00c0, [0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0]),
        (0xc_0100, [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]),
        (0xc_0140, [1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0]),
        (0xc_0180, [1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0]),
    ];
    for (word, wanted) in cases {
        let found = run(&registers(EXTENTS, &[TWO, (0x4500, word)]), [X, y], [2, 1, 4]).unwrap();
        assert_eq!(found, wanted, "{word:#x}");
    }
    let found = run(&registers(EXTENTS, &[(0x3c, 0x20), (0x4500, 0x1c0)]), [X, &[]], [2, 1, 4]).unwrap();
    assert_eq!(found, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
}

#[test]
fn each_source_may_lose_its_negative_values() {
    let y: &[&[&[f32]]] = &[&[&[-1.0; 4]], &[&[-1.0; 4]]];
    let add = |word: u32| run(&registers(EXTENTS, &[TWO, ADD, (0x4100, word)]), [X, y], [2, 1, 4]).unwrap();
    assert_eq!(add(1), [0.0, -1.0, 2.0, 3.0, 4.0, 5.0, -1.0, 7.0]);
    assert_eq!(add(0x10), [1.0, -2.0, 3.0, 4.0, 5.0, 6.0, -7.0, 8.0]);
    let alone = run(&registers(EXTENTS, &[(0x3c, 0x20), (0x4100, 0x10)]), [X, &[]], [2, 1, 4]);
    assert!(alone.unwrap_err().message().contains("L2.L2Control (0x4100) = 0x10"));
}

#[test]
fn planes_become_means_and_windows_see_their_edges() {
    let x: &[&[&[f32]]] = &[&[&[-1.0, -2.0], &[-3.0, -6.0]], &[&[8.0, 4.0], &[2.0, 6.0]]];
    let quarter = 0.25f32.to_bits();
    let mean = registers([2, 2, 2], &[(0x3c, 0x50), (0x4500, 0), (0x4514, quarter)]);
    let found = run(&mean, [x, &[]], [2, 1, 1]).unwrap();
    assert_eq!(found, [-3.0, 5.0]);
    // Whether a sum continues from row to row is not known.
    let sum = registers([2, 2, 2], &[(0x3c, 0x50), (0x4500, 0)]);
    assert!(run(&sum, [x, &[]], [2, 1, 1]).unwrap_err().message().contains("Common.InHeight (0x8) = 0x2"));
    // Windows of 2×2, one column and row beyond the left and upper edge, and none at the other
    // edges.
    let window = 0x5000_0000 | 2 | 2 << 6 | 1 << 13 | 1 << 15 | 1 << 17 | 1 << 22;
    let max = |mode: u32| registers([2, 2, 2], &[(0x3c, 0x10), (0x28, window), (0x4500, 2), (0x4100, mode << 2)]);
    assert_eq!(run(&max(1), [x, &[]], [2, 2, 2]).unwrap(), [-1.0, -1.0, -1.0, -1.0, 8.0, 8.0, 8.0, 8.0]);
    assert!(run(&max(0), [x, &[]], [2, 2, 2]).is_err());
    let average = [(0x3c, 0x10), (0x28, window), (0x4500, 1), (0x4514, quarter)];
    let found = run(&registers([2, 2, 2], &average), [x, &[]], [2, 2, 2]).unwrap();
    assert_eq!(found, [-0.25, -0.75, -1.0, -3.0, 2.0, 3.0, 2.5, 5.0]);
}

#[test]
fn what_is_not_known_is_refused() {
    let cases: [(&[(u32, u32)], &str); 4] = [
        // Both sources have one column; the only source has one.
        (&[TWO, ADD, (0x48, 0x11)], "Common.PEBroadcast (0x48) = 0x11"),
        (&[(0x3c, 0x20), (0x48, 1)], "Common.PEBroadcast (0x48) = 0x1"),
        // A bit without a name, and the transposition of the other engine.
        (&[TWO, ADD, (0x48, 1 << 16)], "Common.PEBroadcast (0x48) = 0x10000"),
        (&[(0x3c, 0x1000_0030), ADD], "Common.Cfg (0x3c) = 0x10000030"),
    ];
    for (more, wanted) in cases {
        let error = run(&registers(EXTENTS, more), [X, X], [2, 1, 4]).unwrap_err();
        assert!(error.message().contains(wanted), "{error}");
    }
}

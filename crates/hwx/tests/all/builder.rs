//! Programs built from scratch do what was requested, and equal the compiler's where the compiler
//! built the same one.

use std::collections::{BTreeMap, BTreeSet};

use ferrane_hwx::builder::{
    BinaryOp, Convolution, ElementFunction, Operation, PoolKind, Pooling, ProgramSpec, TensorSpec, build,
};
use ferrane_hwx::container::Direction;
use ferrane_hwx::describe::{self, Detail};
use ferrane_hwx::registers;
use ferrane_hwx::table::{FunctionTable, Tail};
use ferrane_hwx::task::Task;
use ferrane_hwx::weights::Lanes;
use ferrane_hwx::{Hwx, text};
use ferrane_testdata::Suite;
use half::f16;
use proptest::prelude::*;

use crate::samples;

fn port(name: &str, nchw: [u32; 4]) -> TensorSpec {
    TensorSpec { name: name.to_string(), nchw }
}

fn network(inputs: &[TensorSpec], op: Operation) -> ProgramSpec {
    ProgramSpec { name: "net".to_string(), inputs: inputs.to_vec(), output: "y".to_string(), op }
}

fn convolution(cin: u32, cout: u32, kernel: [u32; 2]) -> Convolution {
    let count = cin * cout * kernel[0] * kernel[1];
    let weights = (0..count).map(|i| f16::from_bits((i as u16).wrapping_add(1))).collect();
    Convolution { cout, weights, kernel, stride: [1, 1], padding: [0, 0], then: None }
}

fn sigmoid() -> FunctionTable {
    let f = |x: f64| 1.0 / (1.0 + (-x).exp());
    FunctionTable::centered(f, 1, Tail::Constant(0.0), Tail::Constant(1.0)).unwrap()
}

fn tasks(hwx: &Hwx) -> Vec<Task> {
    let (section, first) = hwx.task_sections().pop().unwrap();
    hwx.tasks(&section, first).unwrap()
}

/// A built program survives writing and reading, and printing and assembling; the result is its
/// description.
fn words(network: &ProgramSpec) -> String {
    let made = build(network).unwrap();
    let read = Hwx::read(&made.write()).unwrap();
    assert_eq!(read, made);
    assert_eq!(text::assemble(&text::print(&read)).unwrap(), made);
    for task in tasks(&read) {
        assert_eq!(task.len(), 157);
    }
    describe::prose(&read, Detail::default())
}

#[test]
fn words_say_what_was_asked() {
    let x = |c, h, w| port("x", [1, c, h, w]);
    let y = |c, h, w| port("z", [1, c, h, w]);
    let three = Convolution {
        stride: [2, 2],
        padding: [1, 1],
        then: Some(ElementFunction::Relu),
        ..convolution(8, 40, [3, 3])
    };
    let table = ElementFunction::Table(Box::new(sigmoid()));
    let then = Convolution { then: Some(table.clone()), ..convolution(64, 64, [1, 1]) };
    let pool = |kind| Operation::Pool(Pooling { kind, window: [2, 3], stride: [2, 3] });
    for (network, lines) in [
        (
            network(&[x(8, 9, 9)], Operation::Convolution(three)),
            &["3×3 convolution, stride 2×2, padding 1×1: x → y", "16 lanes", "ReLU", "output y: fp16[1, 40, 5, 5]"][..],
        ),
        (
            network(&[x(64, 1, 1)], Operation::Convolution(then)),
            &["1×1 convolution: x → y", "table __TEXT,__const", "looks the value up", "16 lanes, 0x2800 bytes"],
        ),
        (
            network(&[x(64, 2, 5), y(64, 2, 5)], Operation::Elementwise(BinaryOp::Add)),
            &["element-wise addition: x, z → y", "64 channels of 5×2"],
        ),
        (network(&[x(1, 2, 5), y(1, 2, 5)], Operation::Elementwise(BinaryOp::Mul)), &["element-wise multiplication"]),
        (network(&[x(1, 2, 5), y(1, 2, 5)], Operation::Elementwise(BinaryOp::Max)), &["element-wise maximum"]),
        (network(&[x(1, 2, 5), y(1, 2, 5)], Operation::Elementwise(BinaryOp::Min)), &["element-wise minimum"]),
        (network(&[x(1, 2, 5), y(1, 2, 5)], Operation::Elementwise(BinaryOp::Sub)), &["element-wise subtraction"]),
        (
            network(&[x(4, 2, 5)], Operation::Function(table)),
            &["function of each element: x → y", "table __TEXT,__const"],
        ),
        (network(&[x(4, 2, 5)], Operation::Function(ElementFunction::Relu)), &["copy", "x → y", "ReLU"]),
        (
            network(&[x(4, 2, 5), y(3, 2, 5)], Operation::Concat),
            &["2 tasks", "x → y\n", "z → y + 0x200\n", "output y: fp16[1, 7, 2, 5]"],
        ),
        (
            network(&[x(4, 6, 9)], pool(PoolKind::Avg)),
            &["avg over 3×2 elements, stride 3×2: x → y", "4 channels of 3×3", "multiplies by 0.1666"],
        ),
        (network(&[x(4, 6, 9)], pool(PoolKind::Max)), &["max over 3×2 elements"]),
        (network(&[x(4, 6, 9)], pool(PoolKind::Min)), &["min over 3×2 elements"]),
    ] {
        let said = words(&network);
        for line in lines {
            assert!(said.contains(line), "{line} is not in\n{said}");
        }
    }
}

/// The request that would give the compiler's program of one task.
fn asked(hwx: &Hwx) -> Option<ProgramSpec> {
    let generation = hwx.generation().filter(|g| g.name == "h13")?;
    let task = tasks(hwx).pop().filter(|_| hwx.programs()[0].tasks == 1)?;
    let tensors = hwx.tensors();
    let shape = |t: &ferrane_hwx::container::TensorView| [t.nchwd[0], t.nchwd[1], t.nchwd[2], t.nchwd[3]];
    let inputs = tensors.iter().filter(|t| t.direction == Some(Direction::Input));
    let inputs: Vec<TensorSpec> = inputs.map(|t| port(&t.symbol, shape(t))).collect();
    let output = tensors.iter().find(|t| t.direction == Some(Direction::Output))?;
    let constants = hwx.sections().into_iter().find(|s| s.name == "__const" && s.has_content())?;
    let constants = hwx.content(&constants);
    let op = operation(generation, &task, constants)?;
    let network = ProgramSpec { name: hwx.programs()[0].name.clone(), inputs, output: output.symbol.clone(), op };
    network.output_shape().ok().filter(|found| *found == shape(output)).map(|_| network)
}

/// The operation of a task.
fn operation(generation: &'static registers::Generation, task: &Task, constants: &[u8]) -> Option<Operation> {
    let field = |block: &str, name: &str, field: &str| {
        let (register, _) = generation.named(block, name)?;
        Some(register.field(field)?.get(task.register(generation, generation.address(block, name)?)?))
    };
    if task.head(generation, "TileBars", "ENE")? == 0 {
        let op = match (field("PE", "PECfg", "Op")?, field("PE", "PECfg", "Src2")?) {
            (0, 2) => BinaryOp::Add,
            (0, 3) => BinaryOp::Sub,
            (1, 2) => BinaryOp::Mul,
            (2, 2) => BinaryOp::Max,
            (3, 2) => BinaryOp::Min,
            _ => return None,
        };
        return (task.head(generation, "TileBars", "RBE1")? == 1).then_some(Operation::Elementwise(op));
    }
    let table = || Some(ElementFunction::Table(Box::new(FunctionTable::decode(constants.first_chunk()?))));
    match (field("NE", "MACCfg", "OpMode")?, field("NE", "MACCfg", "NonlinearMode")?) {
        (4, 2) => Some(Operation::Function(table()?)),
        (4, 1) => Some(Operation::Function(ElementFunction::Relu)),
        (0, function) => {
            let lanes = Lanes::of_task(generation, task).ok()?;
            let conv = |name: &str| field("Common", "ConvCfg", name);
            let geometry = lanes.shape();
            Some(Operation::Convolution(Convolution {
                cout: geometry.cout,
                weights: lanes.unpack(constants).ok()?,
                kernel: [geometry.kh, geometry.kw],
                stride: [conv("Sy")?, conv("Sx")?],
                padding: [conv("Py")?, conv("Px")?],
                then: match function {
                    0 => None,
                    1 => Some(ElementFunction::Relu),
                    _ => Some(table()?),
                },
            }))
        }
        _ => None,
    }
}

/// Registers, and bits of them, in which compilers differ from each other, with the reason.
const DIFFER: [(u32, u32, &str); 6] = [
    (0x13818, u32::MAX, "the group stride of a source, of no use with one group: some write the depth stride"),
    (0x1382c, u32::MAX, "the same of a second source"),
    (0x17814, u32::MAX, "the same of the destination"),
    (0xc800, 0x3, "the format of a kernel that is not there"),
    (0xc804, 0x1f00, "the binary point where nothing is accumulated"),
    (0x17818, 0x30_0000, "zeros around a row whose length is a multiple of 64 bytes"),
];

/// Registers that differ, except for bits that may.
fn different(found: &Task, wanted: &Task, may: &[(u32, u32, &str)]) -> Vec<String> {
    let (found, wanted) = (found.registers(), wanted.registers());
    let all: BTreeSet<u32> = found.keys().chain(wanted.keys()).copied().collect();
    let of = |map: &BTreeMap<u32, u32>, a: u32| map.get(&a).copied().unwrap_or(0);
    let free = |a: u32| may.iter().find(|(address, ..)| *address == a).map_or(0, |(_, bits, _)| *bits);
    let differ = all.into_iter().filter(|a| (of(&found, *a) ^ of(&wanted, *a)) & !free(*a) != 0);
    differ.map(|a| format!("{a:#x}: {:#x}, not {:#x}", of(&found, a), of(&wanted, a))).collect()
}

/// Every program of H13 with one task that can be requested: built again, it has all of the
/// compiler's registers, its constants, tensors, addresses and sections.
#[test]
fn programs_of_the_compiler() {
    let Some(mut suite) = Suite::open("hwx-build", "hwx") else { return };
    for (name, bytes) in samples::programs(&suite) {
        let Ok(wanted) = Hwx::read(&bytes) else { continue };
        let Some(network) = asked(&wanted) else { continue };
        let check = || {
            let made = build(&network).map_err(|e| e.to_string())?;
            let (found, task) = (tasks(&made).remove(0), tasks(&wanted).remove(0));
            let differ = different(&found, &task, &[]);
            if !differ.is_empty() {
                return Err(differ.join("; "));
            }
            // Word 8 has the indices of buffers; their assignment to inputs is the compiler's
            // choice.
            let two = network.inputs.len() > 1;
            let heads = |t: &Task| {
                t.header
                    .iter()
                    .enumerate()
                    .map(|(i, w)| if i == 8 && two { w & !0x7df } else { *w })
                    .collect::<Vec<_>>()
            };
            if heads(&found) != heads(&task) {
                return Err(format!("header {:x?}, not {:x?}", found.header, task.header));
            }
            let sections = |h: &Hwx| {
                let all = h.sections().into_iter();
                all.map(|s| (s.segment.clone(), s.name.clone(), s.addr, s.size, s.align, s.flags, h.relocations(&s)))
                    .collect::<Vec<_>>()
            };
            let contents = |h: &Hwx| {
                let constants = h.sections().into_iter().find(|s| s.name == "__const" && s.has_content());
                constants.map(|s| h.content(&s).to_vec())
            };
            let bars = |h: &Hwx| {
                h.programs().into_iter().map(|p| (p.text_addr, p.bars, p.first_task_words)).collect::<Vec<_>>()
            };
            let tensors = |h: &Hwx| {
                h.tensors()
                    .into_iter()
                    .map(|mut t| {
                        t.command = 0;
                        t
                    })
                    .collect::<Vec<_>>()
            };
            let kinds = |h: &Hwx| h.commands.iter().map(|c| c.kind()).collect::<Vec<_>>();
            let same = sections(&made) == sections(&wanted) && contents(&made) == contents(&wanted);
            let same = same && bars(&made) == bars(&wanted) && tensors(&made) == tensors(&wanted);
            if same && kinds(&made) == kinds(&wanted) { Ok(()) } else { Err("the container differs".to_string()) }
        };
        suite.case(&name, check());
    }
    suite.finish();
}

/// Payloads of another compiler, with large tensors: all registers except those in which compilers
/// differ.
#[test]
fn payloads_of_the_compiler() {
    let Some(mut suite) = Suite::open("hwx-build-payloads", "hwx/eiln") else { return };
    let h13 = registers::by_name("h13").unwrap();
    for (name, wanted) in samples::payloads(&suite) {
        let Some((Ok(tasks), constants)) = samples::payload(&suite, &name, &wanted) else { continue };
        let [task] = tasks.as_slice() else { continue };
        let Some(op) = operation(h13, task, &constants) else { continue };
        let set = task.registers();
        let shape = [1, set[&0xc], set[&0] >> 16, set[&0] & 0x7fff];
        let names = if matches!(op, Operation::Elementwise(_)) { &["a", "b"][..] } else { &["a"] };
        let inputs: Vec<TensorSpec> = names.iter().map(|n| port(n, shape)).collect();
        let check = || {
            let made = build(&network(&inputs, op)).map_err(|e| e.to_string())?;
            let found = self::tasks(&made).remove(0);
            let differ = different(&found, task, &DIFFER);
            if !differ.is_empty() {
                return Err(differ.join("; "));
            }
            // Word 1 is the compiler's estimate of cycles.
            let head =
                |t: &Task| t.header.iter().enumerate().filter(|(i, _)| *i != 1).map(|(_, w)| *w).collect::<Vec<_>>();
            if head(&found) == head(task) {
                Ok(())
            } else {
                Err(format!("header {:x?}, not {:x?}", found.header, task.header))
            }
        };
        suite.case(&name, check());
    }
    suite.finish();
}

/// A product of 64 channels as the compiler for macOS 14 writes it: all of its known registers
/// (spec: hwx.md 2.2) except those in which compilers differ.
#[test]
fn a_product_has_the_registers_of_another_compiler() {
    let inputs = ["a", "b"].map(|name| port(name, [1, 64, 1, 1]));
    let task = tasks(&build(&network(&inputs, Operation::Elementwise(BinaryOp::Mul))).unwrap()).remove(0);
    let set = task.registers();
    for (address, wanted) in [
        (0, 0x10001),
        (0x8, 0x2a),
        (0x1c, 0x5000_a021),
        (0x24, 0x10001),
        (0x34, 0x33),
        (0x4804, 0x150_0172),
        (0x4830, 0x50_017a),
        (0x8800, 0x8_0004),
        (0xc810, 0),
        (0x13800, 0x33881),
        (0x1380c, 0x40),
        (0x13810, 0x40),
        (0x13814, 0x1000),
        (0x13838, 0x100_2031),
        (0x17818, 0x100_2031),
        (0x17800, 0x400_00c1),
    ] {
        assert_eq!(set[&address], wanted, "{address:#x}");
    }
    // Buffers 5 and 6 for the sources, 4 for the destination; the sample uses 4, 5 and 6.
    assert_eq!((task.header[8], task.header[9]), (0x249a5, 0));
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |network: ProgramSpec, part: &str| {
        let error = build(&network).expect_err(part).to_string();
        assert!(error.contains(part) && (error.contains("E0720") || error.contains("E0705")), "{error}");
    };
    let x = |nchw| port("x", nchw);
    let y = |nchw| port("z", nchw);
    let conv = |c: Convolution, shape| network(&[x(shape)], Operation::Convolution(c));
    refused(conv(Convolution { kernel: [32, 1], ..convolution(1, 1, [1, 1]) }, [1, 1, 64, 64]), "1 to 31");
    refused(conv(Convolution { stride: [4, 1], ..convolution(1, 1, [1, 1]) }, [1, 1, 8, 8]), "steps of 1 to 3");
    refused(conv(Convolution { padding: [0, 32], ..convolution(1, 1, [1, 1]) }, [1, 1, 8, 8]), "padding 32");
    refused(conv(convolution(1, 1, [3, 3]), [1, 1, 2, 2]), "window of 3 elements over 2");
    refused(conv(convolution(1, 1, [1, 1]), [1, 2, 2, 2]), "1 weights where the shape has 2");
    refused(conv(Convolution { cout: 1 << 17, ..convolution(1, 1, [1, 1]) }, [1, 1, 1, 1]), "131071 channels");
    refused(conv(convolution(64, 64, [1, 1]), [1, 64, 256, 256]), "tiles is not established");
    let add = |a, b| network(&[x(a), y(b)], Operation::Elementwise(BinaryOp::Add));
    refused(add([1, 1, 1, 1], [1, 2, 1, 1]), "have no pairs");
    refused(add([2, 1, 1, 1], [2, 1, 1, 1]), "[2, 1, 1, 1]");
    refused(add([1, 1, 1 << 15, 1], [1, 1, 1 << 15, 1]), "32767 rows");
    refused(add([1, 1 << 17, 1, 1], [1, 1 << 17, 1, 1]), "131071 channels");
    refused(add([1, 131_071, 1, 1], [1, 131_071, 1, 1]), "tiles is not established");
    refused(network(&[x([1; 4])], Operation::Elementwise(BinaryOp::Add)), "2 inputs, not 1");
    refused(network(&[x([1; 4]), x([1; 4])], Operation::Elementwise(BinaryOp::Add)), "two tensors are named x");
    refused(network(&[port("", [1; 4])], Operation::Function(ElementFunction::Relu)), "no name");
    refused(network(&[], Operation::Concat), "nothing");
    refused(network(&[x([1; 4]), y([1, 1, 2, 1])], Operation::Concat), "differ in more than channels");
    let many: Vec<TensorSpec> = (0..28).map(|i| port(&format!("x{i}"), [1; 4])).collect();
    refused(network(&many, Operation::Concat), "27 inputs");
    let pool =
        |window, shape| network(&[x(shape)], Operation::Pool(Pooling { kind: PoolKind::Max, window, stride: [1, 1] }));
    refused(pool([0, 1], [1; 4]), "1 to 31");
    refused(pool([2, 2], [1, 1, 8, 1000]), "512 columns");
}

proptest! {
    /// Any request is built completely or refused.
    #[test]
    fn any_request_is_made_or_refused(
        shape in (1u32..200, 1u32..80, 1u32..80),
        cout in 1u32..100,
        kernel in (1u32..6, 1u32..6, 1u32..4, 0u32..3),
        which in 0usize..6,
    ) {
        let (c, h, w) = shape;
        let (kh, kw, step, padding) = kernel;
        let x = port("x", [1, c, h, w]);
        let y = port("z", [1, c, h, w]);
        let conv = Convolution { stride: [step, 1], padding: [padding, 0], ..convolution(c, cout, [kh, kw]) };
        let network = match which {
            0 => network(&[x], Operation::Convolution(conv)),
            1 => network(&[x, y], Operation::Elementwise(BinaryOp::Add)),
            2 => network(&[x], Operation::Function(ElementFunction::Table(Box::new(sigmoid())))),
            3 => network(&[x, y], Operation::Concat),
            4 => network(&[x], Operation::Pool(Pooling { kind: PoolKind::Avg, window: [kh, kw], stride: [step, 1] })),
            _ => network(&[x], Operation::Function(ElementFunction::Relu)),
        };
        if let Ok(made) = build(&network) {
            prop_assert_eq!(&Hwx::read(&made.write()).unwrap(), &made);
            if let Operation::Convolution(c) = &network.op {
                let h13 = registers::by_name("h13").unwrap();
                let lanes = Lanes::of_task(h13, &tasks(&made)[0]).unwrap();
                let constants = made.sections().into_iter().find(|s| s.name == "__const" && s.has_content()).unwrap();
                let back = lanes.unpack(made.content(&constants)).unwrap();
                prop_assert!(back.iter().zip(&c.weights).all(|(a, b)| a.to_bits() == b.to_bits()));
            }
        }
    }
}

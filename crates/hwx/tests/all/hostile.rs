//! Corrupted files: a reader refuses them or reads what is there. It never panics, and its memory
//! stays in proportion to the input.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use ferrane_hwx::container::{Bindings, Hwx};
use ferrane_hwx::describe;
use ferrane_hwx::registers;
use ferrane_hwx::task;
use ferrane_hwx::weights::Lanes;
use proptest::prelude::*;

use crate::{samples, synthetic};

/// Counts the current and the peak allocation of this thread.
struct Counting;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is forwarded unchanged to the system allocator; the counters are plain
// thread-local integers.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = HELD.try_with(|held| {
            held.set(held.get() + layout.size());
            let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
        });
        // SAFETY: `layout` comes from the caller of `alloc`, which has the same contract as the
        // system's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        let _ = HELD.try_with(|held| held.set(held.get().saturating_sub(layout.size())));
        // SAFETY: `pointer` was allocated with `layout` by `alloc` above, so by the system
        // allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The peak memory of `work` in bytes.
pub fn most<T>(work: impl FnOnce() -> T) -> (T, usize) {
    HELD.with(|held| held.set(0));
    MOST.with(|most| most.set(0));
    let done = work();
    (done, MOST.with(Cell::get))
}

/// Reads everything that can be read of a file.
fn look(bytes: &[u8]) {
    let Ok(hwx) = Hwx::read(bytes) else { return };
    assert_eq!(hwx.write(), bytes);
    for program in hwx.programs() {
        let bindings = Bindings::of(&hwx, &program);
        assert!(bindings.bars.len() <= 256);
    }
    for section in hwx.sections() {
        hwx.relocations(&section);
    }
    let symbols: usize = hwx.symbols().iter().map(|t| t.symbols.len()).sum();
    assert!(symbols <= bytes.len() / 16);
    for (section, first) in hwx.task_sections() {
        if let (Ok(tasks), Some(generation)) = (hwx.tasks(&section, first), hwx.generation()) {
            for task in tasks {
                assert_eq!(task.encode(generation.record_format).len(), task.len());
                task.registers();
                if let Ok(lanes) = Lanes::of_task(generation, &task) {
                    let _ = lanes.unpack(bytes);
                }
            }
        }
    }
    assert_eq!(describe::diff(&hwx, &hwx), []);
    describe::prose(&hwx, describe::Detail { registers: true });
    describe::json(&hwx);
    describe::dot(&hwx);
    describe::svg(&hwx);
}

/// The smallest descriptor has two words, and a register becomes a name of several letters in the
/// report and its renderings, of which JSON is the largest.
pub fn bound(length: usize) -> usize {
    128 * length + (1 << 20)
}

fn originals() -> Vec<Vec<u8>> {
    let mut all = vec![synthetic::h13(), synthetic::h16()];
    if let Some(suite) = ferrane_testdata::Suite::open("hwx-hostile", "hwx") {
        let programs = samples::programs(&suite);
        all.extend(programs.into_iter().map(|(_, bytes)| bytes).filter(|b| b.len() <= 1 << 17));
        suite.finish();
    }
    all
}

/// A mutation of a file: bytes of the commands are chosen as often as all others together.
#[derive(Clone, Debug)]
pub enum Change {
    Set(usize, u8),
    Word(usize, u32),
    Cut(usize),
    Copy(usize, usize, usize),
}

pub fn change() -> impl Strategy<Value = Change> {
    let place = prop_oneof![0usize..0x3000, any::<usize>()];
    let word = prop_oneof![
        Just(u32::MAX),
        Just(0x7fff_ffff),
        Just(0),
        Just(0x8000_0000),
        0u32..0x100,
        (0u32..32).prop_map(|bit| 1 << bit),
        any::<u32>()
    ];
    prop_oneof![
        (place.clone(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        (place.clone(), word).prop_map(|(at, word)| Change::Word(at & !3, word)),
        place.clone().prop_map(Change::Cut),
        (place.clone(), place, 1usize..256).prop_map(|(from, to, n)| Change::Copy(from, to, n)),
    ]
}

pub fn apply(bytes: &mut Vec<u8>, change: &Change) {
    let length = bytes.len().max(1);
    match *change {
        Change::Set(at, byte) => {
            if let Some(b) = bytes.get_mut(at % length) {
                *b = byte;
            }
        }
        Change::Word(at, word) => {
            let at = at % length;
            if let Some(b) = bytes.get_mut(at..at + 4) {
                b.copy_from_slice(&word.to_le_bytes());
            }
        }
        // If every file were cut, other mutations would never be reached.
        Change::Cut(at) if at % 8 == 0 => bytes.truncate(at % length),
        Change::Cut(_) => {}
        Change::Copy(from, to, n) => {
            let (from, to) = (from % length, to % length);
            let n = n.min(length - from.max(to)).min(bytes.len());
            if from + n <= bytes.len() && to + n <= bytes.len() {
                bytes.copy_within(from..from + n, to);
            }
        }
    }
}

#[test]
fn changed_files_are_read_or_refused() {
    let originals = originals();
    let mut runner =
        proptest::test_runner::TestRunner::new(ProptestConfig { cases: 1500, ..ProptestConfig::default() });
    let strategy = (0..originals.len(), prop::collection::vec(change(), 1..12));
    let ran = runner.run(&strategy, |(which, changes)| {
        let mut bytes = originals[which].clone();
        changes.iter().for_each(|c| apply(&mut bytes, c));
        let ((), held) = most(|| look(&bytes));
        prop_assert!(held <= bound(bytes.len()), "{held} bytes for a file of {}", bytes.len());
        Ok(())
    });
    ran.unwrap();
}

#[test]
fn any_words_are_a_stream_or_are_refused() {
    let mut runner =
        proptest::test_runner::TestRunner::new(ProptestConfig { cases: 2000, ..ProptestConfig::default() });
    let word = prop_oneof![any::<u32>(), (0u32..64, 0u32..0x2_0000).prop_map(|(n, a)| n << 26 | a), 0u32..0x40_0000];
    let strategy =
        (prop::collection::vec(word, 0..300), prop::option::of(0usize..400), 0..registers::generations().len());
    let ran = runner.run(&strategy, |(words, first, generation)| {
        let text: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let (decoded, held) = most(|| task::decode(&registers::generations()[generation], &text, first));
        drop(decoded);
        prop_assert!(held <= bound(text.len()), "{held} bytes for {}", text.len());
        Ok(())
    });
    ran.unwrap();
}

#[test]
fn made_files_are_read_whole() {
    for bytes in [synthetic::h13(), synthetic::h16()] {
        let hwx = Hwx::read(&bytes).unwrap();
        assert_eq!(hwx.write(), bytes);
        let programs = hwx.programs();
        assert_eq!(programs.len(), 1);
        let bindings = Bindings::of(&hwx, &programs[0]);
        let ports: Vec<_> = bindings.ports.iter().map(|p| (p.name.as_str(), p.bars.clone())).collect();
        match programs[0].flavor {
            // The output comes before the input in this table.
            1 => assert_eq!(ports, [("image", vec![5]), ("probs@output", vec![4])]),
            _ => assert_eq!(ports, [("x", vec![20]), ("y", vec![24])]),
        }
        let (section, first) = hwx.task_sections().pop().unwrap();
        assert_eq!(hwx.tasks(&section, first).unwrap().len(), 2);
        look(&bytes);
    }
    let h16 = Hwx::read(&synthetic::h16()).unwrap();
    assert_eq!((h16.note(9), h16.note(10)), (Some(&[1, 0, 1, 0][..]), Some(&b"a\0b\xffc"[..])));
    assert_eq!(
        h16.programs()[0].tags.iter().map(|t| (t.kind, t.value)).collect::<Vec<_>>(),
        [(7, 0x461c_4000), (9, 0)]
    );
    let h13 = Hwx::read(&synthetic::h13()).unwrap();
    let names: Vec<_> = h13.symbols()[0].symbols.iter().map(|s| s.text().into_owned()).collect();
    assert_eq!(names, ["image", "probs@output", "K00_ne_0"]);
}

/// Errors report the defect and its offset.
#[test]
fn errors_say_what_and_where() {
    let refused = |change: &dyn Fn(&mut Vec<u8>), code: &str, offset: u64, part: &str| {
        let mut bytes = synthetic::h13();
        change(&mut bytes);
        let error = Hwx::read(&bytes).expect_err(part);
        assert_eq!((error.code.to_string().as_str(), error.offset), (code, Some(offset)), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    };
    let word = |at: usize, n: u32| move |b: &mut Vec<u8>| b[at..at + 4].copy_from_slice(&n.to_le_bytes());
    refused(&|b| b.truncate(20), "E0701", 0, "20 bytes are no compiled program");
    refused(&word(0, 0xcafe_babe), "E0701", 0, "magic number 0xcafebabe");
    refused(&word(4, 0x0100_000c), "E0701", 4, "cputype 0x100000c");
    refused(&word(20, u32::MAX), "E0701", 20, "beyond the file");
    let end = Hwx::read(&synthetic::h13()).unwrap().body_offset() as u64;
    refused(&word(16, 99), "E0702", end, "end before their number");
    // The second command is the segment __TEXT: its size, its number of sections, the offset and
    // the relocations of __text.
    refused(&word(0x6c, 12), "E0702", 0x68, "at least 0x48 bytes");
    refused(&word(0x6c, 0xe9), "E0702", 0x68, "cannot have 0xe9 bytes");
    refused(&word(0xa8, 3), "E0702", 0x68, "3 sections");
    refused(&word(0xe0, 0x3ff0), "E0703", 0x3ff0, "section __TEXT,__text, 0x3ff0");
    refused(&word(0xe0, 0x40), "E0703", 0x40, "does not lie between");
    refused(&word(0xe0, 0x2f80), "E0703", 0x3000, "__TEXT,__const overlaps the section __TEXT,__text");
    refused(&word(0xec, 0x1000_0000), "E0703", 0x1850, "relocations of __TEXT,__text");
    refused(&word(0xe8, 0x1838), "E0703", 0x1838, "overlaps the names of the symbols");

    let tasks = |change: &dyn Fn(&mut Vec<u8>), offset: u64, part: &str| {
        let mut bytes = synthetic::h13();
        change(&mut bytes);
        let hwx = Hwx::read(&bytes).unwrap();
        let (section, first) = hwx.task_sections().pop().unwrap();
        let error = hwx.tasks(&section, first).expect_err(part);
        assert_eq!((error.code.to_string().as_str(), error.offset), ("E0704", Some(offset)), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    };
    // A chain pointer that would loop or leave the section; a record longer than its descriptor;
    // the length of the first descriptor.
    tasks(&word(0x201c, 0x100), 0x2000, "does not follow this one");
    tasks(&word(0x201c, 0x3000), 0x2000, "the next descriptor, at 0x3000");
    tasks(&word(0x2128 - 4, 0xfc00_0000), 0x2124, "of 64 words, reaches beyond its descriptor");
    tasks(&word(program_state() + 0x808, 4), 0x2000, "no room for its header");
    tasks(&word(program_state() + 0x808, 0x8000), 0x2000, "beyond its section");
}

/// The offset of the program's state in the file of H13.
fn program_state() -> usize {
    let hwx = Hwx::read(&synthetic::h13()).unwrap();
    hwx.command_offset(hwx.programs()[0].command) + 16
}

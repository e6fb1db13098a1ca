//! Files that are broken on purpose: they run, or are refused; nothing panics, hangs or takes much
//! memory.

use ferrane_emulator::Numerics;
use ferrane_emulator::hwx::Interpreter;
use ferrane_emulator::{Emulator, EmulatorOptions};
use ferrane_hwx::Hwx;
use ferrane_testdata::Suite;

use super::samples::programs;
use super::{Numbers, inputs, options, run};

/// Words that are more often wrong than others.
fn word(numbers: &mut Numbers, old: u32) -> u32 {
    match numbers.below(8) {
        0 => 0,
        1 => u32::MAX,
        2 => 0x7fff_ffff,
        3 => old ^ 1 << numbers.below(32),
        4 => old.wrapping_add(1 << numbers.below(20)),
        5 => 1 << numbers.below(32),
        6 => numbers.below(0x10000) as u32,
        _ => numbers.next() as u32,
    }
}

fn look(emulator: &Emulator, bytes: &[u8]) -> bool {
    let Ok(hwx) = Hwx::read(bytes) else { return false };
    let Ok(interpreter) = Interpreter::new(emulator, &hwx, None) else { return false };
    let given: usize = interpreter.inputs().map(|p| p.shape.iter().product::<usize>()).sum();
    // Making up the inputs is the test's own time.
    if given > 1 << 20 {
        return true;
    }
    let inputs = inputs(&interpreter, 1);
    run(&interpreter, &inputs).expect("what was made ready runs");
    true
}

#[test]
fn changed_programs_run_or_are_refused() {
    let Some(suite) = Suite::open("hwx-run-hostile", "hwx") else { return };
    let mut options: EmulatorOptions = options(Numerics::Fast);
    options.memory = 64 << 20;
    let emulator = Emulator::new(options);
    for (i, (name, bytes)) in programs(&suite).into_iter().enumerate() {
        let Ok(hwx) = Hwx::read(&bytes) else { continue };
        let texts: Vec<_> = hwx.task_sections().iter().map(|(s, _)| (s.offset as usize, s.size as usize)).collect();
        let Some(&(offset, size)) = texts.first() else { continue };
        let mut numbers = Numbers::new(i as u64 + 1);
        let mut ran = 0;
        for round in 0..120 {
            let mut changed = bytes.clone();
            for _ in 0..1 + numbers.below(3) {
                // The tasks, or the commands before them.
                let at =
                    if round % 4 == 0 { numbers.below(hwx.body_offset()) } else { offset + numbers.below(size) } & !3;
                if let Some(place) = changed.get_mut(at..at + 4) {
                    let old = u32::from_le_bytes(place.try_into().unwrap());
                    place.copy_from_slice(&word(&mut numbers, old).to_le_bytes());
                }
            }
            ran += usize::from(look(&emulator, &changed));
        }
        assert!(ran < 120, "{name}: every change is taken");
    }
    suite.finish();
}

//! Function tables, compared with the compiler's and with the functions that they approximate.

use ferrane_arith::Rounding;
use ferrane_hwx::Hwx;
use ferrane_hwx::describe::{HwxReport, NamedLocation};
use ferrane_hwx::registers;
use ferrane_hwx::table::{BYTES, FunctionTable, SAMPLES, TableMode, Tail};
use ferrane_testdata::Suite;
use half::f16;
use proptest::prelude::*;

use crate::samples;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// x/2 (1 + erf(x/√2)); erf by the trapezoidal rule, which is exact far beyond fp16 here.
fn gelu(x: f64) -> f64 {
    if x.abs() > 8.0 {
        return x.max(0.0);
    }
    let steps = 2000;
    let h = x / f64::from(steps);
    let inner: f64 = (1..steps).map(|i| (-(f64::from(i) * h).powi(2) / 2.0).exp()).sum();
    let area = h * (inner + (1.0 + (-x * x / 2.0).exp()) / 2.0);
    x * (0.5 + area / (2.0 * std::f64::consts::PI).sqrt())
}

/// The value of a table as the engine computes it.
fn value(table: &FunctionTable, x: f16) -> Option<f16> {
    let (bytes, mut halfwords) = (table.encode(), [0; 43]);
    for (half, bytes) in halfwords.iter_mut().zip(bytes.chunks_exact(2)) {
        *half = u16::from_le_bytes([bytes[0], bytes[1]]);
    }
    ferrane_arith::table::PiecewiseTable::read(halfwords).evaluate(Rounding::Even, x.to_f32()).map(f16::from_f32)
}

/// A function and the largest distance from it.
type Meaning = (fn(f64) -> f64, f64);

/// The function that a table of a file approximates, and the tolerance: linear interpolation with
/// steps of 1/2 to 1/32 has an error of the square of the step times the second derivative, divided
/// by eight.
fn stands_for(file: &str, mode: TableMode) -> Option<Meaning> {
    let has = |part: &str| file.contains(part);
    Some(match mode {
        // Relative to the value: steps of 1/32, curvature 2 ln² 2, and sample and result are each
        // rounded by up to 2^-11.
        TableMode::Exp2 => (f64::exp2, 1.2e-3),
        // Steps of 1/8, curvature 0.77.
        TableMode::Odd if has("tanh") => (f64::tanh, 2e-3),
        // A sigmoid less 1/2, which the next task adds; steps of 1/4, curvature 0.1.
        TableMode::Odd if has("sigmoid") || has("silu") => (|x| sigmoid(x) - 0.5, 1e-3),
        // Steps of 1/2, curvature 0.096, and rounding.
        TableMode::Centered if has("sigmoid") => (sigmoid, 3.6e-3),
        // Steps of 1/4, curvature 0.8; samples are fitted.
        TableMode::Centered if has("gelu") => (gelu, 9e-3),
        _ => return None,
    })
}

fn check(file: &str, bytes: &[u8]) -> Result<(), String> {
    let bytes: &[u8; BYTES] = bytes.first_chunk().ok_or("no room for a table")?;
    let table = FunctionTable::decode(bytes);
    if table.encode() != *bytes {
        return Err("written back it differs".to_string());
    }
    let Some((function, bound)) = stands_for(file, table.mode) else { return Ok(()) };
    let mut worst = (0.0, 0.0);
    for x in (0..=u16::MAX).map(f16::from_bits).filter(|x| !x.is_nan()) {
        let y = value(&table, x).ok_or("it is not evaluated")?;
        let wanted = function(x.to_f64());
        // Where fp16 or the table's own limit ends: the limit's value.
        if y.is_infinite() || y == f16::ZERO && wanted < 2f64.powi(-24) {
            if wanted > 60000.0 || wanted < 2f64.powi(-24) { continue } else { return Err(format!("{y} at {x}")) }
        }
        // The distance between the smallest fp16 numbers is not an error of the table.
        let scale = if table.mode == TableMode::Exp2 { wanted.max(2f64.powi(-14)) } else { 1f64.max(wanted.abs()) };
        let miss = (y.to_f64() - wanted).abs() / scale;
        if miss > worst.0 {
            worst = (miss, x.to_f64());
        }
    }
    if worst.0 <= bound { Ok(()) } else { Err(format!("{file}: misses by {:.2e} at {}", worst.0, worst.1)) }
}

#[test]
fn tables_of_programs() {
    let Some(mut suite) = Suite::open("hwx-tables", "hwx") else { return };
    for (name, bytes) in samples::programs(&suite) {
        let Ok(hwx) = Hwx::read(&bytes) else { continue };
        for task in HwxReport::of(&hwx).texts.iter().flat_map(|t| &t.tasks) {
            let Some(NamedLocation::Buffer { name: section, offset }) = &task.table else { continue };
            let found = hwx.sections().into_iter().find(|s| s.label() == *section);
            let content = found.as_ref().map_or(&[][..], |s| hwx.content(s));
            let result = check(&name, content.get(*offset as usize..).unwrap_or(&[]));
            suite.case(&format!("{name}: task at {:#x}", task.offset), result);
        }
    }
    suite.finish();
}

#[test]
fn tables_of_payloads() {
    let Some(mut suite) = Suite::open("hwx-tables-payloads", "hwx/eiln") else { return };
    let h13 = registers::by_name("h13").unwrap();
    for (name, wanted) in samples::payloads(&suite) {
        let Some((tasks, constants)) = samples::payload(&suite, &name, &wanted) else { continue };
        for task in tasks.unwrap_or_default() {
            let register = |block, name| task.register(h13, h13.address(block, name)?);
            let mode = register("NE", "MACCfg").unwrap_or(0) >> 16 & 3;
            let base = register("KernelDMASrc", "CoeffBaseAddr[0]").unwrap_or(0) as usize;
            if mode == 2 {
                suite.case(&name, check(&name, constants.get(base..).unwrap_or(&[])));
            }
        }
    }
    suite.finish();
}

/// Built tables approximate their functions as well as the compiler's do.
#[test]
fn made_tables_stand_for_their_functions() {
    let near = |table: &FunctionTable, function: fn(f64) -> f64, bound: f64| {
        for x in (-400..=400).map(|i| f16::from_f64(f64::from(i) / 16.0)) {
            let (found, wanted) = (value(table, x).unwrap().to_f64(), function(x.to_f64()));
            assert!((found - wanted).abs() <= bound * wanted.abs().max(1.0), "{found}, not {wanted}, at {x}");
        }
        assert_eq!(FunctionTable::decode(&table.encode()), *table);
    };
    let made = FunctionTable::centered(sigmoid, 1, Tail::Constant(0.0), Tail::Constant(1.0)).unwrap();
    near(&made, sigmoid, 3.5e-3);
    near(&FunctionTable::centered(gelu, 2, Tail::Constant(0.0), Tail::Line(1.0, 0.0)).unwrap(), gelu, 1e-2);
    let tanh = FunctionTable::odd(f64::tanh, 3, Tail::Constant(1.0)).unwrap();
    near(&tanh, f64::tanh, 2e-3);
    assert_eq!(value(&tanh, f16::NEG_INFINITY), Some(f16::NEG_ONE));
    assert_eq!((made.samples[0], made.samples[16]), (f16::from_f64(sigmoid(-8.0)), f16::from_f32(0.5)));
    assert_eq!(made.samples[SAMPLES - 1], f16::from_f64(sigmoid(8.0)));
    assert!(FunctionTable::centered(f64::ln, 1, Tail::Constant(0.0), Tail::Constant(1.0)).is_err());
    assert!(FunctionTable::odd(f64::tanh, 15, Tail::Constant(0.0)).is_err());
    // An unknown mode is kept.
    let other = FunctionTable { mode: TableMode::Other(0x7f), ..made };
    assert!(value(&other, f16::ONE).is_none());
    assert_eq!(FunctionTable::decode(&other.encode()), other);
}

proptest! {
    /// Any bytes are a table and survive decoding and encoding.
    #[test]
    fn any_bytes_are_a_table(words in prop::array::uniform32(any::<u32>()), mode in any::<u8>()) {
        let mut bytes = [0; BYTES];
        bytes.chunks_exact_mut(4).zip(words).for_each(|(b, w)| b.copy_from_slice(&w.to_le_bytes()));
        // Known modes and distances are as frequent as all others.
        bytes[82..86].copy_from_slice(&[mode % 8, 0, [1, 2, 0x60, 0x0a, mode][usize::from(mode) % 5], 0]);
        let table = FunctionTable::decode(&bytes);
        prop_assert_eq!(table.encode(), bytes);
    }
}

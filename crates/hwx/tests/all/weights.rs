//! Weights in lanes, compared with the compiler's bytes.

use std::collections::BTreeMap;
use std::path::Path;

use ferrane_hwx::Hwx;
use ferrane_hwx::container::{BarUse, Bindings, Section};
use ferrane_hwx::registers::{self, Generation, RecordFormat};
use ferrane_hwx::symbol;
use ferrane_hwx::task::Task;
use ferrane_hwx::weights::{FilterShape, LANES, Lanes, PASS_ROWS, TABLE_BYTES, pack};
use ferrane_testdata::Suite;
use half::f16;
use proptest::prelude::*;

use crate::samples;

fn table(path: &Path) -> BTreeMap<String, Vec<u16>> {
    let text = std::fs::read_to_string(path).expect("test data can be read");
    serde_json::from_str(&text).expect("lists of halfwords")
}

fn bits(weights: &[f16]) -> Vec<u16> {
    weights.iter().map(|w| w.to_bits()).collect()
}

fn halves(bytes: &[u8]) -> Vec<u16> {
    bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect()
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, wanted: T) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{what}: {found:?}, not {wanted:?}")) }
}

/// A name, channels, the section, and the bit pattern of weight `i`.
type Case = (String, u32, Vec<u16>, fn(u32) -> u16);

/// Kernel sections of 1×1 convolutions of C to C channels with known weights: packing gives the
/// section, and unpacking gives the weights.
#[test]
fn kernel_sections_of_known_weights() {
    let Some(mut suite) = Suite::open("hwx-weights", "hwx/mil_infer") else { return };
    // Weight `i` has the bit pattern 15360 + (7 i mod 1023).
    let mut cases: Vec<Case> = Vec::new();
    for (name, section) in table(&suite.folder().join("conv_uneven_kern.json")) {
        let channels = name.parse().expect("a number of channels");
        cases.push((format!("uneven {name}"), channels, section, |i| (15360 + 7 * i % 1023) as u16));
    }
    // `64w8` is 64 channels over a width of 8; weight `i` has the bit pattern i.
    for (name, section) in table(&suite.folder().join("conv_perm_vectors.json")) {
        let channels = name.split('w').next().and_then(|n| n.parse().ok()).expect("a number of channels");
        cases.push((format!("index {name}"), channels, section, |i| i as u16));
    }
    for (name, channels, section, weight) in cases {
        let check = || {
            let geometry = FilterShape::new(channels, channels, 1, 1).map_err(|e| e.to_string())?;
            let weights: Vec<f16> = (0..channels * channels).map(|i| f16::from_bits(weight(i))).collect();
            let packed = pack(&weights, geometry).map_err(|e| e.to_string())?;
            same("packed", halves(&packed) == section, true)?;
            let bytes: Vec<u8> = section.iter().flat_map(|h| h.to_le_bytes()).collect();
            let back = Lanes::new(geometry, false).unpack(&bytes).map_err(|e| e.to_string())?;
            same("unpacked", bits(&back) == bits(&weights), true)
        };
        suite.case(&name, check());
    }
    suite.finish();
}

/// The section with the kernel of a task.
fn kernel_section(hwx: &Hwx, generation: &Generation, bindings: &Bindings, task: &Task) -> Option<Section> {
    let bar = match generation.record_format {
        RecordFormat::ByteAddressed => task.head(generation, "KernelBars", "KBase0")?,
        _ => {
            let base = generation.address("KernelDMASrc", "KernelBaseLo")?;
            task.records.iter().find_map(|r| match r {
                ferrane_hwx::task::RegisterRecord::Address { slot, .. } if r.addresses().contains(&base) => {
                    Some((*slot).into())
                }
                _ => None,
            })?
        }
    };
    let Some(BarUse::Constants(name)) = bindings.holds(bar) else { return None };
    hwx.sections().into_iter().find(|s| s.label() == *name)
}

/// True for the samples' synthetic weights: ascending numbers, as bit patterns or as values, after
/// some zeros.
fn counts(weights: &[f16]) -> bool {
    let rest = &weights[weights.iter().position(|w| w.to_bits() != 0).unwrap_or(0).saturating_sub(1)..];
    let bits = rest.windows(2).map(|w| i64::from(w[1].to_bits()) - i64::from(w[0].to_bits()));
    let values = rest.windows(2).map(|w| w[1].to_f32() - w[0].to_f32());
    let all = |steps: Vec<f64>| steps.iter().all(|s| *s == steps[0]);
    all(bits.map(|s| s as f64).collect()) || all(values.map(f64::from).collect())
}

/// Every convolution of every sample: its lanes are decoded, packing reproduces the bytes, and all
/// lanes of a section together cover it.
#[test]
fn convolutions_of_samples() {
    let Some(mut suite) = Suite::open("hwx-weights-samples", "hwx") else { return };
    for (name, bytes) in samples::programs(&suite) {
        let Some(hwx) = samples::read(&mut suite, &name, &bytes) else { continue };
        let (Some(generation), Some(program)) = (hwx.generation(), hwx.programs().into_iter().next()) else { continue };
        let bindings = Bindings::of(&hwx, &program);
        let mut written: BTreeMap<u32, (Vec<u8>, u64)> = BTreeMap::new();
        let mut first = None;
        for (text, words) in hwx.task_sections() {
            for task in hwx.tasks(&text, words).unwrap_or_default() {
                let Some(section) = kernel_section(&hwx, generation, &bindings, &task) else { continue };
                let lanes = match Lanes::of_task(generation, &task) {
                    Ok(lanes) => lanes,
                    // A function table alone is also read through the lanes.
                    Err(e) if e.message.contains("no convolution") => continue,
                    Err(e) => {
                        suite.case(&format!("{name}: task at {:#x}", task.offset), Err(e.to_string()));
                        continue;
                    }
                };
                let content = hwx.content(&section);
                let mut check = || {
                    let weights = lanes.unpack(content).map_err(|e| e.to_string())?;
                    let (out, end) = written
                        .entry(section.offset)
                        .or_insert_with(|| (vec![0; content.len()], lanes.lanes()[0].offset));
                    lanes.pack_into(&weights, lanes.table(content), out).map_err(|e| e.to_string())?;
                    same(
                        "lanes are those of the shape",
                        shifted(&lanes, *end),
                        lanes.lanes().map(|l| (l.offset, l.bytes)),
                    )?;
                    *end = lanes.end();
                    // Equal weights say nothing about their order.
                    let other = weights.iter().any(|w| *w != weights[0]);
                    // Kernels of one file have the same kind of weights; of a file with other
                    // weights only the bytes are checked.
                    let known = *first.get_or_insert(counts(&weights));
                    if other && known { same("the weights count", counts(&weights), true) } else { Ok(()) }
                };
                suite.case(&format!("{name}: task at {:#x}", task.offset), check());
            }
        }
        for section in hwx.sections() {
            if let Some((out, _)) = written.get(&section.offset) {
                let whole = same("all of it is lanes", out == hwx.content(&section), true);
                suite.case(&format!("{name}: {},{}", section.segment, section.name), whole);
            }
        }
    }
    suite.finish();
}

/// Names of kernels of H16: 1×1 convolutions whose weights come from one blob file in sequence,
/// with 64 bytes of metadata before each. The first weights begin at 128.
#[test]
fn kernels_are_named_as_the_compiler_does() {
    let Some(mut suite) = Suite::open("hwx-symbols", "hwx") else { return };
    for (name, bytes) in samples::programs(&suite) {
        let Ok(hwx) = Hwx::read(&bytes) else { continue };
        let (Some(generation), true) = (hwx.generation(), hwx.subtype == 7) else { continue };
        let names: Vec<String> = hwx.symbols().iter().flat_map(|t| &t.symbols).map(|s| s.text().into_owned()).collect();
        let mut data = 128;
        for task in hwx.task_sections().iter().flat_map(|(text, words)| hwx.tasks(text, *words).unwrap_or_default()) {
            let Ok(lanes) = Lanes::of_task(generation, &task) else { continue };
            let check = || {
                let kernel = symbol::filter_name("weight.bin", data, lanes.shape()).map_err(|e| e.to_string())?;
                for i in (0..LANES).filter(|i| lanes.lanes()[*i].bytes > 0) {
                    same(&symbol::lane_name(&kernel, i), names.contains(&symbol::lane_name(&kernel, i)), true)?;
                }
                Ok(())
            };
            suite.case(&format!("{name}: task at {:#x}", task.offset), check());
            data += (2 * lanes.shape().len()).next_multiple_of(64) + 64;
        }
    }
    suite.finish();
}

/// The lanes of a shape after previous contents, as the compiler lays them out.
fn shifted(lanes: &Lanes, start: u64) -> [(u64, u64); LANES] {
    let own = Lanes::new(lanes.shape(), lanes.has_table());
    own.lanes().map(|l| if l.bytes > 0 { (l.offset + start, l.bytes) } else { (0, 0) })
}

#[test]
fn lanes_of_few_and_of_many_rows() {
    let lanes = Lanes::new(FilterShape::new(3, 3, 1, 1).unwrap(), false);
    let found: Vec<_> = lanes.lanes().iter().map(|l| (l.offset, l.bytes)).collect();
    assert_eq!(found[..4], [(0, 64), (64, 64), (128, 64), (0, 0)]);
    assert_eq!(lanes.end(), 0xc0);
    // Uneven: of 40 rows the first eight lanes have three each, the others two.
    let rows = |cout| {
        (0..LANES).map(|l| FilterShape::new(cout, 1, 1, 1).unwrap().rows(l).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let first = |cout, lane: usize| FilterShape::new(cout, 1, 1, 1).unwrap().rows(lane).next();
    assert_eq!((first(40, 7), first(40, 8)), (Some(21..24), Some(24..26)));
    // Two passes.
    assert_eq!(
        (rows(PASS_ROWS + 17)[0].clone(), rows(PASS_ROWS + 17)[1].clone()),
        (vec![0..32, 512..514], vec![32..64, 514..515])
    );
    // A function table before the weights of each lane.
    let lanes = Lanes::new(FilterShape::new(64, 64, 1, 1).unwrap(), true);
    assert_eq!((lanes.lanes()[0].bytes, lanes.lanes()[1].offset), (0x280, 0x280));
}

#[test]
fn what_cannot_be_is_refused() {
    for (shape, part) in [
        ([0, 1, 1, 1], "0 channels"),
        ([1 << 17, 1, 1, 1], "131072 channels"),
        ([1, 1, 32, 1], "1 to 31"),
        ([1, 1, 1, 0], "1 to 31"),
        ([100_000, 100_000, 31, 31], "4 GiB"),
    ] {
        let [cout, cin, kh, kw] = shape;
        let error = FilterShape::new(cout, cin, kh, kw).expect_err(part);
        assert!(error.code.to_string() == "E0705" && error.to_string().contains(part), "{error}");
    }
    let geometry = FilterShape::new(16, 16, 1, 1).unwrap();
    assert!(pack(&[f16::ONE; 255], geometry).is_err());
    assert!(Lanes::new(geometry, false).unpack(&[0; 16 * 64 - 1]).is_err());
    let mut room = vec![0; 16 * 192];
    assert!(Lanes::new(geometry, true).pack_into(&[f16::ONE; 256], None, &mut room).is_err());
    Lanes::new(geometry, true).pack_into(&[f16::ONE; 256], Some(&[7; TABLE_BYTES as usize]), &mut room).unwrap();
    assert_eq!(Lanes::new(geometry, true).table(&room), Some(&[7; 128]));
    // A task without any register of a kernel.
    let h13 = registers::by_name("h13").unwrap();
    let empty = Task { offset: 0x40, header: vec![0; 10], records: Vec::new() };
    assert_eq!(Lanes::of_task(h13, &empty).unwrap_err().offset, Some(0x40));
}

proptest! {
    /// Every weight has exactly one position.
    #[test]
    fn unpacking_is_the_inverse(cout in 1u32..600, cin in 1u32..24, kh in 1u32..4, kw in 1u32..4, tables: bool) {
        let geometry = FilterShape::new(cout, cin, kh, kw).unwrap();
        let weights: Vec<f16> = (0..geometry.len()).map(|i| f16::from_bits((i + 1) as u16)).collect();
        let lanes = Lanes::new(geometry, tables);
        let mut bytes = vec![0xff; lanes.end() as usize + 3];
        lanes.pack_into(&weights, tables.then_some(&[1; TABLE_BYTES as usize]), &mut bytes).unwrap();
        prop_assert_eq!(bits(&lanes.unpack(&bytes).unwrap()), bits(&weights));
        prop_assert_eq!(&bytes[lanes.end() as usize..], &[0xff; 3]);
    }
}

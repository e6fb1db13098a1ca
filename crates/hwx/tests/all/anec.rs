//! Files of the Linux driver: writing reproduces what was read, and the buffers of a container get
//! the driver's indices.

use ferrane_hwx::anec::{ANECC_PAYLOAD, Anec, FIRST_PORT, LIBANE_PAYLOAD};
use ferrane_hwx::container::BarUse;
use ferrane_hwx::{Hwx, container, registers, text};
use ferrane_testdata::Suite;
use proptest::prelude::*;

use crate::{hostile, samples, synthetic};

fn word(file: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(file[at..at + 4].try_into().unwrap())
}

#[test]
fn a_header_says_what_the_driver_reads() {
    let hwx = Hwx::read(&synthetic::h13()).unwrap();
    let (section, first) = hwx.task_sections().pop().unwrap();
    for begins in [ANECC_PAYLOAD, LIBANE_PAYLOAD] {
        let file = Anec::from_hwx(&hwx, begins).unwrap().write();
        let text = hwx.content(&section);
        let size = text.len().next_multiple_of(16) + 0xc0;
        assert_eq!(file.len(), begins + size);
        assert_eq!([word(&file, 0), word(&file, 8), word(&file, 12)], [size as u32, 4 * first.unwrap() as u32, 2]);
        assert_eq!([word(&file, 0x10), word(&file, 0x18)], [text.len() as u32, 0xc0]);
        assert_eq!([word(&file, 0x20), word(&file, 0x24)], [1, 1]);
        // Tiles of the payload, of the output and of the input; none of the constants, which are
        // part of the payload.
        let tiles: Vec<u32> = (0..32).map(|i| word(&file, 0x28 + 4 * i)).collect();
        assert_eq!((&tiles[..6], tiles[6..].iter().sum()), (&[1, 0, 0, 0, 1, 1][..], 0u32));
        let shape: Vec<u32> = (0..6).map(|i| word(&file, 0xa8 + 8 * (6 * 5 + i))).collect();
        assert_eq!(shape, [1, 3, 1, 1, 0x40, 0x40]);
        assert_eq!(&file[begins..begins + text.len()], text);
        assert!(file[0x6a8..begins].iter().all(|b| *b == 0));
        let read = Anec::read(&file).unwrap();
        assert_eq!((read.payload_at, read.decode().unwrap().len()), (begins, 2));
        assert_eq!(read.write(), file);
    }
}

/// Newer compilers put inputs before outputs; the driver does not.
#[test]
fn buffers_are_found_by_name_and_renumbered() {
    let text = text::print(&Hwx::read(&synthetic::h13()).unwrap());
    let swapped =
        text.replace("bar 4 = 0x30008000", "bar 4 = 0x30004000").replace("bar 5 = 0x30004000", "bar 5 = 0x30008000");
    let swapped = swapped.replace("RBase0 = 5", "RBase0 = 4").replace("WBase = 4", "WBase = 5");
    assert_ne!(text, swapped);
    let hwx = text::assemble(&swapped).unwrap();
    let anec = Anec::from_hwx(&hwx, ANECC_PAYLOAD).unwrap();
    // The program is the same, so the file is the one of the container that needed no change.
    assert_eq!(anec, Anec::from_hwx(&Hwx::read(&synthetic::h13()).unwrap(), ANECC_PAYLOAD).unwrap());
    let h13 = registers::by_name("h13").unwrap();
    for task in anec.decode().unwrap() {
        let bar = |field| task.head(h13, "TileBars", field);
        assert_eq!((bar("WBase"), bar("RBase0")), (Some(FIRST_PORT as u32), Some(FIRST_PORT as u32 + 1)));
    }
}

#[test]
fn what_the_driver_cannot_run_is_refused() {
    let refused = |text: &str, part: &str| {
        let error = Anec::from_hwx(&text::assemble(text).unwrap(), ANECC_PAYLOAD).expect_err(part);
        assert_eq!(error.code.to_string(), "E0721", "{error}");
        assert!(error.to_string().contains(part), "{error}");
    };
    let text = text::print(&Hwx::read(&synthetic::h13()).unwrap());
    refused(&text::print(&Hwx::read(&synthetic::h16()).unwrap()), "for H16");
    refused(&text.replacen("RBase0 = 5", "RBase0 = 9", 1), "names the buffer 9");
    refused(&text.replacen("    d = 1\n", "    d = 2\n", 1), "depth 2");
    refused(&text.replace("bar 5 = 0x30004000", "bar 5 = 0x30010000"), "bound to no buffer");
    assert!(Anec::from_hwx(&Hwx::read(&synthetic::h13()).unwrap(), 0x900).is_err());
}

#[test]
fn broken_files_are_refused() {
    let good = Anec::from_hwx(&Hwx::read(&synthetic::h13()).unwrap(), ANECC_PAYLOAD).unwrap().write();
    let refused = |change: &dyn Fn(&mut Vec<u8>), part: &str| {
        let mut file = good.clone();
        change(&mut file);
        let error = Anec::read(&file).expect_err(part);
        assert!(error.code.to_string() == "E0722" && error.to_string().contains(part), "{error}");
    };
    let set = |at: usize, n: u32| move |f: &mut Vec<u8>| f[at..at + 4].copy_from_slice(&n.to_le_bytes());
    refused(&|f| f.truncate(0x10), "the file ends in its header");
    refused(&|f| f.truncate(0x100), "256 bytes are no");
    refused(&|f| f.truncate(ANECC_PAYLOAD + 16), "the payload has");
    refused(&set(0, 16), "the size 0x10 is not that of");
    refused(&set(0x14, u32::MAX), "is not that of");
    refused(&set(8, 6), "of 0x6 bytes");
    refused(&set(12, 0), "0 descriptors");
    refused(&set(0x20, 28), "28 inputs and 1 outputs");
    refused(&set(0x20, u32::MAX), "4294967295 inputs");
}

/// Every program of H13: converted to a file and back, it describes each task the same way.
#[test]
fn samples_go_there_and_back() {
    let Some(mut suite) = Suite::open("hwx-anec", "hwx") else { return };
    let h13 = registers::by_name("h13").unwrap();
    for (name, bytes) in samples::programs(&suite) {
        let hwx = Hwx::read(&bytes).unwrap();
        if hwx.subtype != h13.subtype {
            let refused = Anec::from_hwx(&hwx, ANECC_PAYLOAD).map_or_else(|e| e.to_string(), |_| String::new());
            suite.case(&name, if refused.contains("H13 (A14, M1) only") { Ok(()) } else { Err(refused) });
            continue;
        }
        let check = || -> Result<(), String> {
            let anec = Anec::from_hwx(&hwx, ANECC_PAYLOAD).map_err(|e| e.to_string())?;
            let file = anec.write();
            let read = Anec::read(&file).map_err(|e| e.to_string())?;
            if read.write() != file || Anec::from_hwx(&hwx, LIBANE_PAYLOAD).map(|n| n.payload()) != Ok(read.payload()) {
                return Err("reading and writing changes it".to_string());
            }
            let back = read.to_hwx().map_err(|e| e.to_string())?;
            if Anec::from_hwx(&back, ANECC_PAYLOAD).map(|a| a.write()).as_ref() != Ok(&file) {
                return Err("the container that is made of it makes another file".to_string());
            }
            buffers(&hwx, &anec)
        };
        suite.case(&name, check());
    }
    suite.finish();
}

/// The tasks of the file refer, at the driver's indices, to the buffers that they had in the
/// container.
fn buffers(hwx: &Hwx, anec: &Anec) -> Result<(), String> {
    let h13 = registers::by_name("h13").unwrap();
    let bindings = container::Bindings::of(hwx, &hwx.programs()[0]);
    let (section, first) = hwx.task_sections().pop().unwrap();
    let of = |direction| -> Vec<&str> {
        let ports = bindings.ports.iter().filter(move |p| p.direction == Some(direction));
        ports.map(|p| p.name.as_str()).collect()
    };
    let places = [of(container::Direction::Output), of(container::Direction::Input)].concat();
    let before = hwx.tasks(&section, first).map_err(|e| e.to_string())?;
    for (old, new) in before.iter().zip(anec.decode().map_err(|e| e.to_string())?) {
        for (field, enable) in [("RBase0", "RBE0"), ("RBase1", "RBE1"), ("WBase", "WBE"), ("TBase", "TBE")] {
            if old.head(h13, "TileBars", enable) != Some(1) {
                continue;
            }
            let [old, new] = [old, &new].map(|t| t.head(h13, "TileBars", field).unwrap());
            let right = match bindings.holds(old) {
                Some(BarUse::Port(name)) => places.get(new as usize - FIRST_PORT) == Some(&name.as_str()),
                Some(BarUse::Scratch(_)) => [2, 3].contains(&new),
                other => return Err(format!("{field} = {old}: {other:?}")),
            };
            if !right || anec.tiles[new as usize] == 0 {
                return Err(format!("{field}: {old} became {new}, tiles {:?}", anec.tiles));
            }
        }
    }
    Ok(())
}

/// Published payloads with the header published for them, at both offsets.
#[test]
fn published_payloads_are_read() {
    let Some(mut suite) = Suite::open("hwx-anec-payloads", "hwx/eiln") else { return };
    for (name, wanted) in &samples::payloads(&suite) {
        let Ok(payload) = std::fs::read(suite.folder().join(name)) else { continue };
        let number = |key: &str| wanted[key].as_u64().expect("a number");
        let mut head = vec![0; ANECC_PAYLOAD];
        let sizes = [(0, "size"), (0x10, "tsk_size"), (0x18, "krn_size")];
        sizes.iter().for_each(|(at, key)| head[*at..at + 8].copy_from_slice(&number(key).to_le_bytes()));
        let counts = [(8, "td_size"), (12, "td_count"), (0x20, "input_count"), (0x24, "output_count")];
        counts.iter().for_each(|(at, key)| head[*at..at + 4].copy_from_slice(&(number(key) as u32).to_le_bytes()));
        for (index, tiles) in wanted["tiles"].as_object().expect("tiles") {
            let at = 0x28 + 4 * index.parse::<usize>().expect("an index");
            head[at..at + 4].copy_from_slice(&(tiles.as_u64().unwrap() as u32).to_le_bytes());
        }
        for begins in [ANECC_PAYLOAD, LIBANE_PAYLOAD] {
            let file = [&head[..begins], &payload].concat();
            let check = || -> Result<(), String> {
                let anec = Anec::read(&file).map_err(|e| e.to_string())?;
                let tasks = anec.decode().map_err(|e| e.to_string())?;
                let hwx = anec.to_hwx().map_err(|e| e.to_string())?;
                if (anec.payload_at, tasks.len() as u64) != (begins, number("td_count")) || anec.payload() != payload {
                    return Err(format!("begins at {:#x}, {} tasks", anec.payload_at, tasks.len()));
                }
                // The way back gives the same header except for shapes, which the list does not
                // contain.
                let back = Anec::from_hwx(&hwx, begins).map_err(|e| e.to_string())?;
                let same = back.payload() == payload && (back.inputs, back.outputs) == (anec.inputs, anec.outputs);
                if same { Ok(()) } else { Err("the way back changes it".to_string()) }
            };
            suite.case(&format!("{name} at {begins:#x}"), check());
        }
    }
    suite.finish();
}

proptest! {
    #[test]
    fn changed_files_are_read_or_refused(changes in prop::collection::vec(hostile::change(), 1..8), near: bool) {
        let hwx = Hwx::read(&synthetic::h13()).unwrap();
        let mut file = Anec::from_hwx(&hwx, if near { LIBANE_PAYLOAD } else { ANECC_PAYLOAD }).unwrap().write();
        changes.iter().for_each(|c| hostile::apply(&mut file, c));
        let length = file.len();
        let ((), held) = hostile::most(|| {
            let Ok(anec) = Anec::read(&file) else { return };
            assert_eq!(anec.write(), file);
            if let Ok(hwx) = anec.to_hwx() {
                let _ = Anec::from_hwx(&hwx, LIBANE_PAYLOAD);
            }
        });
        prop_assert!(held <= hostile::bound(length), "{held} bytes for a file of {length}");
    }
}

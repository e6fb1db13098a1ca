//! Files of bundles and compiled models. FlatBuffers are built here byte by byte; the other formats
//! are checked against the test data.

use std::path::{Path, PathBuf};

use ferrane_hwx::bundle::flat::{self, FieldValue};
use ferrane_hwx::bundle::{self, FileKind, coreml, e5, espresso, network};
use ferrane_testdata::Suite;
use proptest::prelude::*;

use crate::{hostile, samples, synthetic};

/// A FlatBuffer that grows at its end; offsets are patched when their targets are written.
struct Builder(Vec<u8>);

impl Builder {
    fn align(&mut self) -> usize {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self.0.len()
    }
    fn u32(&mut self, n: u32) {
        self.0.extend(n.to_le_bytes());
    }
    fn link(&mut self, at: usize, to: usize) {
        self.0[at..at + 4].copy_from_slice(&((to - at) as u32).to_le_bytes());
    }
    /// Writes a vtable and its table of four-byte fields; returns the position of the first field.
    fn table(&mut self, fields: &[u32]) -> usize {
        let vtable = self.align();
        let slots = [4 + 2 * fields.len() as u16, 4 + 4 * fields.len() as u16];
        let places = (0..fields.len() as u16).map(|i| 4 + 4 * i);
        self.0.extend(slots.into_iter().chain(places).flat_map(u16::to_le_bytes));
        let table = self.align();
        self.u32((table - vtable) as u32);
        fields.iter().for_each(|f| self.u32(*f));
        table + 4
    }
    fn bytes(&mut self, bytes: &[u8]) -> usize {
        let at = self.align();
        self.u32(bytes.len() as u32);
        self.0.extend(bytes);
        at
    }
    fn string(&mut self, text: &str) -> usize {
        let at = self.bytes(text.as_bytes());
        self.0.push(0);
        at
    }
    /// Writes a vector of `count` unset offsets; returns the position of the first.
    fn vector(&mut self, count: usize) -> usize {
        let at = self.align();
        self.u32(count as u32);
        self.0.resize(at + 4 + 4 * count, 0);
        at + 4
    }
}

/// An E5 program as reported: a root of four fields at 0x14 with its vtable at 8; names, a table,
/// two sections, the version. One section holds a program, the other a FlatBuffer.
fn e5(program: &[u8]) -> Vec<u8> {
    let mut b = Builder(vec![0x14, 0, 0, 0, 0, 0, 0, 0]);
    b.0.extend([12, 0, 20, 0, 4, 0, 8, 0, 12, 0, 16, 0]);
    for n in [0xc, 0, 0, 0, 4] {
        b.u32(n);
    }
    let names = ["main", "main_ane", "Op1_AneInference"];
    let list = b.vector(names.len());
    b.link(0x18, list - 4);
    for (i, name) in names.iter().enumerate() {
        let at = b.string(name);
        b.link(list + 4 * i, at);
    }
    let info = b.table(&[0, 1000]);
    b.link(0x1c, info - 4);
    let text = b.string("built-for-profiling");
    b.link(info, text);
    let sections = b.vector(2);
    b.link(0x20, sections - 4);
    let mut inner = Builder(vec![0; 4]);
    let root = inner.table(&[7, 8, 9]);
    inner.link(0, root - 4);
    for (i, content) in [program, &inner.0].into_iter().enumerate() {
        let section = b.table(&[0, 0]);
        b.link(sections + 4 * i, section - 4);
        let name = b.string(&format!("__section_{i}"));
        b.link(section, name);
        let at = b.bytes(content);
        b.link(section + 4, at);
    }
    b.align();
    b.0
}

#[test]
fn a_flat_buffer_is_walked() {
    let program = synthetic::h16();
    let file = e5(&program);
    let found = e5::E5Program::read(&file).unwrap();
    assert_eq!((found.version, found.sections, found.odd.as_slice()), (Some(4), 2, &[][..]));
    assert_eq!(found.symbols, ["main", "main_ane", "Op1_AneInference"]);
    let walk = &found.walk;
    assert!(walk.complete && walk.overlaps.is_empty(), "{:?}", walk.overlaps);
    let paths: Vec<&str> = walk.tables.iter().map(|t| t.path.as_str()).collect();
    assert_eq!(paths, ["root", "root.1", "root.2[0]", "root.2[1]"]);
    assert_eq!((walk.root, walk.tables[0].vtable, walk.tables[0].size), (0x14, 8, 20));
    let values = |i: usize| walk.tables[i].fields.iter().map(|f| f.value.clone()).collect::<Vec<_>>();
    assert_eq!(values(1), [FieldValue::String("built-for-profiling".into()), FieldValue::Inline(1000)]);
    assert_eq!(walk.nested.len(), 2);
    let (at, length) = walk.nested[0];
    assert_eq!(&file[at..at + length], program);
    assert_eq!((found.programs.len(), found.programs[0].at), (1, at));
    assert_eq!(found.programs[0].generation.as_deref(), Some("h16"));
    assert_eq!(bundle::recognize(&file, file.len() as u64), Some(FileKind::E5));
}

#[test]
fn what_is_no_flat_buffer_or_an_odd_one_is_told() {
    let refused = |file: &[u8], part: &str| {
        let error = flat::walk(file).expect_err(part);
        assert!(error.code.to_string() == "E0730" && error.to_string().contains(part), "{error}");
    };
    refused(&[], "do not lead to a root");
    refused(&[0; 64], "do not lead to a root");
    refused(&u32::MAX.to_le_bytes().repeat(9), "do not lead to a root");
    let good = e5(&synthetic::h16());
    let changed = |at: usize, n: u32| {
        let mut file = good.clone();
        file[at..at + 4].copy_from_slice(&n.to_le_bytes());
        file
    };
    refused(&changed(0x14, 0x8000_0000), "no table here");
    refused(&changed(8, 0x0014_ffff), "no table here");
    refused(&good[..0x20], "no table here");
    // With the offset of the list of names pointing at the sections, it is no longer a list of
    // names.
    let sections = u32::from_le_bytes(good[0x20..0x24].try_into().unwrap());
    let odd = e5::E5Program::read(&changed(0x18, sections + 8)).unwrap();
    assert_eq!(odd.odd, ["field 0 of the root is no list of names"]);
    // A table that begins in the middle of another and shares its vtable.
    let mut b = Builder(vec![0; 4]);
    let root = b.table(&[0, 0, 0, 0, 0]);
    b.link(0, root - 4);
    b.link(root, root + 4);
    b.0.extend([0; 32]);
    let vtable = b.align();
    b.0.extend([6u8, 0, 24, 0, 4, 0, 0, 0]);
    b.0[root + 4..root + 8].copy_from_slice(&((root as i32 + 4) - vtable as i32).to_le_bytes());
    b.0.resize(b.0.len() + 32, 0);
    let walk = flat::walk(&b.0).unwrap();
    assert_eq!((walk.tables.len(), walk.overlaps.len()), (2, 1), "{walk:?}");
}

/// Every field refers to one large list of long strings: examining it once per field would take
/// hours.
#[test]
fn work_is_bounded_by_the_length() {
    const COUNT: usize = 0x2000;
    let mut b = Builder(vec![0; 4]);
    let root = b.vector(COUNT);
    b.link(0, root);
    // A table with as many fields as 64 KiB hold.
    let mut file = Builder(vec![0; 4]);
    let first = file.table(&vec![0; COUNT]);
    file.link(0, first - 4);
    let lists: Vec<usize> = (0..4).map(|_| file.vector(COUNT)).collect();
    let text = file.string(&"x".repeat(1 << 16));
    lists.iter().for_each(|list| (0..COUNT).for_each(|i| file.link(list + 4 * i, text)));
    (0..COUNT).for_each(|i| file.link(first + 4 * i, lists[i % lists.len()] - 4));
    let begun = std::time::Instant::now();
    let walk = flat::walk(&file.0).unwrap();
    assert!(!walk.complete);
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
}

proptest! {
    #[test]
    fn changed_flat_buffers_are_walked_or_refused(changes in prop::collection::vec(hostile::change(), 1..12)) {
        let mut file = e5(&synthetic::h13()[..0x200]);
        changes.iter().for_each(|c| hostile::apply(&mut file, c));
        let length = file.len();
        let (walk, held) = hostile::most(|| e5::E5Program::read(&file));
        prop_assert!(held <= hostile::bound(length), "{held} bytes for a file of {length}");
        if let Ok(e5) = walk {
            prop_assert!(e5.walk.tables.iter().all(|t| t.at + t.size <= length && t.vtable < length));
        }
    }

    #[test]
    fn any_bytes_are_recognized_or_not(bytes in prop::collection::vec(any::<u8>(), 0..300), length: u64) {
        bundle::recognize(&bytes, length);
        let _ = (coreml::ModelHeader::read(&bytes), coreml::ModelAnalytics::read(&bytes), network::read(&bytes));
        let _ = (espresso::EspressoWeights::read(&bytes), espresso::EspressoNet::read(&bytes), espresso::EspressoPacked::read(&bytes));
    }
}

#[test]
fn deep_property_lists_are_refused() {
    let deep = format!(
        "<?xml version=\"1.0\"?><plist version=\"1.0\">{}{}</plist>",
        "<array>".repeat(200_000),
        "</array>".repeat(200_000)
    );
    let error = network::read(deep.as_bytes()).unwrap_err();
    assert!(error.code.to_string() == "E0731" && error.to_string().contains("deep"), "{error}");
    assert!(network::read(b"bplist00").unwrap_err().to_string().contains("plutil"));
}

#[test]
fn espresso_files() {
    let net = br#"{"storage": "model.espresso.weights", "format_version": 200, "layers": [{"type": "convolution"}, {"type": "activation"}, {"type": "convolution"}]}"#;
    let read = espresso::EspressoNet::read(net).unwrap();
    assert_eq!((read.version, read.layers["convolution"], read.layers["activation"]), (Some(200), 2, 1));
    let shape = br#"{"layer_shapes": {"x": {"n": 1, "k": 3, "h": 4, "w": 5, "_rank": 4}}}"#;
    assert_eq!(espresso::EspressoNet::read(shape).unwrap().shapes["x"], [1, 3, 4, 5].map(Some));
    for json in [&net[..], shape] {
        assert_eq!(bundle::recognize(json, json.len() as u64), Some(FileKind::EspressoNet));
    }
    let mut packed = b"pbze".to_vec();
    packed.extend([0x8000u64, 1000, 400].iter().flat_map(|n| n.to_be_bytes()));
    assert_eq!(
        espresso::EspressoPacked::read(&packed).unwrap(),
        espresso::EspressoPacked { block: 0x8000, unpacked: 1000, packed: 400 }
    );
    let blobs: Vec<u8> = [2u64, 0, 24, 1, 4].iter().flat_map(|n| n.to_le_bytes()).chain([0; 28]).collect();
    assert_eq!(espresso::EspressoWeights::read(&blobs).unwrap().blobs, [(0, 40..64), (1, 64..68)]);
    assert!(espresso::EspressoWeights::read(&blobs[..60]).unwrap_err().to_string().contains("beyond"));
}

fn files(suite: &Suite, kind: FileKind) -> Vec<(String, PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for path in samples::files(suite.folder()) {
        if bundle::file(&path).expect("test data can be read").is_some_and(|(k, _)| k == kind) {
            let name = path.strip_prefix(suite.folder()).expect("under the folder").to_string_lossy().into_owned();
            let bytes = std::fs::read(&path).expect("test data can be read");
            found.push((name, path, bytes));
        }
    }
    found
}

/// The kind of file that a name stands for; sample files are named correctly.
fn named(path: &Path) -> Option<FileKind> {
    let name = path.file_name()?.to_str()?;
    Some(match name {
        "coremldata.bin" if path.parent()?.ends_with("analytics") => FileKind::Analytics,
        "coremldata.bin" => FileKind::CoremlData,
        "model.espresso.weights" => FileKind::EspressoWeights,
        _ if name.ends_with(".hwx") || name.contains(".hwx.") => FileKind::Hwx,
        _ if name.ends_with(".plist") => FileKind::Network,
        _ if ["mil", "txt", "mlmodel", "json", "safetensors", "npy", "gguf"]
            .iter()
            .any(|e| name.ends_with(&format!(".{e}"))) =>
        {
            return None;
        }
        _ => return None,
    })
}

#[test]
fn files_are_what_their_names_say() {
    for folder in ["hwx", "mil", "checkpoints", "tokenizers"] {
        let Some(mut suite) = Suite::open(&format!("recognize-{folder}"), folder) else { continue };
        for path in samples::files(suite.folder()) {
            let found = bundle::file(&path).expect("test data can be read").map(|(kind, _)| kind);
            let name = path.strip_prefix(suite.folder()).expect("under the folder").to_string_lossy().into_owned();
            let wanted = named(&path);
            let blob = path.extension().is_some_and(|e| e == "bin") && found == Some(FileKind::Blob);
            let right = found == wanted || blob;
            suite.case(&name, if right { Ok(()) } else { Err(format!("{found:?} and not {wanted:?}")) });
        }
        suite.finish();
    }
}

/// A compiled model's header names the inputs and outputs that its metadata names.
#[test]
fn headers_of_compiled_models() {
    let Some(mut suite) = Suite::open("coremldata", "mil") else { return };
    for (name, path, bytes) in files(&suite, FileKind::CoremlData) {
        let text = std::fs::read(path.with_file_name("metadata.json")).expect("metadata next to it");
        let metadata: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        let names = |key: &str| -> Vec<String> {
            let list = metadata[0][key].as_array().into_iter().flatten();
            list.filter_map(|f| f["name"].as_str().map(str::to_string)).collect()
        };
        let data = coreml::ModelHeader::read(&bytes).map_err(|e| e.to_string());
        suite.case(
            &name,
            data.and_then(|data| {
                let wanted =
                    (names("inputSchema"), names("outputSchema"), metadata[0]["specificationVersion"].as_u64());
                let found = (data.inputs.clone(), data.outputs.clone(), Some(data.specification.into()));
                let kind = data.kind_name == Some("ML Program") && data.class == "generic";
                if found == wanted && kind { Ok(()) } else { Err(format!("{data:?} and not {wanted:?}")) }
            }),
        );
    }
    for (name, _, bytes) in files(&suite, FileKind::Analytics) {
        let found = coreml::ModelAnalytics::read(&bytes).map_err(|e| e.to_string());
        suite.case(
            &name,
            found.and_then(|a| {
                let pairs = a.sections.iter().map(|(_, pairs)| pairs.len()).sum::<usize>();
                if pairs > 0 { Ok(()) } else { Err("no pairs".to_string()) }
            }),
        );
    }
    suite.finish();
}

/// Networks describe everything that they list; where they name a weight file next to them, kernels
/// begin in one of its blobs.
#[test]
fn networks_and_their_weights() {
    let Some(mut suite) = Suite::open("net-plist", "hwx") else { return };
    for (name, path, bytes) in files(&suite, FileKind::Network) {
        let check = || -> Result<(), String> {
            let plist = network::read(&bytes).map_err(|e| e.to_string())?;
            let [net] = plist.networks.as_slice() else { return Err(format!("{} networks", plist.networks.len())) };
            if net.inputs.is_empty() || net.outputs.is_empty() || net.units.iter().any(|u| u.kind.is_empty()) {
                return Err(format!("{net:?}"));
            }
            for unit in &net.units {
                let number =
                    |key: &str| unit.params.iter().find(|(k, _)| k == key).and_then(|(_, v)| v.parse::<usize>().ok());
                let (Some(index), Some(offset)) = (number("KernelIndex"), number("KernelOffset")) else { continue };
                let Some(file) = net.weights.get(index) else { return Err(format!("no file {index}")) };
                let Ok(bytes) = std::fs::read(path.with_file_name(file)) else { continue };
                let weights = espresso::EspressoWeights::read(&bytes).map_err(|e| e.to_string())?;
                if !weights.blobs.iter().any(|(id, range)| id % 2 == 1 && range.start == offset) {
                    return Err(format!("the kernel at {offset} begins no blob of {:?}", weights.blobs));
                }
            }
            Ok(())
        };
        suite.case(&name, check());
    }
    suite.finish();
}

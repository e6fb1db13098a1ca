//! Compares this crate with coreai-core over the samples that `scripts/coreai/samples.py` made:
//!
//! ```text
//! cargo run --release -p ferrane-coreai --example compare -- SAMPLES [OUT]
//! ```
//!
//! Bytes that are written again and the three forms of text must be the same. With OUT it writes
//! every sample there with one more function, and programs of its own, for
//! `scripts/coreai/load.py`.

#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};

use ferrane_coreai::build::Builder;
use ferrane_coreai::dialect::{ATTRIBUTES, ElementType, TYPES, decode, encode};
use ferrane_coreai::{Asset, Bytecode, asset, text};

/// The text of coreai-core without the contents of resources. `None` if there is none.
fn theirs(folder: &Path, name: &str, form: &str) -> Option<String> {
    let text = std::fs::read_to_string(folder.join(format!("{name}.{form}.mlir"))).ok()?;
    Some(text.split("\n{-#").next().unwrap_or("").trim_end().to_string())
}

/// Compares two texts and prints the first line that differs.
fn same(name: &str, form: &str, theirs: &str, ours: &str) -> bool {
    let ours = ours.trim_end();
    if theirs == ours {
        return true;
    }
    let different = theirs.lines().zip(ours.lines()).find(|(a, b)| a != b);
    let (a, b) = different.unwrap_or(("", ""));
    let start = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count().saturating_sub(40);
    let part = |line: &str| line.chars().skip(start).take(160).collect::<String>();
    println!("{name}.{form}\n  theirs {}\n  ours   {}", part(a), part(b));
    false
}

/// A function that this crate adds: `tanh(x + 0.5) · w`, with `w` as a resource.
fn added(builder: &mut Builder<'_>, name: &str) {
    let kind = builder.tensor(&[Some(2), Some(3)], ElementType::Float32);
    let mut graph = builder.graph(name, &[("x", kind)]);
    let x = graph.inputs()[0];
    let half = builder.constant(&mut graph, kind, &[0.5f32.to_le_bytes(); 6].concat());
    let weights: Vec<u8> = (0..6u8).flat_map(|n| f32::from(n).to_le_bytes()).collect();
    let weights = builder.weight(&mut graph, "ferrane_weight", kind, weights);
    let sum = builder.op(&mut graph, "primitive.add_v1", &[x, half], &[], kind);
    let tanh = builder.op(&mut graph, "primitive.tanh_v1", &[sum], &[], kind);
    let product = builder.op(&mut graph, "primitive.mul_v1", &[tanh, weights], &[], kind);
    builder.output(graph, &[("y", product)]);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let (folder, out) = match arguments.as_slice() {
        [folder] => (folder, None),
        [folder, out] => (folder, Some(out)),
        _ => return Err("compare SAMPLES [OUT]".into()),
    };
    let mut names: Vec<String> = std::fs::read_dir(folder)?
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_suffix(".aimodel")?.to_string()))
        .collect();
    names.sort();
    let (mut bytes, mut entries, mut forms) = (0, 0, [(0, 0); 3]);
    for name in &names {
        let asset = Asset::open(folder.join(format!("{name}.aimodel")))?;
        asset.check_hash()?;
        let file = asset.program()?;
        bytes += usize::from(file.write() == asset.bytes());
        let known = |table: &[ferrane_coreai::bytecode::EncodedEntry<'_>], kinds| {
            table.iter().all(|entry| decode(&file, entry, kinds).is_some_and(|found| encode(&found) == *entry.bytes))
        };
        entries += usize::from(known(&file.attributes, ATTRIBUTES) && known(&file.types, TYPES));
        let texts = [
            ("coreai", text::program(&file)),
            ("aicode", text::generic(&file, text::Locations::Hide)),
            ("debug", text::generic(&file, text::Locations::Show)),
        ];
        for ((form, ours), (equal, all)) in texts.iter().zip(&mut forms) {
            if let Some(theirs) = theirs(folder, name, form) {
                *all += 1;
                *equal += usize::from(same(name, form, &theirs, ours));
            }
        }
        if let Some(out) = out {
            let mut builder = Builder::of(file);
            added(&mut builder, "ferrane_added");
            asset::write(out.join(format!("{name}.aimodel")), &builder.finish(), asset.metadata())?;
        }
    }
    if let Some(out) = out {
        let mut builder = Builder::new();
        added(&mut builder, "main");
        added(&mut builder, "ferrane_added");
        let program = builder.finish();
        Bytecode::read(&program.write())?;
        let metadata =
            serde_json::json!({"assetVersion": "2.0", "producer": "Ferrane", "creationDate": "20261125T000000Z"});
        asset::write(out.join("ferrane_built.aimodel"), &program, &metadata)?;
    }
    println!("{} models: {bytes} written byte for byte, {entries} with known attributes and types only", names.len());
    for ((equal, all), form) in forms.iter().zip(["programs", "generic forms", "generic forms with locations"]) {
        println!("{equal} of {all} {form} equal");
    }
    Ok(())
}

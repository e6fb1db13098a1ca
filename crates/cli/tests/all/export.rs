//! `ferrane export`, and its packages in `ferrane run`.

use std::os::unix::fs::symlink;
use std::path::Path;

use safetensors::SafeTensors;

use crate::place::Place;

/// A folder in which `model` is a small Qwen2, and the logits of its tokens, row after row.
fn place() -> (Place, Vec<i32>, Vec<f32>) {
    let place = Place::new();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../llm/tests/families/qwen2");
    symlink(&model, place.path("model")).unwrap();
    let file = std::fs::read(model.join("logits.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&file).unwrap();
    let words = |name: &str| -> Vec<[u8; 4]> {
        file.tensor(name).unwrap().data().chunks_exact(4).map(|word| word.try_into().unwrap()).collect()
    };
    let tokens = words("tokens").into_iter().map(i32::from_le_bytes).collect();
    let logits = words("logits").into_iter().map(f32::from_le_bytes).collect();
    (place, tokens, logits)
}

/// The logits in `FOLDER/outputs.safetensors`, fp16.
fn logits(place: &Place, folder: &str) -> Vec<f32> {
    let file = place.read(&format!("{folder}/outputs.safetensors"));
    let file = SafeTensors::deserialize(&file).unwrap();
    let half = |bytes: &[u8]| ferrane::f16::from_le_bytes([bytes[0], bytes[1]]).to_f32();
    file.tensor("logits").unwrap().data().chunks_exact(2).map(half).collect()
}

#[track_caller]
fn near(found: &[f32], wanted: &[f32]) {
    assert_eq!(found.len(), wanted.len());
    let range = wanted.iter().fold(f32::MIN, |a, b| a.max(*b)) - wanted.iter().fold(f32::MAX, |a, b| a.min(*b));
    let error = found.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(error < 1e-2 * range, "{error} of {range}");
}

/// Transformers has recorded the logits.
#[test]
fn a_package_continues_from_its_states() {
    let (place, tokens, wanted) = place();
    let vocab = wanted.len() / tokens.len();
    let row = |at: usize| &wanted[at * vocab..(at + 1) * vocab];
    place.run("export model -o model.mlpackage --prefill 8 --context 64").ok();
    let prefill = "run model.mlpackage --function prefill --output-format safetensors";
    let ids = |tokens: &[i32]| format!("[{}]", tokens.iter().map(i32::to_string).collect::<Vec<_>>().join(","));
    // The last two ids of the window are no tokens of the prompt.
    let window = ids(&[&tokens[..6], &[1, 1]].concat());
    place.run(&format!("{prefill} -o a -i input_ids={window} -i current_pos=0 -i last_index=5")).ok();
    near(&logits(&place, "a"), row(5));
    let mut states = "a".to_string();
    for at in 6..9 {
        let folder = format!("at{at}");
        place
            .run(&format!(
                "run model.mlpackage --function decode --output-format safetensors -o {folder} -i input_ids={} -i current_pos={at} \
                 --state key_cache={states}/outputs.safetensors --state value_cache={states}/outputs.safetensors",
                ids(&tokens[at..at + 1]),
            ))
            .ok();
        near(&logits(&place, &folder), row(at));
        states = folder;
    }
}

#[test]
fn parts_are_written_together_or_not_at_all() {
    let (place, ..) = place();
    let out = place.run("export model -o parts.mlpackage --context 64 --part-size 1").ok().out;
    assert!(out.contains("parts-1of1.mlpackage: layers 0 to"), "{out}");
    assert!(place.path("parts-1of1.mlpackage/Manifest.json").is_file());
    place.run("export model -o parts.mlpackage --context 64 --part-size 1").refused(1, &["parts-1of1.mlpackage"]);
    place.run("export model -o parts.mlpackage --context 64 --part-size 1 --force").ok();
    place.run("export model -o parts.mil --part-size 1").refused(1, &["ends in .mlpackage", "--format"]);
}

/// A run of two updates.
fn trained() -> Place {
    let place = Place::new();
    place.run("train --model tiny --data text.txt --steps 2 --accum 1 --seq 16 --eval-windows 0 --out run").ok();
    place
}

#[test]
fn other_programs_get_folders_and_files() {
    let place = trained();
    let json = |line: &str| -> serde_json::Value { serde_json::from_str(&place.run(line).ok().out).unwrap() };
    let folder = json("export run -o folder --weights fp32 --json");
    assert_eq!((&folder["format"], &folder["weights"]), (&"huggingface".into(), &"fp32".into()));
    assert_eq!(folder["weight_bytes"].as_u64().unwrap(), 4 * folder["parameters"].as_u64().unwrap());
    assert!(folder["files"].as_array().unwrap().contains(&"tokenizer.json".into()), "{folder}");
    let file = json("export folder -o a.gguf --weights fp32 --tokenizer run/tokenizer.bin --json");
    assert_eq!((&file["format"], &file["files"][0]), (&"gguf".into(), &"a.gguf".into()));
    json("export run -o b.gguf --weights q8_0 --json");
    json("export run -o name-1.5 --format huggingface --json");
    // All of them say the same. The run restricts its ids to those of the text.
    let text = |model: &str| {
        place
            .run(&format!("generate --checkpoint {model} --prompt cat --steps 20 --temperature 0 --device reference"))
            .ok()
            .out
    };
    assert_eq!(text("folder"), text("a.gguf"));
    let out = place.run("export a.gguf -o again").ok();
    assert!(out.out.contains("parameters as fp16") && out.out.contains("tokenizer.json"), "{}", out.out);
    place.run("export a.gguf -o again").refused(1, &["exists already"]);
    place.run("export a.gguf -o again --force").ok();
}

#[test]
fn what_cannot_be_written_is_refused_before_the_work() {
    let place = trained();
    for (line, needles) in [
        ("export run -o run --force", &["the model itself"][..]),
        ("export run/step-000002 -o run --force", &["the model itself"]),
        ("export run -o a.gguf --weights int4", &["fp16, fp32 or q8_0", "quantize"]),
        ("export run -o folder --weights q8_0", &["fp16 or fp32"]),
        ("export run -o a.mlpackage --weights fp32", &["a package has"]),
        ("export run -o a.mlpackage --tokenizer run/tokenizer.bin", &["--tokenizer"]),
        ("export run -o folder --context 64", &["--context is for a package"]),
        ("export run -o folder --lora missing", &["missing"]),
        ("export run -o name-1.5", &["--format"]),
        ("export nothing -o folder", &["nothing"]),
    ] {
        place.run(line).refused(1, needles);
    }
    for name in ["a.gguf", "folder", "a.mlpackage", "name-1.5"] {
        assert!(!place.path(name).exists(), "{name}");
    }
}

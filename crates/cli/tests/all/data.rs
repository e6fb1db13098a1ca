//! Published llama2.c checkpoints through the command: every folder of `checkpoints` with an
//! `expected.json` next to one `.bin`.

use std::fs;
use std::path::{Path, PathBuf};

use ferrane_testdata::Suite;
use serde_json::Value;

use crate::place::Place;

/// Standard errors that the loss on other windows of the same kind of text may be off. Both losses
/// are means over 64 windows, so their difference has √2 of the recorded standard error; six leave
/// room for a text that is not the recorded one.
const ERRORS: f64 = 6.0;

#[test]
fn published_checkpoints_print_the_expected_text() {
    let Some(mut suite) = Suite::open("cli-llama2c", "checkpoints") else { return };
    let data = suite.folder().parent().unwrap().to_path_buf();
    for folder in entries(suite.folder()) {
        let id = folder.file_name().unwrap().to_string_lossy().into_owned();
        let models: Vec<PathBuf> =
            entries(&folder).into_iter().filter(|p| p.extension().is_some_and(|e| e == "bin")).collect();
        let expected = fs::read_to_string(folder.join("expected.json")).ok();
        let (Some(expected), [model]) = (expected, models.as_slice()) else { continue };
        let expected: Value = serde_json::from_str(&expected).unwrap();
        let Some(tokenizer) = tokenizer(&data.join("tokenizers"), model) else {
            suite.skip(&id, "no tokenizer of this vocabulary");
            continue;
        };
        let place = Place::new();
        let common = format!("--checkpoint {} --tokenizer {}", model.display(), tokenizer.display());
        if let Some(text) = expected["expected_text"].as_str() {
            let steps = expected["tokens"].as_array().map_or(200, Vec::len);
            let out =
                place.run(&format!("generate {common} --device reference --temperature 0 --steps {steps}")).ok().out;
            let result = (out == format!("{text}\n")).then_some(()).ok_or_else(|| format!("printed {out:?}"));
            suite.case(&format!("{id}: text"), result);
        }
        let (loss, error) = (&expected["heldout_loss_64x512"], &expected["heldout_loss_sem"]);
        if let (Some(loss), Some(error)) = (loss.as_f64(), error.as_f64()) {
            for ids in entries(&data.join("text")).iter().filter(|p| p.extension().is_some_and(|e| e == "u16")) {
                let id = format!("{id}: loss on {}", ids.file_name().unwrap().to_string_lossy());
                let line = format!("eval {common} --data {} --seq 512 --windows 64 --json", ids.display());
                let found: Vec<f64> = ["emulator", "reference"]
                    .iter()
                    .map(|device| {
                        place.run(&format!("{line} --device {device}")).ok().objects()[0]["loss"].as_f64().unwrap()
                    })
                    .collect();
                let near = (found[1] - loss).abs() <= ERRORS * error;
                // fp16 arithmetic moves logits by 0.01 in the mean and to both sides; a mean loss
                // moves by less.
                let agree = (found[0] - found[1]).abs() <= 0.01;
                let result = (near && agree).then_some(());
                suite.case(&id, result.ok_or_else(|| format!("emulator and reference {found:?}, expected {loss}")));
            }
        }
    }
    suite.finish();
}

/// The llama2.c tokenizer with as many entries as the model's vocabulary, which stands at byte 20
/// of a checkpoint.
fn tokenizer(folder: &Path, model: &Path) -> Option<PathBuf> {
    let head = fs::read(model).ok()?;
    let vocabulary = i32::from_le_bytes(head.get(20..24)?.try_into().ok()?).unsigned_abs() as usize;
    entries(folder)
        .into_iter()
        .filter(|p| p.extension().is_some_and(|e| e == "bin"))
        .find(|p| pieces(p) == Some(vocabulary))
}

/// Entries of a llama2.c tokenizer: after the longest length, a score, a length and that many
/// bytes each.
fn pieces(path: &Path) -> Option<usize> {
    let bytes = fs::read(path).ok()?;
    let (mut at, mut count) = (4, 0);
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes.get(at + 4..at + 8)?.try_into().ok()?);
        at += 8 + length as usize;
        count += 1;
    }
    (at == bytes.len()).then_some(count)
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    paths.sort();
    paths
}

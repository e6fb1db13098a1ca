//! What the command refuses, and whether it says why and what to do.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::place::{Place, TINY};

const SHORT: &str = "--steps 3 --accum 1 --seq 16 --eval-windows 2";

/// A llama2.c tokenizer of `size` entries (training-dynamic §11): longest piece, then score, length
/// and bytes of each.
fn tokenizer(size: usize) -> Vec<u8> {
    let mut bytes = 10u32.to_le_bytes().to_vec();
    for i in 0..size {
        let piece = match i {
            0 => "<unk>".to_string(),
            1 => "\n<s>\n".to_string(),
            2 => "\n</s>\n".to_string(),
            3..259 => format!("<0x{:02X}>", i - 3),
            _ => format!("w{i}"),
        };
        bytes.extend((-(i as f32)).to_le_bytes());
        bytes.extend((piece.len() as u32).to_le_bytes());
        bytes.extend(piece.bytes());
    }
    bytes
}

#[test]
fn data_that_cannot_be_trained_on() {
    let place = Place::new();
    place.write("empty.txt", "");
    place.write("short.txt", "hello");
    place.write("latin1.txt", b"caf\xe9 au lait");
    place.write("odd.u16", [1, 0, 2]);
    place.write("odd.u32", [1, 0, 0, 0, 2, 0]);
    place.write("far.u16", [1, 0, 200, 0, 2, 0]);
    let train = |data: &str| place.run(&format!("train --model tiny --data {data} {SHORT} --out run"));
    train("none.txt").refused(1, &["none.txt: no such data file", "give --data"]);
    train("empty.txt").refused(1, &["empty.txt: the data file is empty", "give --data"]);
    train("short.txt").refused(1, &["token ids are too few", "windows of 16+1", "give more data or a smaller --seq"]);
    train("latin1.txt").refused(1, &["latin1.txt: not UTF-8 at byte 3", "convert the text"]);
    train("odd.u16").refused(1, &["odd.u16: 3 bytes are not a whole number of 2-byte ids", "cut short"]);
    train("odd.u32").refused(1, &["odd.u32: 6 bytes are not a whole number of 4-byte ids", "cut short"]);
    train("far.u16").refused(1, &["id 200 at position 1 is beyond the vocabulary of 64", "use the tokenizer"]);
    train("tiny").refused(1, &["tiny: the folder has no data files", ".parquet"]);
    // `eval` reads data by the same rules.
    place.run(&format!("{TINY} --out run")).ok();
    let eval = |data: &str| place.run(&format!("eval --checkpoint run --data {data} --seq 16"));
    eval("none.u16").refused(1, &["none.u16: no such data file"]);
    eval("far.u16").refused(1, &["beyond the vocabulary"]);
    eval("text.txt").refused(1, &["text.txt: text needs a tokenizer", "give --tokenizer"]);
    place.run("eval --checkpoint run --data ids.u16 --seq 9999").refused(1, &["a window needs 10000", "smaller --seq"]);
}

#[test]
fn tokenizers_that_do_not_fit() {
    let place = Place::new();
    place.write("big.bin", tokenizer(300));
    place.write("cut.bin", &tokenizer(300)[..900]);
    place.run(&format!("{TINY} --out run")).ok();
    let words = ["the tokenizer has 300 ids, the model only 64", "use the model's own"];
    place.run("generate --checkpoint run --tokenizer big.bin").refused(1, &words);
    place.run("eval --checkpoint run --data text.txt --tokenizer big.bin").refused(1, &words);
    let init = format!("train --init run --data text.txt --tokenizer big.bin {SHORT} --out other");
    place.run(&init).refused(1, &words);
    place.run("generate --checkpoint run --tokenizer cut.bin").refused(1, &["cut.bin"]);
    place.run("generate --checkpoint run --tokenizer none.bin").refused(1, &["none.bin"]);
    place
        .run("generate --checkpoint run")
        .refused(1, &["run: the model has no tokenizer", "give one with --tokenizer"]);
    // A damaged tokenizer is not treated as a missing one.
    place.write("run/tokenizer.json", "{");
    place.run("generate --checkpoint run").refused(1, &["run/tokenizer.json"]);
}

#[test]
fn checkpoints_that_cannot_be_loaded() {
    let place = Place::new();
    place.run(&format!("{TINY} --out run")).ok();
    let whole = place.read("run/step-000003/model.safetensors");
    place.write("cut.safetensors", &whole[..whole.len() - 100]);
    place.write("head.safetensors", &whole[..20]);
    let eval = |checkpoint: &str| place.run(&format!("eval --checkpoint {checkpoint} --data ids.u16 --seq 16"));
    eval("cut.safetensors").refused(1, &["cut.safetensors"]);
    eval("head.safetensors").refused(1, &["head.safetensors"]);
    eval("none").refused(1, &["none: no such checkpoint", "ferrane train"]);
    fs::create_dir(place.path("bare")).unwrap();
    eval("bare").refused(1, &["bare: no weights", "step-000100"]);

    // llama2.c: seven numbers, then the weights; dim, hidden, layers, heads, kv heads, vocabulary,
    // length.
    let header: Vec<u8> = [16i32, 32, 1, 2, 1, 64, 64].iter().flat_map(|n| n.to_le_bytes()).collect();
    place.write("cut.bin", [header, vec![0; 500]].concat());
    eval("cut.bin").refused(1, &["cut.bin: expected", "bytes by its header, found 528"]);

    // Weights of one model under the configuration of another: the tensor, and both shapes.
    place.model("wide", 80);
    let at = whole.windows(12).position(|w| w == br#"\"vocab\":64"#).unwrap();
    let mut other = whole.clone();
    other[at + 10..at + 12].copy_from_slice(b"80");
    place.write("other.safetensors", other);
    eval("other.safetensors").refused(1, &["embed", "expected shape [80, 16]", "found [64, 16]"]);
    let other = format!("train --model wide --init other.safetensors --data ids.u16 {SHORT} --out x");
    place.run(&other).refused(1, &["embed", "[80, 16]", "[64, 16]"]);
}

#[test]
fn names_that_are_unknown() {
    let place = Place::new();
    let train = |what: &str| place.run(&format!("train {what} --data ids.u16 {SHORT} --out run"));
    train("--model stories16m").refused(1, &["unknown preset", "did you mean \"stories15m\"", "qwen3-0.6b"]);
    place.run("bench step --model story110m").refused(1, &["did you mean \"stories110m\""]);
    train("--model tiny --device emulatr").refused(1, &["unknown device `emulatr`", "did you mean `emulator`"]);
    train("--model tiny --device refrence").refused(1, &["did you mean `reference`"]);
    train("--model tiny --device gpu").refused(1, &["unknown device `gpu`", "known: emulator, ane", "reference"]);
    let option = train("--model tiny --device emulator?numerics=exat");
    option.refused(1, &["numerics=exat", "numerics=fast|exact"]);
    train("--model tiny --device emulator?speed=9").refused(1, &["speed", "numerics=fast|exact"]);
    train("--model tiny --device reference?x=1").refused(1, &["`reference` has no options"]);
    fs::create_dir(place.path("bare")).unwrap();
    train("--model bare").refused(1, &["the folder has no config.json", "stories260k"]);
    place.run("trian").refused(2, &["train"]);
    assert!(!place.path("run").exists(), "a refused run leaves nothing");
}

#[test]
fn numbers_that_make_no_run() {
    let place = Place::new();
    let base = "train --model tiny --data ids.u16 --out run";
    let train = |what: &str| place.run(&format!("{base} {what}"));
    train("--steps 0").refused(1, &["--steps 0: must be at least 1"]);
    train("--accum 0").refused(1, &["--accum 0: must be at least 1"]);
    train("--batch 0").refused(1, &["--batch 0"]);
    train("--seq 0").refused(1, &["--seq 0: must be between 1"]);
    train("--lr 0").refused(1, &["--lr 0: must be finite and positive"]);
    train("--lr -1").refused(1, &["--lr -1: must be finite and positive"]);
    train("--min-lr 1").refused(1, &["--min-lr 1: must be between 0 and lr"]);
    train("--clip -1").refused(1, &["--clip -1: must be finite and not negative; 0 switches clipping off"]);
    train("--weight-decay -1").refused(1, &["--weight-decay -1"]);
    train("--lr 1e999").refused(2, &["'1e999' for '--lr <F>'", "not a finite number"]);
    train("--lr nan").refused(2, &["not a finite number"]);
    train("--lr fast").refused(2, &["'fast' for '--lr <F>'"]);
    train("--steps -3").refused(2, &["'-3' for '--steps <UPDATES>'", "not a whole number"]);
    train("--steps 99999999999999999999").refused(2, &["--steps"]);
    train("--accum 9999999999999999999").refused(1, &["too large"]);
    let generate = |what: &str| place.run(&format!("generate --checkpoint run {what}"));
    train(SHORT).ok();
    place.write("run/tokenizer.bin", tokenizer(64));
    generate("--steps 0").refused(1, &["--steps 0", "give 1 or more"]);
    generate("--temperature -1").refused(1, &["--temperature is -1"]);
    generate("--temperature inf").refused(2, &["not a finite number"]);
    generate("--top-p 2").refused(1, &["--top-p is 2"]);
    place.run("eval --checkpoint run --data ids.u16 --seq 0").refused(1, &["--seq 0"]);
    place.run("bench step --model stories260k --seq 0").refused(1, &["--seq 0"]);
    place.run("bench step --model stories260k --vocab 1").refused(1, &["--vocab 1"]);
    place.run("bench step --model stories260k --vocab 9999").refused(1, &["--vocab 9999", "512"]);
}

#[test]
fn folders_that_cannot_take_a_run() {
    let place = Place::new();
    place
        .run(&format!("{TINY} --out none --resume"))
        .refused(1, &["none: there is no run to resume", "Leave --resume out"]);
    fs::create_dir(place.path("empty")).unwrap();
    place.run(&format!("{TINY} --out empty --resume")).refused(1, &["empty: there is no run to resume"]);
    place.run(&format!("{TINY} --out run")).ok();
    let again = ["run: a run at step 3 is here", "resume it, or give another --out", "Give --resume"];
    place.run(&format!("{TINY} --out run")).refused(1, &again);
    place.run(&format!("{TINY} --out ids.u16")).refused(1, &["--out ids.u16: this is a file; give a folder"]);
    // A folder below a file cannot be made, not even by the superuser.
    place.run(&format!("{TINY} --out ids.u16/run")).refused(1, &["--out ids.u16/run", "give another --out"]);
    fs::create_dir(place.path("locked")).unwrap();
    fs::set_permissions(place.path("locked"), fs::Permissions::from_mode(0o555)).unwrap();
    if fs::write(place.path("locked/probe"), "").is_err() {
        place.run(&format!("{TINY} --out locked/run")).refused(1, &["--out locked/run", "give another --out"]);
    } else {
        eprintln!("skipped: the superuser may write everywhere");
    }
    // A checkpoint whose files are all damaged is reported as such, with the file.
    place.write("run/step-000003/model.safetensors", "short");
    place.run("train --resume --out run").refused(1, &["no checkpoint can be read", "model.safetensors", "found 5"]);
}

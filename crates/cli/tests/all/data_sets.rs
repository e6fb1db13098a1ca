//! Training on JSON Lines, folders and several sets: the cache, resuming, and what is refused.

use std::fs::{self, File};
use std::io::Read as _;

use crate::place::{Place, wait_for};

/// A run of `steps` updates on these data.
fn line(data: &str, steps: u64, out: &str) -> String {
    format!(
        "train --model tiny {data} --steps {steps} --accum 2 --seq 16 --eval-every 4 --eval-windows 3 --json --out {out}"
    )
}

/// `rows.jsonl` with 200 rows, and the folder `shards` with a text, JSON Lines and an empty file.
fn place() -> Place {
    let place = Place::new();
    let rows = |first: usize, count: usize| {
        let row = |i| format!("{{\"id\": {i}, \"text\": \"The caf\\u00e9 has {i} red chairs and a blue door.\"}}\n");
        (first..first + count).map(row).collect::<String>()
    };
    place.write("rows.jsonl", rows(0, 200));
    fs::create_dir(place.path("shards")).unwrap();
    place.write("shards/b.jsonl", rows(1000, 50));
    place.write("shards/a.txt", place.read("text.txt"));
    place.write("shards/c.txt", "");
    place
}

#[test]
fn sets_are_mixed_cached_and_resumed_bit_for_bit() {
    let place = place();
    let data = "--data rows.jsonl=2 --data shards=1";
    let whole = place.run(&line(data, 12, "whole")).ok();
    assert!(whole.out.contains("\"event\":\"encoding\""), "{}", whole.out);
    assert!(whole.out.contains("c.txt: the file is empty and is left out"), "{}", whole.out);
    let cache = place.run("cache --json").ok().objects();
    assert_eq!((cache[0]["files"].as_u64(), cache[0]["cleared"].as_bool()), (Some(3), Some(false)));
    assert!(cache[0]["bytes"].as_u64().unwrap() > 4000, "{cache:?}");
    let again = place.run(&line(data, 12, "again")).ok();
    assert!(!again.out.contains("\"event\":\"encoding\""), "the ids are in the cache: {}", again.out);
    assert!(place.state("again", 12) == place.state("whole", 12));
    let long = line(data, 400, "long");
    place.run(&long).ok();
    let (mut child, mut out) = place.start(&line(data, 400, "parts"));
    assert!(wait_for(&mut out, "update", 30));
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    child.wait().unwrap();
    place.run("train --resume --json --out parts").ok();
    let (long, parts) = (place.state("long", 400), place.state("parts", 400));
    assert!(long.0 == parts.0 && long.1 == parts.1, "weights or moments differ");
    assert_eq!(long.2, parts.2);

    // Other weights and other rows are other data; cleared ids are made again.
    let other = ["the data are not those that this run was begun with"];
    place.run("train --resume --out whole --steps 14 --data rows.jsonl=1 --data shards=1").refused(1, &other);
    let cleared = place.run("cache --clear --json").ok().objects();
    assert_eq!((cleared[0]["files"].clone(), cleared[0]["cleared"].as_bool()), (cache[0]["files"].clone(), Some(true)));
    place.run("train --resume --out whole --steps 14").ok();
    place.write("shards/d.txt", "one more shard");
    place.run("train --resume --out whole --steps 16").refused(1, &other);
    let text = place.run("cache").ok().out;
    assert!(text.contains("cache: token ids of 4 data files"), "{text}");
}

#[test]
fn eval_takes_the_same_data() {
    let place = place();
    place.run(&line("--data rows.jsonl", 4, "run")).ok();
    let eval = |data: &str| place.run(&format!("eval --checkpoint run --seq 16 --json {data}"));
    let rows = eval("--data rows.jsonl --windows 8").ok().objects();
    let shards = eval("--data shards --windows 8").ok().objects();
    let both = eval("--data rows.jsonl=1 --data shards=1 --windows 16").ok().objects();
    assert_eq!(both[0]["windows"], 16);
    let mean = (rows[0]["loss"].as_f64().unwrap() + shards[0]["loss"].as_f64().unwrap()) / 2.0;
    // Both means run over the same windows; only the order of the sum differs.
    let same = (both[0]["tokens"].as_u64(), rows[0]["tokens"].as_u64().zip(shards[0]["tokens"].as_u64()));
    if same.1.is_some_and(|(a, b)| a == b) {
        assert!((both[0]["loss"].as_f64().unwrap() - mean).abs() < 1e-3, "{both:?} {mean}");
    }
    eval("--data rows.jsonl --data-field body")
        .refused(1, &["broken rows", "no field `body`; the row has `id`, `text`"]);
}

#[test]
fn data_sets_that_are_refused() {
    let place = place();
    let train = |data: &str| place.run(&line(data, 2, "run"));
    for (weight, shown) in [("0", "0"), ("-2", "-2"), ("NaN", "NaN"), ("inf", "inf")] {
        let words = [format!("rows.jsonl: the weight {shown} must be finite and positive")];
        train(&format!("--data rows.jsonl={weight}")).refused(2, &[words[0].as_str()]);
    }
    train("--data rows.jsonl=2 --data shards")
        .refused(1, &["shards: this set has no weight", "give each set a weight"]);
    let words = ["rows.jsonl: 101 broken rows are more than --bad-rows allows", "no field `body`", "give --data-field"];
    train("--data rows.jsonl --data-field body").refused(1, &words);
    place.write("mixed.jsonl", "{\"text\": 3}\n".repeat(3) + &"{\"text\": \"a word\"}\n".repeat(90));
    let out = place.run(&line("--data mixed.jsonl", 2, "mixed")).ok().out;
    assert!(out.contains("mixed.jsonl: 3 broken rows are left out: line 1: `text` is a number"), "{out}");
    train("--data mixed.jsonl --bad-rows 2").refused(1, &["3 broken rows are more than --bad-rows allows"]);
    place.write("blank.jsonl", "\n\n{\"text\": \"\"}\n");
    train("--data blank.jsonl").refused(1, &["blank.jsonl: the data file is empty"]);
    place.write("damaged.parquet", "PAR1 and no more PAR1");
    train("--data damaged.parquet").refused(1, &["damaged.parquet: "]);
    let no_cache = place.run(&line("--data text.txt --data-cache text.txt", 2, "no-cache")).ok().out;
    assert!(no_cache.contains("the cache of ids cannot be written to"), "{no_cache}");
}

#[test]
fn a_file_of_ids_that_is_cut_ends_the_run_with_a_checkpoint() {
    let place = Place::new();
    let whole = place.read("ids.u16");
    let (mut child, mut out) = place.start(&line("--data ids.u16", 100_000, "run"));
    assert!(wait_for(&mut out, "update", 5));
    File::options().write(true).open(place.path("ids.u16")).unwrap().set_len(100).unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "it ends by itself");
    let words = ["the data are not those"];
    place.write("ids.u16", [1u8, 0].repeat(whole.len() / 2));
    place.run("train --resume --out run --steps 100001").refused(1, &words);
    // Restored, the run continues from its last update.
    place.write("ids.u16", whole);
    let steps: Vec<u64> = place.metrics("run").iter().map(|line| line["step"].as_u64().unwrap()).collect();
    let last = steps.last().unwrap();
    let resumed = place.run(&format!("train --resume --out run --steps {}", last + 1)).ok();
    assert!(resumed.err.contains(&format!("resume  after update {last}")), "{}", resumed.err);
}

/// The ids of a shard stay readable while the run lasts, even if the file is deleted.
#[cfg(unix)]
#[test]
fn a_shard_that_is_deleted_is_missed_when_the_run_is_resumed() {
    let place = Place::new();
    fs::create_dir(place.path("shards")).unwrap();
    let ids = place.read("ids.u16");
    place.write("shards/a.u16", &ids[..2000]);
    place.write("shards/b.u16", &ids[2000..]);
    place.run(&line("--data shards", 400, "whole")).ok();
    let (mut child, mut out) = place.start(&line("--data shards", 400, "run"));
    assert!(wait_for(&mut out, "update", 5));
    fs::remove_file(place.path("shards/b.u16")).unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{rest}");
    assert!(place.state("run", 400) == place.state("whole", 400));
    place.run("train --resume --out run --steps 401").refused(1, &["the data are not those"]);
    place.write("shards/b.u16", &ids[2000..]);
    place.run("train --resume --out run --steps 401").ok();
}

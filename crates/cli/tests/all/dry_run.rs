//! `ferrane train --dry-run`.

use crate::place::{Place, TINY};

#[test]
fn it_says_what_a_run_takes_and_writes_nothing() {
    let place = Place::new();
    let long = TINY.replace("--steps 3", "--steps 1000");
    let shown = place.run(&format!("{long} --machine m4 --dry-run")).ok();
    for words in ["micro-step", "tokens/s", "a run keeps two", "available", "gradients", "m4:", "ms here"] {
        assert!(shown.out.contains(words), "{words}: {}", shown.out);
    }
    let json = place.run(&format!("{long} --recompute 1 --device reference --dry-run --json")).ok().objects().remove(0);
    assert_eq!(
        (&json["event"], &json["updates"], &json["update_tokens"]),
        (&"dry_run".into(), &1000.into(), &16.into())
    );
    assert!(json["seconds"].as_f64().unwrap() > 0.0 && json["memory"]["weights"].as_u64().unwrap() > 0, "{json}");
    assert!(!place.path("runs").exists());
}

#[test]
fn options_of_a_run_that_exists_are_refused() {
    let place = Place::new();
    let outcome = place.run("train --resume --out run --dry-run");
    assert_eq!(outcome.code, Some(2), "{}", outcome.err);
}

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
fn it_predicts_an_update_on_several_ranks() {
    let place = Place::new();
    let run = TINY.replace("--accum 1", "--accum 8");
    let ranks = place.run(&format!("{run} --dry-run --ranks 1,2,8 --link 1gbe --json")).ok().objects();
    let [dry, one, two, eight] = &ranks[..] else { panic!("{ranks:?}") };
    assert_eq!((&dry["update_windows"], &one["event"]), (&8.into(), &"on_ranks".into()));
    assert_eq!((one["exchange_seconds"].as_f64(), one["speedup"].as_f64()), (Some(0.0), Some(1.0)));
    let of = |object: &serde_json::Value, name: &str| object[name].as_f64().unwrap();
    for (ranks, object) in [(2.0, two), (8.0, eight)] {
        // Small gradients over a slow link: there is a price, and a part of each update that all
        // ranks compute.
        assert!(of(object, "exchange_seconds") > 0.0 && of(object, "speedup") < ranks, "{object}");
        let whole = of(dry, "micro_step_ms") / 1e3 * 8.0 / ranks + of(dry, "update_ms") / 1e3;
        assert!((of(object, "update_seconds") - of(object, "exchange_seconds") - whole).abs() < 1e-9, "{object}");
    }
    let shown = place.run(&format!("{run} --dry-run --ranks 4 --shard-optimizer")).ok();
    assert!(shown.out.contains("4 ranks over 10gbe: "), "{}", shown.out);
    place.run(&format!("{run} --dry-run --ranks 0")).refused(1, &["--ranks 0: a run has at least one rank"]);
    let refused = place.run(&format!("{run} --dry-run --ranks 9"));
    assert!(
        refused.err.contains("--ranks 9: an update has 8 windows, one for each rank at least; raise --accum"),
        "{}",
        refused.err
    );
    assert!(place.run(&format!("{run} --dry-run --ranks 2 --link 5g")).err.contains("`thunderbolt5`"));
    assert!(place.run(&format!("{run} --ranks 2")).err.contains("--dry-run"));
}

#[test]
fn options_of_a_run_that_exists_are_refused() {
    let place = Place::new();
    let outcome = place.run("train --resume --out run --dry-run");
    assert_eq!(outcome.code, Some(2), "{}", outcome.err);
}

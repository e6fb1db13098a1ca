//! `ferrane quantize`, and the commands that read what it writes.

use serde_json::Value;

use crate::place::Place;

/// A model of 16 dimensions, trained for two updates on `text.txt`.
fn trained() -> Place {
    let place = Place::new();
    place.run("train --model tiny --data text.txt --steps 2 --accum 1 --seq 16 --eval-windows 0 --out run").ok();
    place
}

fn json(place: &Place, line: &str) -> Value {
    let outcome = place.run(line);
    assert_eq!(outcome.code, Some(0), "{line}: {}", outcome.err);
    serde_json::from_str(&outcome.out).unwrap_or_else(|e| panic!("{line}: {e} in {}", outcome.out))
}

#[test]
fn what_is_written_is_what_was_measured() {
    let place = trained();
    let texts = "--calibrate text.txt --eval text.txt --seq 16 --windows 0";
    for form in ["int8", "int4", "affine4", "palette4", "palette6"] {
        let found = json(&place, &format!("quantize run -o {form} --weights {form} {texts} --json"));
        let (before, after) = (&found["perplexity"]["before"], &found["perplexity"]["after"]);
        assert!(before.as_f64().unwrap() > 1.0 && after != before, "{form}: {found}");
        assert_eq!(found["calibration_tokens"].as_u64().unwrap() % 16, 0);
        let tensors = found["tensors"].as_array().unwrap();
        let w2 = tensors.iter().find(|tensor| tensor["name"] == "layers.0.w2").unwrap();
        assert!(w2["weight_error"].as_f64().unwrap() > 0.0 && w2["product_error"].as_f64().unwrap() > 0.0, "{w2}");
        // [16, 32]; the other matrices have rows of 16, which are no whole blocks.
        assert!(w2["bytes"].as_u64().unwrap() < 2 * 16 * 32, "{form}: {w2}");
        // Again, from the folder: nothing changes any more. The loss is another one, because a
        // run's map of the ids that its text has is not part of the folder.
        let again = json(&place, &format!("quantize {form} -o again --force --weights {form} {texts} --json"));
        assert_eq!(again["perplexity"]["after"], again["perplexity"]["before"], "{form}");
    }
    let text = place.run("generate --checkpoint palette4 --prompt cat --steps 20");
    assert_eq!(text.code, Some(0), "{}", text.err);
    let table = place.run("quantize run -o table --weights palette6 --tensors");
    for needle in ["layers.0.wq", "bits a weight", "instead of"] {
        assert!(table.out.contains(needle), "{}", table.out);
    }
}

#[test]
fn targets_are_checked_before_the_work() {
    let place = trained();
    place.run("quantize run -o small --weights int8").ok();
    for (line, needle) in [
        ("quantize run -o small", "exists already"),
        ("quantize run -o run --force", "the model itself"),
        ("quantize small -o small --force", "the model itself"),
        ("quantize run -o small.gguf", "a model that is a .gguf"),
        ("quantize nothing -o other", "nothing"),
        ("quantize run -o other --seq 0", "--seq"),
        ("quantize run -o other --calibrate missing.txt", "missing.txt"),
    ] {
        let outcome = place.run(line);
        assert_eq!(outcome.code, Some(1), "{line}: {}", outcome.out);
        assert!(outcome.err.contains(needle), "{line}: {}", outcome.err);
    }
    assert!(!place.path("other").exists());
}

//! Runs whose numbers leave the range of fp16 or of everything.

use crate::place::{Place, TINY};

#[test]
fn an_absurd_learning_rate_ends_with_a_clear_message() {
    for device in ["emulator", "reference"] {
        let place = Place::new();
        let base = TINY.replace("--steps 3", "--steps 60");
        let run = place.run(&format!("{base} --lr 1e30 --warmup 1 --out run --device {device}"));
        let run = run.refused(1, &["the run diverged: 40 updates in a row were not finite", "smaller --lr"]);
        assert!(run.err.contains("skipped: not finite at loss scale 256"), "{}", run.err);
        let lines = place.metrics("run");
        let skipped: Vec<bool> = lines.iter().map(|l| l["skipped"].as_bool().unwrap()).collect();
        assert_eq!(skipped.iter().filter(|s| **s).count(), 40, "{device}: {skipped:?}");
        assert!(skipped[skipped.len() - 40..].iter().all(|s| *s));
        // What is not finite is null. The loss may still be finite where a gradient no longer is.
        assert!(lines.last().unwrap()["grad_norm"].is_null(), "{}", lines.last().unwrap());
        // What was done is saved, and can be loaded.
        let resumed = place.run("train --resume --out run --steps 41").ok();
        assert!(resumed.out.contains("40 updates were skipped"), "{}", resumed.out);
    }
}

#[test]
fn an_overflow_is_skipped_and_counted_and_the_scale_recovers() {
    let place = Place::new();
    place.run(&format!("{TINY} --out seed")).ok();
    // A final gain of 4000: the gradient of the last layer times the scale of 256 is beyond fp16's
    // 65504.
    let mut file = place.read("seed/step-000003/model.safetensors");
    let gain = file.len() - 16 * 4;
    file[gain..].copy_from_slice(&[4000f32.to_le_bytes(); 16].concat());
    place.write("hot.safetensors", file);
    let line = "train --init hot.safetensors --data ids.u16 --steps 40 --accum 1 --seq 16 --eval-windows 2 --lr 1e-4 --out run";
    let run = place.run(line).ok();
    let lines = place.metrics("run");
    let skipped = lines.iter().filter(|l| l["skipped"] == true).count();
    assert!(skipped > 0, "the test's weights overflow nothing");
    assert_eq!(lines[0]["skipped"], true);
    assert!(lines[skipped..].iter().all(|l| l["skipped"] == false), "one stretch of skips, then none");
    assert!(lines.last().unwrap()["loss_scale"].as_f64().unwrap() < 256.0);
    assert!(lines.last().unwrap()["loss"].is_number());
    assert!(run.err.contains("update     1  skipped: not finite at loss scale 256"), "{}", run.err);
    assert!(run.out.contains(&format!("{skipped} updates were skipped")), "{}", run.out);
}

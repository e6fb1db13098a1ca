//! Random tensors: their distributions, and that a seed repeats.

use super::Case;
use crate::harness::BOTH;

fn draws(line: &str) -> Vec<f64> {
    let [fast, exact] = BOTH.map(|numerics| Case::parse(line).run(numerics).unwrap()[0].values.clone());
    assert_eq!(fast, exact, "{line}");
    fast
}

/// Mean and standard deviation.
fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (mean, (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt())
}

/// Within five standard errors: 1 in a million draws of another seed would fail.
fn near(found: f64, wanted: f64, deviation: f64, n: usize) {
    let room = 5.0 * deviation / (n as f64).sqrt();
    assert!((found - wanted).abs() < room, "{found} is not within {room} of {wanted}");
}

const N: usize = 20_000;

#[test]
fn the_generator_is_splitmix64() {
    // The first outputs for the seed 0 are 0xe220a8397b1dcdaf and 0x6e789e6aa1b965f4 in every
    // published implementation.
    let found = draws("random_uniform ios15 shape=int32[2]:1,2 low=fp32:0 high=fp32:1 seed=int32:0");
    let wanted = [0xe220_a839_7b1d_cdaf_u64, 0x6e78_9e6a_a1b9_65f4]
        .map(|v| f64::from(((v >> 11) as f64 / 2f64.powi(53)) as f32));
    assert_eq!(found, wanted);
}

#[test]
fn distributions() {
    let shape = format!("shape=int32[2]:2,{}", N / 2);
    let uniform = draws(&format!("random_uniform ios15 {shape} low=fp32:-2 high=fp32:4 seed=int32:7"));
    assert!(uniform.iter().all(|v| (-2.0..4.0).contains(v)));
    near(moments(&uniform).0, 1.0, 6.0 / 12f64.sqrt(), N);
    let normal = draws(&format!("random_normal ios15 {shape} mean=fp32:3 stddev=fp32:0.5 seed=int32:7"));
    let (mean, deviation) = moments(&normal);
    near(mean, 3.0, 0.5, N);
    // The standard error of a deviation is σ/√(2n).
    near(deviation, 0.5, 0.5, 2 * N);
    let within = normal.iter().filter(|v| (*v - 3.0).abs() < 0.5).count() as f64 / N as f64;
    near(within, 0.682_689, 0.466, N);
    let coins = draws(&format!("random_bernoulli ios15 {shape} prob=fp32:0.2 seed=int32:1"));
    assert!(coins.iter().all(|v| *v == 0.0 || *v == 1.0));
    near(moments(&coins).0, 0.2, 0.4, N);
}

#[test]
fn classes_come_by_their_shares() {
    let share =
        |values: &[f64], class: f64| values.iter().filter(|v| **v == class).count() as f64 / values.len() as f64;
    let line =
        format!("random_categorical ios15 x=fp32[2,3]:1,0,3,1,1,2 mode=string:probs size=int32:{N} seed=int32:3");
    let found = draws(&line);
    near(share(&found[..N], 0.0), 0.25, 0.433, N);
    assert_eq!(share(&found[..N], 1.0), 0.0);
    near(share(&found[N..], 2.0), 0.5, 0.5, N);
    // Logits 0, ln 3: shares 1/4 and 3/4; large ones do not overflow.
    let line = format!("random_categorical ios15 x=fp32[1,2]:1000,1001.0986 size=int32:{N} seed=int32:3");
    near(share(&draws(&line), 1.0), 0.75, 0.433, N);
}

#[test]
fn seeds() {
    let line = |seed: i32| format!("random_normal ios15 shape=int32[1]:8 mean=fp32:0 stddev=fp32:1 seed=int32:{seed}");
    assert_eq!(draws(&line(5)), draws(&line(5)));
    assert_ne!(draws(&line(5)), draws(&line(6)));
    assert_eq!(draws(&line(-1)), draws(&line(-1)));
}

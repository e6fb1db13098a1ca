//! Fits the model of placement to published placements and reports its errors on those that are
//! held out.
//!
//! ```sh
//! cargo run -p ferrane-machine --example fit_placement             # numbers to standard output
//! cargo run -p ferrane-machine --example fit_placement -- --write  # and to data/placement/fitted.toml and docs/
//! ```
//!
//! The fit minimizes the mean over the fitted cases of the logarithmic loss of an op, and the
//! squared distance of each number's logarithm from its starting value in units of that value's
//! uncertainty. It is a coordinate descent with shrinking steps, so the same cases give the same
//! numbers to the last digit. Held-out cases are placed once, after the fit.
#![allow(clippy::print_stdout)]

use std::fmt::Write as _;
use std::path::Path;

use ferrane_machine::cost::published::median;
use ferrane_machine::placement::{
    FirstLoad, FittedPreference, PlacementEvaluation, PreferenceModel, PreparedPlacement, Processor, PublishedLoad,
    PublishedPlacements,
};

type FitError = Box<dyn std::error::Error>;

/// Starting values and their uncertainty as a factor. The entry is the dispatch with its two
/// crossings (benchmarks §15.1, §15.5). The steepness says that the framework's estimates are met
/// within a factor of about two, which is how far the two published sets of its rates agree.
const START: [(f64, f64); 3] = [(0.5, 2.0), (0.05, 10.0), (3.0, 1.5)];
/// The weight of the starting values, relative to one case.
const WEIGHT: f64 = 0.25;
/// The smallest probability that the loss distinguishes.
const FLOOR: f64 = 0.01;

fn with(values: &[f64], shares: [f64; 2]) -> FittedPreference {
    FittedPreference {
        entry_ms: values[0].exp(),
        attention_share: values[1].exp(),
        steepness: values[2].exp(),
        off_share: shares[0],
        on_share: shares[1],
    }
}

fn loss(cases: &[&PreparedPlacement], model: &PreferenceModel, values: &[f64]) -> f64 {
    let one = |case: &&PreparedPlacement| {
        let placement = case.place(model);
        let share = case.engine_share();
        let ops = placement.ops.iter().enumerate().map(|(i, op)| {
            let p = op.engine_probability.unwrap_or(0.5).clamp(FLOOR, 1.0 - FLOOR);
            let on = case.published[i].map_or(share, |on| f64::from(u8::from(on)));
            -(on * p.ln() + (1.0 - on) * (1.0 - p).ln())
        });
        ops.sum::<f64>() / placement.ops.len().max(1) as f64
    };
    let far = START.iter().zip(values).map(|((start, factor), v)| ((v - start.ln()) / factor.ln()).powi(2));
    cases.iter().map(one).sum::<f64>() + WEIGHT * far.sum::<f64>()
}

/// The shares of ops that stay off the engine if they are not eligible, and that run on it if they
/// are and the run as a whole does, over the fitted cases that place each op. One success and one
/// failure are added to each.
fn shares(cases: &[&PreparedPlacement], model: &PreferenceModel) -> [f64; 2] {
    let (mut off, mut on) = ([1.0, 2.0], [1.0, 2.0]);
    for case in cases {
        for (op, published) in case.place(model).ops.iter().zip(&case.published) {
            let Some(published) = published else { continue };
            if op.ineligible.is_some() {
                off = [off[0] + f64::from(u8::from(!published)), off[1] + 1.0];
            } else if op.runs_on == Some(Processor::Engine) {
                on = [on[0] + f64::from(u8::from(*published)), on[1] + 1.0];
            }
        }
    }
    [off[0] / off[1], on[0] / on[1]]
}

fn fit(cases: &[&PreparedPlacement], model: &mut PreferenceModel) {
    let mut values: Vec<f64> = START.iter().map(|(start, _)| start.ln()).collect();
    let mut steps: Vec<f64> = START.iter().map(|(_, factor)| factor.ln()).collect();
    let mut at = |values: &[f64]| {
        model.fitted = with(values, [0.95, 0.95]);
        loss(cases, model, values)
    };
    let mut best = at(&values);
    for _ in 0..60 {
        for i in 0..values.len() {
            let here = values[i];
            let mut moved = false;
            for direction in [1.0, -1.0] {
                values[i] = here + direction * steps[i];
                let loss = at(&values);
                if loss < best {
                    (best, moved) = (loss, true);
                    break;
                }
                values[i] = here;
            }
            steps[i] *= if moved { 1.3 } else { 0.6 };
        }
        if steps.iter().all(|s| *s < 1e-3) {
            break;
        }
    }
    model.fitted = with(&values, [0.95, 0.95]);
    model.fitted = with(&values, shares(cases, model));
}

fn main() -> Result<(), FitError> {
    let write = std::env::args().nth(1).is_some_and(|a| a == "--write");
    let mut model = PreferenceModel::core_ml().ok_or("the built-in model is damaged")?.clone();
    let cases = PublishedPlacements::built_in()?.prepare()?;
    fit(&cases.iter().filter(|c| !c.held_out).collect::<Vec<_>>(), &mut model);
    let f = model.fitted;
    let mut text = String::from(
        "# Fitted to published placements. Written by `examples/fit_placement`; do not edit. Errors: docs/placement.md.\n",
    );
    let numbers = [
        ("entry_ms", f.entry_ms),
        ("attention_share", f.attention_share),
        ("steepness", f.steepness),
        ("off_share", f.off_share),
        ("on_share", f.on_share),
    ];
    for (name, value) in numbers {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name} = {value:.4}");
    }
    // The numbers as they are stored.
    model.fitted = toml::from_str(&text)?;
    let evaluation = PlacementEvaluation::of(&cases, &model);
    let loads = FirstLoad::left_out();
    let inside = |(load, p): &&(&PublishedLoad, FirstLoad)| (p.range[0]..=p.range[1]).contains(&load.seconds);
    let (count, within) = (loads.len(), loads.iter().filter(inside).count());
    let median = median(loads.iter().map(|(load, p)| (p.seconds / load.seconds).ln().abs()).collect());
    println!("{text}\n{}\n{}", evaluation.summary(), evaluation.cases());
    println!("first load: {count} times, median error a factor of {:.2}, {within} in the range", median.exp());
    if write {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        std::fs::write(here.join("data/placement/fitted.toml"), &text)?;
        let page = include_str!("page.md")
            .replace("{summary}\n", &evaluation.summary())
            .replace("{cases}\n", &evaluation.cases())
            .replace("{fitted}", &text)
            .replace("{load_count}", &count.to_string())
            .replace("{load_median}", &format!("{:.1}", median.exp()))
            .replace("{load_within}", &within.to_string());
        std::fs::write(here.join("../../docs/placement.md"), page)?;
    }
    Ok(())
}

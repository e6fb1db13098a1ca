//! Fits the constants of the cost model to published kernel rows. It is an example and no chore of
//! `xtask`, because every chore would then have to build this crate first.
//!
//! ```sh
//! cargo run -p ferrane-machine --example fit_cost -- published.json            # constants and errors to standard output
//! cargo run -p ferrane-machine --example fit_cost -- published.json --write    # and to data/cost/fitted.toml and docs/
//! ```
//!
//! The fit minimizes two sums: the absolute errors of the logarithm of the time, and the squared
//! distance of each constant's logarithm from its published starting value, in units of that
//! value's uncertainty. The replicates of a configuration count as one time, their lower quartile,
//! with the root of their number as its weight: a busy or cold machine can only make a run longer
//! (benchmarks §16). The fit is a coordinate descent with shrinking steps and uses no random
//! numbers, so the same rows give the same constants to the last digit.
//!
//! Cross-validation leaves out one configuration at a time, with all its replicates: once on its
//! chip, and once on all chips together, which also measures how well a chip is predicted from the
//! others.
#![allow(clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use ferrane_machine::cost::published::{
    ConvChain, ErrorSummary, KernelRow, kernel_rows, quantile, records, scatter_svg, summarize,
};
use ferrane_machine::cost::{Constants, CostModel};

type FitError = Box<dyn std::error::Error>;

/// Starting values of the constants of shape. They are not published directly: the ramp is the one
/// between 8 and 2000 MFLOP a layer (benchmarks §3, int8 §1), the gain is from int8 §1, the rate at
/// 4096 channels and the rise of the rate with the size of the weights from benchmarks §4; the
/// hidden time is an order of magnitude.
const SHAPE: &str = "[shared]\n\
    ramp_mflop = { value = 1000.0, source = 'start' }\nramp_power = { value = 0.08, source = 'start' }\n\
    int8_gain = { value = 1.88, source = 'start' }\nbuffer_mb = { value = 0.8, source = 'start' }\n\
    alias_gb_s = { value = 35.0, source = 'start' }\nstream_power = { value = 0.1, source = 'start' }\n\
    hidden_us = { value = 20.0, source = 'start' }\n";

/// The quantile of a configuration's replicates that is fitted.
const QUANTILE: f64 = 0.25;
/// The weight of the starting values relative to the rows.
const WEIGHT: f64 = 0.1;

/// The weight of a row that took longer than predicted, relative to one that took less. Rows are
/// averages over runs that a busy or cold machine can only make longer (benchmarks §16: the best of
/// N counts).
const SLOW: f64 = 0.7;

/// A constant that the fit may change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ConstantName {
    Shared(&'static str),
    Rate(String),
    Dispatch(String),
    Stream(String),
    Hidden(String),
}

/// A constant with its starting value and the uncertainty of that value, both as logarithms.
struct Variable {
    name: ConstantName,
    start: f64,
    spread: f64,
}

/// The time of a configuration that is fitted, and its weight.
struct Target<'a> {
    chip: &'a str,
    shape: ConvChain,
    ms: f64,
    weight: f64,
}

/// The variables, and the models that use them.
struct Fit {
    variables: Vec<Variable>,
    chips: BTreeMap<String, CostModel>,
}

impl Fit {
    fn new(chips: &BTreeSet<String>) -> Result<Fit, FitError> {
        let models = chips.iter().map(|c| Ok((c.clone(), CostModel { constants: Constants::before_fit(SHAPE, c)? })));
        let chips: BTreeMap<String, CostModel> = models.collect::<Result<_, FitError>>()?;
        let mut variables = Vec::new();
        let mut add =
            |name: ConstantName, value: f64, spread: f64| variables.push(Variable { name, start: value.ln(), spread });
        let mut families = BTreeSet::new();
        for (i, (chip, model)) in chips.iter().enumerate() {
            let c = &model.constants;
            if i == 0 {
                add(ConstantName::Shared("ramp_mflop"), c.ramp_mflop.value, 1.0);
                add(ConstantName::Shared("ramp_power"), c.ramp_power.value, 0.7);
                add(ConstantName::Shared("int8_gain"), c.int8_gain.value, 0.1);
                add(ConstantName::Shared("buffer_mb"), c.buffer_mb.value, 0.5);
                add(ConstantName::Shared("alias_gb_s"), c.alias_gb_s.value, 0.35);
                add(ConstantName::Shared("stream_power"), c.stream_power.value, 0.7);
            }
            if families.insert(c.family.clone()) {
                add(ConstantName::Rate(c.family.clone()), c.rate_tflops.value, 0.2);
            }
            add(ConstantName::Dispatch(chip.clone()), c.dispatch_us.value, 0.4);
            add(ConstantName::Stream(chip.clone()), c.stream_gb_s.value, 0.25);
            add(ConstantName::Hidden(chip.clone()), c.hidden_us.value, 2.0);
        }
        Ok(Fit { variables, chips })
    }

    fn set(&mut self, values: &[f64]) {
        for (variable, value) in self.variables.iter().zip(values) {
            let value = value.exp();
            for (chip, model) in &mut self.chips {
                let c = &mut model.constants;
                match &variable.name {
                    ConstantName::Shared("ramp_mflop") => c.ramp_mflop.value = value,
                    ConstantName::Shared("ramp_power") => c.ramp_power.value = value,
                    ConstantName::Shared("int8_gain") => c.int8_gain.value = value,
                    ConstantName::Shared("buffer_mb") => c.buffer_mb.value = value,
                    ConstantName::Shared("alias_gb_s") => c.alias_gb_s.value = value,
                    ConstantName::Shared(_) => c.stream_power.value = value,
                    ConstantName::Rate(family) if *family == c.family => c.rate_tflops.value = value,
                    ConstantName::Dispatch(own) if own == chip => c.dispatch_us.value = value,
                    ConstantName::Stream(own) if own == chip => c.stream_gb_s.value = value,
                    ConstantName::Hidden(own) if own == chip => c.hidden_us.value = value,
                    _ => {}
                }
            }
        }
    }

    fn ms(&self, row: &KernelRow) -> Option<f64> {
        row.shape.ms(self.chips.get(&row.chip)?)
    }

    fn ms_of(&self, target: &Target<'_>) -> Option<f64> {
        target.shape.ms(self.chips.get(target.chip)?)
    }

    fn loss(&mut self, values: &[f64], targets: &[Target<'_>]) -> f64 {
        self.set(values);
        let errors = targets.iter().filter_map(|target| {
            let error = (self.ms_of(target)? / target.ms).ln();
            Some(target.weight * if error > 0.0 { error } else { -error * SLOW })
        });
        let far = self.variables.iter().zip(values).map(|(v, value)| ((value - v.start) / v.spread).powi(2));
        errors.sum::<f64>() + WEIGHT * far.sum::<f64>()
    }

    /// Fits the rows. The models keep the result.
    fn run(&mut self, rows: &[&KernelRow]) -> Vec<f64> {
        let mut replicates: BTreeMap<(&str, ConvChain), Vec<f64>> = BTreeMap::new();
        for row in rows {
            replicates.entry((&row.chip, row.shape)).or_default().push(row.ms);
        }
        let weighted: Vec<Target<'_>> = replicates
            .into_iter()
            .map(|((chip, shape), times)| {
                let weight = (times.len() as f64).sqrt();
                Target { chip, shape, ms: quantile(times, QUANTILE), weight }
            })
            .collect();
        let mut values: Vec<f64> = self.variables.iter().map(|v| v.start).collect();
        let mut steps: Vec<f64> = self.variables.iter().map(|v| v.spread).collect();
        let mut best = self.loss(&values, &weighted);
        for _ in 0..400 {
            for i in 0..values.len() {
                let at = values[i];
                let mut moved = false;
                for direction in [1.0, -1.0] {
                    values[i] = at + direction * steps[i];
                    let loss = self.loss(&values, &weighted);
                    if loss < best {
                        (best, moved) = (loss, true);
                        break;
                    }
                    values[i] = at;
                }
                steps[i] *= if moved { 1.3 } else { 0.6 };
            }
            if steps.iter().all(|s| *s < 1e-5) {
                break;
            }
        }
        self.set(&values);
        values
    }
}

/// Predictions for each row from a fit without its configuration: on its chip, or with `together`
/// on all chips.
fn left_out(rows: &[KernelRow], chips: &BTreeSet<String>, together: bool) -> Result<Vec<f64>, FitError> {
    let key = |row: &KernelRow| (if together { String::new() } else { row.chip.clone() }, row.shape);
    let keys: BTreeSet<_> = rows.iter().map(key).collect();
    let mut predicted = vec![0.0; rows.len()];
    for out in keys {
        let mut fit = Fit::new(chips)?;
        fit.run(&rows.iter().filter(|r| key(r) != out).collect::<Vec<_>>());
        for (row, ms) in rows.iter().zip(&mut predicted).filter(|(r, _)| key(r) == out) {
            *ms = fit.ms(row).ok_or("a size overflows")?;
        }
    }
    Ok(predicted)
}

/// The errors of predictions, row by row.
fn errors(rows: &[KernelRow], predicted: &[f64], wanted: impl Fn(&KernelRow) -> bool) -> ErrorSummary {
    let kept: Vec<KernelRow> = rows.iter().filter(|r| wanted(r)).cloned().collect();
    // All replicates of a configuration have one prediction.
    let of: BTreeMap<_, f64> = rows.iter().zip(predicted).map(|(r, ms)| ((r.chip.as_str(), r.shape), *ms)).collect();
    summarize(&kept, |row| of.get(&(row.chip.as_str(), row.shape)).copied())
}

fn constants(fit: &Fit, values: &[f64]) -> String {
    let mut text = String::from(
        "# Constants fitted to the published kernel rows. Written by `examples/fit_cost`; do not edit.\n\
         # Names and units: `Constants` in `src/cost/constants.rs`. Error: docs/cost-model.md.\n",
    );
    let mut section = |head: &str, lines: Vec<(&str, f64)>| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "\n[{head}]");
        for (name, value) in lines {
            let _ = writeln!(text, "{name} = {{ value = {:.4}, source = \"fit\" }}", value.exp());
        }
    };
    let pairs = || fit.variables.iter().map(|v| &v.name).zip(values.iter().copied());
    section(
        "shared",
        pairs().filter_map(|(n, v)| if let ConstantName::Shared(s) = n { Some((*s, v)) } else { None }).collect(),
    );
    for (name, value) in pairs() {
        if let ConstantName::Rate(family) = name {
            section(&format!("family.{family}"), vec![("rate_tflops", value)]);
        }
    }
    for chip in fit.chips.keys() {
        let own = pairs().filter_map(|(name, value)| match name {
            ConstantName::Dispatch(c) if c == chip => Some(("dispatch_us", value)),
            ConstantName::Stream(c) if c == chip => Some(("stream_gb_s", value)),
            ConstantName::Hidden(c) if c == chip => Some(("hidden_us", value)),
            _ => None,
        });
        section(&format!("chip.{chip}"), own.collect());
    }
    text
}

/// Median and 90th percentile.
fn pair(median: f64, p90: f64) -> String {
    format!("{:.1} / {:.0} %", 100.0 * median, 100.0 * p90)
}

/// A table over rows, or over configurations, with a line for each chip.
fn table(columns: &[(&str, &ErrorSummary)], configurations: bool) -> String {
    let mut text = format!("| chip | {} |", if configurations { "configurations" } else { "rows" });
    for (name, _) in columns {
        let _ = write!(text, " {name} |");
    }
    text.push_str(if configurations { "\n|---|---|" } else { " noise | spread |\n|---|---|---|---|" });
    text.push_str(&"---|".repeat(columns.len()));
    text.push('\n');
    let first = columns[0].1;
    for chip in first.chips.keys().map(Some).chain([None]) {
        let of = |s: &ErrorSummary| chip.map_or(s.pooled, |c| s.chips[c]);
        let own = of(first);
        let count = if configurations { own.configurations } else { own.rows };
        let _ = write!(text, "| {} | {count} |", chip.map_or("all", String::as_str));
        for (_, summary) in columns {
            let e = of(summary);
            let (median, p90) = if configurations { (e.typical_median, e.typical_p90) } else { (e.median, e.p90) };
            let _ = write!(text, " {} |", pair(median, p90));
        }
        if !configurations {
            let noise = own.noise.map_or("none".into(), |n| format!("{:.1} %", 100.0 * n));
            let _ = write!(text, " {noise} | {:.0} % |", 100.0 * own.spread_p90);
        }
        text.push('\n');
    }
    text
}

fn main() -> Result<(), FitError> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("usage: fit_cost PUBLISHED.json [--write]")?;
    let write = arguments.next().is_some_and(|a| a == "--write");
    let rows = kernel_rows(&records(&std::fs::read_to_string(&file)?)?);
    let chips: BTreeSet<String> = rows.iter().map(|r| r.chip.clone()).collect();
    let mut fit = Fit::new(&chips)?;
    let values = fit.run(&rows.iter().collect::<Vec<_>>());
    let predicted: Vec<f64> = rows.iter().filter_map(|r| fit.ms(r)).collect();
    let (own, all) = (left_out(&rows, &chips, false)?, left_out(&rows, &chips, true)?);
    let any = |_: &KernelRow| true;
    let columns = [
        ("fitted", &errors(&rows, &predicted, any)),
        ("left out on its chip", &errors(&rows, &own, any)),
        ("left out on every chip", &errors(&rows, &all, any)),
    ];
    let (by_chip, by_configuration) = (table(&columns, false), table(&columns, true));
    let whats: BTreeSet<&str> = rows.iter().map(|r| r.what.as_str()).collect();
    let mut by_kind =
        String::from("| benchmark | rows | fitted | left out on its chip | noise |\n|---|---|---|---|---|\n");
    let percent = |e: f64| format!("{:.1} %", 100.0 * e);
    for what in whats {
        let (f, o) = (errors(&rows, &predicted, |r| r.what == what), errors(&rows, &own, |r| r.what == what));
        let (f, o) = (f.pooled, o.pooled);
        let noise = f.noise.map_or("none".into(), percent);
        let (fitted, out) = (pair(f.median, f.p90), pair(o.median, o.p90));
        let _ = writeln!(by_kind, "| {what} | {} | {fitted} | {out} | {noise} |", f.rows);
    }
    let plain = errors(&rows, &own, |r| r.structured);
    let constants = constants(&fit, &values);
    println!("{constants}\n{by_chip}\n{by_configuration}\n{by_kind}");
    println!("rows with channels and positions as numbers: {} of {}", percent(plain.pooled.median), plain.pooled.rows);
    println!("{}", table(&[("left out, numbers only", &plain)], false));
    if std::env::var_os("FIT_ROWS").is_some() {
        for (row, ms) in rows.iter().zip(&predicted) {
            println!(
                "{} {:?} {} {:.3} {:.3} {:+.0} %",
                row.chip,
                row.shape,
                row.what,
                row.ms,
                ms,
                100.0 * (ms / row.ms - 1.0)
            );
        }
    }
    if write {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        std::fs::write(here.join("data/cost/fitted.toml"), &constants)?;
        let docs = here.join("../../docs");
        let points: Vec<_> = rows.iter().zip(&own).map(|(r, ms)| (r.chip.as_str(), r.ms, *ms)).collect();
        std::fs::write(docs.join("cost-model.svg"), scatter_svg(&points))?;
        let page = include_str!("page.md");
        let page = page
            .replace("{by_chip}", &by_chip)
            .replace("{by_configuration}", &by_configuration)
            .replace("{by_kind}", &by_kind)
            .replace("{constants}", &constants);
        std::fs::write(docs.join("cost-model.md"), page)?;
    }
    Ok(())
}

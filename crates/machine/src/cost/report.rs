//! Costs and comparisons as text and as JSON.

use std::fmt;

use serde_json::{Map, Value, json};

use super::model::{Cost, CostModel};
use super::published::{ChipError, Comparison, ErrorSummary};

impl Cost {
    /// The cost as JSON, with the constants of the model that predicted it.
    pub fn json(&self, model: &CostModel) -> Value {
        let cost = self;
        let ops: Vec<Value> = cost
            .ops
            .iter()
            .map(|op| {
                json!({
                    "name": op.name, "op": op.op, "us": op.us, "bound": op.bound.map(|b| b.name()), "flops": op.flops,
                    "bytes_weights": op.bytes_weights, "bytes_in": op.bytes_in, "bytes_out": op.bytes_out,
                })
            })
            .collect();
        let constants: Map<String, Value> = model
            .constants
            .all()
            .into_iter()
            .map(|(name, c)| (name.to_string(), json!({"value": c.value, "source": c.source})))
            .collect();
        json!({
            "chip": cost.chip, "compile_ms": cost.compile_ms, "cached_compile_ms": cost.cached_compile_ms,
            "load_ms": cost.load_ms, "first_us": cost.first_us, "in_flight_us": cost.in_flight_us,
            "dispatch_us": cost.dispatch_us, "hidden_us": cost.hidden_us, "total_us": cost.total_us,
            "bound": cost.bound.name(), "energy_mj": cost.energy_mj, "flops": cost.flops,
            "bytes": cost.bytes, "ops": ops, "constants": constants,
        })
    }
}

impl fmt::Display for Cost {
    /// The ops with their times, then the totals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cost = self;
        writeln!(f, "{:>10}  {:<8} {:<28} {:>10} {:>10}  name", "us", "bound", "op", "MFLOP", "MB")?;
        let mut free = 0;
        for op in &cost.ops {
            let Some(bound) = op.bound else {
                free += 1;
                continue;
            };
            let bytes = [op.bytes_weights, op.bytes_in, op.bytes_out].iter().fold(0u64, |n, b| n.saturating_add(*b));
            writeln!(
                f,
                "{:>10.2}  {:<8} {:<28} {:>10.2} {:>10.3}  {}",
                op.us,
                bound.name(),
                op.op,
                op.flops as f64 / 1e6,
                bytes as f64 / 1e6,
                op.name
            )?;
        }
        if free > 0 {
            writeln!(f, "{free} more ops take no time: views, and what another op carries out")?;
        }
        writeln!(f, "{:>10.2}  dispatch", cost.dispatch_us)?;
        if cost.hidden_us > 0.0 {
            writeln!(f, "{:>10.2}  of the ops pass during the dispatch", -cost.hidden_us)?;
        }
        let rate = cost.flops as f64 / cost.total_us / 1e6;
        writeln!(
            f,
            "{:>10.2}  an evaluation on {}, bound by {} ({rate:.2} TFLOPS)",
            cost.total_us,
            cost.chip,
            cost.bound.name()
        )?;
        writeln!(f, "{:>10.2}  the first evaluation", cost.first_us)?;
        writeln!(f, "{:>10.2}  each with two requests in flight", cost.in_flight_us)?;
        let (compile, cached) = (cost.compile_ms, cost.cached_compile_ms);
        writeln!(f, "compile {compile:.1} ms, once; from a cache {cached:.1} ms; load {:.1} ms", cost.load_ms)?;
        match cost.energy_mj {
            Some(energy) => writeln!(f, "energy {energy:.3} mJ an evaluation"),
            None => writeln!(f, "energy unknown: no power is published for {}", cost.chip),
        }
    }
}

impl Comparison {
    /// The comparison as JSON: a row for each record, and the errors over kernel rows.
    pub fn json(&self) -> Value {
        let report = self;
        let rows: Vec<Value> = report
        .rows
        .iter()
        .map(|row| match &row.outcome {
            Ok(p) => json!({
                "record": row.record, "published": p.published, "predicted": p.predicted, "unit": p.unit, "error": p.error(),
            }),
            Err(why) => json!({"record": row.record, "reason": why.reason}),
        })
        .collect();
        json!({"rows": rows, "kernels": summary(&report.kernels)})
    }
}

fn summary(summary: &ErrorSummary) -> Value {
    let one = |e: &ChipError| {
        json!({
            "rows": e.rows, "median_error": e.median, "p90_error": e.p90, "noise": e.noise, "p90_spread": e.spread_p90,
            "configurations": e.configurations, "median_error_typical": e.typical_median,
            "p90_error_typical": e.typical_p90,
        })
    };
    let chips: Map<String, Value> = summary.chips.iter().map(|(chip, e)| (chip.clone(), one(e))).collect();
    json!({"pooled": one(&summary.pooled), "chips": chips})
}

impl fmt::Display for Comparison {
    /// A table of the predictions, the reasons for those that are missing, and the errors by chip.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self;
        let text = |record: &Value, key: &str| record.get(key).and_then(Value::as_str).unwrap_or("").to_string();
        let mut reasons: Vec<(&str, usize)> = Vec::new();
        writeln!(f, "{:>12} {:>12} {:>8}  unit", "published", "predicted", "error")?;
        for row in &report.rows {
            match &row.outcome {
                Ok(p) => {
                    let error = p.error().map_or(String::new(), |e| format!("{:+.1} %", 100.0 * e));
                    let (r, config) = (&row.record, row.record.get("config").map(Value::to_string).unwrap_or_default());
                    let named = format!("{}, {}, {} {config}", text(r, "chip"), text(r, "what"), text(r, "metric"));
                    let (a, b, unit) = (p.published, p.predicted, &p.unit);
                    writeln!(f, "{a:>12.4} {b:>12.4} {error:>8}  {unit:<10} {named}")?;
                }
                Err(why) => match reasons.iter_mut().find(|(known, _)| *known == why.reason) {
                    Some((_, count)) => *count += 1,
                    None => reasons.push((why.reason, 1)),
                },
            }
        }
        let predicted = report.rows.iter().filter(|r| r.outcome.is_ok()).count();
        writeln!(f, "\n{predicted} of {} records predicted; the others:", report.rows.len())?;
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        for (reason, count) in reasons {
            writeln!(f, "{count:>6}  {reason}")?;
        }
        writeln!(
            f,
            "\nmedian error and 90th percentile over kernel rows, the same against each configuration's lower"
        )?;
        writeln!(f, "quartile, and the noise between replicates:")?;
        let all = ("all".to_string(), report.kernels.pooled);
        for (chip, e) in report.kernels.chips.iter().map(|(c, e)| (c.clone(), *e)).chain([all]) {
            let noise = e.noise.map_or("none".to_string(), |n| format!("{:.1} %", 100.0 * n));
            let percent = |error: f64| 100.0 * error;
            writeln!(
                f,
                "{chip:<10} {:>5} rows {:>7.1} % {:>7.1} %   {:>3} configurations {:>7.1} % {:>7.1} %   noise {noise}",
                e.rows,
                percent(e.median),
                percent(e.p90),
                e.configurations,
                percent(e.typical_median),
                percent(e.typical_p90),
            )?;
        }
        Ok(())
    }
}

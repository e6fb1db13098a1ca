//! `ferrane bench step --sweep tokens|layers`: whether the cost of a step grows in a straight line.
//!
//! The same step is measured at eighths of the window or of the model's layers, and a line is laid
//! through the medians. What grows faster than the window is attention, whose scores are as many as
//! its square; the line's worst deviation shows how much it is.

use ferrane::llm::config::Config;
use serde_json::{Value, json};

use super::fit::{self, Line};
use super::measure::{Spread, round, short};
use super::{machine, plot, step};
use crate::args::{BenchStep, Sweep};
use crate::error::Result;
use crate::out;

/// Runs the command.
pub fn run(args: &BenchStep, what: Sweep, config: &Config, active: usize) -> Result<()> {
    let (name, unit, most) = match what {
        Sweep::Tokens => ("tokens", "token", args.seq),
        Sweep::Layers => ("layers", "layer", config.layers),
    };
    let mut points = Vec::new();
    for n in eighths(most) {
        let (layers, seq) = match what {
            Sweep::Tokens => (config.layers, n),
            Sweep::Layers => (n, args.seq),
        };
        let steps = step::steps(args, &Config { layers, ..config.clone() }, seq, active, None)?;
        if !args.json {
            let (micro, update) = (steps.micro.text("ms"), steps.update.text("ms"));
            out::line(format_args!("{n:6} {name}: micro-step {micro}, update {update}"))?;
        }
        points.push((n, steps.micro, steps.update));
    }
    let line = |of: &dyn Fn(&(usize, Spread, Spread)) -> f64| {
        fit::line(&points.iter().map(|p| (p.0 as f64, of(p))).collect::<Vec<_>>())
    };
    let fits = [("micro-step", line(&|p| p.1.median())), ("update", line(&|p| p.2.median()))];
    if let Some(path) = &args.plot {
        let fixed = match what {
            Sweep::Tokens => format!("{} layers", config.layers),
            Sweep::Layers => format!("{} tokens", args.seq),
        };
        let title = format!("Forward and backward of {}, {fixed}, on {}", args.model, args.device.device);
        let drawn: Vec<_> =
            points.iter().map(|(n, micro, _)| (*n as f64, micro.median(), micro.lowest(), micro.highest())).collect();
        plot::sweep(path, &title, name, &drawn, fits[0].1)?;
    }
    if args.json {
        let spread = |s: &Spread| Value::Object(s.json("ms"));
        let point = |(n, micro, update): &(usize, Spread, Spread)| json!({name: n, "micro_step": spread(micro), "update": spread(update)});
        let fit = |line: Option<Line>| match line {
            None => Value::Null,
            Some(l) => json!({
                "fixed_ms": round(l.fixed), format!("ms_per_{unit}"): round(l.slope), "r2": l.r2,
                "worst_deviation": round(l.worst),
            }),
        };
        return out::line(json!({
            "model": args.model, "device": args.device.device, "vocab": active, "sweep": name,
            "points": points.iter().map(point).collect::<Vec<_>>(), "micro_step_fit": fit(fits[0].1),
            "update_fit": fit(fits[1].1), "machine": machine::describe(),
        }));
    }
    for (what, line) in fits {
        let Some(line) = line else { continue };
        let (fixed, slope) = (short(line.fixed), short(line.slope));
        out::line(format_args!(
            "{what}: {fixed} ms + {slope} ms a {unit}, R² {:.4}, worst deviation {:.1} %",
            line.r2,
            100.0 * line.worst
        ))?;
    }
    if let Some(path) = &args.plot {
        out::line(format_args!("written to {}", path.display()))?;
    }
    Ok(())
}

/// Up to eight sizes, evenly spaced, the last of which is all.
fn eighths(most: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> = (1..=8).map(|i| (most * i).div_ceil(8)).collect();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::eighths;

    #[test]
    fn sizes_end_with_all() {
        assert_eq!(eighths(256), [32, 64, 96, 128, 160, 192, 224, 256]);
        assert_eq!(eighths(12), [2, 3, 5, 6, 8, 9, 11, 12]);
        assert_eq!((eighths(5), eighths(1)), (vec![1, 2, 3, 4, 5], vec![1]));
    }
}

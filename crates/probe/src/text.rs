//! Reports as text.

use std::fmt;

use serde_json::Value;

use crate::{Answer, DoctorReport, Probe, ProbeCost, Verdict};

/// A value without quotes.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// The spread of a time; anything else as JSON has it.
fn spread(value: &Value) -> String {
    match (value.get("least"), value.get("median")) {
        (Some(least), Some(median)) => format!("{median} ms ({least} at best)"),
        _ => plain(value),
    }
}

impl fmt::Display for Answer {
    /// The measured values with the claims that they decide, a line each; without values, the
    /// raw numbers. Questions that stay open have a line with the reason.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        if self.values.is_empty() && self.raw.is_empty() && self.open.is_none() {
            writeln!(f, "{name:17} measured")?;
        }
        for (key, value) in &self.values {
            let about = |verdict: Verdict, word: &str| {
                let ids = self.judged(key, verdict);
                if ids.is_empty() { String::new() } else { format!("  {word} {}", ids.join(", ")) }
            };
            let (agrees, contradicts) = (about(Verdict::Agrees, "as"), about(Verdict::Contradicts, "against"));
            writeln!(f, "{name:17} {key} = {}{agrees}{contradicts}", plain(value))?;
        }
        if self.values.is_empty() {
            self.raw.iter().try_for_each(|(key, value)| writeln!(f, "{name:17} {key}: {}", spread(value)))?;
        }
        self.open.iter().try_for_each(|why| writeln!(f, "{name:17} open: {why}"))
    }
}

impl fmt::Display for Probe {
    /// Name, cost, question and experiments in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cost = match self.cost {
            ProbeCost::Cheap => "",
            ProbeCost::Slow => "slow",
            ProbeCost::Risky => "risky",
        };
        write!(f, "{:17} {cost:6}{}", self.name, self.question)?;
        if self.experiments.is_empty() { Ok(()) } else { write!(f, "  (experiment {})", self.experiments.join(", ")) }
    }
}

impl DoctorReport {
    /// The device, its profile and the computer, as the beginning of a printed report.
    pub fn header(&self) -> impl fmt::Display {
        Header(self)
    }

    /// The totals in one sentence.
    pub fn totals(&self) -> String {
        let counts = self.counts();
        format!(
            "{} probes, {} values; {} claims hold, {} about such machines do not; {} probes left something open",
            counts.probes, counts.values, counts.agree, counts.contradict, counts.open
        )
    }
}

struct Header<'a>(&'a DoctorReport);

impl fmt::Display for Header<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "device     {}", self.0.device)?;
        writeln!(f, "profile    {}", self.0.profile)?;
        for (name, value) in self.0.machine.as_object().into_iter().flatten() {
            match value {
                Value::Array(all) if all.is_empty() => {}
                Value::Array(all) => {
                    writeln!(f, "{name}")?;
                    all.iter().try_for_each(|v| writeln!(f, "    {}", plain(v)))?;
                }
                other => writeln!(f, "{name:10} {}", plain(other))?,
            }
        }
        Ok(())
    }
}

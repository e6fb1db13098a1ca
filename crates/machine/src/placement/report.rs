//! A placement as text.

use std::fmt;

use ferrane_diag::printable;

use super::options::Processor;
use super::record::{PlacedOp, Placement};

fn word(processor: Option<Processor>) -> &'static str {
    processor.map_or("not known", Processor::name)
}

impl fmt::Display for Placement {
    /// The ops with their placements, then segments, transfers and the best change. Names come from
    /// files, so control characters are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.print(&mut text)?;
        f.write_str(&printable(&text))
    }
}

impl Placement {
    fn print(&self, f: &mut impl fmt::Write) -> fmt::Result {
        writeln!(f, "{:>4}  {:<12} {:<12} {:>5}  {:<28} name", "seg", "runs on", "alone", "p", "op")?;
        for op in &self.ops {
            let p = op.probability().map_or("  -".to_string(), |p| format!("{p:.2}"));
            let (runs, alone) = (word(op.runs_on), word(op.preferred));
            write!(f, "{:>4}  {runs:<12} {alone:<12} {p:>5}  {:<28} {}", op.segment, op.op, op.name)?;
            match &op.ineligible {
                Some(reason) => writeln!(f, "  not eligible: {}", reason.message)?,
                None => writeln!(f)?,
            }
        }
        writeln!(f)?;
        for (i, segment) in self.segments.iter().enumerate() {
            let [first, last] = &segment.ends;
            let plural = if segment.ops == 1 { "" } else { "s" };
            write!(f, "segment {i}: {} op{plural} on {}, {first}", segment.ops, word(segment.runs_on))?;
            if segment.ops > 1 {
                write!(f, " to {last}")?;
            }
            match segment.engine_us {
                Some(us) => writeln!(f, ", {us:.1} us")?,
                None => writeln!(f)?,
            }
        }
        for t in &self.transfers {
            let cost = t.us.map_or(String::new(), |us| format!(", {us:.1} us"));
            writeln!(f, "transfer {} -> {}: {} values, {} bytes{cost}", t.from, t.to, t.values, t.bytes)?;
        }
        if let Some(change) = &self.change {
            let ([s0, s1], [t0, t1]) = (change.segments, change.transfers);
            let mut names = change.replace.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
            if change.replace.len() > 3 {
                names += &format!(" and {} more", change.replace.len() - 3);
            }
            writeln!(
                f,
                "best change: replace {names} ({}): {} more ops on the engine, segments {s0} -> {s1}, transfers {t0} -> {t1}",
                change.reason.message, change.regained
            )?;
        }
        if let Some(load) = &self.first_load {
            let [low, high] = load.range;
            writeln!(
                f,
                "first load: about {:.0} s, from {low:.0} to {high:.0} s in four of five cases ({:.0} MB of weights)",
                load.seconds, load.mb
            )?;
        }
        let likely = self.ops.iter().filter(|op| PlacedOp::is_likely(op)).count();
        let known = self.on_engine() + self.off_engine();
        writeln!(
            f,
            "{}, {}, units {}: {} of {} ops on the engine, {} elsewhere, {} not known; {likely} are likely (p >= {})",
            self.machine,
            self.framework,
            self.units,
            self.on_engine(),
            self.ops.len(),
            self.off_engine(),
            self.ops.len() - known,
            PlacedOp::LIKELY,
        )
    }
}

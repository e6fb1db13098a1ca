//! Two placements compared: which ops left the engine, and which came back.

use std::collections::HashMap;
use std::fmt::{self, Write as _};

use ferrane_diag::printable;
use serde::Serialize;

use super::options::Processor;
use super::record::{PlacedOp, Placement};

/// An op whose processor differs between two placements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlacementMove {
    /// The name of the op's first result.
    pub name: String,
    /// The name of the op, as in MIL.
    pub op: String,
    /// Where it ran before; `None` if that is not known.
    pub before: Option<Processor>,
    /// Where it runs after; `None` if that is not known.
    pub after: Option<Processor>,
    /// Why the engine cannot run it after, if so.
    pub why: Option<String>,
}

/// What differs between a placement and a later one. Ops are matched by the name of their first
/// result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlacementDiff {
    /// Ops that were on the engine and are not, or not known to be.
    pub left: Vec<PlacementMove>,
    /// Ops that are on the engine and were not.
    pub returned: Vec<PlacementMove>,
    /// Ops that only the later placement has and that are not on the engine.
    pub added_elsewhere: Vec<PlacementMove>,
    /// The number of segments before and after.
    pub segments: [usize; 2],
    /// The number of ops on the engine before and after.
    pub on_engine: [usize; 2],
}

impl PlacementDiff {
    /// What changed from `before` to `after`, which should be placements of two versions of one
    /// program.
    pub fn between(before: &Placement, after: &Placement) -> PlacementDiff {
        let old: HashMap<&str, &PlacedOp> = before.ops.iter().map(|op| (op.name.as_str(), op)).collect();
        let on = |op: &PlacedOp| op.runs_on == Some(Processor::Engine);
        let mut diff = PlacementDiff {
            left: Vec::new(),
            returned: Vec::new(),
            added_elsewhere: Vec::new(),
            segments: [before.segments.len(), after.segments.len()],
            on_engine: [before.on_engine(), after.on_engine()],
        };
        for op in &after.ops {
            let was = old.get(op.name.as_str()).copied();
            let entry = || PlacementMove {
                name: op.name.clone(),
                op: op.op.clone(),
                before: was.and_then(|w| w.runs_on),
                after: op.runs_on,
                why: op.ineligible.as_ref().map(|r| r.message.clone()),
            };
            match was {
                Some(was) if on(was) && !on(op) => diff.left.push(entry()),
                Some(was) if !on(was) && on(op) => diff.returned.push(entry()),
                None if !on(op) => diff.added_elsewhere.push(entry()),
                _ => {}
            }
        }
        diff
    }

    /// True if the later placement is worse: an op left the engine, a new op does not run there, or
    /// there are more segments.
    pub fn is_regression(&self) -> bool {
        !self.left.is_empty() || !self.added_elsewhere.is_empty() || self.segments[1] > self.segments[0]
    }
}

impl fmt::Display for PlacementDiff {
    /// The ops that moved, then the counts. Names come from files, so control characters are left
    /// out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        let word = |p: Option<Processor>| p.map_or("not known", Processor::name);
        let lists = [("left the engine", &self.left), ("is new", &self.added_elsewhere), ("returned", &self.returned)];
        for (what, list) in lists {
            for m in list {
                write!(text, "{} ({}) {what}: {} -> {}", m.name, m.op, word(m.before), word(m.after))?;
                match &m.why {
                    Some(why) => writeln!(text, ", {why}")?,
                    None => writeln!(text)?,
                }
            }
        }
        let ([s0, s1], [e0, e1]) = (self.segments, self.on_engine);
        writeln!(text, "ops on the engine {e0} -> {e1}, segments {s0} -> {s1}")?;
        f.write_str(&printable(&text))
    }
}

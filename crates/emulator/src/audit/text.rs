//! The report as text: a table of the values, the summary, and the notes.

use std::fmt;

use super::{Audit, AuditRow, Deviation, Note, short};

impl fmt::Display for Audit {
    /// A table of the values, the summary, and the notes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} on {}: {} values against exact", self.function, self.profile, self.rows.len())?;
        let lines = cells(self);
        let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |line: &Vec<String>, i: usize| line.get(i).map_or(0, |c| c.chars().count());
        let widths: Vec<usize> = (0..columns).map(|i| lines.iter().map(|l| cell(l, i)).max().unwrap_or(0)).collect();
        for line in &lines {
            // Numbers are aligned right: the exact magnitude, and the two errors of each
            // arithmetic.
            let is_number = |i: usize| i == 3 || (i > 3 && (i - 4) % 4 < 2);
            let pad = |(i, (c, &w)): (usize, (&String, &usize))| match is_number(i) {
                true => format!("{c:>w$}"),
                false => format!("{c:w$}"),
            };
            let padded: Vec<String> = line.iter().zip(&widths).enumerate().map(pad).filter(|c| !c.is_empty()).collect();
            writeln!(f, "{}", padded.join("  ").trim_end())?;
        }
        writeln!(f)?;
        for sentence in self.summary() {
            writeln!(f, "{sentence}")?;
        }
        for row in self.rows.iter() {
            // Programs have many int8 weights; the summary names those that matter.
            if let Some(note) = row.note.filter(|n| *n != Note::Int8Crop) {
                writeln!(f, "note: {} `{}`: {}", row.op, row.value, note.text())?;
            }
        }
        writeln!(
            f,
            "alone: the op on exact operands rounded to fp16; run: at its place. In fp16 ulps of |exact|'s largest; integers: wrong of all."
        )
    }
}

/// The cells of the table, the head first.
fn cells(found: &Audit) -> Vec<Vec<String>> {
    let mut head = vec!["op".to_string(), "value".into(), "type".into(), "|exact| to".into()];
    for numerics in &found.numerics {
        head.extend([format!("{} alone", numerics.name()), "run".into(), String::new(), String::new()]);
    }
    let mut lines = vec![head];
    for row in &found.rows {
        let mut line = vec![row.op.clone(), row.value.clone(), ty(row), short(row.exact.peak)];
        for (i, reading) in row.readings.iter().enumerate() {
            let local = reading.local.as_ref();
            line.extend([error(row, local), error(row, reading.accumulated.as_ref())]);
            line.extend([mark(found, i, row).to_string(), local.map(counts).unwrap_or_default()]);
        }
        lines.push(line);
    }
    lines
}

/// The mark of a row under one arithmetic: `first`, `parts`, `worst` or nothing.
pub(super) fn mark(found: &Audit, numerics: usize, row: &AuditRow) -> &'static str {
    let same = |other: Option<&AuditRow>| other.is_some_and(|other| std::ptr::eq(other, row));
    if same(found.first(numerics)) {
        "first"
    } else if row.readings.get(numerics).is_some_and(|r| r.cause.is_some()) {
        "parts"
    } else if same(found.worst(numerics)) {
        "worst"
    } else {
        ""
    }
}

/// The counts of a local reading that are not 0.
pub(super) fn counts(d: &Deviation) -> String {
    let all = [(d.overflow, "overflow"), (d.special, "special"), (d.underflow, "to zero"), (d.subnormal, "subnormal")];
    let some: Vec<String> = all.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")).collect();
    some.join(", ")
}

/// The type in MIL's spelling, `fp16[1,4]`.
pub(super) fn ty(row: &AuditRow) -> String {
    let extents: Vec<String> = row.shape.iter().map(usize::to_string).collect();
    format!("{}[{}]", row.dtype, extents.join(","))
}

/// Ulps of the largest magnitude, or the number of integers that differ.
pub(super) fn error(row: &AuditRow, reading: Option<&Deviation>) -> String {
    match reading {
        None => "-".into(),
        Some(d) if d.overflow + d.special > 0 => "inf".into(),
        Some(d) if row.dtype.is_float() => short(d.peak_ulps),
        Some(d) => format!("{}/{}", d.differ, d.elements),
    }
}

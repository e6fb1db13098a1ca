//! `ferrane run --audit`: the numerics report as text, JSON and a page.

mod page;
mod plot;

use std::collections::BTreeMap;

use ferrane::audit::{Audit, AuditOptions, AuditRow, BINS, Deviation, Note, audit, short};
use ferrane::machine::Profile;
use ferrane::mil::{Constant, Function, Program};
use ferrane::{Call, Tensors};
use serde_json::{Map, Value, json};

use crate::args::Run;
use crate::error::Result;
use crate::{files, out};

/// Runs the function and reports.
pub fn run(args: &Run, profile: &Profile, program: &Program, function: &Function, call: &Call) -> Result<()> {
    let mut options = AuditOptions::default();
    options.profile = profile.clone();
    options.threshold = args.threshold;
    let constants = |tensors: &Tensors| -> Vec<(String, Constant)> {
        tensors.iter().map(|(name, tensor)| (name.clone(), tensor.to_constant())).collect()
    };
    let states: BTreeMap<String, Constant> = constants(call.given_states()).into_iter().collect();
    let found = audit(program, &function.name, &constants(call.given_inputs()), &states, &options)?;
    let name = args.program.display().to_string();
    if let Some(path) = &args.html {
        files::replace(path, page::page(&name, &found).as_bytes())?;
    }
    match args.json {
        true => out::line(json(&name, &found)),
        false => text(&found, args.html.as_ref().map(|path| path.display().to_string())),
    }
}

/// What a row is marked with under one arithmetic.
fn mark(found: &Audit, numerics: usize, row: &AuditRow) -> &'static str {
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
fn counts(d: &Deviation) -> String {
    let all = [(d.overflow, "overflow"), (d.special, "special"), (d.underflow, "to zero"), (d.subnormal, "subnormal")];
    let some: Vec<String> = all.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")).collect();
    some.join(", ")
}

/// The type as MIL has it.
fn ty(row: &AuditRow) -> String {
    let extents: Vec<String> = row.shape.iter().map(usize::to_string).collect();
    format!("{}[{}]", row.dtype, extents.join(","))
}

/// Ulps of the largest magnitude, or the number of integers that differ.
fn error(row: &AuditRow, reading: Option<&Deviation>) -> String {
    match reading {
        None => "-".into(),
        Some(d) if d.overflow + d.special > 0 => "inf".into(),
        Some(d) if row.dtype.is_float() => short(d.peak_ulps),
        Some(d) => format!("{}/{}", d.differ, d.elements),
    }
}

fn text(found: &Audit, page: Option<String>) -> Result<()> {
    out::line(format_args!("{} on {}: {} values against exact", found.function, found.profile, found.rows.len()))?;
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
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |line: &Vec<String>, i: usize| line.get(i).map_or(0, |c| c.chars().count());
    let widths: Vec<usize> = (0..columns).map(|i| lines.iter().map(|l| cell(l, i)).max().unwrap_or(0)).collect();
    for line in &lines {
        // Numbers stand to the right: the exact magnitude, and the two errors of each arithmetic.
        let is_number = |i: usize| i == 3 || (i > 3 && (i - 4) % 4 < 2);
        let pad = |(i, (c, &w)): (usize, (&String, &usize))| match is_number(i) {
            true => format!("{c:>w$}"),
            false => format!("{c:w$}"),
        };
        let padded: Vec<String> = line.iter().zip(&widths).enumerate().map(pad).filter(|c| !c.is_empty()).collect();
        out::line(padded.join("  ").trim_end())?;
    }
    out::line("")?;
    for sentence in found.summary() {
        out::line(sentence)?;
    }
    for row in found.rows.iter() {
        // Of int8 weights there are many; where they matter the summary says so.
        if let Some(note) = row.note.filter(|n| *n != Note::Int8Crop) {
            out::line(format_args!("note: {} `{}`: {}", row.op, row.value, note.text()))?;
        }
    }
    out::line(format_args!(
        "alone: the op on exact operands rounded to fp16; run: at its place. In fp16 ulps of |exact|'s largest; integers: wrong of all."
    ))?;
    if let Some(page) = page {
        out::line(format_args!("written to {page}"))?;
    }
    Ok(())
}

/// A number; what JSON has no number for, as a word.
fn number(value: f64) -> Value {
    if value.is_finite() { value.into() } else { value.to_string().into() }
}

fn json(program: &str, found: &Audit) -> Value {
    let by_numerics = |one: &dyn Fn(usize) -> Value| {
        let all = found.numerics.iter().enumerate();
        Value::Object(all.map(|(i, n)| (n.name().to_string(), one(i))).collect::<Map<_, _>>())
    };
    let named = |row: Option<&AuditRow>| row.map_or(Value::Null, |row| row.value.clone().into());
    let value = |row: &AuditRow| {
        let reading = |i: usize| {
            row.readings.get(i).map_or(Value::Null, |r| {
                json!({
                    "cause": r.cause.map(|c| c.name()), "local": r.local.as_ref().map(deviation),
                    "accumulated": r.accumulated.as_ref().map(deviation),
                })
            })
        };
        let e = &row.exact;
        json!({
            "place": row.place, "op": row.op, "value": row.value, "dtype": row.dtype.name(), "shape": row.shape,
            "unit": row.unit, "output": row.is_output, "note": row.note.map(Note::text),
            "exact": {
                "elements": e.elements, "min": e.min, "max": e.max, "peak": e.peak, "least": e.least, "beyond": e.beyond,
                "subnormal": e.subnormal, "not_finite": e.not_finite,
            },
            "readings": by_numerics(&reading),
        })
    };
    json!({
        "program": program, "function": found.function, "profile": found.profile, "threshold": found.threshold,
        "numerics": found.numerics.iter().map(|n| n.name()).collect::<Vec<_>>(), "bins": BINS,
        "joined": found.joined, "summary": found.summary(), "first": by_numerics(&|i| named(found.first(i))),
        "worst": by_numerics(&|i| named(found.worst(i))), "values": found.rows.iter().map(value).collect::<Vec<_>>(),
    })
}

fn deviation(d: &Deviation) -> Value {
    let worst = d.worst.as_ref();
    json!({
        "elements": d.elements, "max": number(d.max), "rms": number(d.rms), "relative": number(d.relative),
        "max_ulps": number(d.max_ulps), "peak_ulps": number(d.peak_ulps), "histogram": d.histogram, "overflow": d.overflow,
        "saturated": d.saturated, "special": d.special, "underflow": d.underflow, "vanished": number(d.vanished),
        "subnormal": d.subnormal, "differ": d.differ,
        "worst": worst.map(|w| json!({"index": w.index, "exact": number(w.exact), "found": number(w.found)})),
    })
}

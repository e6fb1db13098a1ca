//! The report as JSON.

use serde_json::{Map, Value, json};

use super::{Audit, AuditRow, BINS, Deviation, Note};

impl Audit {
    /// The report as JSON. Infinities and NaN, which JSON does not have, become text. `program` is
    /// the field of that name.
    pub fn json(&self, program: &str) -> serde_json::Value {
        report(program, self)
    }
}

/// A number; infinities and NaN, which JSON does not have, become text.
fn number(value: f64) -> Value {
    if value.is_finite() { value.into() } else { value.to_string().into() }
}

fn report(program: &str, found: &Audit) -> Value {
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

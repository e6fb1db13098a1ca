//! The sentences of a report: what happened, where, and what helps.

use ferrane_machine::Unit;

use super::compare::HALF_MAX;
use super::{Audit, AuditRow, Cause, Deviation, Note};
use crate::Numerics;

/// The largest magnitude that a crop of the width axis passes (numerics §4).
const CROP_END: f64 = 4094.0;

/// A larger factor than this gains nothing: products near 1 are far from both ends of fp16.
const MOST_GAIN: f64 = 1024.0;

/// The sentence about one arithmetic.
pub(super) fn summary(audit: &Audit, numerics: usize) -> String {
    let name = audit.numerics.get(numerics).map_or("", |n| n.name());
    let end = outputs(audit, numerics);
    let Some(row) = audit.first(numerics) else {
        let drift = audit.rows.iter().find(|row| {
            let reading = row.readings.get(numerics).and_then(|r| r.accumulated.as_ref());
            reading.is_some_and(|d| d.peak_ulps > audit.threshold || d.overflow + d.special > 0)
        });
        let worst = audit.worst(numerics).and_then(|row| Some((row, row.readings.get(numerics)?.local.as_ref()?)));
        let worst = match worst {
            Some((row, d)) => {
                format!("; the largest error of one is {} ulps, of {}", short(d.peak_ulps), title(row))
            }
            None => String::new(),
        };
        let drift = match drift {
            Some(row) => {
                let bound = short(audit.threshold);
                let lost = lost(audit, numerics, row);
                format!(". Their errors add up: the first value beyond {bound} ulps is {}{lost}", title(row))
            }
            None => String::new(),
        };
        return format!("{name}: no op deviates from exact by itself{worst}{drift}.{end}");
    };
    let found = row.readings.get(numerics).and_then(|r| Some((r.cause?, r.local.as_ref())));
    let what = match found {
        Some((cause, Some(d))) => said(audit, numerics, row, cause, d),
        _ => "has other extents than under exact.".to_string(),
    };
    format!("{name}: {} {what}{end}", title(row))
}

fn title(row: &AuditRow) -> String {
    format!("{} `{}`", row.op, row.value)
}

/// The last loss to zero before a value: small compared with the tensor it is in, but decisive for
/// a logarithm or a quotient.
fn lost(audit: &Audit, numerics: usize, before: &AuditRow) -> String {
    let lost = |row: &&AuditRow| {
        let local = row.readings.get(numerics).and_then(|r| r.local.as_ref());
        row.place < before.place && local.is_some_and(|d| d.underflow > 0)
    };
    let Some(row) = audit.rows.iter().rev().find(lost) else { return String::new() };
    let counts =
        row.readings.get(numerics).and_then(|r| r.local.as_ref()).map_or((0, 0), |d| (d.underflow, d.elements));
    format!("; before it {} loses {} of {} elements to zero", title(row), counts.0, counts.1)
}

fn said(audit: &Audit, numerics: usize, row: &AuditRow, cause: Cause, d: &Deviation) -> String {
    let (n, peak) = (d.elements, row.exact.peak);
    let hardware = audit.numerics.get(numerics).is_some_and(|n| is_hardware(*n));
    match cause {
        Cause::Overflow => format!(
            "overflows: {} of {n} elements are beyond 65504, where fp16 ends; exact values reach {}. {}",
            d.overflow,
            short(peak),
            smaller(&row.op, peak, HALF_MAX, false)
        ),
        Cause::Saturation if hardware && row.note == Some(Note::Int8Crop) && peak < audit.mac_ceiling => format!(
            "overflows: {} of {n} elements are infinite on {}: next to int8 weights, operands beyond {CROP_END} are infinite, and sums \
             from {} on; exact values reach {}. Scale the operand by a power of two below 1 before it, and the result back after it.",
            d.overflow,
            audit.profile,
            short(audit.mac_ceiling),
            short(peak)
        ),
        Cause::Saturation => {
            let (end, unit) = match row.unit {
                Unit::Crop => (CROP_END, "the width slice's fixed point"),
                Unit::Mac | Unit::Composite => (audit.mac_ceiling, "the multiply-accumulate unit"),
                _ => (HALF_MAX, "the unit"),
            };
            let place = if hardware { format!(" on {}", audit.profile) } else { String::new() };
            if peak < end {
                format!(
                    "overflows: {} of {n} elements are infinite{place}: a sum passes {} in {unit} on the way, although exact \
                     results reach only {}. Scale an operand by a power of two below 1 before it, and the result back after it.",
                    d.overflow,
                    short(end),
                    short(peak)
                )
            } else {
                format!(
                    "overflows: {} of {n} elements are infinite{place}, because {unit} ends at {}; exact values reach {}. {}",
                    d.overflow,
                    short(end),
                    short(peak),
                    smaller(&row.op, peak, end, true)
                )
            }
        }
        Cause::Special => {
            let example = d
                .worst
                .as_ref()
                .map_or(String::new(), |w| format!(": element {:?} is {}, exact {}", w.index, w.found, w.exact));
            format!("treats what is not finite otherwise in {} of {n} elements{example}.", d.special)
        }
        Cause::Integer => {
            format!("gives another whole number in {} of {n} elements, by up to {}.", d.differ, short(d.max))
        }
        Cause::Shape => "has other extents than under exact.".to_string(),
        Cause::Underflow => format!(
            "loses small numbers: {} of {n} elements become zero; of those, exact values reach {}. {}",
            d.underflow,
            short(d.vanished),
            larger(peak)
        ),
        Cause::Error => {
            let example = d.worst.as_ref().map_or(String::new(), |w| {
                format!("; element {:?} is {}, exact {}", w.index, short(w.found), short(w.exact))
            });
            format!("errs by up to {}, {} ulps of its largest value{example}.", short(d.max), short(d.peak_ulps))
        }
    }
}

/// True for an arithmetic that depends on the profile.
fn is_hardware(numerics: Numerics) -> bool {
    numerics == Numerics::Hardware
}

/// How to keep an op's results below `end`.
///
/// For most ops that is a power of two that brings the largest result below half of `end`: room for
/// inputs that are a little larger. A factor before an exponential is an exponent after it, so
/// there the operand is moved instead.
fn smaller(op: &str, peak: f64, end: f64, back: bool) -> String {
    let largest = match op {
        "exp" => Some(end.ln()),
        "exp2" => Some(end.log2()),
        _ => None,
    };
    if let Some(largest) = largest {
        return format!(
            "Operands up to {largest:.2} stay below it: subtract the largest operand from all before it, as a softmax does."
        );
    }
    let mut factor = 2f64;
    while peak / factor >= end / 2.0 && factor < 1e9 {
        factor *= 2.0;
    }
    match back {
        true => format!(
            "Scale an operand by 1/{factor} before it and the result by {factor} after it: powers of two are exact."
        ),
        false => format!(
            "Scale an operand by 1/{factor} before it, and carry the factor on to where the values are small again."
        ),
    }
}

/// A power of two that brings `peak` up to about 1, at most `MOST_GAIN`.
fn larger(peak: f64) -> String {
    let mut factor = 2f64;
    while peak * factor < 0.5 && factor < MOST_GAIN {
        factor *= 2.0;
    }
    format!(
        "Scale an operand by {factor} before it, and carry the factor on to where the values are large: powers of two are exact."
    )
}

/// How far the function's outputs deviate.
fn outputs(audit: &Audit, numerics: usize) -> String {
    let mut text = String::new();
    if audit.numerics.get(numerics).is_some_and(|n| is_hardware(*n)) && !audit.joined.is_empty() {
        text += &format!(
            " The machine joins ops here: a run gives `{}` otherwise than these ops one by one.",
            audit.joined.join("`, `")
        );
    }
    for row in audit.rows.iter().filter(|row| row.is_output) {
        let Some(d) = row.readings.get(numerics).and_then(|r| r.accumulated.as_ref()) else { continue };
        let (name, n, broken) = (&row.value, d.elements, d.overflow + d.special);
        text += &if !row.dtype.is_float() {
            format!(" Output `{name}`: {} of {n} elements differ.", d.differ)
        } else if broken > 0 {
            let rest = short(d.relative);
            format!(
                " Output `{name}`: {broken} of {n} elements are infinite or NaN on one side only, relative error of the others {rest}."
            )
        } else {
            format!(" Output `{name}`: relative error {}.", short(d.relative))
        };
    }
    text
}

/// A number with three significant digits, as a person writes it: `41200`, `0.5`, `1.2e-5`.
pub fn short(v: f64) -> String {
    if !v.is_finite() || v == 0.0 {
        return format!("{v}");
    }
    let magnitude = v.abs();
    if (1e-3..1e6).contains(&magnitude) {
        let digits = (2 - magnitude.log10().floor() as i32).max(0) as usize;
        let text = format!("{v:.digits$}");
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
    } else {
        let text = format!("{v:.2e}");
        match text.split_once('e') {
            Some((number, exponent)) if number.contains('.') => {
                format!("{}e{exponent}", number.trim_end_matches('0').trim_end_matches('.'))
            }
            _ => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_people_write_them() {
        let cases =
            [(41200.0, "41200"), (0.5, "0.5"), (1.23456, "1.23"), (1.2e-5, "1.2e-5"), (0.0, "0"), (999.96, "1000")];
        for (v, text) in cases {
            assert_eq!(short(v), text);
        }
        assert_eq!(short(1e9), "1e9");
        assert_eq!(short(-0.0034), "-0.0034");
    }

    #[test]
    fn factors_are_powers_of_two_with_room() {
        assert!(smaller("matmul", 41200.0, 32768.0, true).contains("1/4 before"));
        assert!(smaller("square", 70000.0, 65504.0, false).contains("1/4 before"));
        assert!(smaller("mul", f64::MAX, 65504.0, false).contains("Scale"));
        // A factor before an exponential is no factor after it.
        assert!(smaller("exp", 70000.0, 65504.0, false).starts_with("Operands up to 11.09 stay below it"));
        assert!(larger(0.1).contains("by 8 "));
        assert!(larger(1e-9).contains("by 1024 "));
    }
}

//! Chains with int8 weights and activations next to the same chains in fp16.

use serde_json::Value;

use super::super::context::Context;
use super::super::kernels::Chain;
use super::super::report::SuiteRow;
use super::convolutions::chain;
use crate::error::Result;

/// Measures a chain in both forms and adds their ratio.
fn both(cx: &mut Context<'_, '_>, channels: usize, extents: [usize; 2], depth: usize) -> Result<()> {
    let before = cx.result.rows.len();
    for int8 in [false, true] {
        chain(cx, &Chain { channels, extents, depth, int8, casts: false })?;
    }
    let rows = &cx.result.rows[before..];
    let times: Vec<f64> = rows.iter().filter_map(SuiteRow::ms).collect();
    let predicted: Vec<f64> = rows.iter().filter_map(|row| row.predicted_ms).collect();
    let &[fp16, int8] = times.as_slice() else { return Ok(()) };
    if let Some(row) = cx.result.rows.last_mut() {
        row.rate("gain", fp16 / int8);
        if let &[fp16, int8] = predicted.as_slice() {
            row.rate("predicted_gain", fp16 / int8);
        }
    }
    Ok(())
}

/// The rounding rule that the results of int8 chains follow.
fn rule(cx: &mut Context<'_, '_>) {
    let gains = cx.result.rows.iter().filter_map(|row| row.rates.get("gain").and_then(Value::as_f64));
    let best = gains.fold(0.0, f64::max);
    if best > 0.0 {
        cx.find("best_gain", best, "", "the largest ratio of fp16 time to int8 time");
    }
    for (name, rule) in [("halves_away_error", "away"), ("halves_even_error", "even")] {
        let checks = cx.result.rows.iter().filter_map(|row| row.check.as_ref());
        let error = checks.filter(|c| c.reference.contains(rule)).map(|c| c.error).fold(f64::NAN, f64::max);
        cx.find(name, error, "", "the largest relative error of the chains that follow this rule");
    }
}

pub(super) fn int8(cx: &mut Context<'_, '_>) -> Result<()> {
    for (channels, depth) in [(512, 128), (512, 64), (256, 256), (256, 128), (384, 128)] {
        both(cx, channels, [64, 64], depth)?;
    }
    rule(cx);
    Ok(())
}

pub(super) fn depth(cx: &mut Context<'_, '_>) -> Result<()> {
    for depth in [1, 2, 8, 32, 128] {
        both(cx, 512, [16, 64], depth)?;
    }
    rule(cx);
    Ok(())
}

pub(super) fn positions(cx: &mut Context<'_, '_>) -> Result<()> {
    for extents in [[1, 64], [4, 64], [16, 64], [64, 64]] {
        both(cx, 512, extents, 16)?;
    }
    rule(cx);
    Ok(())
}

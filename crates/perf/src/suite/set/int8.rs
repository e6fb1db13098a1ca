//! Chains with int8 weights and activations next to the same chains in fp16.

use ferrane_mil::DataType;

use super::super::context::Context;
use super::super::fits::{Drawn, Timed};
use super::super::kernels::Chain;
use super::super::report::SuiteRow;
use super::convolutions::chain;
use crate::error::Result;

/// Measures a chain in both forms and adds their ratio.
fn both(cx: &mut Context<'_, '_>, channels: usize, extents: [usize; 2], depth: usize) -> Result<()> {
    let before = cx.result.rows.len();
    for int8 in [false, true] {
        chain(cx, &Chain { channels, extents, depth, int8, port: DataType::Fp16 })?;
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

/// The largest ratio of the times of a pair.
fn gain(rows: &Timed<'_>) -> Vec<Drawn> {
    let pairs = rows.windows(2).filter(|pair| pair[0].0.kernel == "conv" && pair[1].0.config == pair[0].0.config);
    let value = pairs.map(|pair| pair[0].1 / pair[1].1).fold(f64::NAN, f64::max);
    let from = "the largest ratio of fp16 time to int8 time";
    vec![Drawn { name: "best_gain", value, unit: "", constant: Some("int8_gain"), from }]
}

/// The largest gain, and the rounding rule that the results of int8 chains follow.
fn rule(cx: &mut Context<'_, '_>) {
    cx.draw(gain);
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

//! Single 1 × 1 convolutions and chains of them.

use serde_json::json;

use super::super::context::Context;
use super::super::fits;
use super::super::kernels::{Chain, Halves};
use super::super::report::{SuiteCheck, SuiteRow};
use crate::error::Result;

/// The row of a chain, with the keys of published records.
pub(super) fn chain_row(chain: &Chain) -> SuiteRow {
    let [height, width] = chain.extents;
    SuiteRow::new(
        if chain.int8 { "w8a8" } else { "conv" },
        &[
            ("channels", json!(chain.channels)),
            ("positions", json!(height * width)),
            ("depth", json!(chain.depth)),
            ("ports", json!(chain.port.name())),
        ],
    )
}

/// Measures a chain and compares two of its positions with the reference.
pub(super) fn chain(cx: &mut Context<'_, '_>, chain: &Chain) -> Result<()> {
    let taps = (chain.channels * chain.channels * chain.depth) as f64;
    let positions = chain.extents[0] * chain.extents[1];
    if cx.too_large(2.0 * taps * positions as f64) {
        return Ok(());
    }
    let (kernel, weights) = chain.build(&mut cx.rng)?;
    let Some(ran) = cx.kernel(chain_row(chain), &kernel)? else { return Ok(()) };
    let output = ran.output()?;
    let chosen = [0, positions - 1];
    let found: Vec<f32> = chosen.iter().flat_map(|p| chain.column(&output, *p)).collect();
    let input = kernel.inputs.get("x")?;
    let compared = |halves: Halves, name: &str| {
        let wanted: Vec<f32> = chosen.iter().flat_map(|p| chain.reference(input, &weights, *p, halves)).collect();
        SuiteCheck::new(name, &found, &wanted, chain.tolerance())
    };
    let check = match chain.int8 {
        false => compared(Halves::Even, "plain loops"),
        true => {
            let [away, even] = [
                compared(Halves::Away, "plain loops that round halves away from zero"),
                compared(Halves::Even, "plain loops that round halves to even"),
            ];
            if even.error < away.error { even } else { away }
        }
    };
    if let Some(row) = cx.result.rows.last_mut() {
        row.check = Some(check);
        let streamed = row.ms().map(|ms| kernel.weights / ms / 1e6);
        if let Some(rate) = streamed.filter(|_| chain.depth == 1) {
            row.rate("weights_gb_s", rate);
        }
    }
    Ok(())
}

/// A chain over one row of positions, with the ports that the machine takes.
fn row(cx: &mut Context<'_, '_>, channels: usize, positions: usize, depth: usize) -> Result<()> {
    let port = cx.port()?;
    chain(cx, &Chain { channels, extents: [1, positions], depth, int8: false, port })
}

pub(super) fn inmem(cx: &mut Context<'_, '_>) -> Result<()> {
    for channels in [256, 512, 1024, 2048, 3072, 4096] {
        row(cx, channels, 64, 1)?;
    }
    cx.draw(fits::floor);
    Ok(())
}

pub(super) fn peak(cx: &mut Context<'_, '_>) -> Result<()> {
    for (channels, depths) in [(512, &[32, 48, 64, 96, 128][..]), (256, &[64, 128, 256]), (384, &[64, 128])] {
        for depth in depths {
            row(cx, channels, 64, *depth)?;
        }
    }
    cx.draw(fits::peak);
    Ok(())
}

pub(super) fn sram(cx: &mut Context<'_, '_>) -> Result<()> {
    for channels in [256, 512, 1024, 2048, 3072, 4096, 5120, 6144] {
        row(cx, channels, 64, 1)?;
    }
    row(cx, 8192, 32, 1)?;
    cx.draw(fits::streaming);
    Ok(())
}

pub(super) fn sram_probe(cx: &mut Context<'_, '_>) -> Result<()> {
    for channels in [256, 512, 1024, 1536, 2048, 2560, 3072, 3584, 4096, 4608, 5120, 6144] {
        row(cx, channels, 64, 1)?;
    }
    row(cx, 8192, 32, 1)?;
    cx.draw(fits::streaming);
    Ok(())
}

//! Products with coded factors against sums in fp64 over decoded weights, and the kernels against
//! each other.

use half::f16;

use super::*;
use crate::gemm::{Bias, View, ViewMut, gemm};
use crate::random::Rng;

/// A matrix with random codes and scales.
struct Random {
    rows: usize,
    cols: usize,
    bits: usize,
    block: usize,
    codes: Vec<u8>,
    scales: Vec<u8>,
}

impl Random {
    fn new(rng: &mut Rng, rows: usize, cols: usize, bits: usize, block: usize) -> Random {
        let codes = (0..rows * cols * bits / 8).map(|_| rng.below(256) as u8).collect();
        let scale = |rng: &mut Rng| f16::from_f32((rng.uniform() as f32 - 0.5) * 0.1);
        let scales = (0..rows * cols / block).flat_map(|_| scale(rng).to_le_bytes()).collect();
        Random { rows, cols, bits, block, codes, scales }
    }

    fn matrix(&self) -> CodedMatrix<'_> {
        let Random { bits, block, codes, scales, .. } = self;
        let codes = Codes::Scaled { bits: *bits, codes, scales, block: *block };
        CodedMatrix::new(self.rows, self.cols, codes).unwrap()
    }

    /// `code · scale` without a rounding.
    fn exact(&self, row: usize, col: usize) -> f64 {
        let at = row * self.cols + col;
        let code = match self.bits {
            4 => ((self.codes[at / 2] >> (4 * (at % 2)) << 4) as i8) >> 4,
            _ => self.codes[at] as i8,
        };
        let scale = row * (self.cols / self.block) + col / self.block;
        f64::from(code) * f16::from_le_bytes([self.scales[2 * scale], self.scales[2 * scale + 1]]).to_f64()
    }
}

fn product(matrix: &CodedMatrix<'_>, x: &[f32], m: usize, sums: CodedSums) -> Vec<f32> {
    let (n, k) = matrix.shape();
    let mut out = vec![f32::NAN; m * n];
    let lhs = Operand::F32(View::row_major(x, m, k).unwrap());
    let to = Output::F32(ViewMut::row_major(&mut out, m, n).unwrap());
    gemm_coded(lhs, *matrix, to, Epilogue::default(), sums).unwrap();
    out
}

/// A product by one way to sum, which must apply.
fn with_sums(
    random: &Random,
    x: &[f32],
    m: usize,
    sums: impl FnOnce(&CodedProduct<'_>) -> Result<bool, GemmError>,
) -> Vec<f32> {
    let (n, k) = (random.rows, random.cols);
    let mut out = vec![f32::NAN; m * n];
    let lhs = Operand::F32(View::row_major(x, m, k).unwrap());
    let target = Output::F32(ViewMut::row_major(&mut out, m, n).unwrap()).target();
    let (rhs, finish) = (random.matrix(), Epilogue::default().finish());
    let job = CodedProduct { lhs: lhs.factor(0), rhs, out: target.item(0), finish, m, n, k };
    assert!(sums(&job).unwrap());
    out
}

#[test]
fn block_sums_are_near_exact_ones_and_the_same_by_every_kernel() {
    let mut rng = Rng::new(3);
    // The last ones have lines that are read one by one for two rows, too.
    for (bits, block, rows, cols) in [
        (4, 32, 37, 32),
        (4, 32, 9, 896),
        (4, 64, 5, 192),
        (4, 160, 6, 160),
        (8, 32, 7, 96),
        (8, 288, 6, 288),
        (4, 32, 3, 4128),
        (8, 32, 3, 2080),
    ] {
        let random = Random::new(&mut rng, rows, cols, bits, block);
        for m in [1, 2, 3, 4, 7, 9, 16] {
            // fp16 values of very different magnitudes.
            let x: Vec<f32> = (0..m * cols)
                .map(|_| f16::from_f32((rng.uniform() as f32 - 0.5) * (rng.below(30) as f32 - 20.0).exp2()).to_f32())
                .collect();
            let mut results = Vec::new();
            for kernel in blocks::Kernel::all(bits) {
                // SAFETY: `all` returns what the processor supports.
                let sums =
                    |job: &CodedProduct<'_>| unsafe { job.blocks_with(kernel, &random.codes, &random.scales, block) };
                results.push(with_sums(&random, &x, m, sums));
            }
            for other in &results[1..] {
                let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&results[0]), bits(other), "{bits} bits, {m} rows", bits = random.bits);
            }
            for i in 0..m {
                for r in 0..rows {
                    let (mut sum, mut bound) = (0.0f64, 0.0f64);
                    for (b, part) in x[i * cols..][..cols].chunks(32).enumerate() {
                        let top = part.iter().fold(0.0f32, |top, v| top.max(v.abs()));
                        for (p, v) in part.iter().enumerate() {
                            let w = random.exact(r, b * 32 + p);
                            sum += w * f64::from(*v);
                            // Half a unit, which is 2⁻²¹ or 2⁻²⁰ of the largest at most, or 2⁻¹⁴
                            // with several rows, where the largest integer may stand for half a
                            // unit more; and what fp32 sums of the terms lose.
                            let unit = match (m, random.bits) {
                                (3.., _) => 2f64.powi(-14),
                                (_, 4) => 2f64.powi(-22),
                                _ => 2f64.powi(-21),
                            };
                            bound += w.abs() * (unit * f64::from(top) + 2f64.powi(-20) * f64::from(v.abs()));
                        }
                    }
                    let found = f64::from(results[0][i * rows + r]);
                    assert!((found - sum).abs() <= bound, "{found} {sum} {bound}");
                }
            }
        }
    }
}

#[test]
fn sums_of_panels_are_near_exact_ones_and_the_same_by_every_kernel() {
    let mut rng = Rng::new(8);
    for (bits, block, rows, cols, m) in
        [(4, 32, 37, 32, 17), (4, 64, 96, 192, 50), (4, 160, 6, 160, 100), (8, 32, 33, 96, 48), (8, 288, 70, 288, 19)]
    {
        let random = Random::new(&mut rng, rows, cols, bits, block);
        let x: Vec<f32> = (0..m * cols)
            .map(|_| f16::from_f32((rng.uniform() as f32 - 0.5) * (rng.below(12) as f32 - 8.0).exp2()).to_f32())
            .collect();
        let codes = panels::Rows { codes: &random.codes, scales: &random.scales, block, k: cols };
        let by_panels = |kernel| {
            // SAFETY: `all` returns what the processor supports.
            with_sums(&random, &x, m, |job| unsafe { job.panels_with(kernel, &codes) })
        };
        let results: Vec<_> = blocks::Kernel::all(bits).into_iter().map(by_panels).collect();
        for other in &results[1..] {
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&results[0]), bits(other), "{} bits, {m} rows", random.bits);
        }
        assert_eq!(product(&random.matrix(), &x, m, CodedSums::Blocks), results[0]);
        for i in 0..m {
            for r in 0..rows {
                let (mut sum, mut bound) = (0.0f64, 0.0f64);
                for (b, part) in x[i * cols..][..cols].chunks(32).enumerate() {
                    let top = part.iter().fold(0.0f32, |top, v| top.max(v.abs()));
                    for (p, v) in part.iter().enumerate() {
                        let w = random.exact(r, b * 32 + p);
                        sum += w * f64::from(*v);
                        // Half a unit, of which the largest value has 2¹⁴ at least; the largest
                        // integer stands for one that is half a unit more. And fp32 sums.
                        bound += w.abs() * (2f64.powi(-14) * f64::from(top) + 2f64.powi(-20) * f64::from(v.abs()));
                    }
                }
                let found = f64::from(results[0][i * rows + r]);
                assert!((found - sum).abs() <= bound, "{found} {sum} {bound}");
            }
        }
    }
}

#[test]
fn sums_of_panels_do_not_depend_on_how_a_product_is_divided() {
    let mut rng = Rng::new(10);
    let (rows, cols, m) = (1100, 320, 790);
    for bits in [4, 8] {
        let random = Random::new(&mut rng, rows, cols, bits, 32);
        let x: Vec<f32> = (0..m * cols).map(|_| f16::from_f32(rng.uniform() as f32 - 0.5).to_f32()).collect();
        let codes = panels::Rows { codes: &random.codes, scales: &random.scales, block: 32, k: cols };
        let whole: Vec<_> = blocks::Kernel::all(bits)
            .into_iter()
            // SAFETY: `all` returns what the processor supports.
            .map(|kernel| with_sums(&random, &x, m, |job| unsafe { job.panels_with(kernel, &codes) }))
            .collect();
        assert!(whole.iter().all(|other| *other == whole[0]));
        // The last rows and columns alone.
        let (some, last) = (20, 45);
        let (bytes, scales) = (last * cols * bits / 8, 2 * last * cols / 32);
        let codes = Codes::Scaled {
            bits,
            codes: &random.codes[random.codes.len() - bytes..],
            scales: &random.scales[random.scales.len() - scales..],
            block: 32,
        };
        let matrix = CodedMatrix::new(last, cols, codes).unwrap();
        let part = product(&matrix, &x[(m - some) * cols..], some, CodedSums::Blocks);
        for (i, part) in part.chunks_exact(last).enumerate() {
            assert_eq!(part, &whole[0][(m - some + i + 1) * rows - last..][..last], "{bits} bits, row {i}");
        }
    }
}

#[test]
fn panels_of_values_that_are_not_finite_are_decoded() {
    let mut rng = Rng::new(9);
    let random = Random::new(&mut rng, 40, 64, 4, 32);
    let mut x: Vec<f32> = (0..60 * 64).map(|_| rng.uniform() as f32).collect();
    x[50 * 64 + 3] = f32::INFINITY;
    let found = product(&random.matrix(), &x, 60, CodedSums::Blocks);
    assert_eq!(found[..50 * 40], product(&random.matrix(), &x, 60, CodedSums::Decoded)[..50 * 40]);
    assert!(found[50 * 40..51 * 40].iter().all(|v| !v.is_finite()));
}

#[test]
fn decoded_sums_equal_products_of_fp16() {
    let mut rng = Rng::new(4);
    for (bits, block, rows, cols) in [(4, 32, 21, 96), (8, 16, 12, 64), (4, 2, 10, 70)] {
        let random = Random::new(&mut rng, rows, cols, bits, block);
        let matrix = random.matrix();
        let decoded: Vec<f16> = (0..rows * cols).map(|i| f16::from_f64(random.exact(i / cols, i % cols))).collect();
        for m in [1, 5, 40] {
            let x: Vec<f32> = (0..m * cols).map(|_| rng.uniform() as f32 - 0.5).collect();
            let mut wanted = vec![0.0; m * rows];
            let rhs = Operand::F16(View::row_major(&decoded, rows, cols).unwrap());
            let lhs = Operand::F32(View::row_major(&x, m, cols).unwrap());
            let out = Output::F32(ViewMut::row_major(&mut wanted, m, rows).unwrap());
            gemm(lhs, rhs.t(), out, Epilogue::default()).unwrap();
            assert_eq!(product(&matrix, &x, m, CodedSums::Decoded), wanted);
        }
        let mut row = vec![f16::ZERO; cols];
        matrix.row(rows - 1, &mut row);
        assert_eq!(row, decoded[(rows - 1) * cols..]);
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn every_lookup_finds_the_entries() {
    let mut rng = Rng::new(11);
    let entries: [f16; 64] = std::array::from_fn(|_| f16::from_bits(rng.below(1 << 16) as u16));
    let bits = |values: &[f16]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    for lookup in table::Lookup::all() {
        let bytes: Vec<u8> = (0..5 * 48).map(|_| rng.below(256) as u8).collect();
        let mut found = vec![f16::ZERO; 2 * bytes.len()];
        // SAFETY: `all` returns what the processor has, and there is a value for each nibble.
        unsafe { lookup.palette4(&bytes, entries.first_chunk().unwrap(), &mut found) };
        let wanted: Vec<f16> = bytes.iter().flat_map(|b| [b & 15, b >> 4]).map(|i| entries[usize::from(i)]).collect();
        assert_eq!(bits(&found), bits(&wanted), "{lookup:?}");
        let mut found = vec![f16::ZERO; bytes.len() / 3 * 4];
        // SAFETY: the same, for each 6 bits.
        unsafe { lookup.palette6(&bytes, &entries, &mut found) };
        let six = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]);
        let sixes = bytes.chunks_exact(3).flat_map(|b| [0, 6, 12, 18].map(|at| six(b) >> at & 63));
        let wanted: Vec<f16> = sixes.map(|i| entries[i as usize]).collect();
        assert_eq!(bits(&found), bits(&wanted), "{lookup:?}");
    }
}

#[test]
fn palettes_decode_by_groups_of_rows() {
    let mut rng = Rng::new(5);
    for (bits, cols) in [(1usize, 24usize), (2, 12), (3, 40), (4, 34), (4, 33), (6, 32), (6, 6), (8, 5)] {
        let (rows, tables) = (8, 2);
        let indices: Vec<u8> = (0..rows * cols).map(|_| rng.below(1 << bits) as u8).collect();
        let mut packed = vec![0u8; (rows * cols * bits).div_ceil(8)];
        for (i, index) in indices.iter().enumerate() {
            for bit in 0..bits {
                packed[(i * bits + bit) / 8] |= (index >> bit & 1) << ((i * bits + bit) % 8);
            }
        }
        let entries: Vec<f16> = (0..tables << bits).map(|_| f16::from_f32(rng.uniform() as f32 - 0.5)).collect();
        let bytes: Vec<u8> = entries.iter().flat_map(|v| v.to_le_bytes()).collect();
        let codes = Codes::Palette { bits, indices: &packed, entries: &bytes, tables };
        let matrix = CodedMatrix::new(rows, cols, codes).unwrap();
        let mut all = vec![f16::ZERO; rows * cols];
        decode::rows(&matrix, 0, &mut all);
        for (i, value) in all.iter().enumerate() {
            let table = i / cols / (rows / tables);
            assert_eq!(*value, entries[(table << bits) + usize::from(indices[i])], "{bits} bits, element {i}");
        }
        // Rows in the middle of a group.
        let mut some = vec![f16::ZERO; 4 * cols];
        decode::rows(&matrix, 3, &mut some);
        assert_eq!(some, all[3 * cols..7 * cols]);
    }
}

#[test]
fn values_that_are_not_finite_and_zeros() {
    let mut rng = Rng::new(6);
    let random = Random::new(&mut rng, 5, 64, 4, 32);
    let mut x = vec![0.0f32; 128];
    assert!(product(&random.matrix(), &x, 2, CodedSums::Blocks).iter().all(|v| *v == 0.0));
    x[70] = f32::NAN;
    let out = product(&random.matrix(), &x, 2, CodedSums::Blocks);
    assert!(out[..5].iter().all(|v| *v == 0.0) && out[5..].iter().all(|v| v.is_nan()));
}

#[test]
fn an_output_of_columns_with_a_bias() {
    let mut rng = Rng::new(7);
    // More rows than are summed at once, at the end.
    for (m, n, k) in [(3, 50, 64), (70, 50, 64), (790, 40, 32)] {
        let random = Random::new(&mut rng, n, k, 4, 32);
        let x: Vec<f16> = (0..m * k).map(|_| f16::from_f32(rng.uniform() as f32 - 0.5)).collect();
        let bias: Vec<f32> = (0..n).map(|i| i as f32).collect();
        // Row-major factor [k, m], and a result [n, m].
        let turned: Vec<f16> = (0..k * m).map(|i| x[i % m * k + i / m]).collect();
        let epilogue = Epilogue { bias: Some(Bias::Cols(&bias)), round: true, ..Epilogue::default() };
        let mut out = vec![f16::ZERO; n * m];
        let lhs = Operand::F16(View::row_major(&turned, k, m).unwrap());
        let to = Output::F16(ViewMut::row_major(&mut out, n, m).unwrap().t());
        gemm_coded(lhs.t(), random.matrix(), to, epilogue, CodedSums::Blocks).unwrap();
        let wide: Vec<f32> = x.iter().map(|v| v.to_f32()).collect();
        let plain = product(&random.matrix(), &wide, m, CodedSums::Blocks);
        for i in 0..m {
            for c in 0..n {
                assert_eq!(out[c * m + i], f16::from_f32(plain[i * n + c] + bias[c]));
            }
        }
        let mut wide_out = vec![0.0; n * m];
        let to = Output::F32(ViewMut::row_major(&mut wide_out, n, m).unwrap().t());
        gemm_coded(lhs.t(), random.matrix(), to, epilogue, CodedSums::Blocks).unwrap();
        assert!(wide_out.iter().zip(&out).all(|(wide, half)| *wide == half.to_f32()));
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let (codes, scales) = (vec![0u8; 64], vec![0u8; 8]);
    let new = |rows, cols, bits, block, codes: &[u8], scales: &[u8]| {
        CodedMatrix::new(rows, cols, Codes::Scaled { bits, codes, scales, block }).is_ok()
    };
    assert!(new(2, 64, 4, 32, &codes, &scales));
    for (rows, cols, bits, block) in
        [(2, 64, 8, 32), (2, 64, 4, 0), (2, 64, 4, 48), (4, 32, 4, 16), (2, 64, 5, 32), (usize::MAX, 64, 4, 32)]
    {
        assert!(!new(rows, cols, bits, block, &codes, &scales), "{rows} {cols} {bits} {block}");
    }
    let palette = |bits, tables, indices: &[u8], entries: &[u8]| {
        CodedMatrix::new(2, 64, Codes::Palette { bits, indices, entries, tables }).is_ok()
    };
    assert!(palette(4, 1, &codes, &[0; 32]));
    for (bits, tables, entries) in [(4, 0, 32), (4, 3, 96), (4, 1, 30), (64, 1, 32)] {
        assert!(!palette(bits, tables, &codes, &vec![0; entries]), "{bits} {tables}");
    }
}

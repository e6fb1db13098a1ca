//! RMSNorm: `y = x·r·w` with `r = 1/√(mean(x²) + eps)`, over rows as long as the gain `w`.
//!
//! In the backward pass the gain appears inside the mean only; the reference trainer also
//! multiplies by it outside, which is wrong (training-dynamic §7).

use super::Real;

/// The factors `r`, one for each row, saved for the backward pass.
pub(super) struct Norm<T> {
    scale: Vec<T>,
}

impl<T: Real> Norm<T> {
    /// The normalized rows, and the factors for the backward pass.
    pub(super) fn forward(x: &[T], w: &[T], eps: f32) -> (Vec<T>, Self) {
        let mut y = Vec::with_capacity(x.len());
        let mut scale = Vec::with_capacity(x.len() / w.len());
        for row in x.chunks_exact(w.len()) {
            let r = factor(row, eps);
            y.extend(row.iter().zip(w).map(|(&x, &w)| x * r * w));
            scale.push(r);
        }
        (y, Norm { scale })
    }

    /// `dx[c] += r·(w[c]·dy[c] − x[c]·r²/n·Σ w·dy·x)`, and `dw[c] += Σ_rows dy[c]·x[c]·r`.
    pub(super) fn backward(&self, x: &[T], w: &[T], dy: &[T], dx: &mut [T], dw: &mut [T]) {
        let n = w.len();
        let rows = x.chunks_exact(n).zip(dy.chunks_exact(n)).zip(dx.chunks_exact_mut(n));
        for (((x, dy), dx), &r) in rows.zip(&self.scale) {
            let sum = (0..n).fold(T::ZERO, |sum, c| sum + w[c] * dy[c] * x[c]);
            let mean = sum * r * r / T::from_f64(n as f64);
            for c in 0..n {
                dx[c] += r * (w[c] * dy[c] - x[c] * mean);
                dw[c] += dy[c] * x[c] * r;
            }
        }
    }
}

fn factor<T: Real>(row: &[T], eps: f32) -> T {
    let mean = super::products::dot(row, row) / T::from_f64(row.len() as f64);
    T::ONE / (mean + T::from_f64(f64::from(eps))).sqrt()
}

//! Positions of the samples of a resized axis.

use ferrane_device::Result;

use super::super::Call;

/// How samples are distributed over an axis (coremltools 9.0, `resize_bilinear`).
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Sampling {
    /// First on first, last on last; a single sample on the first.
    StrictAlignCorners,
    /// As `StrictAlignCorners`, but a single sample in the middle.
    AlignCorners,
    /// Every `n / m`, from the first on.
    Default,
    /// In the middle of `m` equal parts of the span from first to last.
    OffsetCorners,
    /// In the middle of `m` equal parts of the axis, whose elements have a width of 1.
    UnalignCorners,
}

impl Sampling {
    /// The mode of a call.
    pub(super) fn of(call: &Call<'_>) -> Result<Sampling> {
        Ok(match call.text("sampling_mode")?.as_str() {
            "STRICT_ALIGN_CORNERS" => Sampling::StrictAlignCorners,
            "ALIGN_CORNERS" => Sampling::AlignCorners,
            "DEFAULT" => Sampling::Default,
            "OFFSET_CORNERS" => Sampling::OffsetCorners,
            "UNALIGN_CORNERS" => Sampling::UnalignCorners,
            other => return Err(call.fail(format!("has no sampling mode `{other}`"))),
        })
    }

    /// The position of sample `i` of `m` on an axis of `n` elements, from 0 to `n - 1`; it need not
    /// be an integer.
    pub(super) fn at(self, i: usize, n: f64, m: usize) -> f64 {
        let (i, count) = (i as f64, m as f64);
        let point = match self {
            Sampling::AlignCorners if m == 1 => (n - 1.0) / 2.0,
            Sampling::StrictAlignCorners | Sampling::AlignCorners if m > 1 => i * (n - 1.0) / (count - 1.0),
            Sampling::StrictAlignCorners | Sampling::AlignCorners => 0.0,
            // The description's (n - n/m) / (m - 1) is n/m.
            Sampling::Default => i * n / count,
            Sampling::OffsetCorners => (i + 0.5) * (n - 1.0).max(1.0) / count,
            Sampling::UnalignCorners => (i + 0.5) * n / count - 0.5,
        };
        // Not `clamp`, which panics if `n` is NaN.
        point.max(0.0).min(n - 1.0)
    }
}

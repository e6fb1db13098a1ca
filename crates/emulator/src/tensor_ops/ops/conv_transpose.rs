//! Transposed convolution.

use ferrane_device::Result;
use ferrane_host::pool;

use super::super::product::Matrix;
use super::super::{Call, HeapTensor, TensorOp};

pub(super) const FAMILY: &[(&str, TensorOp)] = &[("conv_transpose", conv_transpose)];

/// Extents and parameters of one spatial axis.
#[derive(Clone, Copy)]
struct Axis {
    n: usize,
    kernel: usize,
    stride: usize,
    dilation: usize,
    /// Elements of the full result that lie before the first one kept.
    before: usize,
    out: usize,
}

impl Axis {
    /// An axis that the operand does not have.
    const NONE: Axis = Axis { n: 1, kernel: 1, stride: 1, dilation: 1, before: 0, out: 1 };

    /// The inputs that a tap adds to the result, and the position of the first one in the result;
    /// the step between two is `stride`.
    fn reach(&self, tap: usize) -> (std::ops::Range<usize>, usize) {
        let shift = tap * self.dilation;
        // Input i goes to i · stride + shift - before, which must lie in 0..out.
        let first = self.before.saturating_sub(shift).div_ceil(self.stride);
        let end = (self.out + self.before).saturating_sub(shift).div_ceil(self.stride).min(self.n);
        (first.min(end)..end, (first * self.stride + shift).saturating_sub(self.before))
    }
}

/// The spatial axes, from the arguments or their defaults.
fn axes(call: &Call<'_>, x: &HeapTensor, weight: &HeapTensor) -> Result<Vec<Axis>> {
    let spatial = x.shape.len() - 2;
    let list = |name: &str, count: usize, default: i64, least: i64| -> Result<Vec<i64>> {
        let values = call.ints_if(name).unwrap_or_else(|| vec![default; count]);
        // Larger extents and strides have no result that fits in memory.
        let fits = values.len() == count && values.iter().all(|v| (least..=i64::from(i32::MAX)).contains(v));
        if fits { Ok(values) } else { Err(call.fail(format!("`{name}` cannot be {values:?}"))) }
    };
    let (strides, dilations) = (list("strides", spatial, 1, 1)?, list("dilations", spatial, 1, 1)?);
    let pad_type = call.text("pad_type")?;
    let pad = list("pad", 2 * spatial, 0, 0)?;
    let wanted = match call.maybe("output_shape") {
        Some(_) => Some(list("output_shape", x.shape.len(), 0, 0)?),
        None => None,
    };
    let mut axes = Vec::with_capacity(spatial);
    for a in 0..spatial {
        let (n, kernel) = (x.shape[2 + a], weight.shape[2 + a]);
        if n == 0 || kernel == 0 {
            return Err(call.fail("needs an input and a kernel that are not empty"));
        }
        let (s, d) = (i128::from(strides[a]), i128::from(dilations[a]));
        let full = (n as i128 - 1) * s + (kernel as i128 - 1) * d + 1;
        let wanted = wanted.as_ref().map(|shape| i128::from(shape[2 + a]));
        let (before, natural) = match pad_type.as_str() {
            "valid" => (0, full),
            "custom" => (i128::from(pad[2 * a]), full - i128::from(pad[2 * a]) - i128::from(pad[2 * a + 1])),
            "same" => {
                let out = n as i128 * s;
                ((full - wanted.unwrap_or(out)).max(0) / 2, out)
            }
            other => return Err(call.fail(format!("has no padding `{other}`"))),
        };
        let out = wanted.unwrap_or(natural);
        let extent = usize::try_from(out).map_err(|_| call.fail(format!("a result of extent {out}")))?;
        let stride = strides[a] as usize;
        axes.push(Axis { n, kernel, stride, dilation: dilations[a] as usize, before: before as usize, out: extent });
    }
    Ok(axes)
}

/// Elements of the products that are held at a time.
const PRODUCTS: usize = 1 << 22;

/// Adds the products of one tap and one channel to the sums of that channel. The sums are in fp64:
/// the order of the taps does not show in fp32.
fn scatter([za, ya, xa]: &[Axis; 3], tap: usize, part: &[f32], sums: &mut [f64]) {
    let (zs, z_to) = za.reach(tap / (ya.kernel * xa.kernel));
    let (ys, y_to) = ya.reach(tap / xa.kernel % ya.kernel);
    let (xs, x_to) = xa.reach(tap % xa.kernel);
    if xs.is_empty() {
        return;
    }
    for (i, z) in zs.enumerate() {
        for (j, y) in ys.clone().enumerate() {
            let line = &part[(z * ya.n + y) * xa.n..][xs.clone()];
            let row = (z_to + i * za.stride) * ya.out + y_to + j * ya.stride;
            let row = &mut sums[row * xa.out + x_to..(row + 1) * xa.out];
            for (sum, v) in row.iter_mut().step_by(xa.stride).zip(line) {
                *sum += f64::from(*v);
            }
        }
    }
}

/// `conv_transpose` (coremltools 9.0): every input adds the filter, scaled by it, at its position.
/// `same` keeps `n · stride` elements; if it drops an odd number, it drops more at the end. With an
/// `output_shape`, elements that no input reaches are the bias.
fn conv_transpose(call: &Call<'_>) -> Result<Vec<HeapTensor>> {
    let (x, weight) = (call.tensor("x")?, call.tensor("weight")?);
    let rank = x.shape.len();
    if !(3..=5).contains(&rank) || weight.shape.len() != rank {
        return Err(call.fail(format!("an input of shape {:?} and a weight of {:?}", x.shape, weight.shape)));
    }
    let axes = axes(call, x, weight)?;
    let groups = call.count("groups")?;
    let (batch, from, to) = (x.shape[0], x.shape[1], weight.shape[1] * groups);
    if weight.shape[0] != from || from % groups != 0 {
        return Err(call.fail(format!("{from} channels in {groups} groups, and a weight of {:?}", weight.shape)));
    }
    let mut shape = vec![batch, to];
    shape.extend(axes.iter().map(|a| a.out));
    if let Some(wanted) = call.ints_if("output_shape")
        && wanted[..2] != [batch as i64, to as i64]
    {
        return Err(call.fail(format!("an output shape of {wanted:?} for {batch} images of {to} channels")));
    }
    let total = call.elements(&shape)?;
    let (values, kernels) = (call.reals("x", x)?, call.reals("weight", weight)?);
    let bias = call.maybe("bias");
    if bias.is_some_and(|b| b.len() != to) {
        return Err(call.fail(format!("a bias that is not of {to} channels")));
    }
    let mut three = [Axis::NONE; 3];
    three[3 - axes.len()..].copy_from_slice(&axes);
    let [za, ya, xa] = three;
    let (places, area, taps) = (za.n * ya.n * xa.n, za.out * ya.out * xa.out, za.kernel * ya.kernel * xa.kernel);
    let (from_each, to_each) = (from / groups, weight.shape[1]);
    let mut out = Vec::with_capacity(total);
    let (block, area_of_group) = (call.elements(&[to_each, places])?, call.elements(&[to_each, area])?);
    let mut sums = vec![0.0f64; area_of_group];
    // The products of some taps at a time.
    let together = (PRODUCTS / block.max(1)).clamp(1, taps);
    let mut parts = vec![0.0f32; together * block];
    for image in 0..batch {
        for group in 0..groups {
            sums.fill(0.0);
            let start = (image * from + group * from_each) * places;
            let input = Matrix::dense(&values[start..start + from_each * places], from_each, places);
            let group_kernels = &kernels[group * from_each * to_each * taps..][..from_each * to_each * taps];
            for first in (0..taps).step_by(together) {
                let some = first..taps.min(first + together);
                for (tap, part) in some.clone().zip(parts.chunks_exact_mut(block.max(1))) {
                    let at = group_kernels.get(tap..).unwrap_or_default();
                    let factor = Matrix::new(at, from_each, to_each, (to_each * taps, taps)).t();
                    call.product(factor, input, part)?;
                }
                let parts = &parts;
                pool::for_each_chunk_mut(&mut sums, area, |c, sums| {
                    for (i, tap) in some.clone().enumerate() {
                        scatter(&three, tap, &parts[i * block + c * places..][..places], sums);
                    }
                });
            }
            for c in 0..to_each {
                let bias = bias.map_or(0.0, |b| f64::from(b.float(group * to_each + c)));
                out.extend(sums[c * area..(c + 1) * area].iter().map(|s| (s + bias) as f32));
            }
        }
    }
    Ok(vec![HeapTensor::floats(x.dtype, &shape, out)])
}

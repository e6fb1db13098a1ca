//! `constexpr_*` ops: compressed weights, which are decompressed once, when the program is
//! compiled; weights of products stay codes where `coded` can multiply by these.

use ferrane_device::Result;
use ferrane_mil::{DataType, Op, weights};

use super::args::{Args, floats};
use super::build::Lowering;
use crate::ir::ConstantContent;

impl<'a> Lowering<'a> {
    /// Lowers a `constexpr_*` op to a constant.
    pub(super) fn constexpr(&mut self, op: &'a Op, args: &Args<'a>) -> Result<()> {
        let y = op.outputs[0];
        if self.keep_codes(op, args)? {
            return Ok(());
        }
        let shape = self.shape(y)?;
        let mut values = match op.name.as_str() {
            "constexpr_affine_dequantize" => self.affine(args, &shape)?,
            "constexpr_blockwise_shift_scale" => self.blockwise(args, &shape)?,
            "constexpr_lut_to_dense" => self.palette(args, &shape)?,
            _ => return Err(args.unsupported("is not implemented by the emulator")),
        };
        let dtype = self.dtype(y)?;
        if dtype == DataType::Fp16 {
            // The weight is fp16 under every table.
            ferrane_host::convert::round_f16(&mut values);
        }
        let view = if dtype.is_float() {
            self.constant_floats(&shape, &values)
        } else {
            // A palette of integers gives integers, which are kept in integer storage.
            let storage = self.storage(y)?;
            let bytes =
                values.iter().flat_map(|&v| (v as i64).to_le_bytes().into_iter().take(storage.bytes())).collect();
            self.constant(storage, &shape, ConstantContent::Made(bytes))
        };
        self.settle(y, view)
    }

    fn numbers(&self, args: &Args<'a>, name: &str) -> Result<Vec<f32>> {
        args.constant(name)
            .and_then(|c| floats(c, self.weights))
            .filter(|v| !v.is_empty())
            .ok_or_else(|| args.unsupported(format!("`{name}` must be a constant of numbers")))
    }

    /// The extents of a constant argument.
    fn extents(&self, args: &Args<'a>, name: &str) -> Result<Vec<usize>> {
        args.constant(name)
            .and_then(|c| c.ty().shape())
            .ok_or_else(|| args.unsupported(format!("`{name}` must be a constant tensor")))
    }

    /// `(data - zero_point) · scale`, both scalars or along one axis.
    fn affine(&self, args: &Args<'a>, shape: &[usize]) -> Result<Vec<f32>> {
        let axis = args.axis("axis", shape.len())?;
        let (mut data, scale, zero) =
            (self.numbers(args, "quantized_data")?, self.numbers(args, "scale")?, self.numbers(args, "zero_point")?);
        let block: usize = shape[axis + 1..].iter().product();
        let pick = |v: &[f32], c: usize| if v.len() == 1 { Some(v[0]) } else { v.get(c).copied() };
        for (i, v) in data.iter_mut().enumerate() {
            let c = i / block % shape[axis];
            let (Some(s), Some(z)) = (pick(&scale, c), pick(&zero, c)) else {
                return Err(args.unsupported("scale or zero_point does not fit the data"));
            };
            *v = (*v - z) * s;
        }
        Ok(data)
    }

    /// `(data - offset) · scale`, one of each for every block.
    fn blockwise(&self, args: &Args<'a>, shape: &[usize]) -> Result<Vec<f32>> {
        let (mut data, scale) = (self.numbers(args, "data")?, self.numbers(args, "scale")?);
        let offset = if args.has("offset") { self.numbers(args, "offset")? } else { Vec::new() };
        let blocks = self.extents(args, "scale")?;
        each_index(shape, |i, index| {
            let b = block_of(index, shape, &blocks);
            data[i] = (data[i] - offset.get(b).copied().unwrap_or(0.0)) * scale[b];
        });
        Ok(data)
    }

    /// Palette entries by index: one palette (iOS 16), or one for each block, perhaps of vectors
    /// (iOS 18).
    fn palette(&self, args: &Args<'a>, shape: &[usize]) -> Result<Vec<f32>> {
        let lut = self.numbers(args, "lut")?;
        let extents = self.extents(args, "lut")?;
        let total: usize = shape.iter().product();
        let mut values = vec![0.0f32; total];
        if let [entries] = extents.as_slice() {
            let bits = entries.trailing_zeros() as usize;
            let bytes = args.constant("indices").and_then(|c| c.bytes(self.weights)).unwrap_or_default();
            for (i, v) in values.iter_mut().enumerate() {
                let index = weights::field(bytes, bits, i).and_then(|n| lut.get(usize::from(n)));
                *v = *index.ok_or_else(|| args.unsupported("an index is not there or leaves the palette"))?;
            }
            return Ok(values);
        }
        let indices = self.numbers(args, "indices")?;
        let mut stored = shape.to_vec();
        let rank = shape.len();
        let (entries, vector) = (extents[rank], extents[rank + 1]);
        let axis = if vector == 1 { 0 } else { args.axis("vector_axis", rank)? };
        stored[axis] /= vector;
        let mut broken = false;
        each_index(shape, |i, index| {
            let mut place = index.to_vec();
            let lane = place[axis] % vector;
            place[axis] /= vector;
            let at = place.iter().zip(&stored).fold(0, |n, (p, s)| n * s + p);
            let block = block_of(&place, &stored, &extents[..rank]);
            let entry = indices.get(at).map_or(usize::MAX, |&v| v as usize);
            match lut.get((block * entries).saturating_add(entry).saturating_mul(vector).saturating_add(lane)) {
                Some(&v) if entry < entries => values[i] = v,
                _ => broken = true,
            }
        });
        if broken { Err(args.unsupported("an index is not there or leaves the palette")) } else { Ok(values) }
    }
}

/// The block of an element, row-major among `blocks`.
fn block_of(index: &[usize], shape: &[usize], blocks: &[usize]) -> usize {
    let coordinates = index.iter().zip(shape).zip(blocks).map(|((i, n), b)| i / (n / b));
    coordinates.zip(blocks).fold(0, |n, (c, b)| n * b + c)
}

/// Calls `visit(i, index)` for each element, row-major.
fn each_index(shape: &[usize], mut visit: impl FnMut(usize, &[usize])) {
    let mut index = vec![0; shape.len()];
    for i in 0..shape.iter().product() {
        visit(i, &index);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
}

//! Copies between CPU arrays and surfaces: writes regions, reads taps (training-dynamic §5).
//!
//! CPU activations are fp32, channel-first `[channels, seq]`; surfaces are fp16 with the row stride
//! of their layout. Every function checks sizes first and writes nothing if they differ. Values are
//! rounded to nearest even.

use std::ops::Range;

use ferrane_device::{
    Bindings, Device, Error, ErrorKind, Executable, ReadAccess, Request, Result, Surface, WriteAccess,
};
use ferrane_host::{convert, pool};
use half::f16;

use crate::config::Config;
use crate::layout::{Content, KernelLayout, OUTPUT, Region, Tap};
use crate::weights::{Layer, Part};

/// Elements in one copying task; a smaller copy is faster on one thread.
const PER_TASK: usize = 128 * 1024;

/// One surface for each input of a layout, with its name, in the layout's order.
pub type InputSurfaces = Vec<(&'static str, Surface)>;

/// A layer's input surfaces of one kernel, and the request that reads them.
#[derive(Clone)]
pub struct LayerInputs {
    surfaces: InputSurfaces,
    /// The kernel bound to these inputs and to the output surface.
    request: Request,
}

impl LayerInputs {
    /// Allocates the inputs of a loaded kernel with the layouts that it reports, and binds them and
    /// `output`.
    ///
    /// # Errors
    /// No memory is available, or the device refused the binding.
    pub fn new(
        device: &Device,
        executable: &Executable,
        layout: &KernelLayout,
        output: &Surface,
    ) -> Result<LayerInputs> {
        let inputs = layout.inputs.iter();
        let surfaces = inputs.map(|input| Ok((input.name, surface(device, executable, input.name)?)));
        LayerInputs::bind(surfaces.collect::<Result<_>>()?, executable, output)
    }

    /// Binds surfaces that were allocated for another program with this layout, and `output`.
    ///
    /// # Errors
    /// The device refused the binding.
    pub fn bind(surfaces: InputSurfaces, executable: &Executable, output: &Surface) -> Result<LayerInputs> {
        let bound = Bindings::new().bind(OUTPUT, output);
        let bindings = surfaces.iter().fold(bound, |bindings, (name, surface)| bindings.bind(*name, surface));
        Ok(LayerInputs { request: executable.prepare(bindings)?, surfaces })
    }

    /// The surfaces, without the request.
    pub fn surfaces(&self) -> &InputSurfaces {
        &self.surfaces
    }

    /// The surface of the input named `input`.
    ///
    /// # Errors
    /// [`ErrorKind::Binding`] for an unknown name.
    pub fn surface(&self, input: &str) -> Result<&Surface> {
        let unknown = || Error::new(ErrorKind::Binding, format!("no input `{input}`")).with_port(input);
        self.surfaces.iter().find(|(n, _)| *n == input).map(|(_, s)| s).ok_or_else(unknown)
    }

    /// The request over these inputs.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Writes an activation `[channels, len]` into its region.
    ///
    /// # Errors
    /// As [`write_region`]; [`ErrorKind::Binding`] for an unknown input; or the surface is in use.
    pub fn write(&self, region: &Region, values: &[f32]) -> Result<()> {
        write_region(&mut self.surface(region.port)?.write()?, region, values)
    }

    /// Writes a layer's tensors into all weight regions of the layout.
    ///
    /// # Errors
    /// A tensor is missing or of another size, or a surface is in use.
    pub fn stage(&self, layout: &KernelLayout, layer: &Layer) -> Result<()> {
        for (name, surface) in &self.surfaces {
            let mut regions = layout.weights().filter(|(r, ..)| r.port == *name).peekable();
            if regions.peek().is_none() {
                continue;
            }
            let mut access = surface.write()?;
            for (region, part, _) in regions {
                let tensor = layer.part(part).ok_or_else(|| {
                    let kernel = layout.kernel.name();
                    Error::new(ErrorKind::Binding, format!("{kernel}: the layer has no tensor {}", part.name()))
                })?;
                stage_weight(&mut access, region, tensor)?;
            }
        }
        Ok(())
    }

    /// Locks the surfaces with weights for writing. All checks are made here, so that writing
    /// cannot fail.
    ///
    /// # Errors
    /// A region does not fit its surface or has not the size of its tensor in this model, or a
    /// surface is in use.
    pub fn open(&self, layout: &KernelLayout, config: &Config) -> Result<OpenWeights> {
        let mut open = Vec::new();
        for (name, surface) in &self.surfaces {
            let mut weight_regions = Vec::new();
            for (region, part, transposed) in layout.weights().filter(|(r, ..)| r.port == *name) {
                let Region { channel, channels, offset, len, .. } = *region;
                let (range, stride) = rectangle(surface.layout(), channel, channels, offset, len)?;
                count(region.name, part.shape(config).iter().product(), channels * len)?;
                weight_regions.push(WeightRegion { part, start: range.start, stride, channels, len, transposed });
            }
            if !weight_regions.is_empty() {
                open.push((surface.write()?, weight_regions));
            }
        }
        Ok(OpenWeights(open))
    }
}

/// The position of a tensor in the fp16 words of a surface.
#[derive(Clone, Copy)]
struct WeightRegion {
    part: Part,
    start: usize,
    /// Words from one channel to the next, at least `len`.
    stride: usize,
    channels: usize,
    len: usize,
    transposed: bool,
}

/// The weight regions of one kernel's input surfaces, locked so that an update can write them piece
/// by piece.
pub struct OpenWeights(Vec<(WriteAccess, Vec<WeightRegion>)>);

impl OpenWeights {
    /// The tensors that have a region here.
    pub fn parts(&self) -> impl Iterator<Item = Part> + '_ {
        self.0.iter().flat_map(|(_, weight_regions)| weight_regions.iter().map(|p| p.part))
    }

    /// Rounds `values` of a tensor, beginning with its value `at`, into its regions. Tensors
    /// without a region are ignored.
    pub fn write(&mut self, part: Part, at: usize, values: &[f32]) {
        for (access, weight_regions) in &mut self.0 {
            for region in weight_regions.iter().filter(|p| p.part == part) {
                region.write(access.f16s_mut(), at, values);
            }
        }
    }
}

impl WeightRegion {
    fn write(&self, words: &mut [f16], at: usize, values: &[f32]) {
        let WeightRegion { start, stride, channels, len, transposed, .. } = *self;
        // The number of values in a row of the tensor.
        let row = if transposed { channels } else { len };
        let rows = values.len() / row;
        if values.is_empty() || at + values.len() > channels * len {
            return;
        }
        if !at.is_multiple_of(row) || rows * row != values.len() {
            for (i, value) in (at..).zip(values) {
                let (channel, column) = if transposed { (i % row, i / row) } else { (i / row, i % row) };
                words[start + channel * stride + column] = f16::from_f32(*value);
            }
        } else if transposed {
            let words = &mut words[start + at / row..];
            convert::f32_to_f16_transposed(values, row, words, stride, rows, row);
        } else {
            let words = &mut words[start + at / row * stride..];
            convert::f32_rows_to_f16(values, row, words, stride, rows, row);
        }
    }
}

/// Allocates the output surface of a loaded kernel.
///
/// # Errors
/// No memory is available, or the program has no output `out`.
pub fn output_surface(device: &Device, executable: &Executable) -> Result<Surface> {
    surface(device, executable, OUTPUT)
}

/// Allocates a surface for a port of the first procedure, with the layout that the machine
/// requires.
fn surface(device: &Device, executable: &Executable, port: &str) -> Result<Surface> {
    let none = || Error::new(ErrorKind::Binding, "the program has no procedure").with_port(port);
    let procedure = executable.procedures().first().ok_or_else(none)?;
    device.surface(&device.fitted(procedure, port)?)
}

/// Rounds fp32 `values` `[channels, len]` into a region.
///
/// # Errors
/// [`ErrorKind::Layout`] for a wrong number of values or a region outside the surface.
pub fn write_region(access: &mut WriteAccess, region: &Region, values: &[f32]) -> Result<()> {
    let (range, stride) = rectangle(access.layout(), region.channel, region.channels, region.offset, region.len)?;
    count(region.name, region.channels * region.len, values.len())?;
    let words = &mut access.f16s_mut()[range];
    convert::f32_rows_to_f16(values, region.len, words, stride, region.channels, region.len);
    Ok(())
}

/// Copies fp16 heads of `[kv_heads · head_dim, len]` into a region of `ratio` times as many
/// channels: query head `h` receives kv head `h / ratio`. The backward kernels of attention read
/// keys and values in this tiled form.
///
/// # Errors
/// As [`write_region`]; also if the region's channels are not a multiple of `ratio` heads.
pub fn write_region_tiled(
    access: &mut WriteAccess,
    region: &Region,
    values: &[f16],
    head_dim: usize,
    ratio: usize,
) -> Result<()> {
    let heads = region.channels / head_dim.max(1);
    if ratio == 0 || head_dim == 0 || heads * head_dim != region.channels || !heads.is_multiple_of(ratio) {
        let text = format!("{}: {} channels are not {ratio} times heads of {head_dim}", region.name, region.channels);
        return Err(Error::new(ErrorKind::Layout, text));
    }
    count(region.name, region.channels / ratio * region.len, values.len())?;
    for (head, block) in values.chunks(head_dim * region.len).enumerate() {
        for r in 0..ratio {
            let channel = region.channel + (head * ratio + r) * head_dim;
            write_region_f16(access, &Region { channel, channels: head_dim, ..*region }, block)?;
        }
    }
    Ok(())
}

/// Rounds a layer's tensor into its region, transposed if the region holds the transpose.
///
/// # Errors
/// As [`write_region`].
pub fn stage_weight(access: &mut WriteAccess, region: &Region, tensor: &[f32]) -> Result<()> {
    let Content::Weight { transposed: true, .. } = region.content else {
        return write_region(access, region, tensor);
    };
    let (range, stride) = rectangle(access.layout(), region.channel, region.channels, region.offset, region.len)?;
    count(region.name, region.channels * region.len, tensor.len())?;
    let words = &mut access.f16s_mut()[range];
    convert::f32_to_f16_transposed(tensor, region.channels, words, stride, region.len, region.channels);
    Ok(())
}

/// Widens a tap to fp32 into `values` `[channels, seq]`.
///
/// # Errors
/// [`ErrorKind::Layout`] for a wrong number of values or a tap outside the surface.
pub fn read_tap(access: &ReadAccess, tap: &Tap, values: &mut [f32]) -> Result<()> {
    let width = access.layout().shape.last().copied().unwrap_or(0);
    let (range, stride) = rectangle(access.layout(), tap.channel, tap.channels, 0, width)?;
    count(tap.name, tap.channels * width, values.len())?;
    convert::f16_rows_to_f32(&access.f16s()[range], stride, values, width, tap.channels, width);
    Ok(())
}

/// Copies fp16 rows `[channels, len]` into a region.
///
/// # Errors
/// As [`write_region`].
pub fn write_region_f16(access: &mut WriteAccess, region: &Region, values: &[f16]) -> Result<()> {
    let (range, stride) = rectangle(access.layout(), region.channel, region.channels, region.offset, region.len)?;
    count(region.name, region.channels * region.len, values.len())?;
    copy_rows(values, region.len, &mut access.f16s_mut()[range], stride, region.len);
    Ok(())
}

/// Copies a tap as fp16 into `values` `[channels, seq]`.
///
/// # Errors
/// As [`read_tap`].
pub fn read_tap_f16(access: &ReadAccess, tap: &Tap, values: &mut [f16]) -> Result<()> {
    let width = access.layout().shape.last().copied().unwrap_or(0);
    let (range, stride) = rectangle(access.layout(), tap.channel, tap.channels, 0, width)?;
    count(tap.name, tap.channels * width, values.len())?;
    copy_rows(&access.f16s()[range], stride, values, width, width);
    Ok(())
}

fn copy_rows(from: &[f16], from_stride: usize, to: &mut [f16], to_stride: usize, width: usize) {
    if (from_stride, to_stride) == (width, width) {
        pool::for_each_chunk_mut(to, PER_TASK, |task, to| to.copy_from_slice(&from[task * PER_TASK..][..to.len()]));
        return;
    }
    for (f, t) in from.chunks(from_stride).zip(to.chunks_mut(to_stride)) {
        t[..width].copy_from_slice(&f[..width]);
    }
}

/// Copies a tap of one kernel into a region of another as fp16. The step passes the probabilities
/// and their gradient from `sdpaBwd1` to `sdpaBwd2` this way (training-dynamic §6, 7g).
///
/// # Errors
/// [`ErrorKind::Layout`] if tap and region differ in size or lie outside their surfaces.
pub fn copy_tap(from: &ReadAccess, tap: &Tap, to: &mut WriteAccess, region: &Region) -> Result<()> {
    let width = from.layout().shape.last().copied().unwrap_or(0);
    if (tap.channels, width) != (region.channels, region.len) {
        let text = format!(
            "{} is [{}, {width}], region {} [{}, {}]",
            tap.name, tap.channels, region.name, region.channels, region.len
        );
        return Err(Error::new(ErrorKind::Layout, text));
    }
    let (source, source_stride) = rectangle(from.layout(), tap.channel, tap.channels, 0, width)?;
    let (target, target_stride) = rectangle(to.layout(), region.channel, region.channels, region.offset, width)?;
    copy_rows(&from.f16s()[source], source_stride, &mut to.f16s_mut()[target], target_stride, width);
    Ok(())
}

/// The range of words that a rectangle of an fp16 surface `[1, C, 1, W]` spans, and the stride from
/// one channel to the next, in words.
fn rectangle(
    layout: &ferrane_device::Layout,
    channel: usize,
    channels: usize,
    offset: usize,
    len: usize,
) -> Result<(Range<usize>, usize)> {
    let bad = |why: String| Error::new(ErrorKind::Layout, why);
    let ([1, c, 1, w], [_, stride, _, element]) = (&layout.shape[..], &layout.strides[..]) else {
        return Err(bad(format!("a surface of shape {:?}, not [1, C, 1, W]", layout.shape)));
    };
    let word = size_of::<f16>();
    if layout.dtype.bytes() != Some(word) || *element != word || stride % word != 0 {
        return Err(bad(format!("a surface of {} with strides {:?}, not fp16 rows", layout.dtype, layout.strides)));
    }
    let fits = |from: usize, n: usize, end: usize| from.checked_add(n).is_some_and(|to| to <= end);
    if channels == 0 || !fits(channel, channels, *c) || !fits(offset, len, *w) {
        return Err(bad(format!(
            "channels {channel}+{channels}, elements {offset}+{len} of a surface [1, {c}, 1, {w}]"
        )));
    }
    let stride = stride / word;
    let start = channel * stride + offset;
    Ok((start..start + (channels - 1) * stride + len, stride))
}

fn count(name: &str, wanted: usize, found: usize) -> Result<()> {
    if wanted == found {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Layout, format!("{name}: {found} values, {wanted} wanted")))
}

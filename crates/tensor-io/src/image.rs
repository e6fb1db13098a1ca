//! Images as tensors `[1, C, H, W]`: PNG and JPEG files are read, PNG files written.
//!
//! A Core ML model with an image input gets a pixel buffer and passes its values, from 0 to 255, to
//! the program as they are: scale and bias are ops of the program (guide "Image Input and Output"
//! and `insert_image_preprocessing_op.py` of coremltools 9.0). So a tensor here holds the values of
//! the pixels, in the order of channels that the input has ([`ColorSpace`]).
//!
//! - 16-bit samples keep their upper 8 bits; alpha is dropped. A gray image fills three equal
//!   channels; a color image becomes gray by the weights 0.299, 0.587 and 0.114 (ITU-R BT.601), as
//!   in Pillow. A JPEG file's pixels are turned as its metadata say, as by Pillow's
//!   `ImageOps.exif_transpose`, so a tensor has the image as viewers show it.
//! - An output is rounded to the nearest integer and limited to 0 and 255; NaN becomes 0. Apple
//!   does not document how it rounds.
//!
//! Core ML takes images of the input's size only. [`Fit::Resize`] scales others to it, without
//! keeping the ratio of their sides, with a triangle filter that covers every pixel of the source:
//! Pillow's `resize(…, BILINEAR)`.

use std::io::Cursor;
use std::path::Path;

use ferrane_device::Tensor;
use ferrane_mil::package::{ColorSpace, Description, FeatureType};
use ferrane_mil::program::Type;
use ferrane_mil::{DataType, Function};
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace as JpegColors;
use zune_jpeg::zune_core::options::DecoderOptions;

use crate::exif::Orientation;
use crate::{Error, Format, Result, TensorSource};

/// The most pixels of an image that is read.
const MOST_PIXELS: usize = 1 << 28;

/// What happens to an image of another size than the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fit {
    /// It is refused, as Core ML refuses it.
    #[default]
    Exact,
    /// It is scaled to the input's size.
    Resize,
}

/// Pixels in rows, channels next to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    width: usize,
    height: usize,
    /// 1 or 3.
    channels: usize,
    samples: Vec<u8>,
}

fn bad(message: impl Into<String>) -> Error {
    Error::Format(message.into())
}

impl Image {
    /// Decodes a PNG or JPEG file, which is recognized by its first bytes.
    ///
    /// # Errors
    /// [`Error::Format`] for another or a damaged file, or one of more than 2^28 pixels.
    pub fn decode(file: &[u8]) -> Result<Image> {
        if file.starts_with(b"\x89PNG") {
            decode_png(file)
        } else if file.starts_with(b"\xff\xd8") {
            decode_jpeg(file)
        } else {
            Err(bad("neither a PNG nor a JPEG image"))
        }
    }

    /// Pixels in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows of pixels, from top to bottom.
    pub fn height(&self) -> usize {
        self.height
    }

    /// The color space of the file: RGB, or gray.
    pub fn color(&self) -> ColorSpace {
        if self.channels == 3 { ColorSpace::Rgb } else { ColorSpace::Gray }
    }

    /// The samples as uint8 `[1, C, H, W]`, in the order of these channels.
    ///
    /// # Errors
    /// None for an image that was decoded.
    pub fn tensor(&self, color: ColorSpace) -> Result<Tensor> {
        let pixels = self.samples.chunks_exact(self.channels);
        let channel = |c: usize| -> Vec<u8> {
            match (self.channels, color.channels()) {
                (3, 1) => pixels.clone().map(luma).collect(),
                (1, _) => self.samples.clone(),
                _ => {
                    let at = if color == ColorSpace::Bgr { 2 - c } else { c };
                    pixels.clone().map(|p| p[at]).collect()
                }
            }
        };
        let planes: Vec<u8> = (0..color.channels()).flat_map(channel).collect();
        Ok(Tensor::new(DataType::UInt8, [1, color.channels(), self.height, self.width], planes)?)
    }

    /// The image at another size. Each pass, over rows and then over columns, rounds to 8 bits.
    ///
    /// # Errors
    /// [`Error::Mismatch`] for a size without pixels or of more than 2^28.
    pub fn resized(&self, width: usize, height: usize) -> Result<Image> {
        let pixels = width.checked_mul(height).filter(|n| (1..=MOST_PIXELS).contains(n));
        let rows = width.checked_mul(self.height).filter(|n| *n <= MOST_PIXELS);
        if pixels.is_none() || rows.is_none() {
            return Err(Error::Mismatch(format!("an image cannot be scaled to {width} wide and {height} high")));
        }
        let (c, old) = (self.channels, self.width);
        let mut wide = vec![0u8; width * self.height * c];
        for (x, (first, weights)) in triangle(old, width).into_iter().enumerate() {
            for y in 0..self.height {
                for k in 0..c {
                    let sample = |i: usize| self.samples[(y * old + first + i) * c + k];
                    wide[(y * width + x) * c + k] = weighted(&weights, sample);
                }
            }
        }
        let mut samples = vec![0u8; width * height * c];
        for (y, (first, weights)) in triangle(self.height, height).into_iter().enumerate() {
            for x in 0..width * c {
                samples[y * width * c + x] = weighted(&weights, |i| wide[(first + i) * width * c + x]);
            }
        }
        Ok(Image { width, height, channels: c, samples })
    }
}

/// ITU-R BT.601 in whole numbers, as in Pillow's `convert("L")`.
fn luma(p: &[u8]) -> u8 {
    let weights = [19595u32, 38470, 7471];
    let sum: u32 = p.iter().zip(weights).map(|(v, w)| u32::from(*v) * w).sum();
    ((sum + 0x8000) >> 16) as u8
}

fn weighted(weights: &[f64], sample: impl Fn(usize) -> u8) -> u8 {
    let sum: f64 = weights.iter().enumerate().map(|(i, w)| w * f64::from(sample(i))).sum();
    sum.round().clamp(0.0, 255.0) as u8
}

/// For each of `to` positions: the first of `from` samples that it covers, and their weights.
fn triangle(from: usize, to: usize) -> Vec<(usize, Vec<f64>)> {
    let scale = from as f64 / to as f64;
    let reach = scale.max(1.0);
    let one = |x: usize| {
        let center = (x as f64 + 0.5) * scale;
        let first = ((center - reach + 0.5).max(0.0) as usize).min(from - 1);
        let end = ((center + reach + 0.5) as usize).clamp(first + 1, from);
        let weight = |i: usize| (1.0 - ((i as f64 + 0.5 - center) / reach).abs()).max(0.0);
        let weights: Vec<f64> = (first..end).map(weight).collect();
        let sum: f64 = weights.iter().sum();
        (first, weights.iter().map(|w| if sum > 0.0 { w / sum } else { 0.0 }).collect())
    };
    (0..to).map(one).collect()
}

fn decode_png(file: &[u8]) -> Result<Image> {
    let damaged = |e: png::DecodingError| bad(format!("not a readable PNG image: {e}"));
    let limits = png::Limits { bytes: MOST_PIXELS * 4 };
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(file), limits);
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(damaged)?;
    let (width, height) = (reader.info().width as usize, reader.info().height as usize);
    checked_size(width, height)?;
    let size = reader.output_buffer_size().ok_or_else(|| bad("the PNG image is too large"))?;
    let mut samples = vec![0u8; size];
    let frame = reader.next_frame(&mut samples).map_err(damaged)?;
    samples.truncate(frame.buffer_size());
    let found = frame.color_type.samples();
    let kept = if found >= 3 { 3 } else { 1 };
    if found != kept {
        samples = samples.chunks_exact(found).flat_map(|p| &p[..kept]).copied().collect();
    }
    Image { width, height, channels: kept, samples }.complete()
}

fn decode_jpeg(file: &[u8]) -> Result<Image> {
    let damaged = |e: zune_jpeg::errors::DecodeErrors| bad(format!("not a readable JPEG image: {e}"));
    let options = DecoderOptions::default().jpeg_set_out_colorspace(JpegColors::RGB);
    let mut decoder = zune_jpeg::JpegDecoder::new_with_options(ZCursor::new(file), options);
    decoder.decode_headers().map_err(damaged)?;
    let (width, height) = decoder.dimensions().ok_or_else(|| bad("the JPEG image has no size"))?;
    checked_size(width, height)?;
    if decoder.input_colorspace() == Some(JpegColors::Luma) {
        decoder.set_options(DecoderOptions::default().jpeg_set_out_colorspace(JpegColors::Luma));
    }
    let samples = decoder.decode().map_err(damaged)?;
    let channels = if decoder.output_colorspace() == Some(JpegColors::Luma) { 1 } else { 3 };
    let stored = Image { width, height, channels, samples }.complete()?;
    let Some(orientation) = decoder.exif().and_then(|exif| Orientation::read(exif)) else { return Ok(stored) };
    let (samples, width) = orientation.turned(&stored.samples, width, height, channels);
    Ok(Image { width, height: stored.samples.len() / channels / width, channels, samples })
}

fn checked_size(width: usize, height: usize) -> Result<()> {
    match width.checked_mul(height) {
        Some(1..=MOST_PIXELS) => Ok(()),
        _ => Err(bad(format!("an image of {width} x {height} pixels is not read; the most are {MOST_PIXELS}"))),
    }
}

impl Image {
    /// The image, if it has a sample for every pixel and channel.
    fn complete(self) -> Result<Image> {
        if self.samples.len() == self.width * self.height * self.channels {
            return Ok(self);
        }
        Err(bad("the image ends before its last pixel"))
    }
}

/// The PNG file of a tensor `[1, C, H, W]`, or one without the first axes, whose channels are
/// these.
///
/// # Errors
/// [`Error::Format`] for a tensor of another shape.
pub fn to_png(tensor: &Tensor, color: ColorSpace) -> Result<Vec<u8>> {
    let shape = tensor.shape();
    let channels = color.channels();
    let &[.., height, width] = shape else { return Err(no_image(tensor)) };
    let leading: usize = shape[..shape.len() - 2].iter().product();
    let (Ok(w), Ok(h)) = (u32::try_from(width), u32::try_from(height)) else { return Err(no_image(tensor)) };
    if leading != channels || tensor.is_empty() {
        return Err(no_image(tensor));
    }
    let values = tensor.to_f32();
    let plane = width * height;
    let order: &[usize] = match color {
        ColorSpace::Rgb => &[0, 1, 2],
        ColorSpace::Bgr => &[2, 1, 0],
        ColorSpace::Gray | ColorSpace::GrayFp16 => &[0],
    };
    let sample = |v: f32| if v.is_nan() { 0 } else { v.round_ties_even().clamp(0.0, 255.0) as u8 };
    let samples: Vec<u8> =
        (0..plane).flat_map(|i| order.iter().map(move |c| c * plane + i)).map(|i| sample(values[i])).collect();
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, w, h);
    encoder.set_color(if channels == 3 { png::ColorType::Rgb } else { png::ColorType::Grayscale });
    encoder.set_depth(png::BitDepth::Eight);
    let failed = |e: png::EncodingError| bad(format!("the image cannot be written: {e}"));
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(&samples).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(file)
}

fn no_image(tensor: &Tensor) -> Error {
    let (dtype, shape) = (tensor.dtype(), tensor.shape());
    bad(format!("{dtype} {shape:?} is not an image; it must be [1, 1, H, W] or [1, 3, H, W]"))
}

/// The color space of an image file for an input that is not described as an image: by its
/// channels.
pub(crate) fn color_of(ty: &Type) -> Result<ColorSpace> {
    match ty.shape().as_deref() {
        Some([1, 3, ..]) => Ok(ColorSpace::Rgb),
        Some([1, 1, ..]) => Ok(ColorSpace::Gray),
        _ => {
            let message = format!("the input is {ty}, and an image is [1, 3, H, W] or [1, 1, H, W]; give an array");
            Err(Error::Mismatch(message))
        }
    }
}

/// Reads an image file for an input of this type.
pub(crate) fn read(path: &Path, color: ColorSpace, fit: Fit, ty: &Type) -> Result<Tensor> {
    let image = crate::format::mapped(path).and_then(|file| Image::decode(&file)).map_err(|e| e.at(path))?;
    let wanted = match ty.shape().as_deref() {
        Some([.., height, width]) => (*width, *height),
        _ => (image.width, image.height),
    };
    if wanted == (image.width, image.height) {
        return image.tensor(color);
    }
    let (width, height) = wanted;
    match fit {
        Fit::Resize => image.resized(width, height)?.tensor(color),
        Fit::Exact => Err(Error::ImageSize { found: (image.width, image.height), wanted: (width, height) }),
    }
}

/// The size of an image file: width and height.
pub(crate) fn size(path: &Path) -> Result<(usize, usize)> {
    let image = crate::format::mapped(path).and_then(|file| Image::decode(&file)).map_err(|e| e.at(path))?;
    Ok((image.width, image.height))
}

/// The sources, where those that are image files know how the described input takes its pixels.
pub fn with_images(
    sources: Vec<(String, TensorSource)>,
    function: &Function,
    description: Option<&Description>,
    fit: Fit,
) -> Vec<(String, TensorSource)> {
    let ports = description.map(Description::functions).unwrap_or_default();
    let ports = ports.into_iter().find(|p| p.function == function.name).map(|p| p.inputs).unwrap_or_default();
    let one = |(name, source): (String, TensorSource)| {
        let described = ports.iter().find(|p| p.name == name).and_then(|p| match &p.ty {
            FeatureType::Image(image) => image.color,
            _ => None,
        });
        let source = match source {
            TensorSource::File(path, None) if Format::of(&path).is_some_and(Format::is_image) => {
                TensorSource::Image { path, color: described, fit }
            }
            source => source,
        };
        (name, source)
    };
    sources.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gradient() -> Image {
        let samples = (0..4 * 3 * 3).map(|i| (i * 7) as u8).collect();
        Image { width: 4, height: 3, channels: 3, samples }
    }

    #[test]
    fn a_png_is_read_as_it_was_written() {
        for color in [ColorSpace::Rgb, ColorSpace::Bgr] {
            let tensor = gradient().tensor(color).unwrap();
            assert_eq!(tensor.shape(), [1, 3, 3, 4]);
            let back = Image::decode(&to_png(&tensor, color).unwrap()).unwrap();
            assert_eq!(back, gradient());
        }
        let gray = gradient().tensor(ColorSpace::Gray).unwrap();
        let back = Image::decode(&to_png(&gray, ColorSpace::Gray).unwrap()).unwrap();
        assert_eq!(back.tensor(ColorSpace::Gray).unwrap(), gray);
        assert_eq!(back.tensor(ColorSpace::Rgb).unwrap().to_f32()[..12], gray.to_f32()[..]);
    }

    #[test]
    fn channels_have_the_order_of_the_input() {
        let image = Image { width: 1, height: 1, channels: 3, samples: vec![10, 20, 30] };
        assert_eq!(image.tensor(ColorSpace::Rgb).unwrap().to_f32(), [10.0, 20.0, 30.0]);
        assert_eq!(image.tensor(ColorSpace::Bgr).unwrap().to_f32(), [30.0, 20.0, 10.0]);
        // 0.299 · 10 + 0.587 · 20 + 0.114 · 30 = 18.15
        assert_eq!(image.tensor(ColorSpace::Gray).unwrap().to_f32(), [18.0]);
    }

    #[test]
    fn outputs_are_rounded_and_limited() {
        let tensor = Tensor::fp32(&[1, 1, 1, 5], &[-3.0, 0.6, 254.5, 300.0, f32::NAN]).unwrap();
        let image = Image::decode(&to_png(&tensor, ColorSpace::Gray).unwrap()).unwrap();
        assert_eq!(image.samples, [0, 1, 254, 255, 0]);
        assert!(to_png(&Tensor::fp32(&[2, 3], &[0.0; 6]).unwrap(), ColorSpace::Rgb).is_err());
    }

    /// Pillow 13.0.0: `Image.fromarray(a).resize(size, Image.BILINEAR)`.
    #[test]
    fn sizes_change_as_in_pillow() {
        let samples: Vec<u8> = vec![0, 50, 100, 150, 200, 250, 20, 40, 60, 80, 100, 120];
        let image = Image { width: 6, height: 2, channels: 1, samples };
        assert_eq!(image.resized(3, 1).unwrap().samples, PILLOW_DOWN);
        assert_eq!(image.resized(8, 3).unwrap().samples, PILLOW_UP);
        assert!(image.resized(0, 3).is_err());
    }

    const PILLOW_DOWN: [u8; 3] = [35, 98, 160];
    const PILLOW_UP: [u8; 24] =
        [0, 31, 69, 106, 144, 181, 219, 250, 10, 32, 59, 85, 111, 137, 164, 185, 20, 33, 48, 63, 78, 93, 108, 120];

    #[test]
    fn a_jpeg_is_turned_as_its_metadata_say() {
        let file = include_bytes!("../../suite/fixtures/converted/photo.jpg");
        let plain = Image::decode(file).unwrap();
        let (width, height) = (plain.width(), plain.height());
        assert_ne!(width, height);
        for (value, turned) in [(1, false), (3, false), (6, true), (8, true)] {
            let exif = [b"Exif\0\0", &crate::exif::tests::metadata(false, value)[..]].concat();
            let length = (exif.len() as u16 + 2).to_be_bytes();
            let file = [&file[..2], b"\xff\xe1", &length, &exif, &file[2..]].concat();
            let image = Image::decode(&file).unwrap();
            let size = if turned { (height, width) } else { (width, height) };
            assert_eq!((image.width(), image.height()), size);
            // The pixel that was stored first.
            let at = match value {
                3 => width * height - 1,
                6 => height - 1,
                8 => (width - 1) * height,
                _ => 0,
            };
            assert_eq!(image.samples[at * 3..at * 3 + 3], plain.samples[..3], "{value}");
        }
    }

    #[test]
    fn damaged_files_are_refused() {
        let whole = to_png(&gradient().tensor(ColorSpace::Rgb).unwrap(), ColorSpace::Rgb).unwrap();
        for end in 0..whole.len() - 12 {
            assert!(Image::decode(&whole[..end]).is_err(), "{end}");
        }
        for at in 0..whole.len() {
            let mut file = whole.clone();
            file[at] ^= 0x55;
            let _ = Image::decode(&file);
        }
        assert!(Image::decode(b"\xff\xd8\xff\xe0\0\x10JFIF").is_err());
    }
}

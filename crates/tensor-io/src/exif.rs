//! How the pixels of a JPEG file are turned for display, from its Exif metadata.
//!
//! Metadata that are damaged or hold no orientation leave the pixels as they are, as viewers do.

/// The tag of the orientation in the first directory of the metadata, which have the form of a TIFF
/// file.
const ORIENTATION: u16 = 0x0112;
/// The type of a 16-bit whole number.
const SHORT: u16 = 3;

/// An orientation other than the stored one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Orientation {
    /// Width and height are exchanged, before the image is mirrored.
    transposed: bool,
    /// Each row is displayed from its last pixel to its first.
    mirrored: bool,
    /// The last row is displayed first.
    upended: bool,
}

/// Numbers of a TIFF file in its byte order.
struct Tiff<'a> {
    bytes: &'a [u8],
    little: bool,
}

impl Tiff<'_> {
    fn short(&self, at: usize) -> Option<u16> {
        let bytes = self.bytes.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if self.little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    }

    fn long(&self, at: usize) -> Option<u32> {
        let bytes = self.bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if self.little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }
}

impl Orientation {
    /// Reads the orientation of metadata that begin with a byte order; `None` for the stored one.
    pub(crate) fn read(exif: &[u8]) -> Option<Orientation> {
        let tiff = Tiff { bytes: exif, little: exif.starts_with(b"II") };
        if !tiff.little && !exif.starts_with(b"MM") || tiff.short(2)? != 42 {
            return None;
        }
        let directory = tiff.long(4)? as usize;
        let entries = usize::from(tiff.short(directory)?);
        let entry = |i: usize| directory.checked_add(2 + 12 * i);
        let found = (0..entries).filter_map(entry).find(|&at| tiff.short(at) == Some(ORIENTATION))?;
        if tiff.short(found + 2)? != SHORT {
            return None;
        }
        let (transposed, mirrored, upended) = match tiff.short(found + 8)? {
            2 => (false, true, false),
            3 => (false, true, true),
            4 => (false, false, true),
            5 => (true, false, false),
            6 => (true, true, false),
            7 => (true, true, true),
            8 => (true, false, true),
            _ => return None,
        };
        Some(Orientation { transposed, mirrored, upended })
    }

    /// Turns pixels of `channels` samples in rows of `width`; the new pixels and their width.
    pub(crate) fn turned(self, pixels: &[u8], width: usize, height: usize, channels: usize) -> (Vec<u8>, usize) {
        let (wide, high) = if self.transposed { (height, width) } else { (width, height) };
        let mut turned = Vec::with_capacity(pixels.len());
        for y in 0..high {
            for x in 0..wide {
                let x = if self.mirrored { wide - 1 - x } else { x };
                let y = if self.upended { high - 1 - y } else { y };
                let (x, y) = if self.transposed { (y, x) } else { (x, y) };
                let at = (y * width + x) * channels;
                turned.extend_from_slice(&pixels[at..at + channels]);
            }
        }
        (turned, wide)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Metadata with an orientation after another entry.
    pub(crate) fn metadata(little: bool, value: u16) -> Vec<u8> {
        let short = |v: u16| if little { v.to_le_bytes() } else { v.to_be_bytes() };
        let long = |v: u32| if little { v.to_le_bytes() } else { v.to_be_bytes() };
        let mut bytes = if little { b"II".to_vec() } else { b"MM".to_vec() };
        bytes.extend([&short(42)[..], &long(8), &short(2)].concat());
        for (tag, value) in [(0x0100, 7), (ORIENTATION, value)] {
            bytes.extend([&short(tag)[..], &short(SHORT), &long(1), &short(value), &short(0)].concat());
        }
        bytes.extend(long(0));
        bytes
    }

    /// Pillow 13.0.0: `ImageOps.exif_transpose` of the rows 1 2 3 and 4 5 6.
    const PILLOW: [(u16, usize, [u8; 6]); 7] = [
        (2, 3, [3, 2, 1, 6, 5, 4]),
        (3, 3, [6, 5, 4, 3, 2, 1]),
        (4, 3, [4, 5, 6, 1, 2, 3]),
        (5, 2, [1, 4, 2, 5, 3, 6]),
        (6, 2, [4, 1, 5, 2, 6, 3]),
        (7, 2, [6, 3, 5, 2, 4, 1]),
        (8, 2, [3, 6, 2, 5, 1, 4]),
    ];

    #[test]
    fn pixels_are_turned_as_by_pillow() {
        for (value, width, pixels) in PILLOW {
            for little in [true, false] {
                let orientation = Orientation::read(&metadata(little, value)).unwrap();
                assert_eq!(orientation.turned(&[1, 2, 3, 4, 5, 6], 3, 2, 1), (pixels.to_vec(), width), "{value}");
            }
        }
    }

    #[test]
    fn other_metadata_leave_the_pixels() {
        for value in [0, 1, 9, u16::MAX] {
            assert_eq!(Orientation::read(&metadata(true, value)), None);
        }
        let whole = metadata(true, 6);
        for end in 0..whole.len() {
            let _ = Orientation::read(&whole[..end]);
        }
        for at in 0..whole.len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] ^= flip;
                let _ = Orientation::read(&damaged);
            }
        }
    }
}

//! A port of a request: a surface and the array that Core ML uses for it.
//!
//! If the element types agree, the array is over the surface itself. Otherwise it has its own
//! memory, and elements are converted.

use std::sync::Arc;

use ferrane_device::{Error, ErrorKind, Layout, Port, Result, Surface};
use ferrane_host::buffer::SharedBytes;
use ferrane_host::f16;
use ferrane_mil::boundary::port_type;
use ferrane_mil::{DataType, Type};

use crate::bind::coreml::{ArrayType, FeatureValue, MultiArray, NoBlock};
use crate::bind::foundation::{List, Number, Text, list, number, text};

/// A port with its surface and array.
pub(super) struct PortArray {
    /// The name of the port.
    pub(super) port: String,
    /// The name as an object for Core ML.
    pub(super) name: Text,
    surface: Surface,
    array: MultiArray,
    dtype: ArrayType,
    /// The layout of the array.
    layout: Layout,
    /// The array's own memory; `None` if the array is over the surface.
    own: Option<SharedBytes>,
}

/// The size of an array element in bytes, fp32 or int32.
const ELEMENT: usize = 4;

fn numbers(values: impl IntoIterator<Item = usize>) -> Result<List> {
    list(&values.into_iter().map(|v| number(v as u64)).collect::<Result<Vec<_>>>()?)
}

fn read(list: &List) -> Result<Vec<usize>> {
    let number = |o: crate::bind::Object| Ok(o.cast::<Number>()?.value()?.try_into().unwrap_or(usize::MAX));
    list.elements()?.into_iter().map(number).collect()
}

impl PortArray {
    /// Creates the array for a port bound to a surface.
    ///
    /// # Errors
    /// Core ML's error, or no memory.
    pub(super) fn new(port: &Port, surface: &Surface) -> Result<PortArray> {
        let bad = |why: String| Error::new(ErrorKind::Binding, why).with_port(&port.name);
        let Layout { dtype, shape, .. } = surface.layout();
        let wide = port_type(&port.name, &Type::tensor(*dtype, shape)).map_err(|e| bad(e.to_string()))?;
        let (Some(wide), Some(shape)) = (wide.dtype(), wide.shape()) else { return Err(bad("no tensor".into())) };
        let array_type = if wide == DataType::Int32 { ArrayType::Int32 } else { ArrayType::Fp32 };
        let packed = Layout::packed(wide, &shape)?;
        let (layout, own) = if wide == *dtype && surface.layout().shape == shape {
            (surface.layout().clone(), None)
        } else {
            let none = |e| Error::new(ErrorKind::OutOfMemory, "no memory for an array").with_source(e);
            let bytes = SharedBytes::new(packed.allocation.max(ELEMENT)).map_err(none)?;
            (packed, Some(bytes))
        };
        let bytes = own.as_ref().unwrap_or(surface.memory().bytes());
        let strides = numbers(layout.strides.iter().map(|s| s / ELEMENT))?;
        let memory = bytes.address().as_ptr().cast_const().cast();
        // The array's memory belongs to this value or to the surface that it keeps, so it outlives
        // the array.
        let array = MultiArray::over(memory, &numbers(shape)?, array_type as isize, &strides, NoBlock::NIL)?;
        let name = text(&port.name)?;
        Ok(PortArray { port: port.name.clone(), name, surface: surface.clone(), array, dtype: array_type, layout, own })
    }

    /// The array as a feature value.
    pub(super) fn value(&self) -> Result<FeatureValue> {
        FeatureValue::with(&self.array)?
    }

    /// The array that Core ML reads or writes.
    pub(super) fn array(&self) -> &MultiArray {
        &self.array
    }

    /// Keeps the CPU's view of the surface coherent until it is dropped: Core ML accesses it as the
    /// CPU does.
    pub(super) fn lock(&self, write: bool) -> Result<Locked> {
        self.surface.memory().begin_cpu(write)?;
        Ok(Locked { memory: self.surface.memory().clone(), write })
    }

    fn busy(&self) -> Error {
        Error::new(ErrorKind::Busy, "the request is running").with_port(&self.port)
    }

    fn odd(&self, why: &str) -> Error {
        Error::new(ErrorKind::System, why).with_port(&self.port)
    }

    /// Converts the surface's elements into the array.
    pub(super) fn load(&self, surface: &[u8]) -> Result<()> {
        let Some(own) = &self.own else { return Ok(()) };
        let mut own = own.try_write().ok_or_else(|| self.busy())?;
        let to = own.as_mut_slice::<f32>().map_err(|_| self.odd("odd memory"))?;
        let layout = self.surface.layout();
        let width = layout.shape.last().copied().unwrap_or(1).max(1);
        for (i, to) in to.chunks_mut(width).enumerate() {
            let from = layout.row(i).and_then(|row| surface.get(row));
            widen(layout.dtype, from.unwrap_or_default(), to);
        }
        Ok(())
    }

    /// Converts the array's elements into the surface.
    pub(super) fn store(&self, surface: &mut [u8]) -> Result<()> {
        let Some(own) = &self.own else { return Ok(()) };
        let own = own.try_read().ok_or_else(|| self.busy())?;
        let from = own.as_slice::<f32>().map_err(|_| self.odd("odd memory"))?;
        let layout = self.surface.layout();
        let width = layout.shape.last().copied().unwrap_or(1).max(1);
        for (i, from) in from.chunks(width).enumerate() {
            if let Some(to) = layout.row(i).and_then(|row| surface.get_mut(row)) {
                narrow(layout.dtype, from, to);
            }
        }
        Ok(())
    }

    /// Copies Core ML's result into the array, if Core ML did not write it there.
    ///
    /// # Errors
    /// [`ErrorKind::Evaluate`] if the result has another type or shape.
    pub(super) fn take(&self, found: &MultiArray, surface: &mut [u8]) -> Result<()> {
        let data = found.data()?;
        if data.cast::<u8>() == self.bytes().address().as_ptr() {
            return Ok(());
        }
        let other = |what: String| Error::new(ErrorKind::Evaluate, what).with_port(&self.port);
        let (dtype, shape, strides) = (found.dtype()?, read(&found.shape()??)?, read(&found.strides()??)?);
        if dtype != self.dtype as isize || shape != self.layout.shape || strides.len() != shape.len() || data.is_null()
        {
            return Err(other(format!("Core ML answered with another tensor: type {dtype}, {shape:?}")));
        }
        let from = Layout {
            strides: strides.iter().map(|s| s.saturating_mul(ELEMENT)).collect(),
            allocation: usize::MAX,
            ..self.layout.clone()
        };
        let rows = (0..).map_while(|i| Some((self.layout.row(i)?, from.row(i)?)));
        let step = from.strides.last().copied().unwrap_or(ELEMENT);
        let copy = |bytes: &mut [u8]| {
            for (to, from) in rows {
                for (i, to) in bytes.get_mut(to).unwrap_or_default().chunks_exact_mut(ELEMENT).enumerate() {
                    // SAFETY: an array with this shape and these strides has an element of four
                    // bytes at this offset; the memory is valid while `found` is held.
                    unsafe {
                        std::ptr::copy_nonoverlapping(
                            data.cast::<u8>().add(from.start + i * step),
                            to.as_mut_ptr(),
                            ELEMENT,
                        )
                    };
                }
            }
        };
        match &self.own {
            Some(own) => copy(&mut own.try_write().ok_or_else(|| self.busy())?),
            None => copy(surface),
        }
        Ok(())
    }

    fn bytes(&self) -> &SharedBytes {
        self.own.as_ref().unwrap_or(self.surface.memory().bytes())
    }

    /// Sets every element of the array to a 32-bit word.
    pub(super) fn fill(&self, word: u32, surface: &mut [u8]) -> Result<()> {
        let fill = |bytes: &mut [u8]| {
            for row in (0..).map_while(|i| self.layout.row(i)) {
                let elements = bytes.get_mut(row).unwrap_or_default().chunks_exact_mut(ELEMENT);
                elements.for_each(|e| e.copy_from_slice(&word.to_le_bytes()));
            }
        };
        match &self.own {
            Some(own) => fill(&mut own.try_write().ok_or_else(|| self.busy())?),
            None => fill(surface),
        }
        Ok(())
    }

    /// True if every element of the array equals the word; false for an array without elements.
    pub(super) fn holds(&self, word: u32, surface: &[u8]) -> Result<bool> {
        let holds = |bytes: &[u8]| {
            let rows = (0..).map_while(|i| self.layout.row(i));
            let mut elements = rows.filter_map(|row| bytes.get(row)).flat_map(|row| row.chunks_exact(ELEMENT));
            self.layout.elements() > 0 && elements.all(|e| e == word.to_le_bytes())
        };
        Ok(match &self.own {
            Some(own) => holds(&own.try_read().ok_or_else(|| self.busy())?),
            None => holds(surface),
        })
    }
}

/// A surface that is locked while Core ML uses it.
pub(super) struct Locked {
    memory: Arc<dyn ferrane_device::Memory>,
    write: bool,
}

impl Drop for Locked {
    fn drop(&mut self) {
        self.memory.end_cpu(self.write);
    }
}

/// Converts elements of a type to fp32, which represents all of them.
fn widen(dtype: DataType, from: &[u8], to: &mut [f32]) {
    let two = || from.chunks_exact(2).map(|b| [b[0], b[1]]);
    match dtype {
        DataType::Fp16 => to.iter_mut().zip(two()).for_each(|(t, b)| *t = f16::from_le_bytes(b).to_f32()),
        DataType::Bool => to.iter_mut().zip(from).for_each(|(t, b)| *t = f32::from(u8::from(*b != 0))),
        DataType::Int8 => to.iter_mut().zip(from).for_each(|(t, b)| *t = f32::from(*b as i8)),
        DataType::UInt8 => to.iter_mut().zip(from).for_each(|(t, b)| *t = f32::from(*b)),
        DataType::Int16 => to.iter_mut().zip(two()).for_each(|(t, b)| *t = f32::from(i16::from_le_bytes(b))),
        DataType::UInt16 => to.iter_mut().zip(two()).for_each(|(t, b)| *t = f32::from(u16::from_le_bytes(b))),
        // fp32 that only needed another axis.
        _ => {
            to.iter_mut().zip(from.chunks_exact(4)).for_each(|(t, b)| *t = f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        }
    }
}

/// The inverse of `widen`: the program cast the values from the type, so the conversion is exact.
fn narrow(dtype: DataType, from: &[f32], to: &mut [u8]) {
    let one = |to: &mut [u8], convert: fn(f32) -> u8| to.iter_mut().zip(from).for_each(|(t, v)| *t = convert(*v));
    let two = |to: &mut [u8], convert: fn(f32) -> [u8; 2]| {
        to.chunks_exact_mut(2).zip(from).for_each(|(t, v)| t.copy_from_slice(&convert(*v)));
    };
    match dtype {
        DataType::Fp16 => two(to, |v| f16::from_f32(v).to_le_bytes()),
        DataType::Bool => one(to, |v| u8::from(v != 0.0)),
        DataType::Int8 => one(to, |v| v as i8 as u8),
        DataType::UInt8 => one(to, |v| v as u8),
        DataType::Int16 => two(to, |v| (v as i16).to_le_bytes()),
        DataType::UInt16 => two(to, |v| (v as u16).to_le_bytes()),
        _ => to.chunks_exact_mut(4).zip(from).for_each(|(t, v)| t.copy_from_slice(&v.to_le_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_of_a_type_comes_back() {
        let both = |dtype, bytes: Vec<u8>, width: usize| {
            let mut wide = vec![f32::NAN; bytes.len() / width];
            widen(dtype, &bytes, &mut wide);
            let mut back = vec![0xAA; bytes.len()];
            narrow(dtype, &wide, &mut back);
            assert_eq!(back, bytes, "{dtype}");
        };
        let words = || (0..=u16::MAX).flat_map(u16::to_le_bytes).collect::<Vec<_>>();
        both(DataType::Int16, words(), 2);
        both(DataType::UInt16, words(), 2);
        both(DataType::Int8, (0..=255).collect(), 1);
        both(DataType::UInt8, (0..=255).collect(), 1);
        both(DataType::Bool, vec![0, 1], 1);
        both(DataType::Fp32, [1.5f32, -0.0, f32::MAX].iter().flat_map(|v| v.to_le_bytes()).collect(), 4);
        // NaNs stay NaNs; all other values keep their bits.
        let numbers = (0..=u16::MAX).filter(|w| !f16::from_bits(*w).is_nan()).flat_map(u16::to_le_bytes);
        both(DataType::Fp16, numbers.collect(), 2);
    }
}

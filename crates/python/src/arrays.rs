//! Arrays of numpy, and whatever numpy takes for one, as tensors, and tensors as arrays.

use ferrane::mil::{DataType, Function, Type};
use ferrane::{Error, ErrorKind, Tensor, Tensors};
use half::f16;
use numpy::{
    Element, PyArrayDescrMethods as _, PyArrayDyn, PyArrayMethods as _, PyUntypedArray, PyUntypedArrayMethods as _,
};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{device, failed, of_input};

/// A parameter as a model declares it: its name, its type, and its shape unless that varies.
pub type Declared = (String, DataType, Option<Vec<usize>>);

/// The inputs and the states of a function.
pub fn parameters(function: &Function) -> (Vec<Declared>, Vec<Declared>) {
    let (mut inputs, mut states) = (Vec::new(), Vec::new());
    for &input in &function.inputs {
        let value = function.value(input);
        let (list, ty) = match &value.ty {
            Type::State(ty) => (&mut states, &**ty),
            ty => (&mut inputs, ty),
        };
        list.push(declared(&value.name, ty));
    }
    (inputs, states)
}

/// A parameter or a result of a function.
pub fn declared(name: &str, ty: &Type) -> Declared {
    (name.to_string(), ty.dtype().unwrap_or(DataType::Fp32), ty.shape())
}

/// A C-contiguous array, in the byte order of this computer, of anything that numpy or DLPack takes
/// for one. Nothing is copied unless this requires it.
fn as_array<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyUntypedArray>> {
    // What most callers give, without a call of numpy.
    if let Ok(array) = value.cast_exact::<PyUntypedArray>()
        && array.is_c_contiguous()
        && array.dtype().is_native_byteorder() != Some(false)
        && value.getattr("flags")?.getattr("aligned")?.is_truthy()?
    {
        return Ok(array.clone());
    }
    let numpy = value.py().import("numpy")?;
    let is_array = value.is_instance_of::<PyUntypedArray>();
    if is_array && value.is_instance(&numpy.getattr("ma")?.getattr("MaskedArray")?)? {
        return Err(failed("a masked array has no value where it is masked; give `filled(…)`"));
    }
    let foreign = !is_array && value.hasattr("__dlpack__")?;
    let value = if foreign { numpy.call_method1("from_dlpack", (value,))? } else { value.clone() };
    let array = numpy.call_method1("asarray", (value,))?;
    let dtype = array.getattr("dtype")?.call_method1("newbyteorder", ("=",))?;
    Ok(numpy.call_method1("require", (array, dtype, "CA"))?.cast_into()?)
}

/// The elements as bytes if the array has this type.
fn bytes<T: Element + bytemuck::NoUninit>(array: &Bound<'_, PyUntypedArray>) -> PyResult<Option<Vec<u8>>> {
    let Ok(array) = array.cast::<PyArrayDyn<T>>() else { return Ok(None) };
    let array = array.try_readonly().map_err(failed)?;
    let elements = array.as_slice().map_err(failed)?;
    Ok(Some(bytemuck::cast_slice(elements).to_vec()))
}

macro_rules! first_type {
    ($array:expr; $($element:ty => $dtype:ident,)+) => {{
        $(if let Some(bytes) = bytes::<$element>($array)? {
            return Ok((DataType::$dtype, bytes));
        })+
    }};
}

fn elements(array: &Bound<'_, PyUntypedArray>) -> PyResult<(DataType, Vec<u8>)> {
    first_type!(array; f32 => Fp32, f16 => Fp16, i32 => Int32, f64 => Fp64, i64 => Int64, i8 => Int8, u8 => UInt8,
        i16 => Int16, u16 => UInt16, u32 => UInt32, u64 => UInt64,);
    if let Ok(array) = array.cast::<PyArrayDyn<bool>>() {
        let array = array.try_readonly().map_err(failed)?;
        let elements = array.as_slice().map_err(failed)?;
        return Ok((DataType::Bool, elements.iter().map(|&b| u8::from(b)).collect()));
    }
    Err(failed(format!("arrays of dtype {} are not taken; convert it with `astype`", array.dtype())))
}

/// The tensor of an array or of nested lists. Its elements are converted to the type that a
/// parameter declares.
pub fn tensor(value: &Bound<'_, PyAny>, wanted: Option<DataType>) -> PyResult<Tensor> {
    let array = as_array(value)?;
    let (dtype, bytes) = elements(&array)?;
    let tensor = Tensor::new(dtype, array.shape().to_vec(), bytes).map_err(|e| device(&e))?;
    match wanted {
        Some(wanted) if wanted != dtype => tensor.cast(wanted).map_err(|e| device(&e)),
        _ => Ok(tensor),
    }
}

/// The tensors of a dictionary of arrays, in the types that `declared` has for them.
///
/// # Errors
/// An array that cannot be taken; the message has its name.
pub fn tensors(values: &Bound<'_, PyDict>, declared: &[Declared]) -> PyResult<Tensors> {
    let py = values.py();
    let mut tensors = Tensors::new();
    // A copy: what numpy calls may change the dictionary.
    for item in values.items() {
        let (name, value): (String, Bound<'_, PyAny>) = item.extract()?;
        let wanted = declared.iter().find(|(n, ..)| *n == name).map(|(_, dtype, _)| *dtype);
        let interrupted = |e: &PyErr| !e.is_instance_of::<PyException>(py);
        let tensor = tensor(&value, wanted).map_err(|e| if interrupted(&e) { e } else { of_input(py, &name, e) })?;
        tensors.insert(name, tensor);
    }
    Ok(tensors)
}

/// The tensors whose shapes are not the declared ones, in the order of their names.
pub fn reshaped<'t>(tensors: &'t Tensors, declared: &'t [Declared]) -> Vec<(&'t str, &'t [usize], &'t [usize])> {
    let mut found: Vec<_> = tensors
        .iter()
        .filter_map(|(name, tensor)| {
            let shape = declared.iter().find(|(n, ..)| n == name)?.2.as_ref()?;
            (tensor.shape() != shape).then_some((name.as_str(), tensor.shape(), shape.as_slice()))
        })
        .collect();
    found.sort();
    found
}

/// Refuses tensors of other shapes than the declared ones.
///
/// # Errors
/// The first such tensor.
pub fn check_shapes(tensors: &Tensors, declared: &[Declared]) -> PyResult<()> {
    match reshaped(tensors, declared).first() {
        Some((name, found, shape)) => {
            Err(device(&Error::new(ErrorKind::Binding, format!("`{name}` has shape {found:?}, and takes {shape:?}"))))
        }
        None => Ok(()),
    }
}

fn typed<'py, T: Element + bytemuck::Pod>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyAny>> {
    let array = PyArrayDyn::<T>::zeros(py, tensor.shape(), false);
    let mut elements = array.try_readwrite().map_err(failed)?;
    let to = elements.as_slice_mut().map_err(failed)?;
    bytemuck::cast_slice_mut::<T, u8>(to).copy_from_slice(tensor.bytes());
    drop(elements);
    Ok(array.into_any())
}

/// The array of a tensor. Numbers of types that numpy lacks become fp32.
pub fn array<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyAny>> {
    match tensor.dtype() {
        DataType::Fp16 => typed::<f16>(py, tensor),
        DataType::Fp32 => typed::<f32>(py, tensor),
        DataType::Fp64 => typed::<f64>(py, tensor),
        DataType::Int8 => typed::<i8>(py, tensor),
        DataType::Int16 => typed::<i16>(py, tensor),
        DataType::Int32 => typed::<i32>(py, tensor),
        DataType::Int64 => typed::<i64>(py, tensor),
        DataType::UInt8 => typed::<u8>(py, tensor),
        DataType::UInt16 => typed::<u16>(py, tensor),
        DataType::UInt32 => typed::<u32>(py, tensor),
        DataType::UInt64 => typed::<u64>(py, tensor),
        DataType::Bool => typed::<u8>(py, tensor)?.call_method1("view", ("bool",)),
        _ => typed::<f32>(py, &tensor.cast(DataType::Fp32).map_err(|e| device(&e))?),
    }
}

/// Puts the array of each tensor into a dictionary.
pub fn put<'a>(dict: &Bound<'_, PyDict>, tensors: impl IntoIterator<Item = &'a (String, Tensor)>) -> PyResult<()> {
    tensors.into_iter().try_for_each(|(name, tensor)| dict.set_item(name, array(dict.py(), tensor)?))
}

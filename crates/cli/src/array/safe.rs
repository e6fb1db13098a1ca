//! `.safetensors` files.

use ferrane::mil::DataType;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::Array;

const TYPES: [(Dtype, DataType); 13] = [
    (Dtype::F16, DataType::Fp16),
    (Dtype::F32, DataType::Fp32),
    (Dtype::F64, DataType::Fp64),
    (Dtype::BF16, DataType::Bf16),
    (Dtype::BOOL, DataType::Bool),
    (Dtype::I8, DataType::Int8),
    (Dtype::U8, DataType::UInt8),
    (Dtype::I16, DataType::Int16),
    (Dtype::U16, DataType::UInt16),
    (Dtype::I32, DataType::Int32),
    (Dtype::U32, DataType::UInt32),
    (Dtype::I64, DataType::Int64),
    (Dtype::U64, DataType::UInt64),
];

/// Reads the tensor of that name.
pub fn read(file: &[u8], name: &str) -> Result<Array, String> {
    let tensors = SafeTensors::deserialize(file).map_err(|e| e.to_string())?;
    let tensor = tensors.tensor(name).map_err(|_| {
        let mut names = tensors.names();
        names.sort_unstable();
        let near = ferrane::diag::nearest(name, names.iter().copied());
        let near = near.map(|n| format!(", did you mean `{n}`?")).unwrap_or_default();
        names.truncate(10);
        format!("no tensor `{name}`{near} (there are {}); name one behind a colon", names.join(", "))
    })?;
    let found = TYPES.iter().find(|(d, _)| *d == tensor.dtype());
    let (_, dtype) = found.ok_or_else(|| format!("elements of type {:?} are not supported", tensor.dtype()))?;
    Array::from_bytes(*dtype, tensor.shape(), tensor.data())
}

/// Writes all of them into one file.
pub fn write(arrays: &[(String, Array)]) -> Result<Vec<u8>, String> {
    let data: Vec<Vec<u8>> = arrays.iter().map(|(_, array)| array.to_bytes()).collect();
    let views = arrays.iter().zip(&data).map(|((name, array), bytes)| {
        let dtype = TYPES.iter().find(|(_, d)| *d == array.dtype).map(|(t, _)| *t);
        let dtype = dtype.ok_or_else(|| format!("`{name}`: the format has no {}", array.dtype))?;
        let view = TensorView::new(dtype, array.shape.clone(), bytes).map_err(|e| format!("`{name}`: {e}"))?;
        Ok((name.clone(), view))
    });
    safetensors::serialize(views.collect::<Result<Vec<_>, String>>()?, None).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::Numbers;
    use super::*;

    #[test]
    fn there_and_back_and_a_name_that_is_near() {
        let array = Array { dtype: DataType::Int16, shape: vec![2], numbers: Numbers::Ints(vec![-3, 4]) };
        let file = write(&[("logits".to_string(), array.clone())]).unwrap();
        assert_eq!(read(&file, "logits").unwrap(), array);
        let error = read(&file, "logit").unwrap_err();
        assert!(error.contains("did you mean `logits`"), "{error}");
        for cut in 0..file.len() {
            assert!(read(&file[..cut], "logits").is_err(), "{cut}");
        }
    }
}

//! The text that describes a value: a file, seeded random values, one number, or literals.

use std::path::{Path, PathBuf};

use ferrane_device::Tensor;
use ferrane_host::random::Rng;
use ferrane_mil::package::ColorSpace;
use ferrane_mil::program::Type;
use ferrane_mil::{DataType, Dim};

use crate::image::{self, Fit};
use crate::{Error, Format, Result, read};

/// Number of elements that a short text may request at most: 2^32, 16 GiB of fp32.
const MOST: usize = 1 << 32;
/// Levels of nested brackets at most.
const DEPTH: usize = 16;

/// Where the value of an input comes from.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TensorSource {
    /// A tensor file, and the name of the tensor if it is not the input's.
    File(PathBuf, Option<String>),
    /// Uniform draws, including the lower bound and excluding the upper one.
    Random {
        /// Seed of the generator ([`Rng`]).
        seed: u64,
        /// `None` draws floats from -1 to 1 and integers from 0 and 1.
        bounds: Option<(f64, f64)>,
    },
    /// One number for every element.
    Fill(f64),
    /// Literals as fp64, with the shape of their brackets.
    Literal(Tensor),
    /// An image file; see [`image`](crate::image).
    Image {
        /// Path of the PNG or JPEG file.
        path: PathBuf,
        /// How the input takes the pixels; `None` for an input that is not described as an image,
        /// which takes red, green, blue, or gray if it has one channel.
        color: Option<ColorSpace>,
        /// What happens to an image of another size.
        fit: Fit,
    },
}

impl TensorSource {
    /// Parses `random:SEED`, `random:SEED:LOW:HIGH`, `zeros`, `ones`, `0.5`, `[1, 2]`, `[[1],
    /// [2]]`, or the path of a tensor file, after which `:NAME` picks a tensor (`weights.npz:w1`).
    ///
    /// # Errors
    /// [`Error::Text`] for malformed literals or bounds. That a file exists is checked by
    /// [`TensorSource::tensor`].
    pub fn parse(text: &str) -> Result<TensorSource> {
        let text = text.trim();
        match text {
            "zeros" => return Ok(TensorSource::Fill(0.0)),
            "ones" => return Ok(TensorSource::Fill(1.0)),
            "" => {
                let message = "no value given; give a file, random:1, zeros, ones, a number or a list like [1, 2]";
                return Err(Error::Text(message.into()));
            }
            _ => {}
        }
        if let Some(rest) = text.strip_prefix("random:") {
            return random(rest);
        }
        if text.starts_with('[') {
            return literal(text).map(TensorSource::Literal);
        }
        if let Ok(value) = number(text) {
            return Ok(TensorSource::Fill(value));
        }
        for extension in Format::ALL.into_iter().filter(|format| format.has_names()).map(Format::extension) {
            if let Some((file, name)) = text.rsplit_once(&format!(".{extension}:")) {
                return Ok(TensorSource::File(format!("{file}.{extension}").into(), Some(name.to_string())));
            }
        }
        Ok(TensorSource::File(text.into(), None))
    }

    /// Parses `NAME=SOURCE`: the name of an input, and its value as [`TensorSource::parse`] takes
    /// it.
    ///
    /// ```
    /// use ferrane_tensor_io::TensorSource;
    ///
    /// # fn main() -> Result<(), ferrane_tensor_io::Error> {
    /// assert_eq!(TensorSource::parse_named("x = ones")?, ("x".to_string(), TensorSource::Fill(1.0)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Text`] for text without `=`; as [`TensorSource::parse`].
    pub fn parse_named(text: &str) -> Result<(String, TensorSource)> {
        let (name, source) =
            text.split_once('=').ok_or_else(|| Error::Text("expected NAME=SOURCE, x=random:1 for example".into()))?;
        Ok((name.trim().to_string(), TensorSource::parse(source)?))
    }

    /// The value for an input: of its element type, and of a shape that fits it. Open extents of
    /// the type take those of the value.
    ///
    /// # Errors
    /// [`Error::Mismatch`] if type or shape do not fit or an open shape is to be filled;
    /// [`Error::Tensor`] for numbers that the element type cannot hold; as [`read`].
    pub fn tensor(&self, name: &str, ty: &Type) -> Result<Tensor> {
        let not_a_tensor = || Error::Mismatch(format!("`{name}` is a {ty}, not a tensor"));
        let dtype = ty.dtype().ok_or_else(not_a_tensor)?;
        let tensor = match self {
            TensorSource::File(path, key) => match Format::of(path) {
                None => return Err(Error::Extension(path.clone())),
                Some(format) if format.is_image() => image::read(path, image::color_of(ty)?, Fit::Exact, ty)?,
                Some(_) => read(path, key.as_deref().unwrap_or(name))?,
            },
            TensorSource::Image { path, color, fit } => {
                let color = color.map_or_else(|| image::color_of(ty), Ok)?;
                image::read(path, color, *fit, ty)?
            }
            TensorSource::Literal(tensor) => flat(tensor, ty)?,
            TensorSource::Fill(value) => fill(*value, dtype, &known(ty, "a number for every element")?)?,
            TensorSource::Random { seed, bounds } => draw(*seed, *bounds, dtype, &known(ty, "random values")?)?,
        };
        if !fits(tensor.shape(), ty) {
            let (found, dtype) = (tensor.shape(), tensor.dtype());
            return Err(Error::Mismatch(format!(
                "the value is {dtype} {found:?}, the input is {ty}; give an array of its shape"
            )));
        }
        Ok(tensor.cast(dtype)?)
    }
}

impl TensorSource {
    /// The shape that the value itself has: of a file, or of nested literals. `None` for values
    /// that take any shape, and for an image that is resized.
    ///
    /// # Errors
    /// As [`read`].
    pub fn shape(&self, name: &str, ty: &Type) -> Result<Option<Vec<usize>>> {
        let image = |path: &Path, color: Option<ColorSpace>| {
            let channels = match (color, ty) {
                (Some(color), _) => color.channels(),
                (None, Type::Tensor { shape, .. }) if shape.get(1) == Some(&Dim::Fixed(1)) => 1,
                _ => 3,
            };
            let (width, height) = image::size(path)?;
            Ok(Some(vec![1, channels, height, width]))
        };
        match self {
            TensorSource::File(path, key) => match Format::of(path) {
                None => Err(Error::Extension(path.clone())),
                Some(format) if format.is_image() => image(path, None),
                Some(_) => Ok(Some(read(path, key.as_deref().unwrap_or(name))?.shape().to_vec())),
            },
            TensorSource::Image { path, color, fit: Fit::Exact } => image(path, *color),
            // A flat list fills an input of any shape.
            TensorSource::Literal(tensor) if tensor.shape().len() > 1 || ty.rank() == Some(1) => {
                Ok(Some(tensor.shape().to_vec()))
            }
            _ => Ok(None),
        }
    }
}

fn number(text: &str) -> Result<f64> {
    text.trim().parse().map_err(|_| Error::Text(format!("`{}` is not a number", text.trim())))
}

fn random(rest: &str) -> Result<TensorSource> {
    let bad = |message: String| Err(Error::Text(message));
    let parts: Vec<&str> = rest.split(':').collect();
    let Ok(seed) = parts[0].parse() else {
        return bad(format!("the seed `{}` is not a whole number of at least 0", parts[0]));
    };
    match parts[1..] {
        [] => Ok(TensorSource::Random { seed, bounds: None }),
        [low, high] => {
            let (low, high) = (number(low)?, number(high)?);
            if low.is_finite() && high.is_finite() && low < high {
                Ok(TensorSource::Random { seed, bounds: Some((low, high)) })
            } else {
                bad(format!("random values from {low} to {high}: give finite bounds, the smaller first"))
            }
        }
        _ => bad(format!("`random:{rest}`: give random:SEED or random:SEED:LOW:HIGH")),
    }
}

fn draw(seed: u64, bounds: Option<(f64, f64)>, dtype: DataType, shape: &[usize]) -> Result<Tensor> {
    let mut rng = Rng::new(seed);
    let (low, high) = bounds.unwrap_or(if dtype.is_float() { (-1.0, 1.0) } else { (0.0, 2.0) });
    let values = (0..shape.iter().product()).map(|_| {
        let value = low + (high - low) * rng.uniform();
        if dtype.is_float() { value } else { value.floor() }
    });
    Ok(Tensor::from_f64(dtype, shape, values)?)
}

fn fill(value: f64, dtype: DataType, shape: &[usize]) -> Result<Tensor> {
    Ok(Tensor::from_f64(dtype, shape, std::iter::repeat_n(value, shape.iter().product()))?)
}

/// The input's shape, which must be known and of at most [`MOST`] elements.
fn known(ty: &Type, what: &str) -> Result<Vec<usize>> {
    let open = || {
        let message =
            format!("the input is {ty}, whose shape is open; give an array or nested literals instead of {what}");
        Error::Mismatch(message)
    };
    let shape = ty.shape().ok_or_else(open)?;
    match shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)) {
        Some(n) if n <= MOST => Ok(shape),
        _ => Err(Error::Mismatch(format!("the input is {ty}: more than {MOST} elements cannot be generated"))),
    }
}

/// True if the extents are those of the type, where an open extent takes any.
fn fits(shape: &[usize], ty: &Type) -> bool {
    let dims = match ty {
        Type::State(inner) => return fits(shape, inner),
        Type::Tensor { shape, .. } => shape,
        _ => return false,
    };
    let fit = |(dim, n): (&Dim, &usize)| match dim {
        Dim::Fixed(d) => d == n,
        _ => true,
    };
    dims.len() == shape.len() && dims.iter().zip(shape).all(fit)
}

/// A flat list fills an input of as many elements, whatever its shape.
fn flat(tensor: &Tensor, ty: &Type) -> Result<Tensor> {
    let Some(shape) = ty.shape().filter(|_| tensor.shape().len() == 1) else { return Ok(tensor.clone()) };
    let count = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).unwrap_or(0);
    if count != tensor.len() {
        return Err(Error::Mismatch(format!("{} values for the {count} elements of {ty}", tensor.len())));
    }
    Ok(tensor.reshape(&shape)?)
}

/// Nested lists of numbers, `true` and `false`, read in one pass.
#[derive(Default)]
struct Literal {
    /// Number of elements in a list of each level, once one list has ended.
    shape: Vec<Option<usize>>,
    /// Elements so far in each list that is open.
    counts: Vec<usize>,
    /// The level that holds the numbers.
    leaf: Option<usize>,
    values: Vec<f64>,
}

fn literal(text: &str) -> Result<Tensor> {
    let (mut list, mut rest) = (Literal::default(), text.trim_start());
    loop {
        rest = match rest.chars().next() {
            None => return Err(unclosed()),
            Some('[') => list.open(rest)?,
            Some(']') => list.close(rest)?,
            Some(_) => list.number(rest)?,
        };
        if list.counts.is_empty() {
            break;
        }
    }
    if !rest.is_empty() {
        return Err(Error::Text(format!("`{rest}` after the last bracket")));
    }
    let shape: Vec<usize> = list.shape.into_iter().map(|d| d.unwrap_or(0)).collect();
    if shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)) != Some(list.values.len()) {
        return Err(mixed());
    }
    Ok(Tensor::from_f64(DataType::Fp64, &shape, list.values)?)
}

fn unclosed() -> Error {
    Error::Text("a `]` is missing".into())
}

fn mixed() -> Error {
    Error::Text("numbers and lists at one level".into())
}

impl Literal {
    fn open<'a>(&mut self, rest: &'a str) -> Result<&'a str> {
        self.counts.push(0);
        if self.counts.len() > DEPTH {
            return Err(Error::Text(format!("more than {DEPTH} nested brackets")));
        }
        if self.shape.len() < self.counts.len() {
            self.shape.push(None);
        }
        Ok(rest[1..].trim_start())
    }

    fn close<'a>(&mut self, rest: &'a str) -> Result<&'a str> {
        let level = self.counts.len();
        let n = self.counts.pop().ok_or_else(|| Error::Text("a `]` without `[`".into()))?;
        match self.shape[level - 1] {
            Some(other) if other != n => return Err(Error::Text(format!("rows of {other} and of {n} elements"))),
            _ => self.shape[level - 1] = Some(n),
        }
        let rest = rest[1..].trim_start();
        match self.counts.last_mut() {
            None => Ok(rest),
            Some(outer) => {
                *outer += 1;
                separator(rest)
            }
        }
    }

    fn number<'a>(&mut self, rest: &'a str) -> Result<&'a str> {
        if *self.leaf.get_or_insert(self.counts.len()) != self.counts.len() {
            return Err(mixed());
        }
        let end = rest.find([',', ']', '[']).ok_or_else(unclosed)?;
        self.values.push(match rest[..end].trim() {
            "true" => 1.0,
            "false" => 0.0,
            word => number(word)?,
        });
        if let Some(count) = self.counts.last_mut() {
            *count += 1;
        }
        separator(rest[end..].trim_start())
    }
}

/// Skips a comma, or stops at the bracket that closes.
fn separator(rest: &str) -> Result<&str> {
    match rest.strip_prefix(',') {
        Some(rest) => Ok(rest.trim_start()),
        None if rest.starts_with(']') => Ok(rest),
        None => Err(Error::Text("a `,` or a `]` is missing".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(text: &str, dtype: DataType, shape: &[usize]) -> Result<Tensor> {
        TensorSource::parse(text)?.tensor("x", &Type::tensor(dtype, shape))
    }

    #[test]
    fn literals_fill_an_input() {
        let tensor = get("[[1, 2.5], [-3, 4e1]]", DataType::Fp16, &[2, 2]).unwrap();
        assert_eq!((tensor.shape(), tensor.to_f32()), (&[2, 2][..], vec![1.0, 2.5, -3.0, 40.0]));
        assert_eq!(get("[1,2,3,4]", DataType::Int32, &[1, 4]).unwrap().to_f32(), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(get("[true, false]", DataType::Bool, &[2]).unwrap().to_f32(), [1.0, 0.0]);
        assert_eq!(get("0.5", DataType::Fp32, &[3]).unwrap().to_f32(), [0.5; 3]);
        assert_eq!(get("ones", DataType::Int8, &[2]).unwrap().to_f32(), [1.0; 2]);
        for (text, why) in [
            ("[1, 2", "a `]` is missing"),
            ("[1 2]", "not a number"),
            ("[[1], [2, 3]]", "rows of 1 and of 2"),
            ("[1, [2]]", "at one level"),
            ("[[1], 2]", "at one level"),
            ("[1]]", "after the last bracket"),
            ("[1, 2, 3]", "3 values for the 2 elements"),
            ("[[1, 2]]", "the input is tensor<fp32, [2]>"),
            ("", "no value given"),
            ("x.tiff", "neither a value nor a tensor file"),
            ("x.png", "an image is [1, 3, H, W]"),
            ("no.npy", "no such file"),
            ("random:-1", "not a whole number"),
            ("random:1:2", "random:SEED:LOW:HIGH"),
            ("random:1:3:2", "the smaller first"),
            (&"[".repeat(100_000), "nested brackets"),
        ] {
            let error = get(text, DataType::Fp32, &[2]).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let error = get("1.5", DataType::Int32, &[2]).unwrap_err().to_string();
        assert!(error.contains("whole numbers"), "{error}");
    }

    #[test]
    fn draws_are_a_function_of_the_seed_within_bounds() {
        let draw = |text: &str, dtype| get(text, dtype, &[1000]).unwrap().to_f32();
        assert_eq!(draw("random:1", DataType::Fp16), draw("random:1", DataType::Fp16));
        assert_ne!(draw("random:1", DataType::Fp16), draw("random:2", DataType::Fp16));
        assert!(draw("random:1", DataType::Fp32).iter().all(|v| (-1.0..1.0).contains(v)));
        let ints = draw("random:1:0:10", DataType::Int32);
        assert!((0..10).all(|i| ints.contains(&(i as f32))) && ints.iter().all(|v| (0.0..10.0).contains(v)));
        assert!(draw("random:1", DataType::Bool).contains(&1.0));
        let error = get("random:1", DataType::Fp32, &[1 << 40, 1 << 20]).unwrap_err().to_string();
        assert!(error.contains("cannot be generated"), "{error}");
    }

    #[test]
    fn open_shapes_take_the_shape_of_the_value() {
        let ty = Type::Tensor { dtype: DataType::Fp32, shape: vec![Dim::Unknown, Dim::Fixed(2)] };
        let get = |text: &str| TensorSource::parse(text).unwrap().tensor("x", &ty);
        assert_eq!(get("[[1, 2], [3, 4], [5, 6]]").unwrap().shape(), [3, 2]);
        assert!(get("[[1, 2, 3]]").unwrap_err().to_string().contains("the input is tensor<fp32, [?, 2]>"));
        assert!(get("random:1").unwrap_err().to_string().contains("whose shape is open"));
    }

    #[test]
    fn files_are_read_by_the_name_of_the_input_or_a_given_one() {
        let folder = tempfile::tempdir().unwrap();
        let tensors = ferrane_device::Tensors::from([
            ("x", Tensor::fp32(&[2], &[1.0, 2.0]).unwrap()),
            ("other", Tensor::int32(&[2], &[3, 4]).unwrap()),
        ]);
        for (format, extension) in [(Format::Npz, "npz"), (Format::Safetensors, "safetensors")] {
            let path = folder.path().join(format!("t.{extension}"));
            std::fs::write(&path, crate::write(format, &tensors).unwrap()).unwrap();
            let path = path.display();
            assert_eq!(get(&format!("{path}"), DataType::Fp16, &[2]).unwrap().to_f32(), [1.0, 2.0]);
            assert_eq!(get(&format!("{path}:other"), DataType::Fp16, &[2]).unwrap().to_f32(), [3.0, 4.0]);
            let error = get(&format!("{path}:othr"), DataType::Fp16, &[2]).unwrap_err().to_string();
            assert!(error.contains("did you mean `other`") && error.contains(&format!("t.{extension}")), "{error}");
        }
    }
}

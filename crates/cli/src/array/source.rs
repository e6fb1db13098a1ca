//! Where the values of an input come from, as the command line says it.

use std::path::{Path, PathBuf};

use ferrane::host::map::Mapped;
use ferrane::llm::random::Rng;
use ferrane::mil::program::Type;
use ferrane::mil::{DataType, Dim};

use super::{Array, Numbers, elements, npy, safe};

/// Elements at most that a shape may ask to be made up: 2^32, 16 GiB of fp32.
const MOST: usize = 1 << 32;
/// Nested brackets at most.
const DEPTH: usize = 16;

/// The value of an input.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A file, and the tensor in it if the file has several.
    File(PathBuf, Option<String>),
    /// Uniform draws with a seed, in a range if one is given.
    Random(u64, Option<(f64, f64)>),
    /// One number for every element.
    All(f64),
    /// Literals with the shape of their brackets, and whether they were flat.
    Literal(Array),
}

/// What an input must be.
pub struct Want<'a> {
    /// The input's name.
    pub name: &'a str,
    /// Its type, whose extents may be unknown.
    pub ty: &'a Type,
}

impl Source {
    /// Reads `random:1`, `zeros`, `[1, 2]`, `0.5` or a file's path.
    pub fn parse(text: &str) -> Result<Source, String> {
        let text = text.trim();
        match text {
            "zeros" => return Ok(Source::All(0.0)),
            "ones" => return Ok(Source::All(1.0)),
            "" => return Err("nothing behind the `=`; give a file, random:1, zeros, ones or literals".into()),
            _ => {}
        }
        if let Some(rest) = text.strip_prefix("random:") {
            return random(rest);
        }
        if text.starts_with('[') {
            return literal(text).map(Source::Literal);
        }
        if let Ok(value) = number(text) {
            return Ok(Source::All(value));
        }
        Ok(match text.rsplit_once(".safetensors:") {
            Some((file, key)) => Source::File(format!("{file}.safetensors").into(), Some(key.to_string())),
            None => Source::File(text.into(), None),
        })
    }

    /// The values for an input, of its element type and a shape that fits it.
    pub fn array(&self, want: &Want<'_>) -> Result<Array, String> {
        let dtype = want.ty.dtype().ok_or_else(|| format!("`{}` is a {}, not a tensor", want.name, want.ty))?;
        let array = match self {
            Source::File(path, key) => file(path, key.as_deref().unwrap_or(want.name))?,
            Source::Literal(array) => flat(array, want)?,
            Source::All(value) => {
                let shape = known(want, "a number for every element")?;
                let n = elements(&shape).unwrap_or(0);
                Array { dtype: DataType::Fp64, shape, numbers: Numbers::Floats(vec![*value; n]) }
            }
            Source::Random(seed, bounds) => draw(*seed, *bounds, dtype, known(want, "random values")?),
        };
        if !fits(&array.shape, want.ty) {
            let (found, dtype) = (&array.shape, array.dtype);
            return Err(format!(
                "the value is {dtype} {found:?}, the input is {}; give an array of its shape",
                want.ty
            ));
        }
        array.to(dtype)
    }
}

fn number(text: &str) -> Result<f64, String> {
    text.trim().parse().map_err(|_| format!("`{}` is no number", text.trim()))
}

fn random(rest: &str) -> Result<Source, String> {
    let parts: Vec<&str> = rest.split(':').collect();
    let seed = parts[0].parse().map_err(|_| format!("the seed `{}` is no whole number, 0 or more", parts[0]))?;
    match parts[1..] {
        [] => Ok(Source::Random(seed, None)),
        [low, high] => {
            let (low, high) = (number(low)?, number(high)?);
            match low.is_finite() && high.is_finite() && low < high {
                true => Ok(Source::Random(seed, Some((low, high)))),
                false => Err(format!("random values from {low} to {high}: give finite bounds, the smaller first")),
            }
        }
        _ => Err(format!("`random:{rest}`: give random:SEED or random:SEED:LOW:HIGH")),
    }
}

fn draw(seed: u64, bounds: Option<(f64, f64)>, dtype: DataType, shape: Vec<usize>) -> Array {
    let mut rng = Rng::new(seed);
    let n = elements(&shape).unwrap_or(0);
    let (low, high) = bounds.unwrap_or(if dtype.is_float() { (-1.0, 1.0) } else { (0.0, 2.0) });
    let values = (0..n).map(|_| {
        let value = low + (high - low) * rng.uniform();
        if dtype.is_float() { value } else { value.floor() }
    });
    Array { dtype: DataType::Fp64, shape, numbers: Numbers::Floats(values.collect()) }
}

/// The input's shape, which must be known and not too large to be made up.
fn known(want: &Want<'_>, what: &str) -> Result<Vec<usize>, String> {
    let shape = want.ty.shape().ok_or_else(|| {
        format!("the input is {}, whose shape is open; give an array or nested literals instead of {what}", want.ty)
    })?;
    match elements(&shape) {
        Some(n) if n <= MOST => Ok(shape),
        _ => Err(format!("the input is {}: that is more than can be made up here", want.ty)),
    }
}

/// True if the extents are those of the type, where a `?` takes any.
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
fn flat(array: &Array, want: &Want<'_>) -> Result<Array, String> {
    let n = elements(&array.shape);
    match want.ty.shape() {
        Some(shape) if array.shape.len() == 1 && elements(&shape) == n => Ok(Array { shape, ..array.clone() }),
        Some(shape) if array.shape.len() == 1 => {
            Err(format!("{} values for the {} elements of {}", n.unwrap_or(0), elements(&shape).unwrap_or(0), want.ty))
        }
        _ => Ok(array.clone()),
    }
}

fn file(path: &Path, key: &str) -> Result<Array, String> {
    let named = |why: String| format!("{}: {why}", path.display());
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    if !matches!(extension, "npy" | "safetensors") {
        let hint = "give a .npy or .safetensors file, random:SEED, zeros, ones, a number or a list like [1, 2]";
        return Err(format!("`{}` is no value; {hint}", path.display()));
    }
    match std::fs::metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(named("no such file".into())),
        Err(e) => return Err(named(e.to_string())),
        Ok(meta) if !meta.is_file() => return Err(named("is no plain file".into())),
        Ok(_) => {}
    }
    let bytes = Mapped::open(path).map_err(|e| named(e.to_string()))?;
    match extension {
        "npy" => npy::read(&bytes).map_err(named),
        _ => safe::read(&bytes, key).map_err(named),
    }
}

/// Nested lists of numbers, `true` and `false`.
fn literal(text: &str) -> Result<Array, String> {
    let (mut shape, mut counts, mut values): (Vec<Option<usize>>, Vec<usize>, Vec<f64>) = Default::default();
    let (mut rest, mut leaf) = (text.trim_start(), None);
    // The rows of a level must be of one length; the first that closes says which.
    loop {
        let c = rest.chars().next().ok_or("a `]` is missing")?;
        match c {
            '[' => {
                counts.push(0);
                if counts.len() > DEPTH {
                    return Err(format!("more than {DEPTH} nested brackets"));
                }
                if shape.len() < counts.len() {
                    shape.push(None);
                }
                rest = rest[1..].trim_start();
            }
            ']' => {
                let (level, n) = (counts.len(), counts.pop().ok_or("a `]` without `[`")?);
                match shape[level - 1] {
                    Some(other) if other != n => return Err(format!("rows of {other} and of {n} elements")),
                    _ => shape[level - 1] = Some(n),
                }
                rest = rest[1..].trim_start();
                let Some(outer) = counts.last_mut() else { break };
                *outer += 1;
                rest = separator(rest)?;
            }
            _ => {
                if *leaf.get_or_insert(counts.len()) != counts.len() {
                    return Err("numbers and lists side by side".into());
                }
                let end = rest.find([',', ']', '[']).ok_or("a `]` is missing")?;
                let word = rest[..end].trim();
                values.push(match word {
                    "true" => 1.0,
                    "false" => 0.0,
                    _ => number(word)?,
                });
                if let Some(count) = counts.last_mut() {
                    *count += 1;
                }
                rest = separator(rest[end..].trim_start())?;
            }
        }
    }
    if !rest.is_empty() {
        return Err(format!("`{rest}` behind the last bracket"));
    }
    let shape: Vec<usize> = shape.into_iter().map(|d| d.unwrap_or(0)).collect();
    if elements(&shape) != Some(values.len()) {
        return Err("numbers and lists side by side".into());
    }
    Ok(Array { dtype: DataType::Fp64, shape, numbers: Numbers::Floats(values) })
}

/// Over a comma, or to the bracket that closes.
fn separator(rest: &str) -> Result<&str, String> {
    match rest.strip_prefix(',') {
        Some(rest) => Ok(rest.trim_start()),
        None if rest.starts_with(']') => Ok(rest),
        None => Err("a `,` or a `]` is missing".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(text: &str, dtype: DataType, shape: &[usize]) -> Result<Array, String> {
        let ty = Type::tensor(dtype, shape);
        Source::parse(text)?.array(&Want { name: "x", ty: &ty })
    }

    #[test]
    fn literals_fill_an_input() {
        let array = get("[[1, 2.5], [-3, 4e1]]", DataType::Fp16, &[2, 2]).unwrap();
        assert_eq!((array.shape.as_slice(), array.floats()), (&[2, 2][..], vec![1.0, 2.5, -3.0, 40.0]));
        assert_eq!(get("[1,2,3,4]", DataType::Int32, &[1, 4]).unwrap().floats(), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(get("[true, false]", DataType::Bool, &[2]).unwrap().floats(), [1.0, 0.0]);
        assert_eq!(get("0.5", DataType::Fp32, &[3]).unwrap().floats(), [0.5; 3]);
        assert_eq!(get("ones", DataType::Int8, &[2]).unwrap().floats(), [1.0; 2]);
        for (text, why) in [
            ("[1, 2", "a `]` is missing"),
            ("[1 2]", "no number"),
            ("[[1], [2, 3]]", "rows of 1 and of 2"),
            ("[1, [2]]", "side by side"),
            ("[[1], 2]", "side by side"),
            ("[1]]", "behind the last bracket"),
            ("[1, 2, 3]", "3 values for the 2 elements"),
            ("[[1, 2]]", "the input is tensor<fp32, [2]>"),
            ("", "nothing behind"),
            ("x.png", "is no value; give a .npy"),
            ("no.npy", "no such file"),
            ("random:-1", "no whole number"),
            ("random:1:2", "random:SEED:LOW:HIGH"),
            ("random:1:3:2", "the smaller first"),
            (&"[".repeat(100_000), "nested brackets"),
        ] {
            let error = get(text, DataType::Fp32, &[2]).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn draws_are_a_function_of_the_seed_within_bounds() {
        let draw = |text: &str, dtype| get(text, dtype, &[1000]).unwrap().floats();
        assert_eq!(draw("random:1", DataType::Fp16), draw("random:1", DataType::Fp16));
        assert_ne!(draw("random:1", DataType::Fp16), draw("random:2", DataType::Fp16));
        assert!(draw("random:1", DataType::Fp32).iter().all(|v| (-1.0..1.0).contains(v)));
        let ints = draw("random:1:0:10", DataType::Int32);
        assert!((0..10).all(|i| ints.contains(&f64::from(i))) && ints.iter().all(|v| (0.0..10.0).contains(v)));
        assert!(draw("random:1", DataType::Bool).contains(&1.0));
        assert!(get("random:1", DataType::Fp32, &[1 << 40, 1 << 20]).unwrap_err().contains("more than can be made up"));
    }

    #[test]
    fn open_shapes_take_the_shape_of_the_value() {
        let ty = Type::Tensor { dtype: DataType::Fp32, shape: vec![Dim::Unknown, Dim::Fixed(2)] };
        let get = |text: &str| Source::parse(text).unwrap().array(&Want { name: "x", ty: &ty });
        assert_eq!(get("[[1, 2], [3, 4], [5, 6]]").unwrap().shape, [3, 2]);
        assert!(get("[[1, 2, 3]]").unwrap_err().contains("the input is tensor<fp32, [?, 2]>"));
        assert!(get("random:1").unwrap_err().contains("whose shape is open"));
    }
}

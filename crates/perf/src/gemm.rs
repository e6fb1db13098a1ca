//! Matrix products next to what the processor and its memory can do at best, measured in the same
//! run.
//!
//! A product is `lhs · rhs` of random numbers without zeros; some of its elements are computed
//! again in fp64 and must agree. Its roof is the lower of two [ceilings](crate::ceilings):
//! multiply-adds from registers, and its operations for each byte that must be moved times the rate
//! at which memory of the size of its operands can be read. With [`GemmOptions::cold`] the right
//! factor is another one each time, so that it comes from memory as the weights of a model do in
//! decoding.
//!
//! ```no_run
//! use ferrane_perf::gemm::{self, GemmOptions};
//!
//! let shapes = vec!["256x768x2048".parse()?];
//! let report = gemm::gemm(&GemmOptions { shapes, ..GemmOptions::default() })?;
//! print!("{report}");
//! std::fs::write("roofline.svg", report.roofline()?)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ferrane_host::gemm::{BatchOffsets, Epilogue, GemmError, Operand, Output, View, ViewMut, gemm_batch};
use ferrane_host::{f16, random::Rng};
use serde::{Serialize, Serializer};

use crate::ceilings::{Ceilings, LARGE};
use crate::computer::Computer;
use crate::error::{Error, Result};
use crate::plot::{RooflinePoint, roofline_svg};
use crate::spread::{Repeats, Spread, WARM_UP, measure, rounded, short};

/// The products that occur in training and decoding of stories110m: the linear layers and the
/// classifier of a window, a weight gradient, scores and values of attention, and the products of
/// one token.
const DEFAULT: [&str; 11] = [
    "256x768x768",
    "256x768x2048",
    "256x2048x768",
    "256x768x9216",
    "768x256x768:tn",
    "768x256x2048:tn",
    "12*256x64x256:nt",
    "12*256x256x64",
    "1x768x768:nt",
    "1x768x2048:nt",
    "1x768x9216:nt",
];
/// The largest extent, and the most products of a batch.
const EXTENT: usize = 1 << 20;
/// The most bytes of operands and result.
const BYTES: usize = 1 << 31;
/// The most operations of a product.
const OPERATIONS: f64 = 2e12;
/// The most right factors of a cold product.
const FACTORS: usize = 4096;
/// The time for a product if the number of repeats is not given.
const TIME: Duration = Duration::from_millis(300);
/// Elements that are computed again.
const CHECKED: u64 = 8;

/// The extents and the layout of a product, parsed from `[B*]MxKxN[:nn|tn|nt|tt]`: M x K times
/// K x N, in a batch of B. `t` marks a factor that is stored transposed, the left one first.
///
/// ```
/// use ferrane_perf::gemm::GemmShape;
///
/// let shape: GemmShape = "12*256x64x256:nt".parse()?;
/// assert_eq!(shape.to_string(), "12*256x64x256:nt");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmShape {
    batch: usize,
    m: usize,
    k: usize,
    n: usize,
    /// Whether the left and the right factor are stored transposed.
    transposed: (bool, bool),
}

impl FromStr for GemmShape {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<GemmShape, String> {
        let (shape, layout) = text.split_once(':').unwrap_or((text, "nn"));
        let transposed = match layout {
            "nn" => (false, false),
            "tn" => (true, false),
            "nt" => (false, true),
            "tt" => (true, true),
            _ => return Err(format!("unknown layout `:{layout}`; give :nn, :tn, :nt or :tt")),
        };
        let (batch, shape) = shape.split_once('*').unwrap_or(("1", shape));
        let extents: Vec<&str> = shape.split('x').collect();
        let [m, k, n] = extents[..] else {
            return Err("expected MxKxN, 256x768x2048 for example, or B*MxKxN for B of them".into());
        };
        let extent = |text: &str| match text.trim().parse::<usize>() {
            Ok(0) => Err("an extent of 0 makes no product".to_string()),
            Ok(n) if n <= EXTENT => Ok(n),
            _ => Err(format!("`{}` is not a whole number from 1 to {EXTENT}", text.trim())),
        };
        let shape = GemmShape { batch: extent(batch)?, m: extent(m)?, k: extent(k)?, n: extent(n)?, transposed };
        if shape.operations() > OPERATIONS {
            return Err(format!(
                "{:.0e} operations are more than {OPERATIONS:.0e}, which take too long",
                shape.operations()
            ));
        }
        Ok(shape)
    }
}

impl fmt::Display for GemmShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.batch > 1 {
            write!(f, "{}*", self.batch)?;
        }
        write!(f, "{}x{}x{}", self.m, self.k, self.n)?;
        match self.transposed {
            (false, false) => Ok(()),
            (true, false) => f.write_str(":tn"),
            (false, true) => f.write_str(":nt"),
            (true, true) => f.write_str(":tt"),
        }
    }
}

impl GemmShape {
    /// The number of multiplications and additions.
    fn operations(self) -> f64 {
        2.0 * self.batch as f64 * self.m as f64 * self.k as f64 * self.n as f64
    }

    /// Elements of the left factor, the right factor and the result of one product.
    fn elements(self) -> [usize; 3] {
        // Extents have 20 bits, so a product of two fits.
        [self.m * self.k, self.k * self.n, self.m * self.n]
    }
}

/// The element types of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GemmType {
    /// fp32 times fp32, to fp32.
    Fp32,
    /// fp16 times fp16, rounded to fp16.
    Fp16,
    /// fp32 times int8, to fp32, as with quantized weights.
    Int8,
}

impl GemmType {
    /// The types in the order in which reports list them.
    pub const ALL: [GemmType; 3] = [GemmType::Fp32, GemmType::Fp16, GemmType::Int8];

    /// The name as the command spells it: `fp16`.
    pub fn name(self) -> &'static str {
        match self {
            GemmType::Fp32 => "fp32",
            GemmType::Fp16 => "fp16",
            GemmType::Int8 => "int8",
        }
    }

    /// Bytes of an element of the left factor, the right factor and the result.
    fn bytes(self) -> [usize; 3] {
        match self {
            GemmType::Fp32 => [4, 4, 4],
            GemmType::Fp16 => [2, 2, 2],
            GemmType::Int8 => [4, 1, 4],
        }
    }

    /// The fewest bytes that a product must move: each factor once, and the result.
    fn moved(self, shape: GemmShape) -> Option<usize> {
        let parts = shape.elements().into_iter().zip(self.bytes());
        let one = parts.map(|(n, b)| n.checked_mul(b)).try_fold(0usize, |sum, part| sum.checked_add(part?))?;
        one.checked_mul(shape.batch)
    }
}

/// Elements of one type.
enum Elements {
    F32(Vec<f32>),
    F16(Vec<f16>),
    I8(Vec<i8>),
}

/// `count` values, each made of a random number in (0, 1].
fn generate<T>(count: usize, rng: &mut Rng, of: impl Fn(f64) -> T) -> Result<Vec<T>> {
    let mut values = Vec::new();
    let failed = |_| Error::OutOfMemory { bytes: count * size_of::<T>(), purpose: "the operands" };
    values.try_reserve_exact(count).map_err(failed)?;
    values.extend((0..count).map(|_| of(1.0 - rng.uniform())));
    Ok(values)
}

impl Elements {
    /// Random values of both signs, none of them 0; int8 values cover the whole range.
    fn random(element: ElementType, count: usize, rng: &mut Rng) -> Result<Elements> {
        let signed = |u: f64| if u > 0.5 { 2.0 * u - 1.0 } else { -2.0 * u };
        Ok(match element {
            ElementType::F32 => Elements::F32(generate(count, rng, |u| signed(u) as f32)?),
            ElementType::F16 => Elements::F16(generate(count, rng, |u| f16::from_f64(signed(u)))?),
            ElementType::I8 => Elements::I8(generate(count, rng, |u| (signed(u) * 127.0).round_ties_even() as i8)?),
        })
    }

    /// The same elements `count` times.
    fn repeated(self, count: usize) -> Result<Elements> {
        fn again<T: Copy>(mut values: Vec<T>, count: usize) -> Result<Vec<T>> {
            let (one, more) = (values.len(), values.len() * (count - 1));
            let failed = |_| Error::OutOfMemory { bytes: more * size_of::<T>(), purpose: "the cold factors" };
            values.try_reserve_exact(more).map_err(failed)?;
            (1..count).for_each(|_| values.extend_from_within(..one));
            Ok(values)
        }
        Ok(match self {
            Elements::F32(v) => Elements::F32(again(v, count)?),
            Elements::F16(v) => Elements::F16(again(v, count)?),
            Elements::I8(v) => Elements::I8(again(v, count)?),
        })
    }

    fn at(&self, i: usize) -> f64 {
        match self {
            Elements::F32(v) => v[i].into(),
            Elements::F16(v) => v[i].to_f64(),
            Elements::I8(v) => v[i].into(),
        }
    }

    fn operand(&self, rows: usize, cols: usize, transposed: bool) -> std::result::Result<Operand<'_>, GemmError> {
        let (r, c) = if transposed { (cols, rows) } else { (rows, cols) };
        let operand = match self {
            Elements::F32(v) => Operand::F32(View::row_major(v, r, c)?),
            Elements::F16(v) => Operand::F16(View::row_major(v, r, c)?),
            Elements::I8(v) => Operand::I8(View::row_major(v, r, c)?),
        };
        Ok(if transposed { operand.t() } else { operand })
    }

    fn output(&mut self, rows: usize, cols: usize) -> std::result::Result<Output<'_>, GemmError> {
        match self {
            Elements::F32(v) => Ok(Output::F32(ViewMut::row_major(v, rows, cols)?)),
            Elements::F16(v) => Ok(Output::F16(ViewMut::row_major(v, rows, cols)?)),
            Elements::I8(_) => Err(GemmError::Accumulate),
        }
    }
}

#[derive(Clone, Copy)]
enum ElementType {
    F32,
    F16,
    I8,
}

/// A product with its operands.
struct Product {
    shape: GemmShape,
    lhs: Elements,
    /// `factors` right factors, one after the other.
    rhs: Elements,
    /// Right factors that turns take in order.
    factors: usize,
    out: Elements,
}

impl Product {
    fn new(shape: GemmShape, kind: GemmType, cold: bool) -> Result<Product> {
        if kind.moved(shape).is_none_or(|bytes| bytes > BYTES) {
            return Err(Error::option("shape", shape, format!("its matrices have more than {} MiB", BYTES >> 20)));
        }
        let [l, r, o] = shape.elements().map(|n| n * shape.batch);
        let factors = if cold { LARGE.div_ceil(r * kind.bytes()[1]).min(FACTORS) } else { 1 };
        let (left, right, result) = match kind {
            GemmType::Fp32 => (ElementType::F32, ElementType::F32, ElementType::F32),
            GemmType::Fp16 => (ElementType::F16, ElementType::F16, ElementType::F16),
            GemmType::Int8 => (ElementType::F32, ElementType::I8, ElementType::F32),
        };
        let mut rng = Rng::new(1);
        Ok(Product {
            shape,
            lhs: Elements::random(left, l, &mut rng)?,
            rhs: Elements::random(right, r, &mut rng)?.repeated(factors)?,
            factors,
            out: Elements::random(result, o, &mut rng)?,
        })
    }

    /// The offsets of a turn's products.
    fn offsets(&self, turn: usize) -> Vec<BatchOffsets> {
        let [l, r, o] = self.shape.elements();
        let first = turn % self.factors * self.shape.batch;
        (0..self.shape.batch).map(|i| BatchOffsets { lhs: i * l, rhs: (first + i) * r, out: i * o }).collect()
    }

    fn run(&mut self, offsets: &[BatchOffsets]) -> Result<()> {
        let GemmShape { m, k, n, transposed, .. } = self.shape;
        let (lhs, rhs) = (self.lhs.operand(m, k, transposed.0)?, self.rhs.operand(k, n, transposed.1)?);
        Ok(gemm_batch(offsets, lhs, rhs, self.out.output(m, n)?, Epilogue::default())?)
    }

    /// Computes the products of turn 0, and checks some of their elements in fp64.
    fn check(&mut self) -> Result<()> {
        let offsets = self.offsets(0);
        self.run(&offsets)?;
        let GemmShape { m, k, n, transposed, .. } = self.shape;
        let mut rng = Rng::new(2);
        for _ in 0..CHECKED {
            let at = offsets[rng.below(offsets.len() as u64) as usize];
            let (row, col) = (rng.below(m as u64) as usize, rng.below(n as u64) as usize);
            let (mut sum, mut size) = (0.0, 0.0f64);
            for i in 0..k {
                let l = self.lhs.at(at.lhs + if transposed.0 { i * m + row } else { row * k + i });
                let r = self.rhs.at(at.rhs + if transposed.1 { col * k + i } else { i * n + col });
                sum += l * r;
                size += (l * r).abs();
            }
            let found = self.out.at(at.out + row * n + col);
            // An fp32 sum in any order errs by at most k roundings of the sum of magnitudes; an
            // fp16 result is rounded once more.
            let output =
                if matches!(self.out, Elements::F16(_)) { 2f64.powi(-11) * sum.abs() + 2f64.powi(-25) } else { 0.0 };
            let allowed = k as f64 * 2f64.powi(-24) * size + output;
            if (found - sum).abs() > allowed * (1.0 + 1e-6) {
                let shape = self.shape;
                return Err(Error::WrongResult(format!("{shape}: element ({row}, {col}) is {found}, not {sum}")));
            }
        }
        Ok(())
    }
}

/// What [`gemm`] measures.
#[derive(Clone, Debug, Default)]
pub struct GemmOptions {
    /// The products; if empty, those of stories110m.
    pub shapes: Vec<GemmShape>,
    /// The types that each product is measured with; if empty, all.
    pub types: Vec<GemmType>,
    /// Whether each turn takes another right factor, from 256 MiB of them.
    pub cold: bool,
    /// Measured products; if `None`, as many as 0.3 seconds hold, from 7 to 1000.
    pub repeat: Option<usize>,
}

/// A measured product, with its rates at the median time.
#[derive(Clone, Debug, Serialize)]
pub struct GemmRow {
    /// Extents and layout of the product.
    #[serde(serialize_with = "text")]
    pub shape: GemmShape,
    /// Element types of factors and result.
    #[serde(rename = "type")]
    pub types: GemmType,
    /// Milliseconds of one batch of products.
    #[serde(flatten)]
    pub times: Spread,
    /// Operations per nanosecond at the median time.
    #[serde(serialize_with = "rounded")]
    pub gflops: f64,
    /// The share of [`Ceilings::gflops`] that it reaches.
    #[serde(serialize_with = "rounded")]
    pub ceiling_share: f64,
    /// The share of [`Ceilings::roof`] that it reaches.
    #[serde(serialize_with = "rounded")]
    pub roof_share: f64,
    /// The bytes that it must move.
    pub bytes: usize,
    /// Those bytes per nanosecond at the median time.
    #[serde(serialize_with = "rounded")]
    pub gb_per_s: f64,
}

fn text<S: Serializer>(shape: &GemmShape, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(shape)
}

/// Measured products and the ceilings next to them.
///
/// Prints a table.
#[derive(Serialize)]
pub struct GemmReport {
    /// The computer that they were measured on.
    #[serde(rename = "machine")]
    pub computer: Computer,
    /// Its ceilings, measured before and after the products.
    #[serde(rename = "ceiling")]
    pub ceilings: Ceilings,
    /// Whether the right factors came from memory.
    pub cold: bool,
    /// The types that were measured, the groups of the plot.
    #[serde(skip)]
    pub types: Vec<GemmType>,
    /// The products, each with every type.
    #[serde(rename = "products")]
    pub rows: Vec<GemmRow>,
}

/// Measures matrix products.
///
/// # Errors
/// [`Error::Option`] for a product that is too large and for a number of repeats of 0 or of more
/// than [`MOST`](crate::MOST), [`Error::OutOfMemory`], and [`Error::WrongResult`] if an element is
/// wrong.
pub fn gemm(options: &GemmOptions) -> Result<GemmReport> {
    let repeats = Repeats::new(options.repeat, TIME)?;
    let mut shapes = options.shapes.clone();
    if shapes.is_empty() {
        shapes = DEFAULT.iter().filter_map(|text| text.parse().ok()).collect();
    }
    let mut types = options.types.clone();
    if types.is_empty() {
        types = GemmType::ALL.into();
    }
    types.dedup();
    let mut ceilings = Ceilings::new()?;
    ceilings.measure();
    let mut measured = Vec::new();
    for &shape in &shapes {
        for &types in &types {
            measured.push((shape, types, time(shape, types, options.cold, repeats)?));
        }
    }
    ceilings.measure();
    let row = |(shape, types, times): (GemmShape, GemmType, Spread)| {
        let (operations, bytes) = (shape.operations(), types.moved(shape).unwrap_or(BYTES).max(1));
        let gflops = operations / times.median() / 1e6;
        GemmRow {
            shape,
            types,
            gflops,
            ceiling_share: gflops / ceilings.gflops(),
            roof_share: gflops / ceilings.roof(operations, bytes, options.cold),
            bytes,
            gb_per_s: bytes as f64 / times.median() / 1e6,
            times,
        }
    };
    let rows = measured.into_iter().map(row).collect();
    Ok(GemmReport { computer: Computer::detect(), ceilings, cold: options.cold, types, rows })
}

/// The times of one product, whose result is checked first.
fn time(shape: GemmShape, types: GemmType, cold: bool, repeats: Repeats) -> Result<Spread> {
    let mut product = Product::new(shape, types, cold)?;
    product.check()?;
    let offsets: Vec<Vec<BatchOffsets>> = (0..product.factors).map(|turn| product.offsets(turn)).collect();
    let mut turn = 0;
    measure(WARM_UP, repeats, || {
        turn += 1;
        product.run(&offsets[turn % offsets.len()])
    })
}

impl GemmReport {
    /// A plot of the products under the ceilings, as SVG.
    ///
    /// # Errors
    /// [`Error::Plot`] if the plot cannot be drawn.
    pub fn roofline(&self) -> Result<String> {
        let point = |row: &GemmRow| RooflinePoint {
            name: row.shape.to_string(),
            group: self.types.iter().position(|types| *types == row.types).unwrap_or(0),
            intensity: row.shape.operations() / row.bytes as f64,
            gflops: row.gflops,
        };
        let points: Vec<RooflinePoint> = self.rows.iter().map(point).collect();
        let groups: Vec<&str> = self.types.iter().map(|types| types.name()).collect();
        roofline_svg(&format!("Matrix products: {}", self.computer), &self.ceilings.roofs(), &groups, &points)
    }
}

impl fmt::Display for GemmReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.computer)?;
        write!(f, "{}", self.ceilings)?;
        writeln!(f, "  product           type   GFLOP/s  of ceiling  of roof    GB/s  time")?;
        for row in &self.rows {
            let percent = |share: f64| format!("{:.0} %", 100.0 * share);
            writeln!(
                f,
                "  {:17} {:5} {:>8} {:>11} {:>8} {:>7}  {}",
                row.shape.to_string(),
                row.types.name(),
                short(row.gflops),
                percent(row.ceiling_share),
                percent(row.roof_share),
                short(row.gb_per_s),
                row.times
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read_and_written() {
        for text in ["256x768x2048", "12*256x64x256:nt", "1x1x1", "768x256x2048:tn", "3*4x5x6:tt"] {
            assert_eq!(text.parse::<GemmShape>().unwrap().to_string(), text);
        }
        for text in DEFAULT {
            text.parse::<GemmShape>().unwrap();
        }
        for (text, word) in [
            ("", "expected MxKxN"),
            ("1x2", "expected MxKxN"),
            ("1x2x3x4", "expected MxKxN"),
            ("0x2x3", "extent of 0"),
            ("0*1x2x3", "extent of 0"),
            ("1x-2x3", "not a whole number"),
            ("1x2x99999999999999999999", "not a whole number"),
            ("1x2x3:xy", "unknown layout"),
            ("1048576x1048576x1048576", "operations"),
        ] {
            let error = text.parse::<GemmShape>().unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
        let large: GemmShape = "524288x1x524288".parse().unwrap();
        assert!(Product::new(large, GemmType::Int8, false).is_err());
    }

    #[test]
    fn every_type_and_layout_is_right_and_a_wrong_result_is_seen() {
        for layout in ["nn", "tn", "nt", "tt"] {
            for kind in [GemmType::Fp32, GemmType::Fp16, GemmType::Int8] {
                let shape: GemmShape = format!("3*5x7x9:{layout}").parse().unwrap();
                let mut product = Product::new(shape, kind, false).unwrap();
                product.check().unwrap_or_else(|e| panic!("{shape} {}: {e}", kind.name()));
                // The other layout's numbers are others.
                product.shape.transposed.0 ^= true;
                let offsets = product.offsets(0);
                product.run(&offsets).unwrap();
                let one = product.out.at(0);
                product.shape.transposed.0 ^= true;
                product.run(&offsets).unwrap();
                assert_ne!(product.out.at(0), one);
            }
        }
    }
}

//! `ferrane bench gemm`: matrix products beside what the processor and its memory can do at best,
//! measured in the same run.
//!
//! A product is `lhs · rhs` of random numbers without zeros; some of its elements are computed
//! again in fp64 and must agree. Its roof is the lower of two ceilings: multiply-adds from
//! registers, and its operations for each byte that must be moved times the rate at which memory of
//! the size of its operands can be read. With `--cold` the right factor is another one each time,
//! so that it comes from memory as the weights of a model do in decoding.

use std::str::FromStr;
use std::time::Duration;

use ferrane::llm::random::Rng;
use ferrane_host::gemm::{BatchOffsets, Epilogue, GemmError, Operand, Output, View, ViewMut, gemm_batch};
use ferrane_host::{ceiling, f16, pool};
use serde_json::{Map, Value, json};

use super::measure::{self, Repeats, Spread, round, short};
use super::{machine, plot};
use crate::args::{BenchGemm, GemmType};
use crate::error::{Error, Result};
use crate::out;

/// What occurs in training and decoding of stories110m: the linear layers and the classifier of a
/// window, a weight gradient, scores and values of attention, and the products of one token.
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
/// An extent at most, and products of a batch.
const EXTENT: usize = 1 << 20;
/// Bytes of the operands and the result at most.
const BYTES: usize = 1 << 31;
/// Operations of a product at most.
const OPERATIONS: f64 = 2e12;
/// Bytes of the right factors with `--cold`, and of the largest memory that is read: more than
/// caches hold.
const LARGE: usize = 1 << 28;
/// Right factors at most with `--cold`.
const FACTORS: usize = 4096;
/// Time for a product where the number of repeats is not given.
const TIME: Duration = Duration::from_millis(300);
/// Turns of each ceiling, before the products and after them.
const TURNS: usize = 5;
/// Elements that are computed again.
const CHECKED: u64 = 8;

/// A product: `[B*]MxKxN[:nn|tn|nt|tt]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    batch: usize,
    m: usize,
    k: usize,
    n: usize,
    /// The left, and the right factor lie transposed.
    transposed: (bool, bool),
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Shape, String> {
        let (shape, layout) = text.split_once(':').unwrap_or((text, "nn"));
        let transposed = match layout {
            "nn" => (false, false),
            "tn" => (true, false),
            "nt" => (false, true),
            "tt" => (true, true),
            _ => return Err(format!("`:{layout}` is no layout; give :nn, :tn, :nt or :tt")),
        };
        let (batch, shape) = shape.split_once('*').unwrap_or(("1", shape));
        let extents: Vec<&str> = shape.split('x').collect();
        let [m, k, n] = extents[..] else {
            return Err("expected MxKxN, 256x768x2048 for example, or B*MxKxN for B of them".into());
        };
        let extent = |text: &str| match text.trim().parse::<usize>() {
            Ok(0) => Err("an extent of 0 makes no product".to_string()),
            Ok(n) if n <= EXTENT => Ok(n),
            _ => Err(format!("`{}` is no whole number from 1 to {EXTENT}", text.trim())),
        };
        let shape = Shape { batch: extent(batch)?, m: extent(m)?, k: extent(k)?, n: extent(n)?, transposed };
        if shape.operations() > OPERATIONS {
            return Err(format!(
                "{:.0e} operations are more than {OPERATIONS:.0e}, which take too long",
                shape.operations()
            ));
        }
        Ok(shape)
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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

impl Shape {
    /// Multiplications and additions.
    fn operations(self) -> f64 {
        2.0 * self.batch as f64 * self.m as f64 * self.k as f64 * self.n as f64
    }

    /// Elements of the left factor, the right one and the result, of one product.
    fn elements(self) -> [usize; 3] {
        // Extents have 20 bits; 40 fit.
        [self.m * self.k, self.k * self.n, self.m * self.n]
    }
}

impl GemmType {
    fn name(self) -> &'static str {
        match self {
            GemmType::Fp32 => "fp32",
            GemmType::Fp16 => "fp16",
            GemmType::Int8 => "int8",
        }
    }

    /// Bytes of an element of the left factor, the right one and the result.
    fn bytes(self) -> [usize; 3] {
        match self {
            GemmType::Fp32 => [4, 4, 4],
            GemmType::Fp16 => [2, 2, 2],
            GemmType::Int8 => [4, 1, 4],
        }
    }

    /// Bytes that must be moved at least: each factor once, and the result.
    fn moved(self, shape: Shape) -> Option<usize> {
        let parts = shape.elements().into_iter().zip(self.bytes());
        let one = parts.map(|(n, b)| n.checked_mul(b)).try_fold(0usize, |sum, part| sum.checked_add(part?))?;
        one.checked_mul(shape.batch)
    }
}

/// Numbers of one type.
enum Numbers {
    F32(Vec<f32>),
    F16(Vec<f16>),
    I8(Vec<i8>),
}

/// `count` numbers, made from a random one in (0, 1]; memory that is not there is an error.
fn made<T>(count: usize, rng: &mut Rng, of: impl Fn(f64) -> T) -> Result<Vec<T>> {
    let mut values = Vec::new();
    let failed = |_| Error::new(format!("{} MB for operands cannot be had", (count * size_of::<T>()) >> 20));
    values.try_reserve_exact(count).map_err(failed)?;
    values.extend((0..count).map(|_| of(1.0 - rng.uniform())));
    Ok(values)
}

impl Numbers {
    /// Random ones, of both signs, none 0. Whole numbers have all of an int8's range.
    fn random(kind: Kind, count: usize, rng: &mut Rng) -> Result<Numbers> {
        let signed = |u: f64| if u > 0.5 { 2.0 * u - 1.0 } else { -2.0 * u };
        Ok(match kind {
            Kind::F32 => Numbers::F32(made(count, rng, |u| signed(u) as f32)?),
            Kind::F16 => Numbers::F16(made(count, rng, |u| f16::from_f64(signed(u)))?),
            Kind::I8 => Numbers::I8(made(count, rng, |u| (signed(u) * 127.0).round_ties_even() as i8)?),
        })
    }

    /// The same again and again.
    fn times(self, count: usize) -> Result<Numbers> {
        fn again<T: Copy>(mut values: Vec<T>, count: usize) -> Result<Vec<T>> {
            let (one, more) = (values.len(), values.len() * (count - 1));
            values.try_reserve_exact(more).map_err(|_| Error::new("memory for cold factors cannot be had"))?;
            (1..count).for_each(|_| values.extend_from_within(..one));
            Ok(values)
        }
        Ok(match self {
            Numbers::F32(v) => Numbers::F32(again(v, count)?),
            Numbers::F16(v) => Numbers::F16(again(v, count)?),
            Numbers::I8(v) => Numbers::I8(again(v, count)?),
        })
    }

    fn at(&self, i: usize) -> f64 {
        match self {
            Numbers::F32(v) => v[i].into(),
            Numbers::F16(v) => v[i].to_f64(),
            Numbers::I8(v) => v[i].into(),
        }
    }

    fn operand(&self, rows: usize, cols: usize, transposed: bool) -> std::result::Result<Operand<'_>, GemmError> {
        let (r, c) = if transposed { (cols, rows) } else { (rows, cols) };
        let operand = match self {
            Numbers::F32(v) => Operand::F32(View::row_major(v, r, c)?),
            Numbers::F16(v) => Operand::F16(View::row_major(v, r, c)?),
            Numbers::I8(v) => Operand::I8(View::row_major(v, r, c)?),
        };
        Ok(if transposed { operand.t() } else { operand })
    }

    fn output(&mut self, rows: usize, cols: usize) -> std::result::Result<Output<'_>, GemmError> {
        match self {
            Numbers::F32(v) => Ok(Output::F32(ViewMut::row_major(v, rows, cols)?)),
            Numbers::F16(v) => Ok(Output::F16(ViewMut::row_major(v, rows, cols)?)),
            Numbers::I8(_) => Err(GemmError::Accumulate),
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    F32,
    F16,
    I8,
}

/// A product and its numbers.
struct Product {
    shape: Shape,
    lhs: Numbers,
    /// One after another: as many factors as turns take.
    rhs: Numbers,
    factors: usize,
    out: Numbers,
}

impl Product {
    fn new(shape: Shape, kind: GemmType, cold: bool) -> Result<Product> {
        let moved = kind.moved(shape).filter(|bytes| *bytes <= BYTES);
        moved.ok_or_else(|| Error::new(format!("--shape {shape}: its matrices have more than {} MB", BYTES >> 20)))?;
        let [l, r, o] = shape.elements().map(|n| n * shape.batch);
        let factors = if cold { LARGE.div_ceil(r * kind.bytes()[1]).min(FACTORS) } else { 1 };
        let (left, right, result) = match kind {
            GemmType::Fp32 => (Kind::F32, Kind::F32, Kind::F32),
            GemmType::Fp16 => (Kind::F16, Kind::F16, Kind::F16),
            GemmType::Int8 => (Kind::F32, Kind::I8, Kind::F32),
        };
        let mut rng = Rng::new(1);
        Ok(Product {
            shape,
            lhs: Numbers::random(left, l, &mut rng)?,
            rhs: Numbers::random(right, r, &mut rng)?.times(factors)?,
            factors,
            out: Numbers::random(result, o, &mut rng)?,
        })
    }

    /// The places of a turn's products.
    fn places(&self, turn: usize) -> Vec<BatchOffsets> {
        let [l, r, o] = self.shape.elements();
        let first = turn % self.factors * self.shape.batch;
        (0..self.shape.batch).map(|i| BatchOffsets { lhs: i * l, rhs: (first + i) * r, out: i * o }).collect()
    }

    fn run(&mut self, places: &[BatchOffsets]) -> Result<()> {
        let Shape { m, k, n, transposed, .. } = self.shape;
        let (lhs, rhs) = (self.lhs.operand(m, k, transposed.0)?, self.rhs.operand(k, n, transposed.1)?);
        Ok(gemm_batch(places, lhs, rhs, self.out.output(m, n)?, Epilogue::default())?)
    }

    /// Computes the products of turn 0, and some elements of them again.
    fn check(&mut self) -> Result<()> {
        let places = self.places(0);
        self.run(&places)?;
        let Shape { m, k, n, transposed, .. } = self.shape;
        let mut rng = Rng::new(2);
        for _ in 0..CHECKED {
            let place = places[rng.below(places.len() as u64) as usize];
            let (row, col) = (rng.below(m as u64) as usize, rng.below(n as u64) as usize);
            let (mut sum, mut size) = (0.0, 0.0f64);
            for i in 0..k {
                let l = self.lhs.at(place.lhs + if transposed.0 { i * m + row } else { row * k + i });
                let r = self.rhs.at(place.rhs + if transposed.1 { col * k + i } else { i * n + col });
                sum += l * r;
                size += (l * r).abs();
            }
            let found = self.out.at(place.out + row * n + col);
            // fp32 sums in any order err by at most k roundings of the sum of sizes; an fp16 result
            // is rounded once more.
            let output =
                if matches!(self.out, Numbers::F16(_)) { 2f64.powi(-11) * sum.abs() + 2f64.powi(-25) } else { 0.0 };
            let allowed = k as f64 * 2f64.powi(-24) * size + output;
            if (found - sum).abs() > allowed * (1.0 + 1e-6) {
                return Err(Error::new(format!("{}: element ({row}, {col}) is {found}, not {sum}", self.shape)));
            }
        }
        Ok(())
    }
}

/// The best of the machine, as far as it was seen.
struct Ceilings {
    gflops: f64,
    /// Bytes of the memory that is read, and GB/s.
    reads: [(usize, f64); 3],
    memory: Vec<u64>,
}

impl Ceilings {
    fn new() -> Result<Ceilings> {
        let mut memory = Vec::new();
        memory.try_reserve_exact(LARGE / 8).map_err(|_| Error::new("256 MiB to read cannot be had"))?;
        memory.extend(1..=(LARGE / 8) as u64);
        let sizes = [pool::threads() << 18, 1 << 24, LARGE];
        Ok(Ceilings { gflops: 0.0, reads: sizes.map(|size| (size.min(LARGE), 0.0)), memory })
    }

    fn measure(&mut self) {
        for _ in 0..TURNS {
            self.gflops = self.gflops.max(ceiling::flops() / 1e9);
            for (size, rate) in &mut self.reads {
                let found = ceiling::read_bandwidth(&self.memory[..*size / 8], Duration::from_millis(10)) / 1e9;
                *rate = rate.max(found);
            }
        }
    }

    /// What a product that moves so many bytes could reach, in GFLOP/s.
    fn roof(&self, operations: f64, bytes: usize, cold: bool) -> f64 {
        let fits = self.reads.iter().find(|(size, _)| bytes <= *size && !cold);
        let rate = fits.unwrap_or(&self.reads[2]).1;
        self.gflops.min(operations / bytes as f64 * rate)
    }
}

fn size_name(bytes: usize) -> String {
    if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) }
}

/// A measured product.
struct Row {
    shape: Shape,
    kind: GemmType,
    times: Spread,
    bytes: usize,
}

impl Row {
    fn gflops(&self) -> f64 {
        self.shape.operations() / self.times.median() / 1e6
    }

    fn intensity(&self) -> f64 {
        self.shape.operations() / self.bytes as f64
    }
}

/// Runs the command.
pub fn run(args: BenchGemm) -> Result<()> {
    let repeats = args.repeat.map(|count| measure::repeats("--repeat", count)).transpose()?;
    let repeats = repeats.map_or(Repeats::For(TIME), Repeats::Count);
    let mut shapes = args.shapes.clone();
    if shapes.is_empty() {
        shapes = DEFAULT.iter().filter_map(|text| text.parse().ok()).collect();
    }
    let mut kinds = args.types.clone();
    if kinds.is_empty() {
        kinds = vec![GemmType::Fp32, GemmType::Fp16, GemmType::Int8];
    }
    kinds.dedup();
    let mut ceilings = Ceilings::new()?;
    ceilings.measure();
    let mut rows = Vec::new();
    for &shape in &shapes {
        for &kind in &kinds {
            let mut product = Product::new(shape, kind, args.cold)?;
            product.check()?;
            let places: Vec<Vec<BatchOffsets>> = (0..product.factors).map(|turn| product.places(turn)).collect();
            let mut turn = 0;
            let times = measure::repeat(measure::WARM_UP, repeats, || {
                turn += 1;
                product.run(&places[turn % places.len()])
            })?;
            rows.push(Row { shape, kind, times, bytes: kind.moved(shape).unwrap_or(BYTES).max(1) });
        }
    }
    ceilings.measure();
    if let Some(path) = &args.roofline {
        let kernel = |row: &Row| plot::Kernel {
            name: row.shape.to_string(),
            group: kinds.iter().position(|k| *k == row.kind).unwrap_or(0),
            intensity: row.intensity(),
            gflops: row.gflops(),
        };
        let kernels: Vec<plot::Kernel> = rows.iter().map(kernel).collect();
        let bandwidths = ceilings.reads.iter().map(|(size, rate)| (size_name(*size), *rate)).collect();
        let roofs = plot::Roofs { gflops: ceilings.gflops, bandwidths };
        let groups: Vec<&str> = kinds.iter().map(|k| k.name()).collect();
        plot::roofline(path, &format!("Matrix products: {}", machine::line()), &roofs, &groups, &kernels)?;
    }
    if args.json { report(&args, &ceilings, &rows) } else { show(&args, &ceilings, &rows) }
}

fn report(args: &BenchGemm, ceilings: &Ceilings, rows: &[Row]) -> Result<()> {
    let reads: Map<String, Value> =
        ceilings.reads.iter().map(|(size, rate)| (size_name(*size), json!(round(*rate)))).collect();
    let row = |row: &Row| {
        let roof = ceilings.roof(row.shape.operations(), row.bytes, args.cold);
        let mut object = Map::new();
        object.insert("shape".into(), json!(row.shape.to_string()));
        object.insert("type".into(), json!(row.kind.name()));
        object.extend(row.times.json("ms"));
        object.insert("gflops".into(), json!(round(row.gflops())));
        object.insert("ceiling_share".into(), json!(round(row.gflops() / ceilings.gflops)));
        object.insert("roof_share".into(), json!(round(row.gflops() / roof)));
        object.insert("bytes".into(), json!(row.bytes));
        object.insert("gb_per_s".into(), json!(round(row.bytes as f64 / row.times.median() / 1e6)));
        Value::Object(object)
    };
    out::line(json!({
        "machine": machine::describe(), "cold": args.cold,
        "ceiling": {"gflops": round(ceilings.gflops), "read_gb_per_s": reads},
        "products": rows.iter().map(row).collect::<Vec<_>>(),
    }))
}

fn show(args: &BenchGemm, ceilings: &Ceilings, rows: &[Row]) -> Result<()> {
    out::line(machine::line())?;
    let each = ceilings.gflops / pool::threads() as f64;
    out::line(format_args!(
        "  {:.0} GFLOP/s of fp32 multiply-adds from registers, {each:.0} a thread",
        ceilings.gflops
    ))?;
    let reads: Vec<String> =
        ceilings.reads.iter().map(|(size, rate)| format!("{rate:.0} of {}", size_name(*size))).collect();
    out::line(format_args!("  reads, in GB/s: {}", reads.join(", ")))?;
    out::line("  product           type   GFLOP/s  of ceiling  of roof    GB/s  time")?;
    for row in rows {
        let gflops = row.gflops();
        let roof = ceilings.roof(row.shape.operations(), row.bytes, args.cold);
        let percent = |of: f64| format!("{:.0} %", 100.0 * gflops / of);
        out::line(format_args!(
            "  {:17} {:5} {:>8} {:>11} {:>8} {:>7}  {}",
            row.shape.to_string(),
            row.kind.name(),
            short(gflops),
            percent(ceilings.gflops),
            percent(roof),
            short(row.bytes as f64 / row.times.median() / 1e6),
            row.times.text("ms")
        ))?;
    }
    if let Some(path) = &args.roofline {
        out::line(format_args!("  written to {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read_and_written() {
        for text in ["256x768x2048", "12*256x64x256:nt", "1x1x1", "768x256x2048:tn", "3*4x5x6:tt"] {
            assert_eq!(text.parse::<Shape>().unwrap().to_string(), text);
        }
        for text in DEFAULT {
            text.parse::<Shape>().unwrap();
        }
        for (text, word) in [
            ("", "expected MxKxN"),
            ("1x2", "expected MxKxN"),
            ("1x2x3x4", "expected MxKxN"),
            ("0x2x3", "extent of 0"),
            ("0*1x2x3", "extent of 0"),
            ("1x-2x3", "no whole number"),
            ("1x2x99999999999999999999", "no whole number"),
            ("1x2x3:xy", "no layout"),
            ("1048576x1048576x1048576", "operations"),
        ] {
            let error = text.parse::<Shape>().unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
        let large: Shape = "524288x1x524288".parse().unwrap();
        assert!(Product::new(large, GemmType::Int8, false).is_err());
    }

    #[test]
    fn every_type_and_layout_is_right_and_a_wrong_result_is_seen() {
        for layout in ["nn", "tn", "nt", "tt"] {
            for kind in [GemmType::Fp32, GemmType::Fp16, GemmType::Int8] {
                let shape: Shape = format!("3*5x7x9:{layout}").parse().unwrap();
                let mut product = Product::new(shape, kind, false).unwrap();
                product.check().unwrap_or_else(|e| panic!("{shape} {}: {e}", kind.name()));
                // The other layout's numbers are others.
                product.shape.transposed.0 ^= true;
                let places = product.places(0);
                product.run(&places).unwrap();
                let one = product.out.at(0);
                product.shape.transposed.0 ^= true;
                product.run(&places).unwrap();
                assert_ne!(product.out.at(0), one);
            }
        }
    }

    #[test]
    fn a_product_of_few_bytes_has_the_roof_of_registers() {
        let ceilings =
            Ceilings { gflops: 100.0, reads: [(1 << 18, 50.0), (1 << 24, 20.0), (LARGE, 10.0)], memory: Vec::new() };
        assert_eq!(ceilings.roof(1e9, 1 << 18, false), 100.0);
        assert_eq!(ceilings.roof(2e6, 1_000_000, false), 40.0);
        assert_eq!(ceilings.roof(2e6, 1_000_000, true), 20.0);
        assert_eq!(ceilings.roof(2e9, 1 << 30, false), 2e9 / f64::from(1 << 30) * 10.0);
    }
}

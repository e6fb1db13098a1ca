//! Reading and checking a program of 100,000 ops, and opening a weight file of 1 GiB: the times
//! that the language promises.
//!
//! `cargo bench -p ferrane-mil --bench text`. Each line is the best of five runs on one core, with
//! its limit. The weight file is sparse, so it takes no disk; opening maps it and finds one record
//! at its end.
#![allow(clippy::print_stdout, reason = "a bench shows its times")]

use std::fmt::Write as _;
use std::io::{Seek, SeekFrom, Write};
use std::time::{Duration, Instant};

use ferrane_host::map::Mapped;
use ferrane_mil::{DataType, Strictness, Weights, check, parse, print, verify};
use tempfile::NamedTempFile;

/// Layers of a transformer's kinds of ops, one after the other, until there are `n` ops.
fn program(n: usize) -> String {
    let mut text = String::from(
        "program(1.3)\n[buildInfo = dict<string, string>({{\"coremlc-version\", \"3505.4.1\"}})]\n{\n    func main<ios18>(tensor<fp16, [1, 64, 1, 32]> x0) {\n",
    );
    let mut line = |s: String| {
        let _ = writeln!(text, "        {s}");
    };
    let layers = n / 10;
    for i in 0..layers {
        line(format!("tensor<int32, [1]> rax{i} = const()[name = string(\"rax{i}\"), val = tensor<int32, [1]>([1])];"));
        line(format!("bool kd{i} = const()[name = string(\"kd{i}\"), val = bool(true)];"));
        line(format!("tensor<fp16, [1, 64, 1, 32]> sq{i} = mul(x = x{i}, y = x{i})[name = string(\"sq{i}\")];"));
        line(format!(
            "tensor<fp16, [1, 1, 1, 32]> ss{i} = reduce_sum(x = sq{i}, axes = rax{i}, keep_dims = kd{i})[name = string(\"ss{i}\")];"
        ));
        line(format!("fp16 e{i} = const()[name = string(\"e{i}\"), val = fp16(0x1.5p-17)];"));
        line(format!("tensor<fp16, [1, 1, 1, 32]> t{i} = add(x = ss{i}, y = e{i})[name = string(\"t{i}\")];"));
        line(format!(
            "tensor<int32, [4]> sh{i} = const()[name = string(\"sh{i}\"), val = tensor<int32, [4]>([1, 64, 1, 32])];"
        ));
        line(format!("tensor<fp16, [1, 64, 1, 32]> n{i} = mul(x = x{i}, y = t{i})[name = string(\"n{i}\")];"));
        line(format!("tensor<fp16, [1, 64, 1, 32]> r{i} = reshape(shape = sh{i}, x = n{i})[name = string(\"r{i}\")];"));
        line(format!("tensor<fp16, [1, 64, 1, 32]> x{} = sigmoid(x = r{i})[name = string(\"x{}\")];", i + 1, i + 1));
    }
    let _ = write!(text, "    }} -> (x{layers});\n}}\n");
    text
}

/// The best time of five.
fn best<T>(mut run: impl FnMut() -> T) -> Duration {
    let time = |_| {
        let start = Instant::now();
        let kept = run();
        let elapsed = start.elapsed();
        drop(kept);
        elapsed
    };
    (0..5).map(time).min().unwrap_or_default()
}

fn show(what: &str, time: Duration, limit: Duration) {
    let verdict = if time <= limit { "within" } else { "OVER" };
    println!("{what:<40} {:>8.1} ms   {verdict} {} ms", time.as_secs_f64() * 1e3, limit.as_millis());
}

/// A blob file with one record of 1 GiB whose payload was never written.
fn sparse() -> std::io::Result<NamedTempFile> {
    let payload = 1u64 << 30;
    let mut file = NamedTempFile::new()?;
    file.as_file().set_len(128 + payload)?;
    let word = |v: u32| v.to_le_bytes();
    file.write_all(&[word(1), word(2)].concat())?;
    file.seek(SeekFrom::Start(64))?;
    file.write_all(&[word(0xDEAD_BEEF), word(1)].concat())?;
    file.write_all(&payload.to_le_bytes())?;
    file.write_all(&128u64.to_le_bytes())?;
    Ok(file)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let text = program(100_000);
    let second = Duration::from_secs(1);
    let read = parse(&text, &Weights::new())?;
    let ops = read.functions[0].ops.len();
    println!("{ops} ops, {:.1} MB of text", text.len() as f64 / 1e6);
    show("parse, with types", best(|| parse(&text, &Weights::new())), second);
    show("verify and check", best(|| (verify(&read), check(&read.functions[0], &read.weights))), second);
    show("print", best(|| print(&read)), second);
    let file = sparse()?;
    let open = || -> Result<usize, Box<dyn std::error::Error>> {
        let mut weights = Weights::new();
        weights.open_file("w", Mapped::open(file.path())?);
        let found = weights.find("w", 64, DataType::Fp16, 1 << 29, Strictness::Strict)?;
        let (id, _) = found.ok_or("no record")?;
        Ok(weights.bytes(id).map_or(0, <[u8]>::len))
    };
    assert_eq!(open()?, 1 << 30);
    show("open a weight file of 1 GiB", best(open), Duration::from_millis(50));
    Ok(())
}

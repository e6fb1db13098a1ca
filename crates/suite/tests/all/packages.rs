//! Recorded packages: evaluated and compared with PyTorch's results, as text and as a written
//! package.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ferrane_emulator::{Emulator, EmulatorOptions};
use ferrane_mil::package::{self, Opened, WriteOptions};
use ferrane_mil::{Constant, DataType, Program, Type, ValueId, parse, print};
use ferrane_testdata::Suite;

use crate::values::numbers;

/// For an fp16 program against fp32 results, relative to the largest output: the error of a few
/// dozen roundings and an fp16 exponential. A wrong reader or op is off by the magnitude of the
/// outputs themselves.
const FP16: f64 = 1e-2;

fn packages(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.extension() {
            Some(e) if e == "mlpackage" => found.push(path),
            _ if path.is_dir() => found.extend(packages(&path)),
            _ => {}
        }
    }
    found.sort();
    found
}

/// Shape and elements of a little-endian, row-major `.npy` file of floats.
fn npy(path: &Path) -> Option<(Vec<usize>, Vec<f64>)> {
    let bytes = std::fs::read(path).ok()?;
    let length = u16::from_le_bytes(bytes.get(8..10)?.try_into().ok()?) as usize;
    let header = std::str::from_utf8(bytes.get(10..10 + length)?).ok()?;
    let data = bytes.get(10 + length..)?;
    let shape = header.split_once("'shape': (")?.1.split_once(')')?.0;
    let shape =
        shape.split(',').map(str::trim).filter(|s| !s.is_empty()).map(|s| s.parse().ok()).collect::<Option<_>>()?;
    let values = if header.contains("<f4") {
        data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]).into()).collect()
    } else {
        data.chunks_exact(2).map(|b| ferrane_host::f16::from_le_bytes([b[0], b[1]]).to_f64()).collect()
    };
    Some((shape, values))
}

/// Values as a constant of a port's type: known extents, floats or int32.
fn constant(ty: &Type, values: &[f64]) -> Option<Constant> {
    let (dtype, shape) = (ty.dtype()?, ty.shape()?);
    let bytes: Vec<u8> = match dtype {
        DataType::Fp16 => values.iter().flat_map(|&v| ferrane_host::f16::from_f64(v).to_le_bytes()).collect(),
        DataType::Fp32 => values.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect(),
        DataType::Int32 => values.iter().flat_map(|&v| (v as i32).to_le_bytes()).collect(),
        _ => return None,
    };
    (ty.elements()? == values.len()).then(|| Constant::raw(dtype, &shape, &bytes))
}

/// The recorded input if there is one of the right size, else numbers from a fixed sequence.
fn inputs(program: &Program, recorded: Option<&[f64]>) -> Option<Vec<(String, Constant)>> {
    let main = program.functions.first()?;
    let of = |&id: &ValueId| {
        let value = main.value(id);
        let count = value.ty.elements()?;
        let made: Vec<f64> = (0..count).map(|i| ((i * 37 + 11) % 101) as f64 / 50.5 - 1.0).collect();
        let values = recorded.filter(|r| r.len() == count).unwrap_or(&made);
        Some((value.name.clone(), constant(&value.ty, values)?))
    };
    main.inputs.iter().filter(|id| !matches!(main.value(**id).ty, Type::State(_))).map(of).collect()
}

fn run(program: &Program, inputs: &[(String, Constant)]) -> Result<Vec<(String, Constant)>, String> {
    let function = program.functions.first().map_or("main", |f| f.name.as_str());
    let emulator = Emulator::new(EmulatorOptions::default());
    emulator.call(program, function, inputs, &mut BTreeMap::new()).map_err(|e| e.to_string())
}

fn check(path: &Path, scratch: &Path) -> Result<(), String> {
    let opened = package::open(path).map_err(|e| e.to_string())?;
    let beside = |kind: &str| npy(&path.with_extension(format!("{kind}.npy")));
    let (x, y) = (beside("x"), beside("y"));
    let inputs = inputs(&opened.program, x.as_ref().map(|x| x.1.as_slice())).ok_or("a port that no numbers fit")?;
    let first = run(&opened.program, &inputs)?;
    if let (Some(_), Some((_, wanted))) = (&x, &y) {
        let found = numbers(&first.first().ok_or("no output")?.1).ok_or("an output holds no numbers")?;
        let largest = wanted.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        let worst = found.iter().zip(wanted).fold(0.0f64, |m, (f, w)| m.max((f - w).abs()));
        if found.len() != wanted.len() || worst.is_nan() || worst > FP16 * largest {
            return Err(format!("off by {worst}, the largest output is {largest}"));
        }
    }
    let text = print(&opened.program);
    let again = parse(text.as_bytes(), &opened.program.weights).map_err(|e| format!("as text: {e}"))?;
    if print(&again) != text {
        return Err("the text is not a fixpoint".into());
    }
    if run(&again, &inputs)? != first {
        return Err("the program read from text gives other bits".into());
    }
    let to = scratch.join(path.file_name().ok_or("a package without a name")?);
    let rewritten = rewrite(&opened, &to)?;
    if run(&rewritten.program, &inputs)? != first {
        return Err("the written package gives other bits".into());
    }
    Ok(())
}

fn rewrite(opened: &Opened, to: &Path) -> Result<Opened, String> {
    let options = WriteOptions {
        overwrite: false,
        description: opened.description.as_ref(),
        specification_version: opened.specification_version,
    };
    package::write_package(&opened.program, to, &options).map_err(|e| e.to_string())?;
    package::open(to).map_err(|e| e.to_string())
}

#[test]
fn recorded_packages_run_as_package_and_as_text() {
    let Some(mut suite) = Suite::open("packages-run", "mil") else { return };
    let scratch = tempfile::tempdir().expect("a folder");
    for (i, path) in packages(suite.folder()).iter().enumerate() {
        let name = path.strip_prefix(suite.folder()).unwrap_or(path).display().to_string();
        let own = scratch.path().join(i.to_string());
        let made = std::fs::create_dir(&own).map_err(|e| e.to_string());
        suite.case(&name, made.and_then(|()| check(path, &own)));
    }
    suite.finish();
}

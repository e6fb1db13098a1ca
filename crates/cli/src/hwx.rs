//! `ferrane hwx`: compiled programs for the Linux driver, and their weights.

use std::fs;
use std::path::Path;

use ferrane::Tensor;
use ferrane::hwx::anec::{ANECC_PAYLOAD, Anec, LIBANE_PAYLOAD};
use ferrane::hwx::{Filter, Hwx};
use ferrane::mil::DataType;
use ferrane::tensor_io::{self, Format};
use ferrane_host::f16;

use crate::args::{HwxCommand, HwxConvert, HwxPack, HwxUnpack};
use crate::compiled::{container, is_anec, load, write};
use crate::error::Result;
use crate::{files, out};

/// Runs `ferrane hwx`.
pub fn run(what: HwxCommand) -> Result<()> {
    match what {
        HwxCommand::Convert(args) => convert(&args),
        HwxCommand::Unpack(args) => unpack(&args),
        HwxCommand::Pack(args) => pack(&args),
    }
}

fn convert(args: &HwxConvert) -> Result<()> {
    let wrong = |why: &str| Err(files::failed(&args.output, why));
    let failed = |e| files::failed(&args.input, e);
    let bytes = files::read(&args.input)?;
    let begins = if args.libane { LIBANE_PAYLOAD } else { ANECC_PAYLOAD };
    let extension = args.output.extension().and_then(|e| e.to_str()).unwrap_or("");
    let of_driver = is_anec(&bytes);
    let container = || container(&args.input, &bytes);
    let made = match (extension, of_driver) {
        ("anec" | "ane", _) => Anec::from_hwx(&container()?, begins).map_err(failed)?.write(),
        ("hwx", true) => container()?.write(),
        ("bin", true) => Anec::read(&bytes).map_err(failed)?.payload(),
        ("hwx" | "bin", false) => {
            return wrong("only an .anec can become such a file; `ferrane disasm --text` prints a container");
        }
        _ => return wrong("unknown kind of file; give a name that ends in .anec, or for an .anec in .hwx or .bin"),
    };
    write(&args.output, args.force, &made)?;
    out::line(format_args!("{}: {} bytes from {}", args.output.display(), made.len(), args.input.display()))
}

/// The weights of a program that has some.
fn filters(path: &Path, hwx: &Hwx) -> Result<Vec<Filter>> {
    let kernels = hwx.filters().map_err(|e| files::failed(path, e))?;
    if kernels.is_empty() {
        return Err(files::failed(path, "no task reads weights; `ferrane disasm` says what each does"));
    }
    Ok(kernels)
}

fn name(kernel: &Filter) -> String {
    format!("task{}.npy", kernel.task)
}

fn unpack(args: &HwxUnpack) -> Result<()> {
    let hwx = load(&args.file)?;
    let mut written = 0;
    let kernels = filters(&args.file, &hwx)?;
    fs::create_dir_all(&args.output).map_err(|e| files::failed(&args.output, e))?;
    for kernel in &kernels {
        let weights = hwx.filter_weights(kernel);
        let (lanes, weights) = match (&kernel.lanes, &weights) {
            (Ok(lanes), Ok(weights)) => (lanes, weights),
            (Err(e), _) | (_, Err(e)) => {
                out::note(format_args!("task {}: left out: {e}", kernel.task));
                continue;
            }
        };
        let shape = lanes.shape();
        let shape = [shape.cout, shape.cin, shape.kh, shape.kw].map(|n| n as usize);
        let bytes: Vec<u8> = weights.iter().flat_map(|w| w.to_bits().to_le_bytes()).collect();
        let tensor = Tensor::new(DataType::Fp16, shape, bytes)?;
        let path = args.output.join(name(kernel));
        write(&path, args.force, &tensor_io::write(Format::Npy, &[("weights", tensor)].into())?)?;
        out::line(format_args!("{}: fp16 {shape:?}", path.display()))?;
        written += 1;
    }
    if written == 0 {
        return Err(files::failed(&args.file, "no weights whose order is known"));
    }
    Ok(())
}

fn pack(args: &HwxPack) -> Result<()> {
    let mut hwx = load(&args.file)?;
    let mut packed = Vec::new();
    for kernel in filters(&args.file, &hwx)? {
        let path = args.weights.join(name(&kernel));
        if !path.is_file() {
            continue;
        }
        let tensor = tensor_io::read(&path, "weights")?;
        let shape = kernel.lanes.as_ref().map_err(|e| files::failed(&path, e))?.shape();
        let wanted = [shape.cout, shape.cin, shape.kh, shape.kw].map(|n| n as usize);
        if tensor.shape() != wanted {
            let why = format!("has the shape {:?}, the weights of task {} {wanted:?}", tensor.shape(), kernel.task);
            return Err(files::failed(&path, why));
        }
        let tensor = tensor.cast(DataType::Fp16).map_err(|e| files::failed(&path, e))?;
        let weights: Vec<f16> = tensor.elements().map(|b| f16::from_bits(u16::from_le_bytes([b[0], b[1]]))).collect();
        hwx.set_filter_weights(&kernel, &weights).map_err(|e| files::failed(&path, e))?;
        packed.push(kernel.task.to_string());
    }
    if packed.is_empty() {
        return Err(files::failed(
            &args.weights,
            "no taskN.npy of a task that reads weights; `ferrane hwx unpack` writes them",
        ));
    }
    write(&args.output, args.force, &hwx.write())?;
    out::line(format_args!("{}: new weights of task {}", args.output.display(), packed.join(", ")))
}

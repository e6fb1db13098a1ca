//! Runs a model file of any kind.
//!
//! `cargo run -p ferrane --example run_package -- model.mlpackage image=photo.jpg x=[1,2]`
//!
//! Takes `.mlpackage`, `.mlmodel`, `.mlmodelc`, MIL text, and `.onnx` without named extents (see
//! `run_onnx`); without an argument a small text. Inputs that are not named get random values.

#![allow(clippy::print_stdout)]

use ferrane::mil::package::{Care, read_checked};
use ferrane::model::{Model, ModelOptions, ModelProgram};
use ferrane::tensor_io::{Fit, TensorSource};

const TEXT: &str = r#"program(1.3)
{
    func main<ios18>(tensor<fp16, [1, 4]> x) {
        tensor<fp16, [1, 4]> y = relu(x = x)[name = string("y")];
    } -> (y);
}
"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = ModelOptions::default().fit(Fit::Resize).random(1);
    let sources: Vec<_> = std::env::args().skip(2).map(|x| TensorSource::parse_named(&x)).collect::<Result<_, _>>()?;
    let program = match std::env::args().nth(1) {
        Some(path) => ModelProgram::open(path, Care::Whole, &options)?,
        None => ModelProgram::new(read_checked("relu.mil", TEXT.as_bytes(), Care::Whole))?,
    };
    let model = Model::new(program, &options, &sources)?;
    let outputs = model.run(&ferrane::open("emulator")?, &sources)?.outputs;
    for (name, tensor) in outputs.iter() {
        println!("{name}: {} {:?}\n{}", tensor.dtype(), tensor.shape(), ferrane::TensorSummary::of(tensor, 4));
    }
    model.classes(&outputs)?.iter().take(5).for_each(|(label, p)| println!("{p:8.5}  {label}"));
    Ok(())
}

//! Continues a text with a trained model.
//!
//! `cargo run --release -p ferrane --example generate -- FOLDER`
//!
//! The folder may be a training run (the example `train` makes one), a Hugging Face folder, or a
//! llama2.c checkpoint with its tokenizer.

#![allow(clippy::print_stdout)]

use std::io::Write as _;

use ferrane::llm::model::Model;
use ferrane::llm::sample::Sampler;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = Model::open(std::env::args().nth(1).unwrap_or("runs/default".into()))?;
    let device = ferrane::open("emulator")?;
    // Temperature, nucleus (top-p), seed.
    let sampler = Sampler::new(0.8, 0.9, 1)?;
    let mut generator = model.generator(Some(&device), Default::default(), sampler)?;
    print!("One day");
    for piece in generator.generate("One day", 64)? {
        print!("{}", piece?.text);
        std::io::stdout().flush()?;
    }
    println!();
    Ok(())
}

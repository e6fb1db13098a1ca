//! Continues a text with a trained model.
//!
//! `cargo run --release -p ferrane --example generate -- FOLDER`
//!
//! The folder may be a training run (the example `train` makes one), a Hugging Face folder, or a
//! llama2.c checkpoint with its tokenizer.

#![allow(clippy::print_stdout)]

use std::io::Write as _;

use ferrane::llm::model::Model;
use ferrane::llm::sample::{Sampler, Sampling};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = Model::open(std::env::args().nth(1).unwrap_or("runs/default".into()))?;
    let device = ferrane::open("emulator")?;
    let options = Sampling { temperature: 0.8, top_p: 0.9, seed: Some(1), ..Sampling::default() };
    let sampler = Sampler::new(&options)?;
    let mut generator = model.generator(Some(&device), Default::default(), sampler)?;
    print!("One day");
    for piece in generator.generate("One day", 64)? {
        print!("{}", piece?.text);
        std::io::stdout().flush()?;
    }
    println!();
    Ok(())
}

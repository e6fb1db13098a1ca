//! Trains a small story model.
//!
//! `cargo run --release -p ferrane --example train -- FOLDER`
//!
//! Without data of its own a session writes a corpus of simple stories and trains a tokenizer on
//! it. Stop it at any time: `Session::resume` continues from the folder, bit for bit.

#![allow(clippy::print_stdout)]

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use ferrane::train::run::Event;
use ferrane::train::session::{Session, SessionOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or("runs/example".into()));
    let device = ferrane::open("emulator")?;
    let mut report = |event: &Event| {
        if let Event::Validated { step, loss } = event {
            println!("after {step:3} updates: validation loss {loss:.3}");
        }
    };

    let mut session = if folder.exists() {
        Session::resume(&folder, Some(&device), &mut report)?
    } else {
        let mut options = SessionOptions::embedded();
        options.run.out = folder;
        options.run.steps = 60;
        options.run.seq = 64;
        options.run.eval_every = 20;
        Session::begin(options, Some(&device), &mut report)?
    };
    // Another thread may set the flag to stop the session after the current micro-step.
    let summary = session.run(&mut report, &AtomicBool::new(false))?;
    println!("checkpoint: {}", summary.checkpoint.display());
    Ok(())
}

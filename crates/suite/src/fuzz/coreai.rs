//! Programs of Core AI models.

use ferrane_coreai::summary::Summary;
use ferrane_coreai::{Bytecode, ConversionOptions, text};

/// Larger files are not printed: a file may ask for text of 256 times its length, which would only
/// slow the fuzzer down.
const LARGEST: usize = 1 << 16;

/// Any bytes are a program or rejected. A program can be printed in every form, has a program of
/// MIL or reasons why not, and what is written of it is read as the same program.
///
/// # Panics
/// If a property does not hold.
pub fn coreai(data: &[u8]) {
    let Ok(file) = Bytecode::read(data) else { return };
    if data.len() <= LARGEST {
        text::program(&file);
        text::generic(&file, text::Locations::Show);
        Summary::of(&file);
        if let Ok(program) = file.to_mil(&ConversionOptions::default()) {
            ferrane_mil::verify(&program).expect("a program that was made is right");
        }
    }
    let written = file.write();
    let again = Bytecode::read(&written).expect("what was written is read");
    assert!(again.write() == written, "reading and writing changes the file");
}

//! Programs of Core AI models.

use ferrane_coreai::summary::Summary;
use ferrane_coreai::{Bytecode, ConversionOptions, text, to_coreai};
use ferrane_mil::text::{Missing, Options, Types};
use ferrane_mil::weights::Strictness;
use ferrane_mil::{Constant, Evaluate, Function, Op, Opset, Weights, parse_with};

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

/// Constants of a fuzzer's program are not worth computing.
struct NoArithmetic;

impl Evaluate for NoArithmetic {
    fn evaluate(&self, _: &Function, _: &Op, _: Opset, _: &Weights) -> Result<Vec<Constant>, String> {
        Err("nothing is computed here".into())
    }
}

/// A text that is a program becomes a model, or there are reasons why not; the model is read, and
/// has a program again or reasons why not.
///
/// # Panics
/// If a property does not hold.
pub fn coreai_write(data: &[u8]) {
    let options = Options { missing: Missing::Keep, strictness: Strictness::Lenient, types: Types::Trust };
    let Some(program) = parse_with(data, &Weights::new(), options).program else { return };
    let written = match to_coreai(&program, &NoArithmetic) {
        Ok(model) => model.write(),
        Err(refusals) => {
            assert!(!refusals.all.is_empty(), "refused without a reason");
            return;
        }
    };
    if written.len() <= LARGEST {
        coreai(&written);
    }
    Bytecode::read(&written).expect("what was written is read");
}

//! MIL text: the printer and the reader.
//!
//! The printer writes one spelling for each dialect; the reader takes whatever Apple's tools and published programs write, and
//! `print(parse(text))` is a fixpoint. Floats are written as the shortest decimal that reads back to the same bits.

mod fp8;
mod lex;
mod literal;
mod number;
mod parse;
mod print;
mod statement;

pub use parse::{Missing, Options, Parsed, Types, parse, parse_with};
pub use print::print;

//! MIL text: the reader, the printer, and conversion between dialects.
//!
//! The printer writes one spelling for each dialect; the reader accepts everything that Apple's
//! tools and published programs write, and `print(parse(text))` is a fixpoint. Floats are written
//! as the shortest decimal that reads back to the same bits.
//!
//! ```text
//! program    := "program" "(" major "." minor ")" [attributes] "{" {function} "}"
//! function   := "func" name "<" opset ">" "(" [parameters] ")" [attributes] block ";"
//! block      := "{" {statement} "}" "->" "(" [names] ")"
//! statement  := [parameters "="] op "(" [arguments] ")" [attributes] {"(" [parameters] ")" block} ";"
//! parameters := type name {"," type name}
//! arguments  := name "=" (name | "(" names ")" | literal) {"," …}
//! attributes := "[" name "=" literal {"," …} "]"
//! literal    := type "(" value ")"
//! value      := number | string | bool | "[" … "]" | "(" … ")" | "{" {"{" value "," value "}"} "}" | blob
//! blob       := "BLOBFILE" "(" "path" "=" literal "," "offset" "=" literal ")"
//! type       := dtype | "tensor" "<" dtype "," "[" [extents] "]" ">" | "list" "<" type "," extent ">"
//!             | "tuple" "<" types ">" | "dict" "<" type "," type ">" | "state" "<" type ">"
//! ```
//!
//! Comments (`//`) are allowed between any two tokens; published programs have them, and printing
//! drops them. An extent is a number or `?`. Several functions of one name and one signature in
//! different opsets are the specializations of one function.
//!
//! No published program shows how Apple spells the nested blocks of `cond` and `while_loop`; the
//! form above is Ferrane's own, modeled on functions: the parameters of a block, its statements,
//! and its results after the arrow.
//!
//! The codes of the diagnostics are in [`crate::codes`].

mod bodies;
mod check;
mod convert;
mod foreign;
mod fp8;
mod function;
mod lex;
mod literal;
mod number;
mod options;
mod parse;
mod print;
mod reader;
mod statement;

pub use convert::convert;
pub use options::{Missing, Options, Types};
pub use parse::{Parsed, parse, parse_with};
pub use print::print;

//! MIL text: the reader, the printer, and the way from one dialect to the other.
//!
//! The printer writes one spelling for each dialect; the reader takes whatever Apple's tools and published programs write, and
//! `print(parse(text))` is a fixpoint. Floats are written as the shortest decimal that reads back to the same bits.
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
//! Comments (`//`) may stand anywhere; published programs have them, and printing drops them. An extent is a number or `?`.
//! Several functions of one name and one signature in different opsets are the specialisations of one function.
//!
//! No published program shows how Apple spells the nested blocks of `cond` and `while_loop`; the form above is this reader's own,
//! taken over from the function's: each block is its parameters, its statements, and the results behind the arrow.
//!
//! Codes: 0101 bytes that are no text, 0102 unexpected token, 0103 program header, 0104 nesting or size, 0105 string, 0106 an
//! argument without its name, 0107 a literal without its type, 0108 number, 0109 another format, 0110 (warning) version, opset and
//! spelling that do not go together, 0111 (warning) opset; 0201 name, 0202 undefined value, 0203 type, 0204 (warning) an op that the
//! registry does not have, 0205 to 0211 arguments and results; 0301 missing file, 0302 record, 0303 (warning) odd record.

mod bodies;
mod check;
mod convert;
mod foreign;
mod fp8;
mod function;
mod lex;
mod literal;
mod number;
mod parse;
mod print;
mod reader;
mod statement;

pub use convert::convert;
pub use parse::{Missing, Options, Parsed, Types, parse, parse_with};
pub use print::print;

//! The interface as C sees it: the header, the symbols, programs in C against both libraries, the
//! documentation's example.

mod cc;
mod header;
mod programs;
mod source;

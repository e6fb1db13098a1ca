//! The interface from C: the header, the symbols, C programs against both libraries, the
//! documentation's example.

mod cc;
mod header;
mod programs;
mod source;

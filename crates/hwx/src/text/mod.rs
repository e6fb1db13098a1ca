//! The text form of a file, and its assembler.
//!
//! The output of [`print()`] assembles to the same file byte for byte; it can be edited first. A
//! text consists of statements, one per line or separated by `;`. `//` begins a comment. Bytes
//! without a statement are 0.
//!
//! ```text
//! hwx {                                  the header
//!     subtype = h13                      a generation's name or a number
//!     size = 0x8000                      bytes of the file
//! }
//! segment {                              a load command of a kind; `command 0x77 { … }` for one that has no name
//!     name = "__TEXT"                    strings: \n \t \" \\ \xNN
//!     vmaddr = 0x30000000
//!     section "__text" "__TEXT" { addr = 0x30000000; size = 0x274; offset = 0x4000 }
//!     word 0x44 = 7                      what has no name, by its byte in the command; `byte 0x44 = 7`
//! }
//! program1 { name = "net" at 0x860; bar 5 = 0x30004000; tag 7 = 0x461c4000 }
//! symbols 0xe08 strings 0xf18 { symbol "image" { kind = defined; value = 0x30004000 } }
//! relocations 0x1148 { relocation 0x74 = 0x5000002 }
//! bytes 0x4280 { hex "0011aaff"; zeros 0x20 }
//! tasks 0x4000 {                         descriptors, by the header's generation
//!     task 0x300 {                       its offset in the section; without one, after the previous task
//!         Identity { TID = 1; EON = 1 }  words of its header
//!         dense 0x0 words 16 {           a record; `masked 0x4104 { … }`, `address 0x4d10 slot 20 words 2 { … }`
//!             ConvCfg { Kw = 3; Kh = 3 } a register by its fields
//!             ConvCfg.Sx = 2             or one field; later ones win
//!             0x4 = 1                    or by its address
//!         }
//!     }
//!     word 0x0 = 1                       words of the section outside of descriptors
//! }
//! ```
//!
//! Sizes and positions that follow from others may be omitted: the size of a command
//! (`command_size`), `at` after a string, the position of a task, the number of words of a record
//! (`words`), and the length and chain of descriptors (`Words`, `NextSize`, `NextPointer`). The
//! names of registers, fields and values are those of docs/hwx-registers.md. Positions in the file
//! and sizes of sections are never derived.

mod implied;
mod print;
mod read;
mod tree;

use ferrane_diag::Diagnostics;

use crate::container::Hwx;

/// Prints a file as text, from which [`assemble`] makes the same bytes.
pub fn print(hwx: &Hwx) -> String {
    print::print(hwx)
}

/// Assembles the file that a text describes.
///
/// # Errors
/// All defects of the text (E071x), each with its span.
pub fn assemble(text: &str) -> Result<Hwx, Diagnostics> {
    read::file(text)
}

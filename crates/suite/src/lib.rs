//! Filetests, one suite of cases for every device, ONNX operators on MIL, and the bodies of the
//! fuzz targets.
//!
//! [`cases`] hold what every backend of the seam must do; [`filetest`] runs MIL files that state
//! their expectations next to the lines. Both take the device as an argument, so a new backend is
//! tested by opening it under its name. [`onnx`] reads the node tests of the ONNX project;
//! [`fuzz`] holds the properties that must hold for any input bytes. The Rust code of README.md and
//! docs/ runs as tests of this crate's documentation; its build script collects it.
#![cfg_attr(doctest, doc = include_str!(concat!(env!("OUT_DIR"), "/pages.md")))]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod cases;
pub mod filetest;
pub mod fuzz;
pub mod onnx;

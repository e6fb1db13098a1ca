//! Filetests, one suite of cases for every device, ONNX operators on MIL, and the bodies of the
//! fuzz targets.
//!
//! [`cases`] are what every backend of the seam must do; [`filetest`] runs MIL files with
//! expectations beside the lines. Both take a device as an argument, so a new backend is tested by
//! naming it. [`onnx`] lowers cases of the ONNX project; [`fuzz`] has what must hold for any bytes.
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod cases;
pub mod filetest;
pub mod fuzz;
pub mod onnx;

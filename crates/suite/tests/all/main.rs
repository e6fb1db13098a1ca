//! The device suite over every backend, the published call sequences, the filetests, programs
//! checked for machines, and the corpora of the fuzz targets.

mod cases_doc;
mod checker;
mod converted;
mod corpora;
mod devices;
mod filetests;
mod machines;
mod onnx;
mod onnx_doc;
mod ops_doc;
mod packages;
mod sequences;
mod values;
mod zoo;

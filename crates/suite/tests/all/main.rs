//! The device suite over every backend, the published call sequences, the filetests, and the corpora of the fuzz targets.

mod checker;
mod corpora;
mod devices;
mod filetests;
mod onnx;
mod ops_doc;
mod packages;
mod sequences;
mod values;

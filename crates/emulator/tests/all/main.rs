//! The emulator through the seam: ops, groups, patterns of the kernels, errors, data.

mod control;
mod device;
mod groups;
mod harness;
mod hostile;
mod interpret;
mod layers;
mod ops;
mod patterns;
mod random;
mod values;

//! The emulator through the seam: ops, groups, patterns of the kernels, errors, data.

mod audit;
mod calls;
mod chains;
mod control;
mod device;
mod grad;
mod grad_case;
mod grad_moves;
mod groups;
mod hardware;
mod harness;
mod hostile;
mod hwx;
mod images;
mod interpret;
mod kernels;
mod layers;
mod life;
mod ops;
mod passes;
mod passes_fire;
mod passes_random;
mod passes_recognize;
mod patterns;
mod random;
mod values;

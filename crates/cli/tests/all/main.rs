//! The command as its users meet it: the binary itself, run in fresh folders, judged by its exit
//! status and what it prints.
//!
//! Models and data are tiny, so that a run takes milliseconds.
#![cfg(unix)]
// Tests speak to the person who runs them.
#![allow(clippy::print_stderr)]

mod audit;
mod bench;
mod bench_suite;
mod bundles;
mod chat;
#[cfg(target_os = "linux")]
mod clock;
mod companions;
mod compile;
mod compiled;
mod compiled_run;
mod convert;
mod coreai;
mod cost;
mod data;
mod data_sets;
mod doctor;
mod dry_run;
mod export;
mod faults;
mod finetune;
mod flexible;
mod gallery;
mod generate;
mod gguf;
mod grad;
mod json;
mod logging;
mod machine;
mod machines;
mod numbers;
mod onnx;
mod output;
mod place;
mod placement;
#[cfg(target_os = "linux")]
mod power;
mod programs;
mod quantize;
mod ranks;
mod recording;
mod refusals;
mod resume;
mod serve;
mod terminal;
mod top;
mod watch;

//! Tests of the trainer against outside data and on the emulator.

mod gradients;
mod run;

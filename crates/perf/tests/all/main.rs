//! Tests of the measurements on emulated machines.

mod suite;

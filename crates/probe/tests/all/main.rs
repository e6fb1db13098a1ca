//! The probes, held against machines that are known: emulators that enforce their profiles.

mod machines;

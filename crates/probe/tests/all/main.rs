//! The probes on machines that are known: emulators that enforce their profiles.

mod machines;

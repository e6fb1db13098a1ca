//! The arithmetic against published vectors.

mod numerics;

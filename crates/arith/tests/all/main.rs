//! The arithmetic, compared with published vectors.

mod numerics;

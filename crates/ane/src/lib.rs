//! The real Apple Neural Engine behind the device seam.
#![deny(missing_docs)]

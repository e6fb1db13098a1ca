//! The backend over the fake framework.
#![cfg(not(target_vendor = "apple"))]

mod bindings;
mod docs;
mod life;
mod path;
mod ways;

//! The backend over the fake framework.
#![cfg(not(target_vendor = "apple"))]

mod aot;
mod bindings;
mod chains;
mod classes;
mod docs;
mod e5;
mod fences;
mod flow;
mod life;
mod names;
mod path;
mod plan;
mod rest;
mod sensors;
mod ways;

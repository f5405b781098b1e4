//! The wasmtime host of Snowmint: 64-bit, time-sorted IDs that can be trusted.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![forbid(unsafe_code)]

mod bindings;
pub mod engine;
mod translate;

pub use engine::{Engine, EngineError, Instance, InstanceError, Lifecycle, Status};

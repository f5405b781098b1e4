//! The wasmtime host of Snowmint: 64-bit, time-sorted IDs that can be trusted.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![forbid(unsafe_code)]

mod bindings;
mod clock;
mod engine;
mod ids;
mod translate;
mod worker;

pub use clock::{Clock, SystemClock};
pub use engine::{
    CodecError, Engine, EngineError, Instance, InstanceError, Lifecycle, Reading, Status, TextError,
    TextFault,
};
pub use ids::Ids;
pub use worker::{Observer, Standing, Worker, WorkerConfig, WorkerError, fresh_nonce};

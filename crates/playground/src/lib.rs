//! What the web page shows. Every rule is `snowmint-core`'s, every lease the simulator's: this crate puts their answers
//! into JSON, and 64-bit numbers into strings or `BigInt`, so that JavaScript rounds none.
//!
//! | module | view |
//! |---|---|
//! | `decode`, `intake` | Decode: one ID at length, many as rows |
//! | `layouts` | Layout: facts, requirements, cut-over, exports |
//! | `simulate` | Simulate: lanes of [`snowmint_sim::lanes`] |
//! | `bench` | Benchmark: the core by calls and by runs |
//!
//! Two modules are made of this crate, by its features `read` and `simulate`: a visitor who reads an ID does not wait for
//! the simulator.
//!
//! Functions return JSON texts. A bad input is an answer with an `error`, never an exception. No clock is read: the page
//! says what time it is, in Unix milliseconds.

#[cfg(feature = "read")]
mod bench;
#[cfg(feature = "read")]
mod decode;
#[cfg(feature = "read")]
mod facts;
#[cfg(feature = "read")]
mod intake;
#[cfg(feature = "read")]
mod layouts;
#[cfg(feature = "simulate")]
mod simulate;
mod value;

#[cfg(feature = "read")]
pub use bench::Bench;
#[cfg(feature = "read")]
pub use decode::{at, decode, difference, flip, schemes};
#[cfg(feature = "read")]
pub use intake::Batch;
#[cfg(feature = "read")]
pub use layouts::{change, derive, layout};
#[cfg(feature = "simulate")]
pub use simulate::{Lanes, faults};

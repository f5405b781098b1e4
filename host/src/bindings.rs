//! What wasmtime makes of `/wit`. Nothing here is written by hand.

#![allow(missing_docs, unreachable_pub, unused_qualifications)]
#![allow(clippy::pedantic, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

wasmtime::component::bindgen!({ world: "snowmint", path: "../wit" });

//! The wasmtime host.

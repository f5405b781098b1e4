//! The benchmarks are in `benches/`; run them with `cargo xtask bench`.

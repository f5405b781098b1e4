//! The contract of [`Store`] as code: what every adapter's tests call.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

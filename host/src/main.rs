//! The `snowmint` command.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![forbid(unsafe_code)]

mod cli;
mod service;

fn main() -> std::process::ExitCode {
    cli::run()
}

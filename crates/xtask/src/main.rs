//! What one does with Snowmint's house, one command for each: `cargo xtask --help`.
//!
//! A command is a module. What they share: [`cargo`] runs programs and knows the workspace, [`steps`] times what a
//! command does and says at its end how each step went. Everything said goes to standard error, so that
//! `cargo xtask mint` prints IDs and nothing else.

mod bench;
mod cargo;
mod check;
mod component;
mod debian;
mod dist;
mod mint;
mod model;
mod nightly;
mod schemathesis;
mod sim;
mod steps;
mod test;
mod web;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};

use crate::cargo::Workspace;
use crate::steps::Outcome;

/// Builds, tests, checks and runs Snowmint.
#[derive(Parser)]
#[command(name = "cargo xtask", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Builds the WebAssembly component, proves its face and size, writes target/component/snowmint.wasm
    Component,
    /// Builds everything and mints IDs: `cargo xtask mint -n 5`
    #[command(disable_help_flag = true)]
    Mint {
        /// Passed on to `snowmint mint`; none means `-n 10`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Builds everything and runs `snowmint` with the given arguments: `cargo xtask run decode 1234`
    #[command(disable_help_flag = true)]
    Run {
        /// Passed on to `snowmint`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Runs every test that can run on this machine
    Test {
        /// More cases and longer histories, as before a release: sets `SNOWMINT_TEST_LONG=1`
        #[arg(long)]
        long: bool,
    },
    /// Formatting, lints, documentation, features, licences, arrows between crates, what must be absent, and what is
    /// deployed: alert rules, manifests, the unit
    Check,
    /// Builds the command as one static binary, by musl: target/dist/snowmint
    Dist,
    /// Builds an image that holds the static binary alone, runs it, writes target/dist/snowmint.oci.tar
    Image,
    /// Visits every state of a small fleet, and prints how many differ
    Model {
        /// More states, as before a release: takes hours
        #[arg(long)]
        long: bool,
    },
    /// Fuzzes what reads hostile bytes, each target for so long
    Fuzz {
        /// How long for each
        #[arg(long, value_name = "S", default_value_t = 60)]
        seconds: u64,
    },
    /// Simulates worlds with faults: `cargo xtask sim --seeds 5000`, `cargo xtask sim --seed 7`
    Sim(sim::Sim),
    /// Builds the playground into web/playground/dist, a folder for any static host
    Web {
        /// Then serves it on this machine
        #[arg(long)]
        serve: bool,
    },
    /// Runs the benchmarks: `cargo xtask bench --bench mint`
    Bench {
        /// Passed on to `cargo bench`: `--bench NAME`, or after `--` what the benchmark itself takes
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    let workspace = Workspace::load()?;
    match command {
        Command::Component => component::component(&workspace).map(|_| ExitCode::SUCCESS),
        Command::Mint { args } => mint::mint(&workspace, &args),
        Command::Run { args } => mint::run(&workspace, &args),
        Command::Test { long } => test::test(&workspace, long).map(|()| ExitCode::SUCCESS),
        Command::Check => check::check(&workspace).map(|()| ExitCode::SUCCESS),
        Command::Dist => dist::dist(&workspace).map(|_| ExitCode::SUCCESS),
        Command::Image => dist::image(&workspace).map(|()| ExitCode::SUCCESS),
        Command::Model { long } => model::model(&workspace, long).map(|()| ExitCode::SUCCESS),
        Command::Fuzz { seconds } => match nightly::fuzz(&workspace, seconds)? {
            Outcome::Skipped(why) => bail!("nothing was fuzzed: {why}"),
            Outcome::Done | Outcome::Note(_) => Ok(ExitCode::SUCCESS),
        },
        Command::Sim(sim) => sim::sim(&workspace, &sim),
        Command::Web { serve } => web::web(&workspace, serve).map(|()| ExitCode::SUCCESS),
        Command::Bench { args } => bench::bench(&workspace, &args).map(|()| ExitCode::SUCCESS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound_and_passes_on_what_is_not_its_own() {
        Cli::command().debug_assert();
        let args = |line: &[&str]| match Cli::try_parse_from(line).expect("parses").command {
            Command::Mint { args } | Command::Run { args } | Command::Bench { args } => args,
            _ => panic!("not a command that passes arguments on"),
        };
        assert_eq!(args(&["xtask", "mint", "-n", "5", "--help"]), ["-n", "5", "--help"]);
        assert_eq!(args(&["xtask", "run", "--help"]), ["--help"]);
        assert_eq!(args(&["xtask", "run", "decode", "-"]), ["decode", "-"]);
        assert_eq!(args(&["xtask", "bench", "--quick", "mint"]), ["--quick", "mint"]);
    }
}

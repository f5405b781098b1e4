//! The command line: reads flags, environment and configuration file, and calls the library.
//!
//! Exit codes are the same everywhere: 0; 1 refused or failed; 2 bad usage.

mod clock;
mod config;
mod decode;
mod init;
mod layout;
mod layout_file;
mod layout_toml;
mod lease;
mod length;
mod lines;
mod mint;
mod peers;
mod picture;
mod report;
mod serve;
mod store;
#[cfg(not(feature = "etcd"))]
mod without_etcd;
mod worker;

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

pub(crate) use self::decode::read;
pub(crate) use self::layout_file::Reader;
pub(crate) use self::report::Json;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// 64-bit, time-sorted, unique IDs that can be trusted.
///
/// Mints by a WebAssembly component under a lease, and would rather stop than make a duplicate.
#[derive(Debug, Parser)]
#[command(name = "snowmint", version, max_term_width = 100)]
struct Cli {
    /// A TOML file with a value for any of these flags, by its long name; `[mint]` and the like hold for one command.
    #[arg(long, global = true, value_name = "FILE", env = "SNOWMINT_CONFIG")]
    config: Option<PathBuf>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Mint IDs, one a line.
    Mint(mint::Mint),
    /// Serve IDs and leases over HTTP.
    Serve(Box<serve::Serve>),
    /// Say what an ID holds and when it was made; or which IDs a time has.
    Decode(decode::Decode),
    /// Look at layouts, derive one, plan to change one.
    #[command(subcommand)]
    Layout(layout::LayoutCommand),
    /// Found the lease store, once for each region.
    Init(init::Init),
    /// Look at the worker codes and their leases.
    #[command(subcommand)]
    Lease(lease::Lease),
}

/// Runs the command of this process.
pub(crate) fn run() -> ExitCode {
    let matches = match config::matches::<Cli>(std::env::args_os()) {
        Ok(matches) => matches,
        Err(error) => return error.exit(),
    };
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.format(&mut Cli::command()).exit(),
    };
    let result = match cli.command {
        Command::Mint(mint) => mint.run(),
        Command::Serve(serve) => serve.run(),
        Command::Decode(decode) => decode.run(),
        Command::Layout(layout) => layout.run(),
        Command::Init(init) => init.run(),
        Command::Lease(lease) => lease.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.exit(),
    }
}

/// Text that somebody else wrote, safe for a terminal: control characters, marks that turn the direction of writing and
/// the like are written as escapes.
fn shown(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\'' | '"' => safe.push(char),
            _ => safe.extend(char.escape_debug()),
        }
    }
    safe
}

/// The end of a command that writes: whoever reads may have seen enough.
fn written(result: io::Result<()>) -> Result<(), CliError> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(|error| CliError::Failed(format!("the output cannot be written: {error}"))),
    }
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
enum CliError {
    /// It was asked wrongly: exit code 2.
    Usage(String),
    /// It was refused, or failed: exit code 1.
    Failed(String),
}

impl CliError {
    fn usage(error: impl fmt::Display) -> Self {
        Self::Usage(error.to_string())
    }

    fn failed(error: impl fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }

    fn exit(self) -> ExitCode {
        let (code, text) = match self {
            Self::Usage(text) => (2, text),
            Self::Failed(text) => (1, text),
        };
        tell(&text);
        ExitCode::from(code)
    }
}

/// Says something on standard error. Nobody is left to be told if that cannot be written.
fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "snowmint: {text}");
}

/// Prints what a command was asked for. A reader that has seen enough is no error.
fn print(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

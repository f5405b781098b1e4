//! `snowmint lease`: the worker codes and their leases.

use std::io::{self, Write};

use clap::{Args, Subcommand};
use serde::Serialize;
use snowmint::SystemClock;
use snowmint_lease::protocol::is_usable;
use snowmint_lease::store::scan_complete;
use snowmint_lease::{CodeRecord, Stored};

use super::CliError;
use super::store::{self, StoreArgs};

/// Look at the worker codes and their leases.
#[derive(Debug, Subcommand)]
pub(super) enum Lease {
    /// List the codes that were ever granted, and count the rest.
    List(List),
}

impl Lease {
    pub(super) fn run(&self) -> Result<(), CliError> {
        match self {
            Self::List(list) => list.run(),
        }
    }
}

/// List the codes that were ever granted, and count the rest.
#[derive(Args, Debug)]
pub(super) struct List {
    #[command(flatten)]
    store: StoreArgs,

    /// One JSON object a line, one for each code.
    #[arg(long, env = "SNOWMINT_JSON", value_parser = clap::builder::FalseyValueParser::new())]
    json: bool,
}

/// A code as JSON. 64-bit milliseconds stay below 2^53 for 285,000 years, so they are numbers.
#[derive(Serialize)]
struct Row<'a> {
    code: u32,
    state: &'static str,
    term: u32,
    owner: Option<&'a str>,
    floor_ms: u64,
    end_ms: u64,
    not_again_before_ms: u64,
}

impl List {
    fn run(&self) -> Result<(), CliError> {
        let clock = SystemClock::new(u32::MAX);
        let opened = self.store.open(false, &clock)?;
        let codes = scan_complete(&opened.store, &opened.cluster).map_err(CliError::failed)?;
        let mut out = io::BufWriter::new(io::stdout().lock());
        let rows = codes.iter().map(|(code, stored)| Row {
            code: *code,
            state: stored.record.state.name(),
            term: stored.record.term,
            owner: stored.record.owner.as_ref().map(snowmint_lease::Owner::as_str),
            floor_ms: stored.record.floor_ms,
            end_ms: stored.record.end_ms,
            not_again_before_ms: stored.record.not_again_before_ms,
        });
        let written = if self.json {
            rows.into_iter().try_for_each(|row| {
                serde_json::to_writer(&mut out, &row)?;
                out.write_all(b"\n")
            })
        } else {
            let now = store::now(&clock);
            let is_free = |stored: &Stored<CodeRecord>| is_usable(&stored.record, &opened.cluster, &now);
            let free = codes.iter().filter(|(_, stored)| is_free(stored)).count();
            writeln!(
                out,
                "{:>5} {:<8} {:>6} {:>14} {:>14}  owner",
                "code", "state", "term", "floor ms", "end ms"
            )
            .and_then(|()| {
                rows.filter(|row| row.term > 0).try_for_each(|row| {
                    let Row { code, state, term, owner, floor_ms, end_ms, .. } = row;
                    let owner = owner.unwrap_or("-");
                    writeln!(out, "{code:>5} {state:<8} {term:>6} {floor_ms:>14} {end_ms:>14}  {owner}")
                })
            })
            .and_then(|()| writeln!(out, "{free} of {} codes can be taken now", codes.len()))
        };
        match written.and_then(|()| out.flush()) {
            // Whoever reads has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => {
                result.map_err(|error| CliError::Failed(format!("the list cannot be written: {error}")))
            }
        }
    }
}

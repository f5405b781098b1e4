//! `snowmint lease`: the worker codes and their leases.

use std::io::{self, Write};

use clap::builder::FalseyValueParser;
use clap::{Args, Subcommand};
use serde::Serialize;
use snowmint::{SystemClock, fresh_nonce};
use snowmint_lease::graveyard::{Left, Reuse};
use snowmint_lease::store::scan_complete;
use snowmint_lease::{ClusterRecord, CodeRecord, FENCE_QUARANTINE_MS_DEFAULT, Now, StoreError};

use super::length::Length;
use super::store::{self, Opened, StoreArgs};
use super::{CliError, written};

/// Look at the worker codes and their leases, take one from whoever holds it, free one.
#[derive(Debug, Subcommand)]
pub(super) enum Lease {
    /// List the codes that were ever granted: who held each last, up to where, and when it can be granted again.
    List(List),
    /// Take a code from whoever holds it, for good: its owner stops at its next renewal, or at its ceiling.
    Fence(Fence),
    /// Free a code that was fenced, or whose owner expired, once its quarantine is past.
    Free(Free),
    /// Free every code whose quarantine is past. Nothing is ever deleted.
    Gc(Gc),
}

impl Lease {
    pub(super) fn run(&self) -> Result<(), CliError> {
        match self {
            Self::List(list) => list.run(),
            Self::Fence(fence) => fence.run(),
            Self::Free(free) => free.run(),
            Self::Gc(gc) => gc.run(),
        }
    }
}

/// What every command about leases takes.
#[derive(Args, Debug)]
struct Common {
    #[command(flatten)]
    store: StoreArgs,

    /// One JSON object a line, one for each code.
    #[arg(long, env = "SNOWMINT_JSON", value_parser = FalseyValueParser::new())]
    json: bool,
}

/// List the codes that were ever granted: who held each last, up to where, and when it can be granted again.
#[derive(Args, Debug)]
pub(super) struct List {
    #[command(flatten)]
    common: Common,
}

/// Take a code from whoever holds it, for good.
#[derive(Args, Debug)]
pub(super) struct Fence {
    /// The code.
    #[arg(value_name = "CODE")]
    code: u32,

    /// How long nobody else is granted it: `24h`, `500ms`, or milliseconds.
    #[arg(long, value_name = "TIME", default_value_t = Length::from_ms(FENCE_QUARANTINE_MS_DEFAULT), env = "SNOWMINT_QUARANTINE")]
    quarantine: Length,

    #[command(flatten)]
    common: Common,
}

/// Free a code that was fenced, or whose owner expired, once its quarantine is past.
#[derive(Args, Debug)]
pub(super) struct Free {
    /// The code.
    #[arg(value_name = "CODE")]
    code: u32,

    #[command(flatten)]
    common: Common,
}

/// Free every code whose quarantine is past.
#[derive(Args, Debug)]
pub(super) struct Gc {
    #[command(flatten)]
    common: Common,
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
    /// `now`, `later`, `held` or `never`.
    reuse: &'static str,
    reuse_wait_ms: Option<u64>,
}

impl<'a> Row<'a> {
    fn new(code: u32, record: &'a CodeRecord, cluster: &ClusterRecord, now: &Now) -> Self {
        let reuse = Reuse::of(record, cluster, now);
        Self {
            code,
            state: record.state.name(),
            term: record.term,
            owner: record.owner.as_ref().map(snowmint_lease::Owner::as_str),
            floor_ms: record.floor_ms,
            end_ms: record.end_ms,
            not_again_before_ms: record.not_again_before_ms,
            reuse: reuse.name(),
            reuse_wait_ms: match reuse {
                Reuse::After { wait_ms } => Some(wait_ms),
                Reuse::Now | Reuse::Held | Reuse::Never => None,
            },
        }
    }

    fn again(&self) -> String {
        self.reuse_wait_ms
            .map_or_else(|| self.reuse.to_owned(), |wait_ms| format!("in {}", Length::from_ms(wait_ms)))
    }
}

/// Nobody vouches for this command's clock: a quarantine is waited out by what the record says.
fn open(common: &Common) -> Result<(Opened, Now), CliError> {
    let clock = SystemClock::new(u32::MAX);
    let opened = common.store.open(false, &clock)?;
    Ok((opened, store::now(&clock)))
}

fn write_json<'a>(out: &mut impl Write, rows: impl IntoIterator<Item = Row<'a>>) -> io::Result<()> {
    rows.into_iter().try_for_each(|row| {
        serde_json::to_writer(&mut *out, &row)?;
        out.write_all(b"\n")
    })
}

fn write_table<'a>(out: &mut impl Write, rows: impl IntoIterator<Item = Row<'a>>) -> io::Result<()> {
    let head = ["code", "state", "term", "floor ms", "end ms", "again", "owner"];
    let [code, state, term, floor, end, again, owner] = head;
    writeln!(out, "{code:>5} {state:<8} {term:>6} {floor:>14} {end:>14}  {again:<20} {owner}")?;
    rows.into_iter().try_for_each(|row| {
        let again = row.again();
        let Row { code, state, term, owner, floor_ms, end_ms, .. } = row;
        let owner = owner.unwrap_or("-");
        writeln!(out, "{code:>5} {state:<8} {term:>6} {floor_ms:>14} {end_ms:>14}  {again:<20} {owner}")
    })
}

fn write_left(out: &mut impl Write, left: &Left) -> io::Result<()> {
    let Left { now, later, held, never, next_wait_ms } = left;
    let codes = now + later + held + never;
    write!(out, "{now} of {codes} codes can be taken now; {held} are held")?;
    if let Some(wait_ms) = next_wait_ms {
        write!(out, "; {later} can be later, the first in {}", Length::from_ms(*wait_ms))?;
    }
    if *never > 0 {
        write!(out, "; {never} cannot be any more")?;
    }
    out.write_all(b"\n")
}

/// Writes one code: what became of it.
fn print_row(code: u32, record: &CodeRecord, opened: &Opened, now: &Now, json: bool) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    let rows = [Row::new(code, record, &opened.cluster, now)];
    let result = if json { write_json(&mut out, rows) } else { write_table(&mut out, rows) };
    written(result.and_then(|()| out.flush()))
}

fn check_code(code: u32, cluster: &ClusterRecord) -> Result<(), CliError> {
    let codes = cluster.codes();
    if code < codes {
        return Ok(());
    }
    Err(CliError::Usage(format!("there is no code {code}: the layout has {codes} a region, from 0")))
}

impl List {
    fn run(&self) -> Result<(), CliError> {
        let (opened, now) = open(&self.common)?;
        let codes = scan_complete(opened.store.as_store(), &opened.cluster).map_err(CliError::failed)?;
        let mut out = io::BufWriter::new(io::stdout().lock());
        let rows = codes.iter().map(|(code, stored)| Row::new(*code, &stored.record, &opened.cluster, &now));
        let result = if self.common.json {
            write_json(&mut out, rows)
        } else {
            let left =
                Left::count(codes.iter().map(|(_, stored)| Reuse::of(&stored.record, &opened.cluster, &now)));
            write_table(&mut out, rows.filter(|row| row.term > 0)).and_then(|()| write_left(&mut out, &left))
        };
        written(result.and_then(|()| out.flush()))
    }
}

impl Fence {
    fn run(&self) -> Result<(), CliError> {
        let (opened, now) = open(&self.common)?;
        check_code(self.code, &opened.cluster)?;
        let store = opened.store.as_store();
        // Its holder renews meanwhile: the fence is then tried on what that wrote.
        let record = retry(|| {
            snowmint_lease::store::fence(store, self.code, self.quarantine.ms(), &now, fresh_nonce())
        })?;
        print_row(self.code, &record, &opened, &now, self.common.json)
    }
}

impl Free {
    fn run(&self) -> Result<(), CliError> {
        let (opened, now) = open(&self.common)?;
        check_code(self.code, &opened.cluster)?;
        let store = opened.store.as_store();
        let record = retry(|| snowmint_lease::store::free(store, self.code, &now, fresh_nonce()))?;
        print_row(self.code, &record.map_err(CliError::failed)?, &opened, &now, self.common.json)
    }
}

impl Gc {
    fn run(&self) -> Result<(), CliError> {
        let (opened, now) = open(&self.common)?;
        let store = opened.store.as_store();
        let freed = retry(|| snowmint_lease::store::gc(store, &now, &mut fresh_nonce))?;
        let codes = scan_complete(store, &opened.cluster).map_err(CliError::failed)?;
        let mut out = io::BufWriter::new(io::stdout().lock());
        let rows = codes.iter().filter(|(code, _)| freed.contains(code));
        let rows = rows.map(|(code, stored)| Row::new(*code, &stored.record, &opened.cluster, &now));
        let result = if self.common.json {
            write_json(&mut out, rows)
        } else {
            let left =
                Left::count(codes.iter().map(|(_, stored)| Reuse::of(&stored.record, &opened.cluster, &now)));
            write_table(&mut out, rows).and_then(|()| write_left(&mut out, &left))
        };
        written(result.and_then(|()| out.flush()))
    }
}

/// How often an operator's act is tried anew on a record that somebody else wrote in between.
const RACES_MAX: u32 = 10;

/// Tries again where somebody else wrote first; nothing was written then.
fn retry<T>(act: impl Fn() -> Result<T, StoreError>) -> Result<T, CliError> {
    let mut races = 0;
    loop {
        match act() {
            Err(StoreError::Conflict { .. } | StoreError::ClusterChanged) if races < RACES_MAX => races += 1,
            result => return result.map_err(CliError::failed),
        }
    }
}

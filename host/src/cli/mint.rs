//! `snowmint mint`: IDs to standard output.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};
use etcetera::BaseStrategy;
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use snowmint::{Engine, Observer, WatchedClock, Worker, WorkerError};
use snowmint_core::{Id, Layout, Refusal, Run, TextForm, write_decimal};
use snowmint_lease::regions::Identity;
use snowmint_lease::{Hindrance, Keeper, Notice};

use super::clock;
use super::peers::PeerArgs;
use super::store::{StoreArgs, now};
use super::worker::WorkerArgs;
use super::{CliError, tell};

/// How many runs may wait for the writer: a second of one worker's milliseconds, 24 bytes each.
const RUNS_AHEAD: usize = 1_000;

/// How much text is written at once.
const CHUNK_BYTES: usize = 1 << 18;

/// From how many IDs on a terminal sees a progress bar.
const PROGRESS_COUNT_MIN: u64 = 1_000_000;

/// How long a renewal that is late may hold a mint up before it is given up, in windows: until then the keeper may
/// still succeed.
const LATE_WINDOWS_MAX: u32 = 10;

/// How long a mint that was told to stop may take to give its code back.
const STOP_WAIT_MAX: Duration = Duration::from_secs(2);

/// Mint IDs, one a line.
#[derive(Args, Debug)]
pub(super) struct Mint {
    /// How many.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1, env = "SNOWMINT_COUNT")]
    count: u64,

    /// How to write them.
    #[arg(long, value_enum, default_value_t = Format::Dec, env = "SNOWMINT_FORMAT")]
    format: Format,

    /// Make every ID greater than this one, which somebody else minted.
    #[arg(long, value_name = "ID", env = "SNOWMINT_AFTER")]
    after: Option<u64>,

    #[command(flatten)]
    store: StoreArgs,

    /// Found the store if there is none. Not in etcd: there it is an operator's act, once for each region.
    #[arg(long, env = "SNOWMINT_INIT", value_parser = FalseyValueParser::new())]
    init: bool,

    #[command(flatten)]
    worker: WorkerArgs,

    #[command(flatten)]
    peers: PeerArgs,
}

/// A form to write IDs in.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// Decimal.
    Dec,
    /// 16 hexadecimal digits.
    Hex,
    /// 13 characters of Crockford's base 32.
    Base32,
    /// 13 characters of base 36.
    Base36,
    /// 11 characters of base 62.
    Base62,
    /// A JSON object a line, the ID as a string.
    Json,
}

/// A flag that the first SIGINT or SIGTERM raises. Whatever blocks then (a reader that does not read, a clock that is
/// waited out, a disk) has a moment to come back; after it, or at a second signal, the process ends all the same. The
/// worker code is not given back then; it counts as expired when the store is opened next.
fn watch_signals() -> Result<Arc<AtomicBool>, CliError> {
    let stop = Arc::new(AtomicBool::new(false));
    let failed = |error| CliError::Failed(format!("signals cannot be handled: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let raised = Arc::clone(&stop);
    let watch = move || {
        if signals.forever().next().is_none() {
            return;
        }
        raised.store(true, Ordering::Relaxed);
        let end = Instant::now() + STOP_WAIT_MAX;
        while Instant::now() < end && signals.pending().next().is_none() {
            std::thread::sleep(Duration::from_millis(10));
        }
        tell("interrupted; the worker code was not given back, and counts as expired at the next start");
        std::process::exit(1);
    };
    std::thread::Builder::new().name("signals".into()).spawn(watch).map_err(failed)?;
    Ok(stop)
}

impl Mint {
    pub(super) fn run(&self) -> Result<(), CliError> {
        if self.count == 0 {
            return Err(CliError::Usage("0 IDs were asked for; give `-n` 1 or more".into()));
        }
        let stop = watch_signals()?;
        let clock = self.worker.clock.start(self.store.is_fleet())?;
        // A slip in the flags is told before a store is founded; the store's own layout has its say afterwards.
        let layout = self.store.layout()?.unwrap_or(Layout::SNOWMINT);
        let is_fleet = self.store.is_fleet();
        self.store.check_init(self.init)?;
        Keeper::new(self.worker.config(layout, 0, is_fleet, &clock)?.lease).map_err(CliError::usage)?;
        clock::check(&clock)?;
        let (worker, identity, window_ms) = self.start(&clock)?;
        let worker = Arc::new(worker);
        let clashing = Arc::clone(&worker);
        let _peers =
            self.peers.start(move || Some(identity.clone()), move |clash| clashing.set_clash(clash))?;
        if let Some(after) = self.after {
            worker.observe(Id::new(after)).map_err(CliError::failed)?;
        }
        let result = self.pour(&worker, &clock, window_ms, &stop);
        // Whatever came of it, the code is given back.
        worker.stop().map_err(CliError::failed)?;
        result
    }

    /// A worker that has its code, what tells the store apart that it is from, and the lease's window.
    fn start(&self, clock: &Arc<WatchedClock>) -> Result<(Worker, Identity, u32), CliError> {
        let is_fleet = self.store.is_fleet();
        let engine = Engine::new(cache_directory()).map_err(CliError::failed)?;
        let by_default = self.worker.config(Layout::SNOWMINT, 0, is_fleet, clock)?.lease.window_ms;
        if let Some(service) = self.store.service(by_default)? {
            let identity = service.identity().map_err(CliError::failed)?;
            self.store.check_identity(&identity)?;
            let config = self.worker.config(identity.layout, identity.region, is_fleet, clock)?;
            let worker = Worker::start_remote(&engine, Box::new(service), clock.clone(), config, observer())
                .map_err(not_started)?;
            return Ok((worker, identity, by_default));
        }
        let opened = self.store.open(self.init, &**clock)?;
        let config = self.worker.config(opened.cluster.layout, opened.cluster.region, is_fleet, clock)?;
        let window_ms = config.lease.window_ms;
        let identity = Identity::of(&opened.cluster);
        let store =
            opened.store.for_worker(&now(&**clock), config.lease.quarantine_ms).map_err(CliError::failed)?;
        let worker = Worker::start(&engine, store, clock.clone(), config, observer()).map_err(not_started)?;
        Ok((worker, identity, window_ms))
    }

    /// Mints on this thread, so that no tick is missed, and writes on another.
    fn pour(
        &self,
        worker: &Worker,
        clock: &WatchedClock,
        window_ms: u32,
        stop: &AtomicBool,
    ) -> Result<(), CliError> {
        let (runs, received) = sync_channel(RUNS_AHEAD);
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || write(&received, self.format, self.count));
            let minted = self.mint(worker, clock, window_ms, &runs, stop);
            drop(runs);
            let written = match writer.join() {
                Ok(written) => written,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            match written {
                // Whoever reads has seen enough.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                Err(error) => Err(CliError::Failed(format!("the IDs cannot be written: {error}"))),
                Ok(()) => minted,
            }
        })
    }

    fn mint(
        &self,
        worker: &Worker,
        clock: &WatchedClock,
        window_ms: u32,
        runs: &SyncSender<Run>,
        stop: &AtomicBool,
    ) -> Result<(), CliError> {
        let mut left = self.count;
        let late_max = Duration::from_millis(u64::from(window_ms)) * LATE_WINDOWS_MAX;
        let mut late_since = None;
        while left > 0 {
            if stop.load(Ordering::Relaxed) {
                let minted = self.count - left;
                return Err(CliError::Failed(format!("interrupted after {minted} of {} IDs", self.count)));
            }
            match worker.mint(u32::try_from(left).unwrap_or(u32::MAX)) {
                Ok(run) => {
                    late_since = None;
                    left -= u64::from(run.count());
                    // The writer is gone when nobody reads any more; it says so itself.
                    if runs.send(run).is_err() {
                        return Ok(());
                    }
                }
                Err(error) => {
                    // A disk that is slow for a moment is no reason to end a long mint.
                    let since = late_since.get_or_insert_with(Instant::now);
                    if !is_late_renewal(&error, worker) || since.elapsed() > late_max {
                        let minted = self.count - left;
                        // A clock that is not believed raises no ceiling either.
                        let uncertain = matches!(
                            error.refusal(),
                            Some(Refusal::ClockUncertain { .. } | Refusal::Ceiling { .. })
                        );
                        let why = lasting_hindrance(worker)
                            .or_else(|| clock.refusal().filter(|_| uncertain))
                            .unwrap_or_else(|| error.to_string());
                        return Err(CliError::Failed(format!(
                            "{why}; {minted} of {} IDs minted",
                            self.count
                        )));
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
        Ok(())
    }
}

/// Why there is no worker, with the flag that helps.
fn not_started(error: WorkerError) -> CliError {
    match &error {
        WorkerError::NoGrant(Hindrance::Clock { clock_error_ms: u32::MAX }) => CliError::Failed(format!(
            "{error}; where you can answer for a bound yourself, give it with `--clock assume:MS`"
        )),
        _ => CliError::failed(error),
    }
}

/// Whether the keeper may still succeed.
fn is_late_renewal(error: &WorkerError, worker: &Worker) -> bool {
    let is_late =
        matches!(error.refusal(), Some(Refusal::Ceiling { .. } | Refusal::Mark { .. } | Refusal::LeaseLost));
    is_late && lasting_hindrance(worker).is_none()
}

/// What is wrong with the store, or with another one, if asking again does not help.
fn lasting_hindrance(worker: &Worker) -> Option<String> {
    let standing = worker.standing();
    if let Some(clash) = standing.clash {
        return Some(clash.to_string());
    }
    match standing.hindrance {
        Some(Hindrance::Store(error)) if !error.is_transient() => Some(error.to_string()),
        _ => None,
    }
}

/// Writes runs as they come, in large pieces; flushes whenever nothing more is waiting.
fn write(runs: &Receiver<Run>, format: Format, count: u64) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let bar = progress(count);
    let mut text = Vec::with_capacity(CHUNK_BYTES + 64);
    loop {
        let run = match runs.try_recv() {
            Ok(run) => run,
            Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => {
                out.write_all(&text)?;
                out.flush()?;
                text.clear();
                match runs.recv() {
                    Ok(run) => run,
                    Err(_) => break,
                }
            }
        };
        bar.inc(u64::from(run.count()));
        for id in run {
            append(&mut text, id, format)?;
            if text.len() >= CHUNK_BYTES {
                out.write_all(&text)?;
                text.clear();
            }
        }
    }
    bar.finish_and_clear();
    out.write_all(&text)?;
    out.flush()
}

fn append(text: &mut Vec<u8>, id: Id, format: Format) -> io::Result<()> {
    let form = match format {
        Format::Dec => {
            text.extend_from_slice(write_decimal(&mut [0; 20], id));
            text.push(b'\n');
            return Ok(());
        }
        Format::Json => {
            serde_json::to_writer(&mut *text, &JsonId { id: TextForm::Decimal.write(id).as_str() })?;
            text.push(b'\n');
            return Ok(());
        }
        Format::Hex => TextForm::Hex,
        Format::Base32 => TextForm::Base32,
        Format::Base36 => TextForm::Base36,
        Format::Base62 => TextForm::Base62,
    };
    text.extend_from_slice(form.write(id).as_bytes());
    text.push(b'\n');
    Ok(())
}

/// An ID in JSON: a string, since JavaScript rounds numbers above 2^53.
#[derive(serde::Serialize)]
struct JsonId<'a> {
    id: &'a str,
}

fn progress(count: u64) -> ProgressBar {
    if count < PROGRESS_COUNT_MIN || !io::stderr().is_terminal() || io::stdout().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = "{bar:40} {human_pos} of {human_len} IDs, {eta} left";
    let bar = ProgressBar::new(count);
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar
}

/// Where compiled components are kept.
pub(super) fn cache_directory() -> Option<std::path::PathBuf> {
    etcetera::choose_base_strategy().ok().map(|base| base.cache_dir().join("snowmint"))
}

/// Tells of what an operator should know, on standard error.
fn observer() -> Observer {
    Box::new(|notice| match notice {
        Notice::Lost { loss, .. } => tell(&format!("the lease is lost: {loss}")),
        Notice::Lapsed { .. } => {
            tell("the lease was not renewed in time; minting stops until the store answers");
        }
        Notice::Unconfirmed { error, .. } => tell(&format!("the lease could not be renewed: {error}")),
        Notice::Unreleased { .. } => {
            tell("the worker code could not be given back; it expires by itself");
        }
        _ => {}
    })
}

//! IDs from a service elsewhere, without a network call for each.

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Deserialize;
use snowmint_core::{Id, Run};
use snowmint_lease::StoreError;
use snowmint_lease_http::{HttpConfig, HttpLeases};

use crate::ids::RunSource;

/// How many runs are kept ahead.
const RUNS_AHEAD: usize = 2;

/// For how long a run is handed out after it was asked for, and for how long what was handed out is kept: together the
/// second after which IDs that were fetched ahead are stale.
const FRESH: Duration = Duration::from_millis(500);

/// How long the background waits after a refusal before it asks again.
const PAUSE: Duration = Duration::from_millis(20);

/// What a program chooses about its IDs from a service.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The service: its addresses, token and certificates, and how long a call may take.
    pub http: HttpConfig,
    /// How many IDs are asked for at once: as many as are used in some 100 ms. What is not used within a second becomes a
    /// gap.
    pub run_count: NonZeroU32,
    /// How long [`Client::take`] waits where nothing is ahead.
    pub wait_max: Duration,
}

impl ClientConfig {
    /// These addresses of one service, 1,000 IDs at once, and a wait of a second at most.
    pub fn new(bases: Vec<String>) -> Self {
        Self {
            http: HttpConfig::new(bases),
            run_count: const { NonZeroU32::new(1_000).expect("not 0") },
            wait_max: Duration::from_secs(1),
        }
    }
}

/// Keeps two runs ahead of those who take IDs, so that no ID waits for the network. Give it to [`crate::Ids`].
///
/// Threads share it; a clone of a handle is a handle for another thread. What fails is asked of the next address. A fork
/// gets nothing out of it.
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    begun: Instant,
    wait_max: Duration,
    process: u32,
}

#[derive(Debug)]
struct Shared {
    ahead: Mutex<Ahead>,
    changed: Condvar,
    observed: AtomicU64,
    is_over: AtomicBool,
}

#[derive(Debug, Default)]
struct Ahead {
    /// Each with the moment at which it was asked for.
    runs: VecDeque<(Instant, Run)>,
    /// Why there are no more.
    error: Option<ClientError>,
}

impl Ahead {
    /// Drops what is stale, or lies at or below what was observed.
    fn drop_stale(&mut self, observed: Id) {
        self.runs.retain(|(asked_at, run)| asked_at.elapsed() < FRESH && run.first() > observed);
    }
}

impl Shared {
    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        // Whole runs go in and out: a panic elsewhere leaves nothing half done.
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn observed(&self) -> Id {
        Id::new(self.observed.load(Ordering::Acquire))
    }
}

impl Client {
    /// Begins to fetch, in the background. Only a configuration that cannot be followed is an error.
    pub fn start(config: ClientConfig) -> Result<Self, ClientError> {
        let service = HttpLeases::new(config.http).map_err(ClientError::Service)?;
        let shared = Arc::new(Shared {
            ahead: Mutex::default(),
            changed: Condvar::new(),
            observed: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let fetching = Arc::clone(&shared);
        let count = config.run_count;
        let thread = std::thread::Builder::new()
            .name("snowmint-client".into())
            .spawn(move || fetch(&service, count, &fetching))
            .map_err(|error| ClientError::Thread(error.kind()))?;
        let begun = Instant::now();
        Ok(Self {
            shared,
            thread: Some(thread),
            begun,
            wait_max: config.wait_max,
            process: std::process::id(),
        })
    }

    /// Makes every later ID greater than `id`: what was fetched before and does not lie above is dropped, and the service
    /// is told.
    pub fn observe(&self, id: Id) {
        self.shared.observed.fetch_max(id.get(), Ordering::AcqRel);
        self.shared.ahead().drop_stale(id);
        self.shared.changed.notify_all();
    }
}

impl RunSource for Client {
    type Error = ClientError;

    fn take(&self, max: u32) -> Result<Run, ClientError> {
        if std::process::id() != self.process {
            return Err(ClientError::Forked);
        }
        let give_up_at = Instant::now() + self.wait_max;
        let mut ahead = self.shared.ahead();
        loop {
            ahead.drop_stale(self.shared.observed());
            if let Some((asked_at, mut run)) = ahead.runs.pop_front() {
                let taken = if run.count() > max {
                    let taken = run.split_off_front(max.max(1));
                    ahead.runs.push_front((asked_at, run));
                    taken
                } else {
                    run
                };
                drop(ahead);
                self.shared.changed.notify_all();
                return Ok(taken);
            }
            self.shared.changed.notify_all();
            let left = give_up_at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ahead.error.clone().unwrap_or(ClientError::Slow));
            }
            ahead = self.shared.changed.wait_timeout(ahead, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn observed(&self) -> Id {
        self.shared.observed()
    }

    fn period(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis() / FRESH.as_millis()).unwrap_or(u64::MAX)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take().filter(|_| std::process::id() == self.process) {
            // It ends after the request that it is in.
            let _ = thread.join();
        }
    }
}

/// Keeps [`RUNS_AHEAD`] runs ahead, until it is over.
fn fetch(service: &HttpLeases, count: NonZeroU32, shared: &Shared) {
    while !shared.is_over.load(Ordering::Acquire) {
        {
            let mut ahead = shared.ahead();
            ahead.drop_stale(shared.observed());
            if ahead.runs.len() >= RUNS_AHEAD {
                // Woken when one is taken; and looked at now and then, since they grow stale.
                drop(shared.changed.wait_timeout(ahead, FRESH));
                continue;
            }
        }
        let observed = shared.observed();
        let asked_at = Instant::now();
        match fetch_runs(service, count, observed) {
            Ok(runs) => {
                let mut ahead = shared.ahead();
                ahead.error = None;
                ahead.runs.extend(runs.into_iter().map(|run| (asked_at, run)));
                ahead.drop_stale(shared.observed());
                drop(ahead);
                shared.changed.notify_all();
            }
            Err(error) => {
                shared.ahead().error = Some(error);
                std::thread::sleep(PAUSE);
            }
        }
    }
}

#[derive(Deserialize)]
struct Runs {
    runs: Vec<RunText>,
}

#[derive(Deserialize)]
struct RunText {
    first: String,
    stride: String,
    count: u32,
}

#[derive(Deserialize)]
struct ProblemText {
    reason: String,
    detail: String,
}

fn fetch_runs(service: &HttpLeases, count: NonZeroU32, observed: Id) -> Result<Vec<Run>, ClientError> {
    let after = if observed == Id::new(0) { String::new() } else { format!("&after={observed}") };
    let target = format!("/v1/ids?runs=1&count={count}{after}");
    let (status, body) = service.fetch("POST", &target).map_err(ClientError::Service)?;
    if status != 200 {
        return Err(match serde_json::from_slice(&body) {
            Ok(ProblemText { reason, detail }) => ClientError::Refused { status, reason, detail },
            Err(_) => {
                ClientError::Answer { detail: format!("status {status}, without a problem that can be read") }
            }
        });
    }
    let wrong = |detail: String| ClientError::Answer { detail };
    let Runs { runs } = serde_json::from_slice(&body).map_err(|error| wrong(error.to_string()))?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| wrong(format!("`{text}`: {error}")));
    let run = |run: &RunText| {
        let (first, stride) = (Id::new(number(&run.first)?), number(&run.stride)?);
        let made = NonZeroU32::new(run.count).and_then(|count| Run::new(first, stride, count));
        made.filter(|run| run.first() > observed).ok_or_else(|| {
            wrong(format!("a run of {} from {first} by {stride} is none that was asked for", run.count))
        })
    };
    runs.iter().map(run).collect()
}

/// Why there is no ID.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientError {
    /// The service cannot be reached, or the configuration cannot be followed.
    Service(StoreError),
    /// The service refuses.
    Refused {
        /// The HTTP status.
        status: u16,
        /// The reason, as every face of Snowmint names it.
        reason: String,
        /// What happened and what to do.
        detail: String,
    },
    /// The answer is none of a Snowmint service.
    Answer {
        /// What does not fit.
        detail: String,
    },
    /// Nothing came within the wait.
    Slow,
    /// The thread that fetches cannot be started.
    Thread(std::io::ErrorKind),
    /// This process is a fork of the one that has the client.
    Forked,
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(StoreError::Unreachable { detail }) => {
                write!(f, "the service does not answer ({detail}): see to it and to the network")
            }
            Self::Service(error) => error.fmt(f),
            Self::Refused { status, reason, detail } => {
                write!(f, "the service refuses with {status} ({reason}): {detail}")
            }
            Self::Answer { detail } => {
                write!(f, "the answer is none of a Snowmint service ({detail}): correct the address")
            }
            Self::Slow => f.write_str("no ID came from the service in time; see to it and to the network"),
            Self::Thread(kind) => write!(f, "the thread that fetches IDs cannot be started: {kind}"),
            Self::Forked => f.write_str(
                "this process is a fork of the one that fetches IDs; start a client of its own in each process",
            ),
        }
    }
}

impl std::error::Error for ClientError {}

//! `snowmint serve`: IDs and leases over HTTP, out of a pool of workers in this process.
//!
//! It translates. What may be minted and leased is decided by core and lease; what is minted comes from the component.
//!
//! | module | holds |
//! |---|---|
//! | `ids` | `/v1/ids`: minted and taken apart |
//! | `layout` | `/v1/layout` |
//! | `leases` | `/v1/leases`: requests for a desk of [`snowmint_lease::desk`] |
//! | `health`, `metrics` | `/livez`, `/readyz`, `/metrics` |
//! | `router` | the routes, and `/openapi.json` from them |
//! | `problem`, `accept`, `tokens` | errors, forms of answers, who may ask |
//! | `server` | connections: their limits, time-outs, and end |
//! | `tls` | certificates, read again when they change |
//! | `events` | what is told, once a transition |

mod accept;
mod events;
mod health;
mod ids;
mod layout;
mod leases;
mod metrics;
mod problem;
mod router;
mod server;
mod tls;
mod tokens;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use axum::body::Bytes;
use snowmint::{Clock, Pool, WatchedClock};
use snowmint_lease::regions::{Clash, Identity};
use snowmint_lease::{ClusterRecord, Desk, Now, Store};
use tokio::sync::Semaphore;

use self::ids::Reading;
use self::problem::Problem;
use self::tokens::{Caller, Right, Tokens};

pub(crate) use self::events::{clock_observer, peer_observer, watch_readiness, worker_observer};
pub(crate) use self::metrics::Metrics;
pub(crate) use self::server::{Limits, Served, run};
pub(crate) use self::tls::Tls;

/// How many requests are served at once; the next is refused.
const REQUESTS_MAX: usize = 4_096;

/// What all requests share.
pub(crate) struct App {
    clock: Arc<WatchedClock>,
    metrics: Metrics,
    tokens: Option<TokenFile>,
    region: OnceLock<Region>,
    /// Why there is no region yet.
    absence: Mutex<String>,
    is_draining: AtomicBool,
    openapi: OnceLock<Bytes>,
    requests: Semaphore,
}

/// Tokens, and where they are from.
struct TokenFile {
    path: PathBuf,
    tokens: RwLock<Arc<Tokens>>,
}

/// The region that is served, once its store was opened.
pub(crate) struct Region {
    pool: Arc<Pool>,
    store: Arc<dyn Store + Send + Sync>,
    desk: Desk,
    cluster: RwLock<Arc<Cluster>>,
}

/// The cluster record as it was last read, and how its IDs are read.
struct Cluster {
    record: ClusterRecord,
    reading: Reading,
}

impl Region {
    /// Serves from this pool, whose workers have their codes from this store, and leases by this desk.
    pub(crate) fn new(
        pool: Arc<Pool>,
        store: Arc<dyn Store + Send + Sync>,
        desk: Desk,
        record: ClusterRecord,
    ) -> Self {
        let reading = Reading::new(&record);
        Self { pool, store, desk, cluster: RwLock::new(Arc::new(Cluster { record, reading })) }
    }

    fn cluster(&self) -> Arc<Cluster> {
        Arc::clone(&self.cluster.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the cluster record again. Blocks as the store does; one that does not answer changes nothing.
    fn refresh(&self) {
        let Ok(stored) = self.store.cluster() else { return };
        if self.cluster().record == stored.record {
            return;
        }
        tracing::info!(layout = %stored.record.layout, generation = stored.record.generation,
            cutover_last_ms = stored.record.cutover_last_ms, "the cluster record has changed");
        let reading = Reading::new(&stored.record);
        *self.cluster.write().unwrap_or_else(PoisonError::into_inner) =
            Arc::new(Cluster { record: stored.record, reading });
    }
}

impl App {
    /// Without a region yet. `tokens`: the file that says who may do what; without one everybody may mint, and nobody
    /// may lease.
    pub(crate) fn new(
        clock: Arc<WatchedClock>,
        metrics: Metrics,
        tokens: Option<PathBuf>,
    ) -> Result<Self, String> {
        let tokens = match tokens {
            Some(path) => Some(TokenFile { tokens: RwLock::new(Arc::new(Tokens::read(&path)?)), path }),
            None => None,
        };
        Ok(Self {
            clock,
            metrics,
            tokens,
            region: OnceLock::new(),
            absence: Mutex::new("the lease store is being opened".into()),
            is_draining: AtomicBool::new(false),
            openapi: OnceLock::new(),
            requests: Semaphore::new(REQUESTS_MAX),
        })
    }

    /// From now on requests are served from this region. Once.
    pub(crate) fn open(&self, region: Region) {
        // There is one caller; a second region would have no use.
        let _ = self.region.set(region);
    }

    /// Says why there is no region yet. Whether that is news.
    pub(crate) fn absent(&self, why: String) -> bool {
        let mut absence = self.absence.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = *absence != why;
        *absence = why;
        is_news
    }

    /// What tells our store from another region's, once it was opened.
    pub(crate) fn identity(&self) -> Option<Identity> {
        self.region.get().map(|region| Identity::of(&region.cluster().record))
    }

    /// Says that another store would make the same IDs, or that none does: until then nothing is minted.
    pub(crate) fn clash(&self, clash: Option<&Clash>) {
        let workers = self.region.get().map_or(&[][..], |region| region.pool.workers());
        workers.iter().for_each(|worker| worker.set_clash(clash.cloned()));
    }

    fn region(&self) -> Result<&Region, Problem> {
        self.region.get().ok_or_else(|| {
            let absence = self.absence.lock().unwrap_or_else(PoisonError::into_inner);
            Problem::unavailable("store", absence.clone())
        })
    }

    /// Both clocks now.
    fn now(&self) -> Now {
        let clock = &self.clock;
        Now { boot_ms: clock.boot_ms(), wall_ms: clock.now_ms(), clock_error_ms: clock.error_bound_ms() }
    }

    fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Whether `caller` may do this now, for so many IDs.
    fn allow(&self, caller: &Caller, right: Right, ids: u32) -> Result<(), Problem> {
        match &self.tokens {
            Some(file) => {
                let tokens = Arc::clone(&file.tokens.read().unwrap_or_else(PoisonError::into_inner));
                tokens.allow(caller, right, ids)
            }
            None if right == Right::Mint => Ok(()),
            None => Err(Problem::new(
                axum::http::StatusCode::FORBIDDEN,
                "token-right",
                "leases are given to those that have a token for them only; start the service with `--token-file FILE`",
            )),
        }
    }

    /// Reads the token file again. A file that does not fit changes nothing, and is told. Blocks.
    fn reload_tokens(&self) {
        let Some(file) = &self.tokens else { return };
        match Tokens::read(&file.path) {
            Ok(tokens) => {
                *file.tokens.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tokens);
                tracing::info!("the token file was read again");
            }
            Err(error) => tracing::error!(error, "the token file was not taken; the former tokens stay"),
        }
    }
}

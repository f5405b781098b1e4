//! `snowmint serve`: IDs and leases over HTTP.

use std::io::{self, IsTerminal};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use snowmint::{Engine, Pool, WatchedClock, Worker, WorkerConfig};
use snowmint_core::Layout;
use snowmint_lease::{Desk, DeskConfig, Keeper, KeeperConfig, Owner};
use tokio::sync::oneshot;
use tracing::Level;

use super::CliError;
use super::mint::cache_directory;
use super::peers::PeerArgs;
use super::store::{StoreArgs, now};
use super::worker::WorkerArgs;
use crate::service::{
    App, Limits, Metrics, Region, Served, Tls, clock_observer, peer_observer, run, worker_observer,
};

/// How long it is waited before a store that did not answer is asked again.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// How many files are open beside connections: the store's, the clock's, the log's.
const OTHER_FILES: u64 = 64;

/// Threads for what blocks: the store, and files.
const BLOCKING_THREADS_MAX: usize = 16;

/// The most workers of one process: more would not mint more, and a region has few codes.
const WORKERS_MAX: i64 = 256;

/// Serve IDs and leases over HTTP.
///
/// Answers at once; `/readyz` says when IDs can be had. SIGTERM and SIGINT: what is under way is answered, the codes are
/// given back, and the exit code is 0. SIGHUP: the certificate and the tokens are read again.
#[derive(Args, Debug)]
pub(super) struct Serve {
    /// The address to listen on. Another than loopback needs TLS, or `--allow-plain-http`.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", env = "SNOWMINT_LISTEN")]
    listen: SocketAddr,

    /// How many worker codes to mint with: a burst that fills one's tick goes on with the next.
    #[arg(long, value_name = "K", default_value_t = 1, env = "SNOWMINT_WORKERS", value_parser = clap::value_parser!(u32).range(1..=WORKERS_MAX))]
    workers: u32,

    /// How long requests that are under way may take once the service is told to stop, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 10_000, env = "SNOWMINT_DRAIN_MS")]
    drain_ms: u64,

    /// The certificate to serve HTTPS by, with what leads up to its authority: a PEM file. Read again when it changes.
    #[arg(long, value_name = "FILE", env = "SNOWMINT_TLS_CERT")]
    tls_cert: Option<PathBuf>,

    /// The key of that certificate: a PEM file.
    #[arg(long, value_name = "FILE", env = "SNOWMINT_TLS_KEY")]
    tls_key: Option<PathBuf>,

    /// Who may do what: a TOML file of tokens, by their hashes. Without one everybody may mint, and nobody may lease.
    #[arg(long, value_name = "FILE", env = "SNOWMINT_TOKEN_FILE")]
    token_file: Option<PathBuf>,

    /// Serve HTTP without TLS on an address that others can reach, as behind a proxy that ends TLS.
    #[arg(long, env = "SNOWMINT_ALLOW_PLAIN_HTTP", value_parser = FalseyValueParser::new())]
    allow_plain_http: bool,

    /// How many connections there may be at once; above that, those that have been idle longest are cut.
    #[arg(long, value_name = "N", default_value_t = 2_048, env = "SNOWMINT_CONNECTIONS_MAX", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections_max: u32,

    /// How to write the log, which goes to standard error.
    #[arg(long, value_enum, default_value_t = Log::Human, env = "SNOWMINT_LOG")]
    log: Log,

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

/// A form of the log.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Log {
    /// A line for people.
    Human,
    /// A JSON object a line.
    Json,
}

impl Log {
    fn start(self) {
        let log =
            tracing_subscriber::fmt().with_writer(io::stderr).with_max_level(Level::INFO).with_target(false);
        match self {
            Self::Human => log.with_ansi(io::stderr().is_terminal()).init(),
            Self::Json => log.json().flatten_event(true).init(),
        }
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        Self::Failed(format!("the service cannot run: {error}"))
    }
}

impl Serve {
    pub(super) fn run(self) -> Result<(), CliError> {
        let tls = self.tls()?;
        let is_fleet = self.store.is_fleet();
        self.store.check_init(self.init)?;
        self.log.start();
        let clock =
            self.worker.clock.start_telling(is_fleet, |text| tracing::info!("{text}"), clock_observer)?;
        // A slip in the flags is told before anything is opened; the store's own layout has its say afterwards.
        let layout = self.store.layout()?.unwrap_or(Layout::SNOWMINT);
        let config = self.worker.config(layout, 0, is_fleet, &clock)?;
        Keeper::new(config.lease.clone()).map_err(CliError::usage)?;
        (0..self.workers).try_for_each(|nth| self.owner(&config, nth).map(drop))?;

        let metrics = Metrics::new().map_err(CliError::failed)?;
        let app = App::new(Arc::clone(&clock), metrics.clone(), self.token_file.clone())
            .map_err(CliError::Usage)?;
        let app = Arc::new(app);
        let limits = Limits { connections: self.connections()?, drain: Duration::from_millis(self.drain_ms) };
        let listen = self.listen;
        let unbound =
            |error| CliError::Failed(format!("the address {listen} cannot be listened on: {error}"));
        let listener = TcpListener::bind(listen).map_err(unbound)?;
        listener.set_nonblocking(true).map_err(unbound)?;
        let address = listener.local_addr().map_err(unbound)?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        tracing::info!(url = %format_args!("{scheme}://{address}"), workers = self.workers, "listening");

        let (own, clashing) = (Arc::clone(&app), Arc::clone(&app));
        let _peers = self.peers.start_telling(
            move || own.identity(),
            move |clash| clashing.clash(clash.as_ref()),
            peer_observer,
        )?;
        let (tell, failed) = oneshot::channel();
        let opened = Arc::clone(&app);
        let open = move || match self.open(&clock, &metrics, &opened) {
            Ok(region) => opened.open(region),
            // The server is over, and says so itself.
            Err(error) => drop(tell.send(error)),
        };
        thread::Builder::new().name("snowmint-open".into()).spawn(open)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .thread_name("snowmint-http")
            .build()?;
        let result = runtime.block_on(run(Served { app, listener, tls: tls.map(Arc::new), limits, failed }));
        // What blocks still has had its time.
        runtime.shutdown_background();
        result
    }

    /// How TLS is spoken, and whether this address may do without.
    fn tls(&self) -> Result<Option<Tls>, CliError> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => {
                Tls::read(cert.clone(), key.clone()).map(Some).map_err(CliError::Usage)
            }
            (None, None) if self.listen.ip().is_loopback() || self.allow_plain_http => Ok(None),
            (None, None) => Err(CliError::Usage(format!(
                "others can reach {}: give `--tls-cert` and `--tls-key`, or `--allow-plain-http` where something else \
                 ends TLS before it",
                self.listen
            ))),
            _ => Err(CliError::Usage("`--tls-cert` and `--tls-key` go together".into())),
        }
    }

    /// How many connections there may be: as many as are asked for, where this process may open so many files.
    fn connections(&self) -> Result<usize, CliError> {
        let wanted = u64::from(self.connections_max) + OTHER_FILES;
        let limit = getrlimit(Resource::Nofile);
        if limit.current.is_some_and(|current| current < wanted) {
            let current = Some(limit.maximum.map_or(wanted, |maximum| wanted.min(maximum)));
            // If it is refused, what there is now says how many it will be.
            let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
        }
        let current = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        if current < wanted {
            return Err(CliError::Usage(format!(
                "this process may open {current} files, and {wanted} are needed: raise the limit (`ulimit -n`), or give \
                 a lower `--connections-max`"
            )));
        }
        usize::try_from(self.connections_max).map_err(CliError::usage)
    }

    /// The owner of a worker's lease: several of one process differ behind the first `/`, as hosts do before it.
    fn owner(&self, config: &WorkerConfig, nth: u32) -> Result<Owner, CliError> {
        match self.workers {
            1 => Ok(config.lease.owner.clone()),
            _ => Owner::new(format!("{}/{nth}", config.lease.owner)).map_err(CliError::usage),
        }
    }

    /// Opens the store, waiting for one that does not answer, and starts the workers. They seek their codes by
    /// themselves.
    fn open(&self, clock: &Arc<WatchedClock>, metrics: &Metrics, app: &App) -> Result<Region, CliError> {
        let is_fleet = self.store.is_fleet();
        let opened = self.store.open_or_wait(self.init, &**clock, |error| {
            if app.absent(error.to_string()) {
                tracing::warn!(%error, "the lease store does not answer; it is asked again");
            }
            thread::sleep(STORE_PAUSE);
        })?;
        let cluster = opened.cluster;
        let config = self.worker.config(cluster.layout, cluster.region, is_fleet, clock)?;
        let store =
            opened.store.for_service(&now(&**clock), config.lease.quarantine_ms).map_err(CliError::failed)?;
        let store = Arc::new(metrics.timed(store));
        let desk = Desk::new(DeskConfig {
            quarantine_ms: config.lease.quarantine_ms,
            clock_error_ms_max: config.lease.clock_error_ms_max,
            ..DeskConfig::default()
        });
        let engine = Engine::new(cache_directory()).map_err(CliError::failed)?;
        let mut workers = Vec::new();
        for nth in 0..self.workers {
            let owner = self.owner(&config, nth)?;
            let config =
                WorkerConfig { lease: KeeperConfig { owner, ..config.lease.clone() }, ..config.clone() };
            let worker = Worker::spawn(
                &engine,
                Box::new(Arc::clone(&store)),
                Arc::clone(clock) as Arc<dyn snowmint::Clock>,
                config,
                worker_observer(nth, metrics.clone()),
            );
            workers.push(worker.map_err(CliError::failed)?);
        }
        let pool = Pool::new(workers).ok_or_else(|| CliError::Usage("give `--workers` 1 or more".into()))?;
        Ok(Region::new(Arc::new(pool), store, desk, cluster))
    }
}

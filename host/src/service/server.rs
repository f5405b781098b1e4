//! Connections: accepted, limited, timed, drained.
//!
//! Whoever connects can cost memory for a while, never more than its share, and never the service:
//!
//! | what | limit |
//! |---|---|
//! | connections | `Limits::connections`; above it the one that has been idle longest makes room |
//! | a first request | 10 s after connecting; the TLS handshake too |
//! | idle between requests, or sending headers | 60 s |
//! | headers | 100 of them, 16 KiB together |
//! | a request | 10 s to its answer's beginning |
//! | an answer | 30 s without a byte taken |
//! | HTTP/2 | 64 requests at once on a connection |

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, Response, StatusCode};
use axum::response::IntoResponse;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use sd_notify::NotifyState;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep, timeout};

use super::problem::Problem;
use super::router::router;
use super::{App, Tls};

const FIRST_REQUEST_WAIT_MAX: Duration = Duration::from_secs(10);
const IDLE_MAX: Duration = Duration::from_secs(60);
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
const STALL_MAX: Duration = Duration::from_secs(30);
const HEADERS_MAX: usize = 100;
const HEADER_BYTES_MAX: usize = 16 * 1024;
const STREAMS_MAX: u32 = 64;
/// How much of an answer waits for a connection that takes it slowly.
const SEND_BYTES_MAX: usize = 64 * 1024;

/// How often connections that wait in vain are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// How often files are looked at, and the cluster record is read.
const FILES_INTERVAL: Duration = Duration::from_secs(2);
const CLUSTER_INTERVAL: Duration = Duration::from_secs(5);

/// The pause after a connection that could not be accepted, as where this process has no more files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long giving codes back may take at the end.
const RELEASE_WAIT_MAX: Duration = Duration::from_secs(5);

/// What an operator chooses about connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The most connections at once; 1 or more.
    pub(crate) connections: usize,
    /// How long requests that are under way may take once the service is told to stop.
    pub(crate) drain: Duration,
}

/// What is served, and where.
pub(crate) struct Served<E> {
    pub(crate) app: Arc<App>,
    /// Bound, and not blocking.
    pub(crate) listener: std::net::TcpListener,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) limits: Limits,
    /// Why there will never be a region, if there will not.
    pub(crate) failed: oneshot::Receiver<E>,
}

/// Serves until SIGTERM or SIGINT, drains, and gives the codes back. A second signal ends the process at once.
pub(crate) async fn run<E: From<io::Error>>(served: Served<E>) -> Result<(), E> {
    let Served { app, listener, tls, limits, mut failed } = served;
    let listener = TcpListener::from_std(listener)?;
    let mut stop = Stop::new()?;
    let mut tasks = JoinSet::new();
    tasks.spawn(super::watch_readiness(Arc::clone(&app)));
    tasks.spawn(watch_files(Arc::clone(&app), tls.clone(), signal(SignalKind::hangup())?));
    tasks.spawn(watch_cluster(Arc::clone(&app)));
    tasks.spawn(watchdog());
    notify(&[NotifyState::Ready]);

    let server = Server { router: router(&app), app: Arc::clone(&app), tls, connections: Arc::default() };
    let graceful = GracefulShutdown::new();
    let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
    let mut can_fail = true;
    let why = loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => server.accept(stream, peer, &limits, graceful.watcher()),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
            _ = sweep.tick() => server.connections.sweep(),
            error = &mut failed, if can_fail => match error {
                Ok(error) => return Err(error),
                // There is a region now, and nobody is left who could say otherwise.
                Err(_) => can_fail = false,
            },
            name = stop.signal() => break name,
        }
    };

    app.is_draining.store(true, Ordering::Relaxed);
    notify(&[NotifyState::Stopping]);
    tracing::info!(
        signal = why,
        drain_ms = u64::try_from(limits.drain.as_millis()).unwrap_or(u64::MAX),
        connections = server.connections.count(),
        "draining: no more connections are accepted"
    );
    drop(listener);
    server.connections.cut(|entry| entry.is_agreeing.load(Ordering::Relaxed));
    tokio::select! {
        () = graceful.shutdown() => tracing::info!("drained: every request was answered"),
        () = sleep(limits.drain) => {
            tracing::warn!(connections = server.connections.count(), "the time to drain is over; what is left is cut");
        }
        name = stop.signal() => {
            tracing::warn!(signal = name, "told to stop again; what is left is cut");
        }
    }
    server.connections.cut(|_| true);
    tasks.abort_all();
    release(&app).await;
    Ok(())
}

/// SIGTERM and SIGINT.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn signal(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Gives the codes back, for a limited time: what is not given back expires by itself.
async fn release(app: &Arc<App>) {
    let Some(region) = app.region.get() else { return };
    let pool = Arc::clone(&region.pool);
    let workers = pool.workers().len();
    match timeout(RELEASE_WAIT_MAX, tokio::task::spawn_blocking(move || pool.stop())).await {
        Ok(Ok((released, None))) if released == workers => {
            tracing::info!(released, "stopped: every code is given back");
        }
        Ok(Ok((released, failure))) => {
            let failure = failure.map(|failure| failure.to_string());
            tracing::warn!(
                released,
                workers,
                failure,
                "stopped: codes that are not given back expire by themselves"
            );
        }
        Ok(Err(error)) => {
            tracing::error!(%error, "stopping the workers failed; their codes expire by themselves")
        }
        Err(_) => tracing::warn!(workers, "the store does not answer; the codes expire by themselves"),
    }
}

/// Tells systemd, if it asked to be told.
fn notify(state: &[NotifyState<'_>]) {
    // Nobody listens, or nobody asked: nothing depends on it.
    let _ = sd_notify::notify(state);
}

/// What `systemctl status` shows.
pub(super) fn status(text: &str) {
    notify(&[NotifyState::Status(text)]);
}

/// Keeps systemd's watchdog quiet while this runtime runs.
async fn watchdog() {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    let mut interval = tokio::time::interval((limit / 2).max(Duration::from_millis(1)));
    loop {
        interval.tick().await;
        notify(&[NotifyState::Watchdog]);
    }
}

/// Reads certificates again when they change, and tokens too when SIGHUP asks for it.
async fn watch_files(app: Arc<App>, tls: Option<Arc<Tls>>, mut hangup: Signal) {
    let mut interval = tokio::time::interval(FILES_INTERVAL);
    loop {
        let is_asked = tokio::select! {
            _ = interval.tick() => false,
            _ = hangup.recv() => true,
        };
        let (app, tls) = (Arc::clone(&app), tls.clone());
        let reload = tokio::task::spawn_blocking(move || {
            if let Some(tls) = &tls {
                tls.reload(is_asked);
            }
            if is_asked {
                app.reload_tokens();
            }
        });
        let _ = reload.await;
    }
}

async fn watch_cluster(app: Arc<App>) {
    let mut interval = tokio::time::interval(CLUSTER_INTERVAL);
    loop {
        interval.tick().await;
        let app = Arc::clone(&app);
        let refresh = move || app.region.get().map(super::Region::refresh);
        let _ = tokio::task::spawn_blocking(refresh).await;
    }
}

/// What accepted connections share.
struct Server {
    app: Arc<App>,
    router: Router,
    tls: Option<Arc<Tls>>,
    connections: Arc<Connections>,
}

impl Server {
    fn accept(&self, stream: TcpStream, peer: SocketAddr, limits: &Limits, watcher: Watcher) {
        let Some(connection) = self.connections.enter(limits.connections) else {
            tracing::debug!(%peer, "cut: there are too many connections, and none is idle");
            return;
        };
        // Answers are written whole; waiting for more to send with them only delays them.
        let _ = stream.set_nodelay(true);
        let acceptor = self.tls.as_ref().map(|tls| tls.acceptor());
        let service = self.service(&connection);
        tokio::spawn(async move {
            let served = async {
                match acceptor {
                    None => serve(stream, service, watcher).await,
                    Some(acceptor) => {
                        connection.entry.is_agreeing.store(true, Ordering::Relaxed);
                        if let Ok(Ok(stream)) = timeout(FIRST_REQUEST_WAIT_MAX, acceptor.accept(stream)).await
                        {
                            connection.entry.is_agreeing.store(false, Ordering::Relaxed);
                            serve(stream, service, watcher).await;
                        }
                    }
                }
            };
            tokio::select! {
                () = served => {}
                () = connection.entry.cut.notified() => {}
            }
        });
    }

    /// A connection's requests: counted, limited, timed.
    fn service(&self, connection: &Connection) -> Requests {
        Requests {
            app: Arc::clone(&self.app),
            router: TowerToHyperService::new(self.router.clone()),
            entry: Arc::clone(&connection.entry),
        }
    }
}

/// A connection's service.
#[derive(Clone)]
struct Requests {
    app: Arc<App>,
    router: TowerToHyperService<Router>,
    entry: Arc<Entry>,
}

impl Requests {
    async fn serve(self, request: Request<Incoming>) -> Result<Response<Counted>, Infallible> {
        let under_way = UnderWay::new(Arc::clone(&self.entry));
        let response = match self.app.requests.try_acquire() {
            Ok(_permit) => match timeout(REQUEST_TIME_MAX, self.router.call(request)).await {
                Ok(answered) => answered?,
                Err(_) => {
                    let detail = "the request, or the lease store, took too long; ask again";
                    Problem::new(StatusCode::GATEWAY_TIMEOUT, "timeout", detail).into_response()
                }
            },
            Err(_) => Problem::unavailable(
                "busy",
                "too many requests are being served; ask another service, or again",
            )
            .into_response(),
        };
        Ok(response.map(|body| Counted { body, _under_way: under_way }))
    }
}

async fn serve<S>(stream: S, requests: Requests, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_MAX)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEADER_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(HEADER_BYTES_MAX).unwrap_or(u32::MAX))
        .max_send_buf_size(SEND_BYTES_MAX)
        .keep_alive_interval(IDLE_MAX / 2)
        .keep_alive_timeout(FIRST_REQUEST_WAIT_MAX);
    let service = service_fn(move |request| requests.clone().serve(request));
    let connection = builder.serve_connection(TokioIo::new(Stalling::new(stream)), service);
    // What goes wrong with a connection is its other end's doing, and known there.
    let _ = watcher.watch(connection.into_owned()).await;
}

/// The connections there are.
#[derive(Default)]
struct Connections {
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    all: HashMap<u64, Arc<Entry>>,
    next: u64,
}

/// One connection, and whether anybody waits on it.
struct Entry {
    accepted: Instant,
    /// Requests whose answers are not sent yet.
    under_way: AtomicU32,
    has_asked: AtomicBool,
    /// TLS is not agreed on yet, so that there is nothing that could be drained.
    is_agreeing: AtomicBool,
    /// When the last answer was sent, in milliseconds since it was accepted.
    idle_since_ms: AtomicU64,
    cut: Notify,
}

impl Entry {
    fn new() -> Self {
        Self {
            accepted: Instant::now(),
            under_way: AtomicU32::new(0),
            has_asked: AtomicBool::new(false),
            is_agreeing: AtomicBool::new(false),
            idle_since_ms: AtomicU64::new(0),
            cut: Notify::new(),
        }
    }

    /// Since when nothing is asked of it; `None` while something is.
    fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.under_way.load(Ordering::Acquire) == 0;
        is_idle.then(|| self.accepted + Duration::from_millis(self.idle_since_ms.load(Ordering::Relaxed)))
    }

    /// How long it may be idle.
    fn idle_max(&self) -> Duration {
        if self.has_asked.load(Ordering::Relaxed) { IDLE_MAX } else { FIRST_REQUEST_WAIT_MAX }
    }
}

impl Connections {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        // Each change is one insertion or removal: a panic leaves them whole.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self) -> usize {
        self.entries().all.len()
    }

    /// A place for one more. Where there is none, the connection that has been idle longest is cut for it; `None`: all
    /// are busy.
    fn enter(self: &Arc<Self>, connections_max: usize) -> Option<Connection> {
        let mut entries = self.entries();
        if entries.all.len() >= connections_max {
            let idle = entries.all.iter().filter_map(|(id, entry)| Some((entry.idle_since()?, *id))).min();
            let entry = entries.all.remove(&idle?.1)?;
            entry.cut.notify_one();
        }
        let id = entries.next;
        entries.next += 1;
        let entry = Arc::new(Entry::new());
        entries.all.insert(id, Arc::clone(&entry));
        drop(entries);
        Some(Connection { id, entry, all: Arc::clone(self) })
    }

    /// Cuts those that wait in vain.
    fn sweep(&self) {
        let now = Instant::now();
        self.cut(|entry| {
            let idle = entry.idle_since().map(|since| now.saturating_duration_since(since));
            idle.is_some_and(|idle| idle > entry.idle_max())
        });
    }

    fn cut(&self, which: impl Fn(&Entry) -> bool) {
        self.entries().all.values().filter(|entry| which(entry)).for_each(|entry| entry.cut.notify_one());
    }
}

/// An accepted connection, until it is closed.
struct Connection {
    id: u64,
    entry: Arc<Entry>,
    all: Arc<Connections>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.entries().all.remove(&self.id);
    }
}

/// A request whose answer is not sent yet.
struct UnderWay(Arc<Entry>);

impl UnderWay {
    fn new(entry: Arc<Entry>) -> Self {
        entry.under_way.fetch_add(1, Ordering::AcqRel);
        entry.has_asked.store(true, Ordering::Relaxed);
        Self(entry)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let since_ms = u64::try_from(self.0.accepted.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.idle_since_ms.store(since_ms, Ordering::Relaxed);
        self.0.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

/// An answer's body, which counts as under way until it is sent or dropped.
struct Counted {
    body: Body,
    _under_way: UnderWay,
}

impl hyper::body::Body for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that fails when its other end takes nothing for [`STALL_MAX`].
struct Stalling<S> {
    stream: S,
    stall: Option<Pin<Box<Sleep>>>,
}

impl<S> Stalling<S> {
    fn new(stream: S) -> Self {
        Self { stream, stall: None }
    }

    /// Starts or ends the stall that a write's outcome tells of.
    fn timed<T>(&mut self, context: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.stall = None;
            return outcome;
        }
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(STALL_MAX)));
        ready!(stall.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalling<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalling<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.timed(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.timed(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        self.timed(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(context);
        self.timed(context, outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_idle_connection_makes_room_and_a_busy_one_does_not() {
        // Shows who is cut for a new connection, and that nobody is where all are busy.
        let connections = Arc::new(Connections::default());
        let one = connections.enter(2).unwrap();
        let two = connections.enter(2).unwrap();
        let busy = UnderWay::new(Arc::clone(&one.entry));
        let three = connections.enter(2).unwrap();
        assert_eq!(connections.count(), 2);
        assert!(connections.entries().all.contains_key(&one.id), "it is busy");
        assert!(!connections.entries().all.contains_key(&two.id));
        let also = UnderWay::new(Arc::clone(&three.entry));
        assert!(connections.enter(2).is_none());
        std::thread::sleep(Duration::from_millis(5));
        drop(also);
        drop(busy);
        // Dropped later by a moment, if at all: either may go now, and the count stands.
        assert!(connections.enter(2).is_some());
        drop((one, two, three));
        assert_eq!(connections.count(), 0);
    }
}

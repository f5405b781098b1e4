//! A service that leases, on loopback: axum before a desk, and a wire that can be cut on either side.
#![allow(dead_code, unreachable_pub)] // Each test uses a part of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Instant, SystemTime};

use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::serve::Listener;
use snowmint_lease::{Desk, DeskConfig, Now, Store};
use snowmint_lease_http::{Fault, Problem, REQUEST_BYTES_MAX, Request, Response, serve};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

// The wire of the tests that talk to etcd.
#[path = "../../../lease-etcd/tests/common/proxy.rs"]
mod proxy;

pub use proxy::{Proxy, Wire};

/// Both clocks, of this machine.
#[derive(Clone, Copy)]
pub struct Clocks(Instant);

impl Clocks {
    pub fn start() -> Self {
        Self(Instant::now())
    }

    pub fn now(self) -> Now {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let ms = |it: std::time::Duration| u64::try_from(it.as_millis()).unwrap();
        Now { boot_ms: 10_000 + ms(self.0.elapsed()), wall_ms: ms(wall), clock_error_ms: 2 }
    }
}

/// 128 bits from the system.
pub fn nonce() -> u128 {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
    u128::from_le_bytes(bytes)
}

struct Shared {
    desk: Desk,
    store: Arc<dyn Store + Send + Sync>,
    clocks: Clocks,
    token: Option<String>,
    served: AtomicU32,
}

/// One instance of a service. Dropped, it stops at once, in the middle of what it does.
pub struct Server {
    pub port: u16,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

impl Server {
    pub fn start(store: Arc<dyn Store + Send + Sync>, clocks: Clocks) -> Self {
        Self::with(store, clocks, None, None)
    }

    pub fn with(
        store: Arc<dyn Store + Send + Sync>,
        clocks: Clocks,
        token: Option<&str>,
        tls: Option<TlsAcceptor>,
    ) -> Self {
        let desk = Desk::new(DeskConfig::default());
        let token = token.map(|token| format!("Bearer {token}"));
        let shared = Arc::new(Shared { desk, store, clocks, token, served: AtomicU32::new(0) });
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind(("127.0.0.1", 0))).unwrap();
        let port = listener.local_addr().unwrap().port();
        let app = axum::Router::new().fallback(handle).with_state(Arc::clone(&shared));
        match tls {
            None => runtime.spawn(async move { axum::serve(listener, app).await.unwrap() }),
            Some(acceptor) => {
                let listener = Tls { listener, acceptor };
                runtime.spawn(async move { axum::serve(listener, app).await.unwrap() })
            }
        };
        Self { port, shared, runtime: Some(runtime) }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn served(&self) -> u32 {
        self.shared.served.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// All that stands between axum and the desk.
async fn handle(
    State(shared): State<Arc<Shared>>,
    request: axum::extract::Request,
) -> axum::response::Response {
    shared.served.fetch_add(1, Ordering::SeqCst);
    let (parts, body) = request.into_parts();
    let header =
        |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok().map(str::to_owned));
    if shared.token.is_some() && header("authorization") != shared.token {
        return translate(Problem::new(Fault::Unauthorised).into_response());
    }
    let Ok(body) = to_bytes(body, REQUEST_BYTES_MAX).await else {
        return translate(Problem::new(Fault::TooLarge { bytes_max: REQUEST_BYTES_MAX }).into_response());
    };
    let content_type = header("content-type");
    let served = tokio::task::spawn_blocking(move || {
        let request = Request {
            method: parts.method.as_str(),
            path: parts.uri.path(),
            query: parts.uri.query(),
            content_type: content_type.as_deref(),
            body: &body,
        };
        serve(&shared.desk, &*shared.store, &request, &mut || shared.clocks.now(), &mut nonce)
    });
    translate(served.await.unwrap())
}

fn translate(response: Response) -> axum::response::Response {
    let mut builder = axum::response::Response::builder().status(response.status);
    for (name, value) in response.headers {
        builder = builder.header(name, value);
    }
    builder.body(Body::from(response.body)).unwrap()
}

struct Tls {
    listener: tokio::net::TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for Tls {
    type Io = tokio_rustls::server::TlsStream<tokio::net::TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let Ok((stream, addr)) = self.listener.accept().await else { continue };
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, addr);
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

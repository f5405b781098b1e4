//! The client: carries calls to a service, by a blocking HTTP client.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use snowmint_lease::desk::{Answer, Call};
use snowmint_lease::regions::Identity;
use snowmint_lease::{CallError, LeaseService, StoreError};
use ureq::http::header::{AUTHORIZATION, CONTENT_TYPE};
use ureq::http::{Method, Request};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, TlsProvider, parse_pem};
use ureq::{Agent, Body};

use crate::identity::{IDENTITY_PATH, read_identity};
use crate::message::{Sent, read_answer, send};
use crate::problem::{PROBLEM_TYPE, Problem};

/// The most addresses that can be named.
const BASES_MAX: usize = 32;
/// The longest time that may be chosen for anything: a minute.
const TIME_MS_MAX: u32 = 60_000;
/// The most bytes that are read of a response.
const RESPONSE_BYTES_MAX: u64 = 64 * 1024;

/// Where the service is, and how it is reached.
///
/// | time | default | bounds |
/// |---|---|---|
/// | `connect_ms_max` | 1,000 | TCP and TLS to one address |
/// | `request_ms_max` | 1,500 | one request to one address, connecting included |
/// | `call_ms_max` | 3,000 | one call, which may ask several addresses |
/// | `retry_ms_min`, `retry_ms_max` | 50, 1,000 | the pause before an address that failed is asked again; half of it is random |
///
/// A call takes less than a third of the fleet's window of 10 s. [`HttpConfig::for_window`] makes them fit another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    /// The addresses, as `http://host:port` or `https://host:port`, perhaps with a path before `/v1/leases`: instances of
    /// *one* service, over one store.
    pub bases: Vec<String>,
    /// What the service asks of those who may lease. Sent in the clear over `http`.
    pub token: Option<Secret>,
    /// Whom to trust, and how to be known, over `https`.
    pub tls: Option<HttpTls>,
    /// See the table.
    pub connect_ms_max: u32,
    /// See the table.
    pub request_ms_max: u32,
    /// See the table.
    pub call_ms_max: u32,
    /// See the table.
    pub retry_ms_min: u32,
    /// See the table.
    pub retry_ms_max: u32,
}

impl HttpConfig {
    /// These addresses, without token or TLS, with the default times.
    pub const fn new(bases: Vec<String>) -> Self {
        Self {
            bases,
            token: None,
            tls: None,
            connect_ms_max: 1_000,
            request_ms_max: 1_500,
            call_ms_max: 3_000,
            retry_ms_min: 50,
            retry_ms_max: 1_000,
        }
    }

    /// The same with times for this window: a call takes 3 tenths of it at most, a request half of that.
    #[must_use]
    pub fn for_window(self, window_ms: u32) -> Self {
        let call_ms_max = (window_ms / 10).saturating_mul(3).clamp(2, TIME_MS_MAX);
        let request_ms_max = call_ms_max / 2;
        Self {
            connect_ms_max: (request_ms_max * 2 / 3).max(1),
            request_ms_max,
            call_ms_max,
            retry_ms_min: (call_ms_max / 60).max(1),
            retry_ms_max: (call_ms_max / 3).max(1),
            ..self
        }
    }

    /// Whether it can be followed, as far as can be told without asking anybody.
    fn check(&self) -> Result<(), StoreError> {
        let wrong = |detail: String| Err(StoreError::Misconfigured { detail });
        if !(1..=BASES_MAX).contains(&self.bases.len()) {
            let count = self.bases.len();
            return wrong(format!("{count} addresses are given; give 1 to {BASES_MAX} of one service"));
        }
        for base in &self.bases {
            let is_https = match base.split_once("://") {
                Some(("http", rest)) if !rest.is_empty() => false,
                Some(("https", rest)) if !rest.is_empty() => true,
                _ => return wrong(format!("{base:?} is no http://host:port or https://host:port")),
            };
            if base.contains(['@', '?', '#']) || base.chars().any(|it| it.is_whitespace() || it.is_control())
            {
                return wrong(String::from(
                    "an address contains a user, a query, a fragment or a space; give scheme, host, port and path",
                ));
            }
            if base.parse::<ureq::http::Uri>().is_err() {
                return wrong(format!("{base:?} is no address"));
            }
            if is_https && self.tls.is_none() {
                return wrong(format!("{base} needs the certificate authority to trust"));
            }
            if !is_https && self.tls.is_some() {
                return wrong(format!("{base} is not https, and certificates are given"));
            }
        }
        if let Some(token) = &self.token
            && (token.0.is_empty() || !token.0.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            return wrong(String::from("the token is empty or has characters that no header can carry"));
        }
        for (name, time_ms, least_ms) in [
            ("connect_ms_max", self.connect_ms_max, 1),
            ("request_ms_max", self.request_ms_max, 1),
            ("call_ms_max", self.call_ms_max, self.request_ms_max),
            ("retry_ms_min", self.retry_ms_min, 1),
            ("retry_ms_max", self.retry_ms_max, self.retry_ms_min),
        ] {
            if !(least_ms..=TIME_MS_MAX).contains(&time_ms) {
                return wrong(format!("{name} is {time_ms}; give {least_ms} to {TIME_MS_MAX}"));
            }
        }
        Ok(())
    }
}

/// Whom to trust, and how to be known. All PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpTls {
    /// The certificate authorities that may sign the service's certificate. No others are trusted.
    pub ca_pem: String,
    /// The client's own certificate with its key, where the service asks for one.
    pub identity: Option<HttpIdentity>,
}

/// A certificate with its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpIdentity {
    /// The certificate, with what leads up to the authority behind it.
    pub cert_pem: String,
    /// Its key.
    pub key_pem: Secret,
}

/// What no log may show: its `Debug` does not.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps it.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// One address, and how it did.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    /// How often in a row it failed.
    failures: u32,
    /// Not to be asked before.
    until: Option<Instant>,
}

#[derive(Debug)]
struct Standings {
    /// The address that answered last, or is asked next.
    current: usize,
    all: Vec<Standing>,
}

/// A service that leases, over HTTP. See [`HttpConfig`].
///
/// A call is sent again, to the next address, until one answers or the call's time is over. It is carried out once: its
/// nonce tells the service that it is the same call. Redirects are not followed, and nothing is read from the
/// environment.
#[derive(Debug)]
pub struct HttpLeases {
    config: HttpConfig,
    agent: Agent,
    standings: Mutex<Standings>,
}

impl HttpLeases {
    /// A client. Nothing is asked yet. The first address is chosen at random, so that a fleet spreads.
    pub fn new(config: HttpConfig) -> Result<Self, StoreError> {
        config.check()?;
        let ms = |time_ms: u32| Some(Duration::from_millis(u64::from(time_ms)));
        let mut builder = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .user_agent(concat!("snowmint/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(ms(config.connect_ms_max))
            .timeout_global(ms(config.request_ms_max));
        if let Some(tls) = &config.tls {
            builder = builder.tls_config(tls_config(tls)?);
        }
        let count = config.bases.len();
        let current = usize::try_from(random_u32()).unwrap_or(0) % count.max(1);
        Ok(Self {
            agent: builder.build().into(),
            standings: Mutex::new(Standings { current, all: vec![Standing::default(); count] }),
            config,
        })
    }

    fn standings(&self) -> MutexGuard<'_, Standings> {
        // What a panic elsewhere leaves is a pause too many or too few.
        self.standings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address to ask: the current one, or the next whose pause is over; else how long to wait for the first.
    fn choose(&self) -> Result<usize, Duration> {
        let now = Instant::now();
        let standings = self.standings();
        let count = standings.all.len();
        let mut wait = Duration::MAX;
        for step in 0..count {
            let index = (standings.current + step) % count;
            match standings.all.get(index).and_then(|it| it.until) {
                Some(until) if until > now => wait = wait.min(until - now),
                _ => return Ok(index),
            }
        }
        Err(wait)
    }

    fn note(&self, index: usize, has_answered: bool) {
        let (min_ms, max_ms) = (self.config.retry_ms_min, self.config.retry_ms_max);
        let mut standings = self.standings();
        let count = standings.all.len();
        standings.current = if has_answered { index } else { (index + 1) % count };
        let Some(standing) = standings.all.get_mut(index) else { return };
        if has_answered {
            *standing = Standing::default();
            return;
        }
        let pause_ms = min_ms.saturating_mul(1 << standing.failures.min(16)).min(max_ms);
        let half_ms = pause_ms / 2;
        let pause_ms = half_ms + random_u32() % (pause_ms - half_ms + 1);
        standing.failures = standing.failures.saturating_add(1);
        standing.until = Some(Instant::now() + Duration::from_millis(u64::from(pause_ms)));
    }

    /// What the service tells of its store.
    pub fn identity(&self) -> Result<Identity, StoreError> {
        let unreachable = |detail: String| StoreError::Unreachable { detail };
        let (status, body) = self.fetch("GET", IDENTITY_PATH)?;
        if status != 200 {
            return Err(unreachable(format!("status {status} for {IDENTITY_PATH}")));
        }
        read_identity(&body).map_err(|error| unreachable(format!("its layout cannot be read ({error})")))
    }

    /// Sends a request without a body, and returns status and body of the answer. What fails, or is answered with a status
    /// of 500 or more, is sent again to the next address until one answers or the call's time is over: so only what may be
    /// carried out twice.
    pub fn fetch(&self, method: &str, target: &str) -> Result<(u16, Vec<u8>), StoreError> {
        let mut left = self.config.bases.len();
        self.ask_each(
            |base, limit| self.fetch_from(base, method, target, limit),
            |answer| matches!(answer, Ok((status, _)) if *status < 500),
            |answer| {
                left = left.saturating_sub(1);
                // Each has had its turn: a refusal of all is an answer, and who asked decides about another try.
                left == 0 && answer.is_ok()
            },
        )
        .unwrap_or_else(|| Err(all_paused()))
    }

    /// Asks one address after the other until one has answered, or nothing more is to be asked, or the call's time is over.
    /// The last answer; `None`: all addresses have failed just before.
    fn ask_each<T>(
        &self,
        ask: impl Fn(&str, Duration) -> T,
        has_answered: impl Fn(&T) -> bool,
        mut is_enough: impl FnMut(&T) -> bool,
    ) -> Option<T> {
        let millis = |ms: u32| Duration::from_millis(u64::from(ms));
        let give_up_at = Instant::now() + millis(self.config.call_ms_max);
        let mut last = None;
        loop {
            let left = give_up_at.saturating_duration_since(Instant::now());
            match self.choose() {
                Ok(index) if !left.is_zero() => {
                    let Some(base) = self.config.bases.get(index) else { continue };
                    let answer = ask(base, left.min(millis(self.config.request_ms_max)));
                    let has_answered = has_answered(&answer);
                    self.note(index, has_answered);
                    if has_answered || is_enough(&answer) {
                        return Some(answer);
                    }
                    last = Some(answer);
                }
                Err(wait) if wait < left => std::thread::sleep(wait),
                _ => return last,
            }
        }
    }

    fn fetch_from(
        &self,
        base: &str,
        method: &str,
        target: &str,
        limit: Duration,
    ) -> Result<(u16, Vec<u8>), StoreError> {
        let unreachable =
            |what: &dyn fmt::Display| StoreError::Unreachable { detail: format!("{base}: {what}") };
        let uri = format!("{}{target}", base.trim_end_matches('/'));
        let mut request = Request::builder().method(method).uri(uri);
        if let Some(token) = &self.config.token {
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.0));
        }
        let request = request
            .body(())
            .map_err(|error| StoreError::Misconfigured { detail: format!("{base}: {error}") })?;
        let request = self.agent.configure_request(request).timeout_global(Some(limit)).build();
        let mut response = self.agent.run(request).map_err(|error| unreachable(&error))?;
        let body = read(response.body_mut()).map_err(|error| unreachable(&error))?;
        Ok((response.status().as_u16(), body))
    }

    /// One request to one address.
    fn ask(&self, base: &str, sent: &Sent, limit: Duration) -> Result<Answer, CallError> {
        let unreachable = |what: &dyn fmt::Display| {
            CallError::Store(StoreError::Unreachable { detail: format!("{base}: {what}") })
        };
        let method = match sent.method {
            "POST" => Method::POST,
            "PUT" => Method::PUT,
            _ => Method::DELETE,
        };
        let uri = format!("{}{}", base.trim_end_matches('/'), sent.target);
        let mut request = Request::builder().method(method).uri(uri);
        if let Some(token) = &self.config.token {
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.0));
        }
        let wrong = |error: ureq::http::Error| {
            CallError::Store(StoreError::Misconfigured { detail: format!("{base}: {error}") })
        };
        let outcome = if let Some(body) = &sent.body {
            let request = request.header(CONTENT_TYPE, "application/json").body(&body[..]).map_err(wrong)?;
            self.agent.run(self.agent.configure_request(request).timeout_global(Some(limit)).build())
        } else {
            let request = request.body(()).map_err(wrong)?;
            self.agent.run(self.agent.configure_request(request).timeout_global(Some(limit)).build())
        };
        let mut response = outcome.map_err(|error| unreachable(&error))?;
        let body = read(response.body_mut()).map_err(|error| unreachable(&error))?;
        let status = response.status().as_u16();
        let media = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media = media.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        if matches!(status, 200 | 201) && media.eq_ignore_ascii_case("application/json") {
            return read_answer(&body)
                .map_err(|error| unreachable(&format!("its answer cannot be read ({error})")));
        }
        if media.eq_ignore_ascii_case(PROBLEM_TYPE)
            && let Ok(problem) = serde_json::from_slice::<Problem>(&body)
        {
            return Err(problem.fault.into_error());
        }
        if matches!(status, 401 | 403) {
            let detail = format!("{base} answers with status {status}");
            return Err(StoreError::Denied { detail }.into());
        }
        // Something in between, which knows nothing of leases.
        Err(unreachable(&format!("status {status}, which is no answer of a lease service")))
    }
}

fn read(body: &mut Body) -> Result<Vec<u8>, ureq::Error> {
    body.with_config().limit(RESPONSE_BYTES_MAX).read_to_vec()
}

impl LeaseService for HttpLeases {
    fn call(&self, call: &Call) -> Result<Answer, CallError> {
        let sent = send(call)?;
        self.ask_each(
            |base, limit| self.ask(base, &sent, limit),
            |outcome| !matches!(outcome, Err(CallError::Store(StoreError::Unreachable { .. }))),
            |_| false,
        )
        .unwrap_or_else(|| Err(all_paused().into()))
    }
}

fn all_paused() -> StoreError {
    StoreError::Unreachable {
        detail: String::from("every address has failed, and is left alone for a moment"),
    }
}

fn tls_config(tls: &HttpTls) -> Result<TlsConfig, StoreError> {
    let wrong = |detail: String| StoreError::Misconfigured { detail };
    let roots = certificates(&tls.ca_pem)?;
    let identity = match &tls.identity {
        None => None,
        Some(identity) => {
            let key = PrivateKey::from_pem(identity.key_pem.0.as_bytes())
                .map_err(|_| wrong(String::from("the key of the client's certificate is no PEM key")))?;
            Some(ClientCert::new_with_certs(&certificates(&identity.cert_pem)?, key))
        }
    };
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .root_certs(RootCerts::Specific(Arc::new(roots)))
        .client_cert(identity)
        .build())
}

fn certificates(pem: &str) -> Result<Vec<Certificate<'static>>, StoreError> {
    let mut certificates = Vec::new();
    for item in parse_pem(pem.as_bytes()) {
        match item {
            Ok(PemItem::Certificate(certificate)) => certificates.push(certificate),
            Ok(_) => {}
            Err(error) => {
                return Err(StoreError::Misconfigured { detail: format!("a certificate: {error}") });
            }
        }
    }
    if certificates.is_empty() {
        return Err(StoreError::Misconfigured {
            detail: String::from("there is no certificate where one should be"),
        });
    }
    Ok(certificates)
}

/// For spreading, not for secrets: where the system has none to give, nothing is spread.
fn random_u32() -> u32 {
    getrandom::u32().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn plain() -> HttpConfig {
        HttpConfig::new(vec![String::from("http://127.0.0.1:8080")])
    }

    #[test]
    fn what_cannot_be_followed_is_refused_with_the_reason() {
        // Shows each rule of a configuration, broken alone, and the words by which it is told.
        assert!(HttpLeases::new(plain()).is_ok());
        assert!(HttpLeases::new(plain().for_window(30)).is_ok());
        assert!(HttpLeases::new(plain().for_window(3_600_000)).is_ok());
        let base = |url: &str| HttpConfig { bases: vec![String::from(url)], ..plain() };
        let tls = || Some(HttpTls { ca_pem: String::new(), identity: None });
        let token = |token: &str| HttpConfig { token: Some(Secret::new(token)), ..plain() };
        for (config, part) in [
            (HttpConfig { bases: Vec::new(), ..plain() }, "0 addresses"),
            (HttpConfig { bases: vec![String::from("http://a"); 33], ..plain() }, "33 addresses"),
            (base("127.0.0.1:8080"), "is no http://"),
            (base("ftp://a"), "is no http://"),
            (base("http://"), "is no http://"),
            (base("http://user@a"), "contains a user"),
            (base("http://a?b"), "contains a user, a query"),
            (base("http://a\r\nb"), "a space"),
            (base("http://[a"), "is no address"),
            (base("https://a"), "needs the certificate authority"),
            (HttpConfig { tls: tls(), ..plain() }, "is not https"),
            (HttpConfig { tls: tls(), ..base("https://a") }, "there is no certificate"),
            (token(""), "the token is empty"),
            (token("a b"), "the token is empty"),
            (HttpConfig { request_ms_max: 0, ..plain() }, "request_ms_max is 0"),
            (HttpConfig { call_ms_max: 1_000, ..plain() }, "call_ms_max is 1000"),
            (HttpConfig { retry_ms_max: 60_001, ..plain() }, "retry_ms_max is 60001"),
        ] {
            let told = HttpLeases::new(config).map(drop).unwrap_err().to_string();
            assert!(told.contains(part), "{told:?} should tell {part:?}");
        }
        assert_eq!(format!("{:?}", token("hush").token), "Some((secret))");
    }

    /// A server that answers every request with this status; how many it has had.
    fn answering(status: u16) -> (String, Arc<AtomicU32>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let count = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&count);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (mut request, mut byte) = (Vec::new(), [0]);
                while !request.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
                    request.push(byte[0]);
                }
                counted.fetch_add(1, Ordering::SeqCst);
                let _ =
                    write!(stream, "HTTP/1.1 {status} -\r\nconnection: close\r\ncontent-length: 2\r\n\r\nno");
            }
        });
        (url, count)
    }

    #[test]
    fn a_refusal_is_asked_of_every_address_once() {
        // Shows that a request which may be carried out twice goes on to the next address where one refuses or is gone, and
        // that the refusal of all is an answer: it is given at once, each having been asked once.
        let (busy, busy_count) = answering(503);
        let (other, other_count) = answering(503);
        let client = HttpLeases::new(HttpConfig { bases: vec![busy, other], ..plain() }).unwrap();
        assert_eq!(client.fetch("POST", "/v1/ids"), Ok((503, b"no".to_vec())));
        let counts = || [&busy_count, &other_count].map(|count| count.load(Ordering::SeqCst));
        assert_eq!(counts(), [1, 1]);

        for bad in [answering(500).0, String::from("http://127.0.0.1:1")] {
            let (good, good_count) = answering(200);
            let client = HttpLeases::new(HttpConfig { bases: vec![bad, good], ..plain() }).unwrap();
            assert_eq!(client.fetch("GET", "/v1/layout").map(|(status, _)| status), Ok(200));
            // Whoever answered is asked first the next time.
            assert_eq!(client.fetch("GET", "/v1/layout").map(|(status, _)| status), Ok(200));
            assert_eq!(good_count.load(Ordering::SeqCst), 2);
        }
    }
}

//! `snowmint serve` as its users run it: a process, a real store, real sockets, real signals.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU32;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{FakeClock, Running, program};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;
use snowmint_core::{Bounds, Generator, Id, Layout, Policy};
use snowmint_lease::remote::step;
use snowmint_lease::{
    Hindrance, Notice, Now, Owner, RemoteConfig, RemoteEvent, RemoteKeeper, Stopped, StoreError, Then,
};
use snowmint_lease_http::{HttpConfig, HttpLeases, Secret};
use tempfile::TempDir;

/// How long anything may take on a machine that is busy.
const PATIENCE: Duration = Duration::from_mins(1);

#[track_caller]
fn until<T>(what: &str, mut get: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(got) = get() {
            return got;
        }
        assert!(Instant::now() < end, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A home of its own for each test: nothing of the user's is read or written.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        // In one piece: the service may read it at any moment.
        fs::write(self.path("next"), text).unwrap();
        fs::rename(self.path("next"), &path).unwrap();
        path.display().to_string()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_snowmint"));
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SNOWMINT_"))
        {
            command.env_remove(name);
        }
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
        command
            .args(arguments)
            .env("HOME", self.0.path())
            .env("XDG_DATA_HOME", self.path("data"))
            .env("XDG_CACHE_HOME", cache)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdout(Stdio::piped()).output().unwrap()
    }

    /// Starts a service on a store of its own and waits until it mints.
    fn serve(&self, arguments: &[&str]) -> Service {
        let service = self.start(arguments, |_| {});
        until("the service is ready", || (service.get("/readyz").status == 200).then_some(()));
        service
    }

    fn start(&self, arguments: &[&str], change: impl FnOnce(&mut Command)) -> Service {
        let own = ["serve", "--listen", "127.0.0.1:0", "--log", "json"];
        let store = if arguments.contains(&"--store") { &[][..] } else { &["--init"][..] };
        let mut command = self.command(&[&own, store, arguments].concat());
        change(&mut command);
        let mut child = command.spawn().unwrap();
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let kept = Arc::clone(&log);
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                kept.lock().unwrap().push(line);
            }
        });
        let mut service =
            Service { child: Running(child), log, address: ([127, 0, 0, 1], 0).into(), tls: None };
        let url = until("the service listens", || {
            assert!(service.child.0.try_wait().unwrap().is_none(), "{:?}", service.lines());
            service.event("listening").map(|event| event["url"].as_str().unwrap().to_owned())
        });
        service.address = url.split_once("//").unwrap().1.parse().unwrap();
        service
    }
}

/// A running service.
struct Service {
    child: Running,
    log: Arc<Mutex<Vec<String>>>,
    address: SocketAddr,
    /// Whom to trust, where it speaks TLS.
    tls: Option<Arc<ClientConfig>>,
}

/// What a service answered.
#[derive(Debug)]
struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The IDs of a JSON answer.
    #[track_caller]
    fn ids(&self) -> Vec<u64> {
        assert_eq!(self.status, 200, "{}", self.text());
        self.json()["ids"]
            .as_array()
            .unwrap()
            .iter()
            .map(|id| id.as_str().unwrap().parse().unwrap())
            .collect()
    }
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

impl Service {
    fn connect(&self) -> std::io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(match &self.tls {
            None => Box::new(stream),
            Some(config) => {
                let name = ServerName::try_from("localhost").unwrap();
                let tls = ClientConnection::new(Arc::clone(config), name).unwrap();
                Box::new(StreamOwned::new(tls, stream))
            }
        })
    }

    /// Sends bytes, and reads what comes until the connection is closed. Errors are a connection that was cut.
    fn send(&self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut stream = self.connect()?;
        stream.write_all(bytes)?;
        let mut all = Vec::new();
        match stream.read_to_end(&mut all) {
            Err(error) if error.kind() != ErrorKind::UnexpectedEof && all.is_empty() => Err(error),
            _ => Ok(all),
        }
    }

    fn try_ask(&self, method: &str, target: &str, headers: &[&str], body: &[u8]) -> std::io::Result<Reply> {
        let mut request =
            format!("{method} {target} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n").into_bytes();
        for header in headers {
            request.extend_from_slice(header.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        if !body.is_empty() {
            request.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
        }
        request.extend_from_slice(b"\r\n");
        request.extend_from_slice(body);
        let bytes = self.send(&request)?;
        reply(&bytes).ok_or_else(|| std::io::Error::other(format!("{:?}", String::from_utf8_lossy(&bytes))))
    }

    #[track_caller]
    fn ask(&self, method: &str, target: &str, headers: &[&str]) -> Reply {
        self.try_ask(method, target, headers, b"").unwrap()
    }

    #[track_caller]
    fn get(&self, target: &str) -> Reply {
        self.ask("GET", target, &[])
    }

    #[track_caller]
    fn post(&self, target: &str) -> Reply {
        self.ask("POST", target, &[])
    }

    fn lines(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// The first event with this in its message.
    fn event(&self, message: &str) -> Option<Value> {
        self.events(message).into_iter().next()
    }

    fn events(&self, message: &str) -> Vec<Value> {
        let lines = self.lines();
        let events = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter(|event| event["message"].as_str().is_some_and(|text| text.contains(message))).collect()
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.0.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Its exit code.
    fn wait(&mut self) -> Option<i32> {
        until("the service ends", || self.child.0.try_wait().unwrap()).code()
    }

    /// How much memory it has, in KiB.
    fn rss_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.0.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

/// A response as HTTP/1.1 writes it; `None`: it is not whole.
fn reply(bytes: &[u8]) -> Option<Reply> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<_> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let mut rest = &bytes[end + 4..];
    if !headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked") {
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let length = length.map_or(0, |(_, value)| value.parse().unwrap());
        return (rest.len() == length || rest.is_empty()).then(|| Reply {
            status,
            headers,
            body: rest.to_vec(),
        });
    }
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..end]).ok()?, 16).ok()?;
        if length == 0 {
            return Some(Reply { status, headers, body });
        }
        body.extend_from_slice(rest.get(end + 2..end + 2 + length)?);
        rest = &rest[end + 2 + length + 2..];
    }
}

#[track_caller]
fn assert_all_different(ids: &[u64], count: usize) {
    assert_eq!(ids.len(), count);
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), count, "IDs twice");
    assert!(ids.iter().all(|id| i64::try_from(*id).is_ok() && *id > 0));
}

/// Each form of an answer holds as many IDs as were asked for, all different, and its media type.
#[test]
fn ids_are_given_in_every_form() {
    let home = Home::new();
    let service = home.serve(&["--workers", "2"]);
    let mut all = Vec::new();
    for count in [1, 2, 1_000, 5_000, 20_000] {
        let target = format!("/v1/ids?count={count}");
        let json = service.post(&target);
        assert_eq!(json.header("content-type"), Some("application/json"));
        all.extend(json.ids());
        let lines = service.ask("POST", &target, &["accept: application/x-ndjson"]);
        assert_eq!(lines.header("content-type"), Some("application/x-ndjson"));
        for line in lines.text().lines() {
            let object: Value = serde_json::from_str(line).unwrap();
            assert_eq!(object.as_object().unwrap().len(), 1, "{line}");
            all.push(object["id"].as_str().unwrap().parse().unwrap());
        }
        let text = service.ask("POST", &target, &["accept: text/plain"]);
        assert_eq!(text.header("content-type"), Some("text/plain; charset=utf-8"));
        all.extend(text.text().lines().map(|line| line.parse::<u64>().unwrap()));
        let bytes = service.ask("POST", &target, &["accept: application/octet-stream"]);
        assert_eq!(bytes.header("content-type"), Some("application/octet-stream"));
        all.extend(bytes.body.chunks_exact(8).map(|eight| u64::from_be_bytes(eight.try_into().unwrap())));
        assert_eq!(bytes.body.len(), 8 * count);
        let runs = service.post(&format!("{target}&runs=1")).json();
        for run in runs["runs"].as_array().unwrap() {
            let number = |name: &str| run[name].as_str().unwrap().parse::<u64>().unwrap();
            let count = run["count"].as_u64().unwrap();
            all.extend((0..count).map(|nth| number("first") + nth * number("stride")));
        }
    }
    assert_all_different(&all, 5 * (1 + 2 + 1_000 + 5_000 + 20_000));
    assert_eq!(service.post("/v1/ids").ids().len(), 1);
}

/// A twin is a UUID of the version that was asked for, one for each ID, all different.
#[test]
fn twins_are_random_and_of_the_version_that_was_asked_for() {
    let home = Home::new();
    let service = home.serve(&[]);
    for (version, digit) in [("uuidv4", b'4'), ("uuidv7", b'7')] {
        let mut twins = BTreeSet::new();
        let json = service.post(&format!("/v1/ids?count=500&public={version}")).json();
        for pair in json["ids"].as_array().unwrap() {
            assert!(pair["id"].as_str().unwrap().parse::<u64>().unwrap() > 0);
            twins.insert(pair["public"].as_str().unwrap().to_owned());
        }
        let text =
            service.ask("POST", &format!("/v1/ids?count=3000&public={version}"), &["accept: text/plain"]);
        twins.extend(text.text().lines().map(|line| line.split_once(' ').unwrap().1.to_owned()));
        let ndjson = service.ask(
            "POST",
            &format!("/v1/ids?count=3&public={version}"),
            &["accept: application/x-ndjson"],
        );
        for line in ndjson.text().lines() {
            let object: Value = serde_json::from_str(line).unwrap();
            twins.insert(object["public"].as_str().unwrap().to_owned());
        }
        assert_eq!(twins.len(), 3_503);
        for twin in twins {
            assert_eq!((twin.len(), twin.as_bytes()[14]), (36, digit), "{twin}");
        }
    }
}

/// Every problem has its status, its reason, and a document that says so; and the service mints on.
#[test]
fn what_cannot_be_answered_is_a_problem_document() {
    let home = Home::new();
    let service = home.serve(&[]);
    let now = service.post("/v1/ids").ids()[0];
    let ahead = now + (60_000 << 22);
    for (method, target, header, status, reason) in [
        ("POST", "/v1/ids?count=0", "", 400, "query"),
        ("POST", "/v1/ids?count=-1", "", 400, "query"),
        ("POST", "/v1/ids?count=1000001", "", 400, "query"),
        ("POST", "/v1/ids?count=1000000000", "", 400, "query"),
        ("POST", "/v1/ids?count=1e9", "", 400, "query"),
        ("POST", "/v1/ids?count=NaN", "", 400, "query"),
        ("POST", "/v1/ids?count=99999999999999999999999", "", 400, "query"),
        ("POST", "/v1/ids?count=", "", 400, "query"),
        ("POST", "/v1/ids?count", "", 400, "query"),
        ("POST", "/v1/ids?count=1&count=2", "", 400, "query"),
        ("POST", "/v1/ids?cuont=1", "", 400, "query"),
        ("POST", "/v1/ids?count=%FF", "", 400, "query"),
        ("POST", "/v1/ids?%FF=1", "", 400, "query"),
        ("POST", "/v1/ids?runs=2", "", 400, "query"),
        ("POST", "/v1/ids?runs=true", "", 400, "query"),
        ("POST", "/v1/ids?wait_ms=6", "", 400, "query"),
        ("POST", "/v1/ids?wait_ms=-1", "", 400, "query"),
        ("POST", "/v1/ids?public=uuidv1", "", 400, "query"),
        ("POST", "/v1/ids?public=uuidv4&runs=1", "", 422, "query"),
        ("POST", "/v1/ids?public=uuidv4", "accept: application/octet-stream", 406, "accept"),
        ("POST", "/v1/ids?runs=1", "accept: text/plain", 406, "accept"),
        ("POST", "/v1/ids?after=", "", 400, "query"),
        ("POST", "/v1/ids?after=x", "", 400, "query"),
        ("POST", "/v1/ids?after=18446744073709551616", "", 400, "query"),
        ("POST", &format!("/v1/ids?after={ahead}"), "", 409, "after"),
        ("POST", "/v1/ids?after=9223372036854775807", "", 409, "after"),
        ("POST", "/v1/ids", "accept: text/html", 406, "accept"),
        ("POST", "/v1/ids", "accept: image/*, application/json;q=0", 406, "accept"),
        ("GET", "/v1/ids", "", 405, "method-not-allowed"),
        ("PUT", "/v1/ids", "", 405, "method-not-allowed"),
        ("BREW", "/v1/ids", "", 405, "method-not-allowed"),
        ("POST", "/v1/layout", "", 405, "method-not-allowed"),
        ("DELETE", "/livez", "", 405, "method-not-allowed"),
        ("GET", "/v1/leases", "", 405, "method-not-allowed"),
        ("POST", "/v1/leases/1", "", 405, "method-not-allowed"),
        ("POST", "/v1/leases", "", 403, "token-right"),
        ("DELETE", "/v1/leases/1", "", 403, "token-right"),
        ("GET", "/", "", 404, "no-such-path"),
        ("GET", "/v2/ids", "", 404, "no-such-path"),
        ("GET", "/v1/ids/", "", 404, "no-such-path"),
        ("GET", "/v1/ids/1/2", "", 404, "no-such-path"),
        ("GET", "/v1/ids/nobody's-id", "", 404, "no-id"),
        ("GET", "/v1/ids/18446744073709551616", "", 404, "no-id"),
        ("GET", "/v1/ids/%FF", "", 400, "path"),
    ] {
        let headers: Vec<_> = Some(header).filter(|header| !header.is_empty()).into_iter().collect();
        let reply = service.ask(method, target, &headers);
        let context = format!("{method} {target} {header}: {reply:?}");
        assert_eq!(reply.status, status, "{context}");
        assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{context}");
        let problem = reply.json();
        assert_eq!(problem["status"], status, "{context}");
        assert_eq!(problem["reason"], reason, "{context}");
        assert_eq!(problem["type"], format!("urn:snowmint:problem:{reason}"), "{context}");
        assert!(problem["detail"].as_str().unwrap().len() > 10, "{context}");
        if status == 405 {
            let allow = reply.header("allow").unwrap_or_else(|| panic!("{context}"));
            assert!(!allow.is_empty() && !allow.contains(method), "{context}");
        }
    }
    // What is no HTTP at all is cut, or told so.
    for bytes in [
        &b"\0\0\0\0\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"POST /v1/ids HTTP/9.9\r\n\r\n",
        b"POST /v1/\xff HTTP/1.1\r\n\r\n",
    ] {
        let answer = service.send(bytes).unwrap_or_default();
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400"), "{answer:?}");
    }
    assert_eq!(service.post("/v1/ids?count=10&after=1&wait_ms=0&runs=0").ids().len(), 10);
}

/// An ID is taken apart by the region's layout, and the layout is told.
#[test]
fn an_id_and_the_layout_are_told() {
    let home = Home::new();
    let service = home.serve(&["--region", "3"]);
    let id = service.post("/v1/ids").ids()[0];
    let told = service.get(&format!("/v1/ids/{id}")).json();
    assert_eq!(told["id"], id.to_string());
    assert_eq!((told["layout"].as_str(), told["fields"]["region"].as_u64()), (Some("snowmint"), Some(3)));
    assert!(told["warnings"].is_array(), "{told}");
    let hex = format!("{id:016x}");
    let by_hex = service.get(&format!("/v1/ids/{hex}")).json();
    assert_eq!(
        (by_hex["id"].as_str(), by_hex["form"].as_str()),
        (Some(id.to_string().as_str()), Some("hex"))
    );
    let layout = service.get("/v1/layout").json();
    assert_eq!(layout["layout"], Layout::SNOWMINT.to_string());
    assert_eq!((layout["region"].as_u64(), layout["generation"].as_u64()), (Some(3), Some(1)));
    assert_eq!(layout["fields"].as_array().unwrap().len(), 5);
}

/// What is minted after an ID is greater, whichever worker minted either.
#[test]
fn causality_holds_across_workers() {
    let home = Home::new();
    let service = home.serve(&["--workers", "4"]);
    let mut last = service.post("/v1/ids").ids()[0];
    let mut workers = HashSet::new();
    for _ in 0..100 {
        let ids = service.post(&format!("/v1/ids?count=3&after={last}")).ids();
        assert!(ids.iter().all(|id| *id > last), "{ids:?} after {last}");
        workers.extend(ids.iter().map(|id| (id >> 12) & 0xff));
        last = *ids.iter().max().unwrap();
    }
    assert!(workers.len() > 1, "{workers:?}");
}

/// A million IDs in one request, in every form, all different; memory stays bounded.
#[test]
fn a_million_ids_are_streamed() {
    let home = Home::new();
    let service = home.serve(&["--workers", "4"]);
    let before_kib = service.rss_kib();
    let mut all = Vec::with_capacity(2_000_000);
    let text = service.ask("POST", "/v1/ids?count=1000000", &["accept: text/plain"]);
    all.extend(text.text().lines().map(|line| line.parse::<u64>().unwrap()));
    all.extend(service.post("/v1/ids?count=1000000").ids());
    assert_all_different(&all, 2_000_000);
    let bytes = service.ask("POST", "/v1/ids?count=1000000", &["accept: application/octet-stream"]);
    assert_eq!(bytes.body.len(), 8_000_000);
    let after_kib = service.rss_kib();
    assert!(after_kib < before_kib + 40 * 1024, "{before_kib} KiB before, {after_kib} KiB after");
    assert!(after_kib < 128 * 1024, "{after_kib} KiB");
}

/// Full ticks are refused with how long to wait, or waited out, and never answered late by more than a little.
#[test]
fn an_exhausted_service_refuses_or_waits_a_moment() {
    let home = Home::new();
    let service = home.serve(&[]);
    // More than a tick holds, and no time to wait for the next.
    let reply = service.post("/v1/ids?count=5000&wait_ms=0");
    let problem = reply.json();
    assert_eq!((reply.status, problem["reason"].as_str()), (503, Some("exhausted")), "{problem}");
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(problem["retry_after_ms"], 1);
    // Many at once: each is answered in full, or refused.
    let started = Instant::now();
    let mut all = Vec::new();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut ids = Vec::new();
                    for _ in 0..10 {
                        let reply = service.post("/v1/ids?count=4000");
                        match reply.status {
                            200 => ids.extend(reply.ids()),
                            503 => {
                                assert_eq!(reply.json()["reason"], "exhausted");
                                assert!(reply.header("retry-after").is_some());
                            }
                            _ => panic!("{reply:?}"),
                        }
                    }
                    ids
                })
            })
            .collect();
        for thread in threads {
            all.extend(thread.join().unwrap());
        }
    });
    let count = all.len();
    assert!(count >= 4_000, "none was answered");
    assert_all_different(&all, count);
    eprintln!("{count} IDs of 320000 in {:?}", started.elapsed());
}

/// A wall clock that is set back further than is waited for: not ready, and nothing minted, until it is past again.
#[test]
fn a_rollback_is_told_until_the_wall_has_passed_it() {
    let Some(fake) = FakeClock::new() else { return };
    let home = Home::new();
    let service = home.start(&[], |command| {
        fake.give_to(command);
    });
    until("the service is ready", || (service.get("/readyz").status == 200).then_some(()));
    until("it is told", || service.event("ready: IDs can be had"));
    let last = service.post("/v1/ids").ids()[0];
    fake.set("-3s");
    let reply = until("it is not ready", || Some(service.get("/readyz")).filter(|reply| reply.status == 503));
    assert_eq!(reply.json()["reason"], "clock-rolled-back", "{}", reply.text());
    let reply = service.post("/v1/ids");
    let problem = reply.json();
    assert_eq!((reply.status, problem["reason"].as_str()), (503, Some("clock-rolled-back")), "{problem}");
    let wait_ms = problem["retry_after_ms"].as_u64().unwrap();
    assert!((1..=3_000).contains(&wait_ms), "{problem}");
    let metrics = service.get("/metrics");
    let rollback =
        metrics.text().lines().find(|line| line.starts_with("snowmint_clock_rollback_ms ")).unwrap();
    assert!(rollback.split(' ').nth(1).unwrap().parse::<f64>().unwrap() > 0.0, "{rollback}");
    assert_eq!(service.get("/livez").status, 200);
    until("the wall has passed it", || (service.get("/readyz").status == 200).then_some(()));
    assert!(service.post("/v1/ids").ids()[0] > last);
    until("it is told", || service.event("the wall clock was stepped back"));
    until("both transitions are told", || {
        let is_told = |event: &Value| event["reason"] == "clock-rolled-back";
        let is_back = service.events("ready: IDs can be had").len() >= 2;
        (is_back && service.events("not ready").iter().any(is_told)).then_some(())
    });
}

/// SIGTERM: what is under way is answered whole, new connections are not taken, the code is given back, exit code 0.
#[test]
fn a_service_that_is_told_to_stop_answers_what_is_under_way() {
    for signal in ["-TERM", "-INT"] {
        let home = Home::new();
        let mut service = home.serve(&["--workers", "2", "--drain-ms", "60000"]);
        let mut idle = service.connect().unwrap();
        // An answer that is longer than all buffers, of which only the beginning is read.
        let mut stream = service.connect().unwrap();
        stream.write_all(b"POST /v1/ids?count=1000000 HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
        let mut got = vec![0; 1_000];
        stream.read_exact(&mut got).unwrap();
        service.signal(signal);
        until("it drains", || service.event("draining"));
        let refused = || TcpStream::connect(service.address).is_err();
        until("no more connections are accepted", || refused().then_some(()));
        assert!(service.child.0.try_wait().unwrap().is_none(), "a request is under way");
        stream.read_to_end(&mut got).unwrap();
        assert_all_different(&reply(&got).unwrap().ids(), 1_000_000);
        assert_eq!(service.wait(), Some(0), "{:?}", service.lines());
        assert_eq!(idle.read(&mut [0]).unwrap_or(0), 0, "an idle connection is closed");
        assert!(service.event("drained").is_some() && service.event("every code is given back").is_some());
        let list = home.run(&["lease", "list", "--json"]);
        let list = String::from_utf8(list.stdout).unwrap();
        let used: Vec<Value> = list
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .filter(|row| row["term"] != 0)
            .collect();
        assert_eq!(used.len(), 2);
        assert!(used.iter().all(|row| row["state"] == "free"), "{used:?}");
    }
}

/// A request that takes nothing of its answer is cut when the time to drain is over.
#[test]
fn draining_ends_when_its_time_is_over() {
    let home = Home::new();
    let mut service = home.serve(&["--drain-ms", "300"]);
    let mut stream = service.connect().unwrap();
    stream.write_all(b"POST /v1/ids?count=1000000 HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 100]).unwrap();
    let started = Instant::now();
    service.signal("-TERM");
    assert_eq!(service.wait(), Some(0), "{:?}", service.lines());
    assert!(started.elapsed() >= Duration::from_millis(300));
    assert!(service.event("the time to drain is over").is_some(), "{:?}", service.lines());
}

/// A certificate with its authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn issue(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".into()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    fn trusted(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        Arc::new(config.with_root_certificates(roots).with_no_client_auth())
    }
}

/// HTTPS by a certificate from files; new files are taken, bad ones are told and change nothing.
#[test]
fn certificates_are_read_again_when_they_change() {
    let home = Home::new();
    let (one, two) = (Authority::new(), Authority::new());
    let (cert, key) = one.issue();
    let cert_file = home.write("cert.pem", &cert);
    let key_file = home.write("key.pem", &key);
    let mut service = home.start(&["--tls-cert", &cert_file, "--tls-key", &key_file], |_| {});
    service.tls = Some(one.trusted());
    until("the service is ready", || (service.get("/readyz").status == 200).then_some(()));
    assert_eq!(service.post("/v1/ids?count=5000").ids().len(), 5_000);

    // What is no TLS, or ends in the middle of it, is cut; the service goes on.
    service.tls = None;
    let plain = service.send(b"POST /v1/ids HTTP/1.1\r\nhost: test\r\n\r\n").unwrap_or_default();
    assert!(!plain.starts_with(b"HTTP/1.1 200"), "{plain:?}");
    for hello in [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], b"\x16", b"\x80\x80", &[0xff; 5_000]]
    {
        let mut stream = TcpStream::connect(service.address).unwrap();
        stream.write_all(hello).unwrap();
        drop(stream);
    }
    service.tls = Some(two.trusted());
    assert!(service.try_ask("GET", "/livez", &[], b"").is_err(), "the other authority is not trusted");

    home.write("cert.pem", "no certificate");
    until("the bad file is told", || service.event("the certificate was not taken"));
    service.tls = Some(one.trusted());
    assert_eq!(service.post("/v1/ids").status, 200);

    let (cert, key) = two.issue();
    home.write("cert.pem", &cert);
    home.write("key.pem", &key);
    service.tls = Some(two.trusted());
    until("the new certificate is served", || {
        service.try_ask("GET", "/livez", &[], b"").ok().filter(|reply| reply.status == 200)
    });
    assert!(service.event("the certificate was read again").is_some());
    service.signal("-HUP");
    until("it is read when asked to", || {
        (service.events("the certificate was read again").len() >= 2).then_some(())
    });
}

fn token_file(home: &Home, entries: &[(&str, &str, &str)]) -> String {
    let mut text = String::new();
    for (name, token, more) in entries {
        let output = Command::new("sh").args(["-c", "printf %s \"$0\" | sha256sum", token]).output().unwrap();
        let hash = String::from_utf8(output.stdout).unwrap();
        text.push_str(&format!("[[token]]\nname = \"{name}\"\nsha256 = \"{}\"\n{more}\n", &hash[..64]));
    }
    home.write("tokens.toml", &text)
}

/// With tokens every route of the API asks for one with the right, and those of operations never do; none is logged.
#[test]
fn tokens_say_who_may_do_what() {
    let home = Home::new();
    let rows = [
        ("minter", "mint-secret", "may = [\"mint\"]"),
        ("edge", "lease-secret", "may = [\"lease\"]"),
        ("small", "small-secret", "may = [\"mint\"]\nids_per_second = 100"),
    ];
    let file = token_file(&home, &rows);
    let service = home.serve(&["--token-file", &file]);
    let bearer = |token: &str| format!("authorization: Bearer {token}");
    for (method, target) in [
        ("POST", "/v1/ids"),
        ("GET", "/v1/ids/1"),
        ("POST", "/v1/leases"),
        ("PUT", "/v1/leases/1"),
        ("DELETE", "/v1/leases/1"),
    ] {
        for headers in [
            vec![],
            vec![bearer("wrong")],
            vec!["authorization: Basic bWludC1zZWNyZXQ=".into()],
            vec![bearer("")],
        ] {
            let headers: Vec<_> = headers.iter().map(String::as_str).collect();
            let reply = service.ask(method, target, &headers);
            assert_eq!(reply.status, 401, "{method} {target} {headers:?}: {reply:?}");
            assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
        }
        let is_lease = target.starts_with("/v1/leases");
        let other = if is_lease { "mint-secret" } else { "lease-secret" };
        let reply = service.ask(method, target, &[&bearer(other)]);
        assert_eq!((reply.status, reply.json()["reason"].as_str()), (403, Some("token-right")), "{target}");
        let own = if is_lease { "lease-secret" } else { "mint-secret" };
        let reply = service.ask(method, target, &[&bearer(own)]);
        assert!(![401, 403].contains(&reply.status), "{target}: {reply:?}");
    }
    for target in ["/livez", "/readyz", "/metrics", "/openapi.json"] {
        assert_eq!(service.get(target).status, 200, "{target}");
    }
    // Whoever mints or leases wants to know the layout.
    for (headers, status) in [
        (vec![], 401),
        (vec![bearer("wrong")], 401),
        (vec![bearer("mint-secret")], 200),
        (vec![bearer("lease-secret")], 200),
    ] {
        let headers: Vec<_> = headers.iter().map(String::as_str).collect();
        assert_eq!(service.ask("GET", "/v1/layout", &headers).status, status, "{headers:?}");
    }
    let small = bearer("small-secret");
    assert_eq!(service.ask("POST", "/v1/ids?count=101", &[&small]).status, 422);
    assert_eq!(service.ask("POST", "/v1/ids?count=100", &[&small]).status, 200);
    let reply = service.ask("POST", "/v1/ids?count=100", &[&small]);
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("1")));

    // Another file on SIGHUP; one that does not fit changes nothing.
    token_file(&home, &[("minter", "new-secret", "may = [\"mint\"]")]);
    service.signal("-HUP");
    until("the new token holds", || {
        (service.ask("POST", "/v1/ids", &[&bearer("new-secret")]).status == 200).then_some(())
    });
    assert_eq!(service.ask("POST", "/v1/ids", &[&bearer("mint-secret")]).status, 401);
    home.write("tokens.toml", "nonsense");
    service.signal("-HUP");
    until("it is told", || service.event("the token file was not taken"));
    assert_eq!(service.ask("POST", "/v1/ids", &[&bearer("new-secret")]).status, 200);
    let log = service.lines().join("\n");
    assert!(!log.contains("secret"), "{log}");
}

/// Whoever connects and asks nothing, or asks slowly, or asks too much, is cut; the others are served, in bounded memory.
#[test]
fn hostile_connections_are_cut_and_the_others_are_served() {
    let home = Home::new();
    let service = home.serve(&["--connections-max", "500"]);
    // 1 MB of headers, as one and as many.
    let long = format!("GET /livez HTTP/1.1\r\nhost: test\r\nx: {}\r\n\r\n", "a".repeat(1_000_000));
    let many = format!("GET /livez HTTP/1.1\r\nhost: test\r\n{}\r\n", "x: a\r\n".repeat(170_000));
    let target = format!("GET /{} HTTP/1.1\r\nhost: test\r\n\r\n", "a".repeat(1_000_000));
    for bytes in [long, many, target] {
        let answer = service.send(bytes.as_bytes()).unwrap_or_default();
        let is_told = [&b"HTTP/1.1 431"[..], b"HTTP/1.1 414"].iter().any(|status| answer.starts_with(status));
        assert!(answer.is_empty() || is_told, "{:?}", String::from_utf8_lossy(&answer));
    }
    // Thousands that ask nothing, or the beginning of something.
    let mut held = Vec::new();
    for nth in 0..3_000 {
        let Ok(mut stream) = TcpStream::connect(service.address) else { continue };
        if nth % 2 == 0 {
            let _ = stream.write_all(b"POST /v1/ids HTTP/1.1\r\nhost: te");
        }
        held.push(stream);
        if nth % 500 == 0 {
            assert_eq!(service.post("/v1/ids").ids().len(), 1, "after {nth} idle connections");
        }
    }
    let kib = service.rss_kib();
    assert!(kib < 128 * 1024, "{kib} KiB");
    eprintln!("{} connections held, {kib} KiB", held.len());
    // Those that were not cut for others are cut by time.
    let started = Instant::now();
    for stream in &mut held {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    }
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    // A header a second, for ever; and a body that does not come.
    let mut slow = TcpStream::connect(service.address).unwrap();
    slow.write_all(b"POST /v1/ids HTTP/1.1\r\n").unwrap();
    let mut nth = 0;
    until("a slow request is cut", || {
        nth += 1;
        thread::sleep(Duration::from_millis(480));
        slow.write_all(format!("x-{nth}: 1\r\n").as_bytes()).is_err().then_some(())
    });
    assert!(nth < 60, "{nth}");
    assert_eq!(service.post("/v1/ids").ids().len(), 1);
}

/// Promises of a body are not waited for beyond a request's time.
#[test]
fn a_body_that_does_not_come_is_not_waited_for() {
    let home = Home::new();
    let file = token_file(&home, &[("edge", "lease-secret", "may = [\"lease\", \"mint\"]")]);
    let service = home.serve(&["--token-file", &file]);
    let head = "connection: close\r\nauthorization: Bearer lease-secret\r\ncontent-type: application/json\r\nhost: test";
    let started = Instant::now();
    let answer = service
        .send(format!("POST /v1/leases HTTP/1.1\r\n{head}\r\ncontent-length: 100\r\n\r\n{{").as_bytes());
    let answer = reply(&answer.unwrap()).unwrap();
    assert_eq!((answer.status, answer.json()["reason"].as_str()), (504, Some("timeout")));
    assert!(started.elapsed() < Duration::from_secs(20));
    // One that is far too long is refused before it is sent.
    let answer = service
        .send(
            format!(
                "POST /v1/leases HTTP/1.1\r\n{head}\r\ncontent-length: 20000\r\n\r\n{}",
                " ".repeat(20_000)
            )
            .as_bytes(),
        )
        .unwrap();
    assert_eq!(reply(&answer).unwrap().status, 413);
}

/// Asking whether the service is ready, from outside or within, counts as nobody's IDs: what is counted is what was asked
/// for.
#[test]
fn a_probe_is_not_counted() {
    let home = Home::new();
    let service = home.serve(&["--workers", "2"]);
    let minted = || {
        let reply = service.get("/metrics");
        let text = reply.text();
        text.lines()
            .filter(|line| line.starts_with("snowmint_ids_minted_total "))
            .chain(
                text.lines()
                    .filter(|line| line.starts_with("snowmint_refusals_total{reason=\"lease-lost\"}")),
            )
            .map(|line| line.rsplit(' ').next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    for _ in 0..20 {
        assert_eq!(service.get("/readyz").status, 200);
    }
    assert_eq!(minted(), ["0", "0"]);
    service.post("/v1/ids?count=7");
    // The service's own look at its readiness comes several times meanwhile.
    thread::sleep(Duration::from_millis(500));
    assert_eq!(minted(), ["7", "0"]);
}

/// Metrics have every name that dashboards and alerts rely on, and count what was done; promtool finds no fault.
#[test]
fn metrics_count_what_was_done() {
    let home = Home::new();
    let service = home.serve(&["--workers", "2"]);
    service.post("/v1/ids?count=100000");
    service.post("/v1/ids?count=1000000&wait_ms=0");
    let reply = service.get("/metrics");
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let text = reply.text();
    let value = |name: &str| -> f64 {
        let line =
            text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
        line.unwrap_or_else(|| panic!("{name}: {text}")).rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!(value("snowmint_ids_minted_total") >= 100_000.0);
    assert!(value("snowmint_sequence_exhausted_total") >= 1.0);
    assert!(value("snowmint_refusals_total{reason=\"exhausted\"}") >= 1.0);
    for reason in [
        "stopped",
        "layout-ended",
        "lease-lost",
        "below-floor",
        "ceiling",
        "mark",
        "clock-uncertain",
        "clock-rolled-back",
    ] {
        value(&format!("snowmint_refusals_total{{reason=\"{reason}\"}}"));
    }
    assert!(value("snowmint_clock_rollback_ms") >= 0.0);
    assert!(value("snowmint_ids_per_worker_tick_sum") >= 90_000.0);
    assert!(value("snowmint_ids_per_worker_tick_bucket{le=\"+Inf\"}") >= 10.0);
    assert!(value("snowmint_lease_renew_failures_total") >= 0.0);
    let codes: Vec<_> = ["now", "later", "held", "never"]
        .map(|state| value(&format!("snowmint_worker_codes{{state=\"{state}\"}}")))
        .to_vec();
    assert!((codes.iter().sum::<f64>() - 256.0).abs() < 0.5 && (codes[2] - 2.0).abs() < 0.5, "{codes:?}");
    let headroom = value("snowmint_lease_ceiling_headroom_seconds");
    assert!(headroom > 0.0 && headroom <= 1.0, "{headroom}");
    assert!(text.contains("snowmint_clock_error_bound_seconds"));
    assert!(value("snowmint_mark_sync_duration_seconds_count") >= 2.0);
    assert!(value("snowmint_mint_duration_seconds_count") >= 2.0);
    assert!(value("snowmint_epoch_remaining_seconds") > 60.0 * 365.0 * 86_400.0);

    let Some(promtool) = program("promtool", "prometheus") else { return };
    let mut check = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = check.wait_with_output().unwrap();
    let told =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // The one name that says milliseconds, as people who look at a rollback do.
    let excused = "snowmint_clock_rollback_ms metric names should not contain abbreviated units";
    assert_eq!(told.trim(), excused);
    assert!(matches!(output.status.code(), Some(0 | 3)), "3: a name is objected to");
}

/// The contract names every route that is there and no other, and each answer's status is among those that it names.
#[test]
fn the_contract_is_true_of_every_route() {
    let home = Home::new();
    let service = home.serve(&[]);
    let contract = service.get("/openapi.json").json();
    assert!(contract["openapi"].as_str().unwrap().starts_with("3.1"));
    let paths = contract["paths"].as_object().unwrap();
    let named: BTreeSet<_> = paths.keys().map(String::as_str).collect();
    let expected = [
        "/livez",
        "/metrics",
        "/openapi.json",
        "/readyz",
        "/v1/ids",
        "/v1/ids/{id}",
        "/v1/layout",
        "/v1/leases",
        "/v1/leases/{id}",
    ];
    assert_eq!(named, expected.into_iter().collect());
    for (path, item) in paths {
        for method in ["get", "put", "post", "delete", "patch", "options", "trace"] {
            let reply = service.ask(&method.to_uppercase(), &path.replace("{id}", "1"), &[]);
            let Some(operation) = item.get(method) else {
                assert_eq!(reply.status, 405, "{method} {path}");
                continue;
            };
            let responses = operation["responses"].as_object().unwrap();
            let told = responses.get(&reply.status.to_string());
            let told = told.unwrap_or_else(|| panic!("{method} {path}: {} is not named", reply.status));
            let media = reply.header("content-type").unwrap().split(';').next().unwrap();
            assert!(told["content"].get(media).is_some(), "{method} {path}: {media} is not named");
        }
    }
}

/// HTTP/2 on the same port, without TLS by prior knowledge: many requests at once on one connection.
#[test]
fn http_2_is_spoken_too() {
    let home = Home::new();
    let service = home.serve(&["--workers", "2"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ids: Vec<u64> = runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(service.address).await.unwrap();
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let requests = (0..50).map(|_| {
            let mut sender = sender.clone();
            tokio::spawn(async move {
                let request =
                    hyper::Request::post("http://test/v1/ids?count=100").body(Empty::<bytes::Bytes>::new());
                let response = sender.send_request(request.unwrap()).await.unwrap();
                assert_eq!((response.status().as_u16(), response.version()), (200, hyper::Version::HTTP_2));
                let body = response.into_body().collect().await.unwrap().to_bytes();
                let json: Value = serde_json::from_slice(&body).unwrap();
                let ids = json["ids"].as_array().unwrap().iter();
                ids.map(|id| id.as_str().unwrap().parse::<u64>().unwrap()).collect::<Vec<_>>()
            })
        });
        let mut all = Vec::new();
        for request in requests.collect::<Vec<_>>() {
            all.extend(request.await.unwrap());
        }
        all
    });
    assert_all_different(&ids, 5_000);
}

/// A runtime that leases from the service over HTTP mints beside it: other codes, other IDs; and gives its code back.
#[test]
fn a_remote_runtime_leases_and_mints() {
    let home = Home::new();
    let file = token_file(
        &home,
        &[("edge", "lease-secret", "may = [\"lease\"]"), ("app", "mint-secret", "may = [\"mint\"]")],
    );
    let service = home.serve(&["--token-file", &file, "--clock", "assume:1"]);
    let base = format!("http://{}", service.address);
    let client = |token: Option<&str>| {
        let token = token.map(Secret::new);
        HttpLeases::new(HttpConfig { token, ..HttpConfig::new(vec![base.clone()]) }.for_window(3_000))
            .unwrap()
    };
    let keeper = || {
        let config = RemoteConfig { window_ms: 3_000, ..RemoteConfig::new(Owner::new("edge").unwrap()) };
        RemoteKeeper::new(config).unwrap()
    };
    let clock = snowmint::SystemClock::new(1);
    let now = || {
        use snowmint::Clock;
        Now { boot_ms: clock.boot_ms(), wall_ms: clock.now_ms(), clock_error_ms: 1 }
    };
    // Who has no token, or one for something else, gets no code.
    for token in [None, Some("mint-secret"), Some("wrong")] {
        let service = client(token);
        let stepped =
            step(&mut keeper(), RemoteEvent::Time, &service, &mut || now(), &mut snowmint::fresh_nonce);
        let is_denied =
            |notice: &Notice| matches!(notice, Notice::Hindered(Hindrance::Store(StoreError::Denied { .. })));
        assert!(stepped.notices.iter().any(is_denied), "{token:?}: {:?}", stepped.notices);
    }
    let leases = client(Some("lease-secret"));
    let mut keeper = keeper();
    let advance = |keeper: &mut RemoteKeeper, event| {
        step(keeper, event, &leases, &mut || now(), &mut snowmint::fresh_nonce).notices
    };
    let grant = until("a code is granted", || {
        advance(&mut keeper, RemoteEvent::Time);
        keeper.take_grant(now().boot_ms)
    });
    let ticket = grant.ticket();
    let mut all = Vec::new();
    let mut generator = Generator::new(Layout::SNOWMINT, grant, Policy::CLASSIC).unwrap();
    let started = Instant::now();
    // Longer than a window: what is minted at the end was allowed by renewals.
    while started.elapsed() < Duration::from_secs(4) {
        advance(&mut keeper, RemoteEvent::Time);
        let ceiling_ms = keeper.ceiling_ms(ticket, now().boot_ms);
        let bounds = Bounds { ceiling_ms, mark_ms: ceiling_ms, clock_error_ms: 1 };
        let run = generator.mint(now().wall_ms, &bounds, NonZeroU32::new(100).unwrap());
        all.extend(run.unwrap().into_iter().map(Id::get));
        all.extend(service.ask("POST", "/v1/ids?count=100", &["authorization: Bearer mint-secret"]).ids());
        thread::sleep(Duration::from_millis(50));
    }
    let count = all.len();
    assert_all_different(&all, count);
    let codes: HashSet<_> = all.iter().map(|id| (id >> 12) & 0xff).collect();
    assert_eq!(codes.len(), 2, "{codes:?}");
    let last_reserved_ms = generator.stop().unwrap();
    let stopped = Stopped { ticket, last_reserved_ms };
    let mut notices = advance(&mut keeper, RemoteEvent::Release { stopped: Some(stopped), then: Then::End });
    until("the code is given back", || {
        notices.extend(advance(&mut keeper, RemoteEvent::Time));
        notices.iter().any(|notice| matches!(notice, Notice::Released { .. })).then_some(())
    });
}

/// `mint` by a service that leases, where no store can be reached: by the component under a code of its own, which is given
/// back; and every slip is told.
#[test]
fn mint_leases_from_a_service() {
    let home = Home::new();
    let file = token_file(
        &home,
        &[("edge", "lease-secret", "may = [\"lease\"]"), ("app", "mint-secret", "may = [\"mint\"]")],
    );
    let service = home.serve(&["--token-file", &file, "--clock", "assume:1", "--region", "2"]);
    let base = format!("http://{}", service.address);
    let held = || {
        let metrics = service.get("/metrics");
        let held = metrics
            .text()
            .lines()
            .find_map(|line| line.strip_prefix("snowmint_worker_codes{state=\"held\"} "));
        held.unwrap().parse::<u32>().unwrap()
    };
    let elsewhere = Home::new();
    let token = elsewhere.write("token", "lease-secret\n");
    let other = elsewhere.write("other", "mint-secret\n");
    let mint = |more: &[&str]| {
        elsewhere.run(&[&["mint", "-n", "100000", "--store", &base, "--clock", "assume:1"], more].concat())
    };
    assert_eq!(held(), 1);
    let mut all = Vec::new();
    for _ in 0..2 {
        let output = mint(&["--lease-token-file", &token]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        all.extend(
            String::from_utf8(output.stdout).unwrap().lines().map(|line| line.parse::<u64>().unwrap()),
        );
        assert_eq!(held(), 1, "the code is given back");
    }
    all.extend(service.ask("POST", "/v1/ids?count=100000", &["authorization: Bearer mint-secret"]).ids());
    assert_all_different(&all, 300_000);
    assert!(all.iter().all(|id| (id >> 20) & 3 == 2), "of the service's region");
    for (more, code, part) in [
        (&[][..], 1, "401"),
        (&["--lease-token-file", &other], 1, "403"),
        (&["--lease-token-file", &token, "--region", "1"], 1, "region"),
        (&["--lease-token-file", &token, "--layout", "hybrid"], 1, "layout"),
        (&["--lease-token-file", &token, "--init"], 2, "snowmint init"),
        (&["--lease-token-file", "/no/such/file"], 2, "cannot be read"),
    ] {
        let output = mint(more);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{more:?}: {told}");
        assert!(told.contains(part) && !told.contains("secret"), "{more:?}: {told}");
    }
    for command in [&["init"][..], &["lease", "list"], &["serve", "--listen", "127.0.0.1:0"]] {
        let output = elsewhere.run(&[command, &["--store", &base, "--region", "2"]].concat());
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{command:?}: {told}");
        assert!(told.contains("shows it to nobody"), "{command:?}: {told}");
    }
}

/// A store that is away is waited for, and said to be; one that can never be opened ends the service.
#[test]
fn a_store_that_is_away_is_waited_for() {
    let home = Home::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let store = format!("etcd:http://127.0.0.1:{port}");
    let mut service = home.start(&["--store", &store, "--region", "0"], |_| {});
    until("it is told", || service.event("the lease store does not answer"));
    assert_eq!(service.get("/livez").status, 200);
    for (method, target) in
        [("GET", "/readyz"), ("POST", "/v1/ids"), ("GET", "/v1/layout"), ("GET", "/v1/ids/1")]
    {
        let reply = service.ask(method, target, &[]);
        assert_eq!((reply.status, reply.json()["reason"].as_str()), (503, Some("store")), "{target}");
        assert!(reply.header("retry-after").is_some());
    }
    assert!(service.get("/metrics").text().contains("snowmint_ids_minted_total 0"));
    service.signal("-TERM");
    assert_eq!(service.wait(), Some(0));

    let store = format!("redb:{}", home.path("nowhere").display());
    let output = home.run(&["serve", "--listen", "127.0.0.1:0", "--store", &store]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("snowmint init"), "{told}");
}

/// Slips in the flags are told, with the way out.
#[test]
fn slips_in_the_flags_are_told() {
    let home = Home::new();
    let nothing = home.write("nothing", "");
    for (arguments, code, part) in [
        (&["--listen", "0.0.0.0:0"][..], 2, "--allow-plain-http"),
        (&["--listen", "nowhere"], 2, "nowhere"),
        (&["--tls-cert", &nothing], 2, "go together"),
        (&["--tls-cert", &nothing, "--tls-key", &nothing], 2, "no certificate"),
        (&["--token-file", "/no/such/file"], 2, "cannot be read"),
        (&["--token-file", &nothing], 2, "token"),
        (&["--workers", "0"], 2, "0"),
        (&["--workers", "257"], 2, "257"),
        (&["--window-ms", "1"], 2, "window"),
        (&["--connections-max", "0"], 2, "0"),
        (&["--store", "etcd:http://127.0.0.1:1", "--region", "0", "--init"], 2, "snowmint init"),
        (&["--listen", "192.0.2.1:0", "--allow-plain-http", "--init"], 1, "cannot be listened on"),
    ] {
        let output = home.run(&[&["serve"], arguments].concat());
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
        assert!(told.contains(part) && !told.contains("panicked"), "{arguments:?}: {told}");
    }
}

/// systemd is told of the beginning, of life, and of the end.
#[test]
fn systemd_is_told() {
    let home = Home::new();
    let path = home.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut service = home.start(&[], |command| {
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
    });
    let told = |wanted: &str| {
        let mut bytes = [0; 1_000];
        until(wanted, || {
            let length = socket.recv(&mut bytes).unwrap();
            std::str::from_utf8(&bytes[..length]).unwrap().contains(wanted).then_some(())
        });
    };
    told("READY=1");
    told("STATUS=ready");
    told("WATCHDOG=1");
    told("WATCHDOG=1");
    service.signal("-TERM");
    told("STOPPING=1");
    assert_eq!(service.wait(), Some(0));
}

/// Every flag can be set by the environment and by a file, with the same names.
#[test]
fn flags_come_from_a_file_and_the_environment() {
    let home = Home::new();
    let file = home.write("snowmint.toml", "[serve]\nworkers = 3\nlog = \"json\"\n");
    let mut command = home.command(&["--config", &file, "serve", "--init"]);
    command.env("SNOWMINT_LISTEN", "127.0.0.1:0");
    let mut child = Running(command.spawn().unwrap());
    let mut line = String::new();
    let mut log = BufReader::new(child.0.stderr.take().unwrap());
    until("it listens", || {
        line.clear();
        assert!(log.read_line(&mut line).unwrap() > 0);
        line.contains("\"listening\"").then_some(())
    });
    let event: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(event["workers"], 3, "{line}");
}

/// Schemathesis asks everything that the contract allows, and much that it does not, and finds nothing: with tokens and
/// without. A refusal to mint is a 503 that the contract names, and no error of the server.
#[test]
fn schemathesis_finds_nothing() {
    let Some(checker) = std::env::var_os("SNOWMINT_TEST_SCHEMATHESIS") else {
        eprintln!(
            "SKIPPED: SNOWMINT_TEST_SCHEMATHESIS names no schemathesis; `cargo xtask test` installs it"
        );
        return;
    };
    for has_tokens in [false, true] {
        let home = Home::new();
        let file = token_file(&home, &[("all", "all-secret", "may = [\"mint\", \"lease\"]")]);
        let tokens: &[&str] = if has_tokens { &["--token-file", &file] } else { &[] };
        let service = home.serve(&[&["--workers", "4", "--clock", "assume:1"], tokens].concat());
        let config = home.write(
            "schemathesis.toml",
            // A layout's text obeys more rules than a schema can say: one that fits the schema may be no layout. Nor can
            // a contract say that one parameter leaves no room for another.
            "[checks.not_a_server_error]\nexpected-statuses = [\"2xx\", \"3xx\", \"4xx\", 503]\n\
             [[operations]]\ninclude-tag = \"leases\"\n[operations.checks.positive_data_acceptance]\n\
             expected-statuses = [\"2xx\", 400, 401, 403, 404, 409, 422, 503]\n\
             [[operations]]\ninclude-path = \"/v1/ids\"\n[operations.checks.positive_data_acceptance]\n\
             expected-statuses = [\"2xx\", 401, 403, 409, 422, 503]\n",
        );
        let seed = (snowmint::fresh_nonce() & 0xffff_ffff).to_string();
        eprintln!("schemathesis --seed {seed}");
        let mut command = Command::new(&checker);
        command.args(["--config-file", &config, "run", &format!("http://{}/openapi.json", service.address)]);
        command.args(["--phases", "examples,coverage,fuzzing", "--max-examples", "100", "--seed", &seed]);
        command.args(["--request-timeout", "20", "--no-color"]).current_dir(home.path(""));
        if has_tokens {
            command.args(["--header", "Authorization: Bearer all-secret"]);
        }
        let output = command.output().unwrap();
        let told =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
        assert_eq!(service.get("/readyz").status, 200);
    }
}

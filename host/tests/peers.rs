//! Other regions' stores: two for one region are refused, and nothing else is.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use snowmint::{Clock, Engine, Peer, Peers, SystemClock, Worker, WorkerConfig, fresh_nonce};
use snowmint_core::{Layout, Policy, Refusal};
use snowmint_lease::regions::{Clash, Identity};
use snowmint_lease::{ClusterRecord, KeeperConfig, Now, Owner};
use snowmint_lease_http::{HttpConfig, HttpLeases};
use snowmint_lease_redb::RedbStore;

/// A service of another region, as far as its layout is asked for: answers what it is told to, or hangs up.
struct Service {
    port: u16,
    answer: Arc<Mutex<Option<String>>>,
}

impl Service {
    fn start(answer: Option<String>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let answer = Arc::new(Mutex::new(answer));
        let shared = Arc::clone(&answer);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                serve(stream, shared.lock().unwrap().clone());
            }
        });
        Self { port, answer }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

fn serve(mut stream: TcpStream, answer: Option<String>) {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        request.push(byte[0]);
    }
    assert!(request.starts_with(b"GET /v1/layout "), "{}", String::from_utf8_lossy(&request));
    if let Some(answer) = answer {
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length:";
        let _ = write!(stream, "{head} {}\r\n\r\n{answer}", answer.len());
    }
}

/// What a service with this store answers.
fn answer(uuid: u128, region: u32, layout: &Layout) -> String {
    format!(
        r#"{{"uuid": "{uuid:032x}", "region": {region}, "layout": "{layout}", "cutover_last_ms": null, "former": []}}"#
    )
}

/// From the command line: a peer for the same region, or with a layout of its own, is refused at the start with what to do;
/// another region's, or one that does not answer, is not.
#[test]
fn a_peer_that_clashes_is_refused_by_the_command() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("redb:{}", directory.path().join("store").display());
    let mint = |peers: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_snowmint"))
            .args(["mint", "-n", "3", "--init", "--store", &store, "--peer", peers])
            .output()
            .unwrap();
        let lines = String::from_utf8_lossy(&output.stdout).lines().count();
        (output.status.code(), lines, String::from_utf8(output.stderr).unwrap())
    };
    let of = |region, layout: &str| Service::start(Some(answer(7, region, &Layout::preset(layout).unwrap())));
    let (apart, same, other) = (of(1, "snowmint"), of(0, "snowmint"), of(1, "hybrid"));
    let silent = Service::start(None);
    for (peers, code, lines, words) in [
        (apart.url(), Some(0), 3, ""),
        (format!("{},{}", apart.url(), silent.url()), Some(0), 3, "does not answer"),
        (same.url(), Some(1), 0, "give one of them another region"),
        (format!("{},{}", apart.url(), same.url()), Some(1), 0, "give one of them another region"),
        (other.url(), Some(1), 0, "the same number would be an ID of both"),
        ("ftp://peer".into(), Some(2), 0, "--peer ftp://peer"),
    ] {
        let (found_code, found_lines, text) = mint(&peers);
        assert_eq!((found_code, found_lines), (code, lines), "{peers}: {text}");
        assert!(text.contains(words), "{peers}: {text}");
    }
}

/// In the background: a second store for the region that turns up later stops minting within a round, also while it does
/// not answer any more; once it is another region's, minting goes on by itself with the same code.
#[test]
fn a_clash_that_turns_up_later_stops_minting_until_it_is_set_right() {
    let directory = tempfile::tempdir().unwrap();
    let layout = Layout::SNOWMINT;
    let cluster = ClusterRecord::new(1, layout, 0).unwrap();
    let store = RedbStore::init(directory.path(), &cluster).unwrap();
    let clock = Arc::new(SystemClock::new(1));
    let now = Now { boot_ms: clock.boot_ms(), wall_ms: clock.now_ms(), clock_error_ms: 1 };
    store.take_over(&now, 0, &mut fresh_nonce).unwrap();
    let config = WorkerConfig {
        lease: KeeperConfig::embedded(layout, 0, Owner::new("test").unwrap()),
        policy: Policy::CLASSIC,
        acquire_wait_max: Duration::from_secs(10),
    };
    let worker =
        Worker::start(&Engine::new(None).unwrap(), Box::new(store), clock, config, Box::new(|_| {})).unwrap();
    let worker = Arc::new(worker);

    let service = Service::start(Some(answer(2, 1, &layout)));
    let peer =
        Peer { name: service.url(), service: HttpLeases::new(HttpConfig::new(vec![service.url()])).unwrap() };
    let (told, notices) = std::sync::mpsc::channel();
    let (identity, vetoed) = (Identity::of(&cluster), Arc::clone(&worker));
    let peers = Peers::start(
        vec![peer],
        Duration::from_millis(20),
        move || Some(identity.clone()),
        move |clash| vetoed.set_clash(clash),
        move |_, notice| drop(told.send(notice.clone())),
    )
    .unwrap();
    let wait_for = |is_minting: bool| {
        let until = Instant::now() + Duration::from_secs(10);
        while worker.mint(1).is_ok() != is_minting {
            assert!(Instant::now() < until, "minting: {is_minting}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    notices.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(worker.mint(1).is_ok());

    *service.answer.lock().unwrap() = Some(answer(2, 0, &layout));
    wait_for(false);
    assert_eq!(worker.mint(1).unwrap_err().refusal(), Some(Refusal::LeaseLost));
    assert_eq!(worker.standing().clash, Some(Clash::SameRegion { region: 0, uuid: 2 }));
    let held = worker.standing().view.unwrap();

    *service.answer.lock().unwrap() = None;
    std::thread::sleep(Duration::from_millis(200));
    assert!(worker.mint(1).is_err(), "whoever clashed and is silent is believed to clash still");

    *service.answer.lock().unwrap() = Some(answer(2, 3, &layout));
    wait_for(true);
    assert_eq!(worker.standing().view.unwrap().ticket, held.ticket);
    drop(peers);
}

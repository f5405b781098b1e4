//! The Rust client over real services: IDs without a network call for each, by another address where one is gone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::Running;
use snowmint::{Client, ClientConfig, ClientError, Ids, RunSource};
use snowmint_core::Id;
use snowmint_lease_http::HttpConfig;
use tempfile::TempDir;

/// A service of this region, with a store of its own.
struct Service {
    url: String,
    child: Running,
    _directory: TempDir,
}

impl Service {
    fn start(region: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = format!("redb:{}", directory.path().join("store").display());
        let mut child = Command::new(env!("CARGO_BIN_EXE_snowmint"))
            .args(["serve", "--listen", "127.0.0.1:0", "--log", "json", "--init", "--workers", "2"])
            .args(["--store", &store, "--region", &region.to_string()])
            .env("XDG_CACHE_HOME", std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"))
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let url = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| {
                let event: serde_json::Value = serde_json::from_str(&line).ok()?;
                Some(event["url"].as_str()?.to_owned())
            })
            .expect("the service listens");
        std::thread::spawn(move || lines.for_each(drop));
        Self { url, child: Running(child), _directory: directory }
    }
}

fn config(bases: Vec<String>) -> ClientConfig {
    let http = HttpConfig { retry_ms_min: 5, retry_ms_max: 50, ..HttpConfig::new(bases) };
    ClientConfig { wait_max: Duration::from_secs(20), http, ..ClientConfig::new(Vec::new()) }
}

fn region_of(id: Id) -> u64 {
    (id.get() >> 20) & 3
}

/// Threads take IDs from one client: all differ, and most are there without a wait. When the service is gone, another
/// address goes on.
#[test]
fn threads_take_ids_that_were_fetched_ahead_and_another_address_takes_over() {
    let mut services = vec![Service::start(0), Service::start(1)];
    let client = Client::start(config(services.iter().map(|service| service.url.clone()).collect())).unwrap();
    let client = Arc::new(client);
    let take = |count: usize| {
        let mut all = HashSet::new();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let mut ids = Ids::new(Arc::clone(&client));
                    scope.spawn(move || (0..count).map(|_| ids.next_id().unwrap()).collect::<Vec<_>>())
                })
                .collect();
            for thread in threads {
                for id in thread.join().unwrap() {
                    assert!(all.insert(id), "{id} twice");
                }
            }
        });
        all
    };
    let mut all = take(20_000);
    assert_eq!(all.len(), 60_000);
    let first = region_of(*all.iter().next().unwrap());
    assert!(all.iter().all(|id| region_of(*id) == first), "one service, as long as it answers");

    let gone = services.remove(usize::try_from(first).unwrap());
    drop(gone.child);
    // What was fetched ahead is used up or stale; then the other service's.
    std::thread::sleep(Duration::from_millis(1_100));
    for id in take(2_000) {
        assert!(all.insert(id), "{id} twice");
        assert_ne!(region_of(id), first);
    }
}

/// What was fetched before an ID was observed, and does not lie above it, is dropped; and what was fetched ahead is not
/// given out once it is a second old.
#[test]
fn runs_that_were_fetched_ahead_are_dropped_when_they_are_old_or_below_what_was_observed() {
    let service = Service::start(0);
    let client = Arc::new(Client::start(config(vec![service.url.clone()])).unwrap());
    let mut ids = Ids::new(Arc::clone(&client));
    let mut last = ids.next_id().unwrap();
    for _ in 0..50 {
        // Somebody else's, which is later than what is ahead here.
        let other = Client::start(config(vec![service.url.clone()])).unwrap();
        let observed = other.take(1).unwrap().first();
        client.observe(observed);
        last = ids.next_id().unwrap();
        assert!(last > observed, "{last} after {observed}");
    }
    std::thread::sleep(Duration::from_millis(1_500));
    let now_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let stamped_ms = u128::from(snowmint_core::Layout::SNOWMINT.time_of(ids.next_id().unwrap()).unix_ms());
    assert!(now_ms.saturating_sub(stamped_ms) < 1_000, "{} ms old", now_ms - stamped_ms);
    assert!(ids.next_id().unwrap() > last);
}

/// A service that is not there, is none, or refuses, is told by name within the wait, and the client goes on by itself once
/// it is there.
#[test]
fn what_is_wrong_is_told() {
    let short = |bases| {
        let ClientConfig { http, .. } = config(bases);
        // A call is given up well within the wait.
        let http = HttpConfig { connect_ms_max: 300, request_ms_max: 400, call_ms_max: 400, ..http };
        ClientConfig { wait_max: Duration::from_secs(5), http, ..ClientConfig::new(Vec::new()) }
    };
    let nobody = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let client = Client::start(short(vec![format!("http://{address}")])).unwrap();
    let started = Instant::now();
    let error = client.take(1).unwrap_err();
    assert!(matches!(&error, ClientError::Service(_)), "{error}");
    assert!(started.elapsed() < Duration::from_secs(20));
    assert!(matches!(Client::start(config(vec!["ftp://a".into()])), Err(ClientError::Service(_))));

    // A path in front of the service's own: nothing is served there.
    let service = Service::start(0);
    let client = Client::start(short(vec![format!("{}/elsewhere", service.url)])).unwrap();
    let error = client.take(1).unwrap_err();
    assert!(matches!(&error, ClientError::Refused { status: 404, .. }), "{error}");
}

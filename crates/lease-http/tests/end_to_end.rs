//! A client and services over real HTTP on loopback, with a wire in between that swallows.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

mod common;

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{Clocks, Proxy, Server, Wire, nonce};
use snowmint_core::{Bounds, Generator, Layout, Policy};
use snowmint_lease::desk::{Acquire, Answer, Call, Renew, kin_of};
use snowmint_lease::remote::step;
use snowmint_lease::{
    CallError, ClusterRecord, Hindrance, LeaseService, MemoryStore, Notice, Owner, Phase, RemoteConfig,
    RemoteEvent, RemoteKeeper, State, Stopped, Store, StoreError, Then, init,
};
use snowmint_lease_http::{HttpConfig, HttpLeases, HttpTls, Secret};
use snowmint_lease_redb::RedbStore;

const WINDOW_MS: u32 = 2_000;

type Shared = Arc<dyn Store + Send + Sync>;

fn cluster() -> ClusterRecord {
    ClusterRecord::new(7, Layout::SNOWMINT, 0).unwrap()
}

fn memory() -> Shared {
    let store = MemoryStore::new();
    init(&store, &cluster()).unwrap();
    Arc::new(store)
}

fn redb(dir: &std::path::Path) -> Shared {
    Arc::new(RedbStore::init(dir, &cluster()).unwrap())
}

fn client(bases: Vec<String>) -> HttpLeases {
    HttpLeases::new(HttpConfig::new(bases).for_window(WINDOW_MS)).unwrap()
}

fn config() -> RemoteConfig {
    let owner = Owner::new("edge").unwrap();
    let (layout, region) = (Some(Layout::SNOWMINT), Some(0));
    RemoteConfig { layout, region, window_ms: WINDOW_MS, ..RemoteConfig::new(owner) }
}

fn acquire(nonce: u128) -> Call {
    let owner = Owner::new("edge").unwrap();
    Call::Acquire(Acquire { layout: None, region: None, owner, window_ms: WINDOW_MS, lead_ms: 0, nonce })
}

fn active(store: &Shared) -> usize {
    let codes = store.scan().unwrap();
    codes.iter().filter(|(_, stored)| stored.record.state == State::Active).count()
}

/// Steps until this holds, or a time that any machine should make do with is over.
fn step_until(
    keeper: &mut RemoteKeeper,
    service: &HttpLeases,
    clocks: Clocks,
    is_so: impl Fn(&RemoteKeeper, &[Notice]) -> bool,
) -> Vec<Notice> {
    let give_up_at = Instant::now() + Duration::from_secs(30);
    let mut notices = Vec::new();
    while !is_so(keeper, &notices) {
        assert!(Instant::now() < give_up_at, "{notices:?}");
        let step = step(keeper, RemoteEvent::Time, service, &mut || clocks.now(), &mut nonce);
        notices.extend(step.notices);
        thread::sleep(Duration::from_millis(5));
    }
    notices
}

#[test]
fn a_lease_goes_its_way_over_http_and_lost_replies_cost_nothing() {
    // Shows, over both stores: a code is had while replies are swallowed, and it is one code; a swallowed renewal resumes
    // the same grant; an outage beyond the window stops minting and is got over; a release gives the code back.
    let dir = tempfile::tempdir().unwrap();
    for store in [memory(), redb(&dir.path().join("lease"))] {
        let clocks = Clocks::start();
        let server = Server::start(Arc::clone(&store), clocks);
        let proxy = Proxy::start(server.port);
        let service = client(vec![proxy.url()]);
        let mut keeper = RemoteKeeper::new(config()).unwrap();
        let tell = |keeper: &mut RemoteKeeper, event| {
            step(keeper, event, &service, &mut || clocks.now(), &mut nonce).notices
        };

        proxy.set(Wire::NoReplies);
        let _ = tell(&mut keeper, RemoteEvent::Time);
        assert!(server.served() > 0 && active(&store) == 1);
        assert_eq!(keeper.phase(clocks.now().boot_ms), Phase::Acquiring);
        proxy.set(Wire::Whole);
        step_until(&mut keeper, &service, clocks, |keeper, _| keeper.view().is_some());
        assert_eq!(active(&store), 1, "a lost reply cost a code");
        let ticket = keeper.view().unwrap().ticket;
        let now_ms = clocks.now().boot_ms;
        let grant = keeper.take_grant(now_ms);
        assert_eq!(grant.map(|grant| grant.ticket()), Some(ticket));

        // Replies are swallowed for longer than the window.
        proxy.set(Wire::NoReplies);
        step_until(&mut keeper, &service, clocks, |keeper, _| {
            keeper.phase(clocks.now().boot_ms) == Phase::Lapsed
        });
        assert_eq!(keeper.ceiling_ms(ticket, clocks.now().boot_ms), 0);
        proxy.set(Wire::Whole);
        let notices = step_until(&mut keeper, &service, clocks, |keeper, _| {
            keeper.phase(clocks.now().boot_ms) == Phase::Held
        });
        assert!(notices.iter().any(|notice| matches!(notice, Notice::Resumed { .. })), "{notices:?}");
        assert_eq!(keeper.view().unwrap().ticket, ticket);

        let last_reserved_ms = keeper.view().unwrap().end_ms - 1;
        let stopped = Some(Stopped { ticket, last_reserved_ms });
        proxy.set(Wire::NoReplies);
        let mut notices = tell(&mut keeper, RemoteEvent::Release { stopped, then: Then::End });
        assert_eq!((active(&store), &notices[..]), (0, &[][..]));
        proxy.set(Wire::Whole);
        let later = step_until(&mut keeper, &service, clocks, |keeper, _| {
            keeper.phase(clocks.now().boot_ms) == Phase::Ended
        });
        notices.extend(later);
        assert_eq!(notices, [Notice::Released { ticket, end_ms: last_reserved_ms }]);
    }
}

#[test]
fn the_next_address_is_asked_with_the_same_call() {
    // Shows, whichever address is first: one that swallows replies, one that refuses connections, and one that answers
    // are one service, which gives one code; and the address that answered is asked first afterwards.
    for _ in 0..4 {
        let store = memory();
        let clocks = Clocks::start();
        let (swallower, whole) =
            (Server::start(Arc::clone(&store), clocks), Server::start(Arc::clone(&store), clocks));
        let proxy = Proxy::start(swallower.port);
        proxy.set(Wire::NoReplies);
        // A port that nobody listens on.
        let refused = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let bases = vec![proxy.url(), format!("http://127.0.0.1:{refused}"), whole.url()];
        let service = HttpLeases::new(HttpConfig {
            connect_ms_max: 200,
            request_ms_max: 300,
            call_ms_max: 5_000,
            ..HttpConfig::new(bases)
        })
        .unwrap();
        let drawn = nonce();
        let answer = service.call(&acquire(drawn)).unwrap();
        assert_eq!((answer.nonce, active(&store)), (drawn, 1));
        let before = swallower.served();
        let again = service.call(&acquire(drawn)).unwrap();
        assert_eq!((again.grant, again.is_repeated), (answer.grant, true));
        assert_eq!(swallower.served(), before);
    }
}

#[test]
fn nobody_there_is_unreachable_within_the_calls_time() {
    // Shows that a call ends in time, whatever the other side does: no listener, no reply, a reply that never ends, a
    // reply that is too long, another protocol, a gateway's page, a redirect.
    let refused = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let endless =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n";
    let long = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 10000000\r\n\r\n{}",
        " ".repeat(200_000)
    );
    let page = "HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nno";
    let plain = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\n{}";
    let empty = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
    let elsewhere =
        format!("HTTP/1.1 307 Go\r\nlocation: http://127.0.0.1:{refused}/x\r\ncontent-length: 0\r\n\r\n");
    let odd = "HTTP/1.1 409 Conflict\r\ncontent-type: application/problem+json\r\ncontent-length: 15\r\n\r\n{\"code\":\"new\"}\n";
    let mut ports = vec![refused];
    for reply in ["", "SSH-2.0-x\r\n", endless, &long, page, plain, empty, &elsewhere, odd] {
        ports.push(fixed(reply.as_bytes().to_vec()));
    }
    for port in ports {
        let service = client(vec![format!("http://127.0.0.1:{port}")]);
        let started = Instant::now();
        let told = service.call(&acquire(1));
        assert!(matches!(told, Err(CallError::Store(StoreError::Unreachable { .. }))), "{told:?}");
        assert!(started.elapsed() < Duration::from_millis(u64::from(WINDOW_MS)), "{:?}", started.elapsed());
    }
    let forbidden = fixed(b"HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n".to_vec());
    let told = client(vec![format!("http://127.0.0.1:{forbidden}")]).call(&acquire(1));
    assert!(matches!(told, Err(CallError::Store(StoreError::Denied { .. }))), "{told:?}");
}

/// Answers everybody with the same bytes, and keeps the connection.
fn fixed(reply: Vec<u8>) -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            let mut stream: TcpStream = stream.unwrap();
            let _ = stream.read(&mut [0; 4_096]);
            let _ = stream.write_all(&reply);
            kept.push(stream);
        }
    });
    port
}

#[test]
fn a_token_is_asked_for_and_a_body_that_is_too_large_is_refused() {
    // Shows 401 as `Denied`, what a right token opens, and what a server says to a body above the limit.
    let server = Server::with(memory(), Clocks::start(), Some("hush"), None);
    let with = |token: Option<&str>| {
        let config = HttpConfig { token: token.map(Secret::new), ..HttpConfig::new(vec![server.url()]) };
        HttpLeases::new(config).unwrap().call(&acquire(nonce()))
    };
    for token in [None, Some("shout")] {
        assert!(matches!(with(token), Err(CallError::Store(StoreError::Denied { .. }))));
    }
    assert!(with(Some("hush")).is_ok());
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let head =
        "POST /v1/leases HTTP/1.1\r\nhost: a\r\nauthorization: Bearer hush\r\ncontent-length: 100000\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let _ = stream.write_all(&vec![b' '; 100_000]);
    let mut told = [0; 400];
    let count = stream.read(&mut told).unwrap();
    let told = String::from_utf8_lossy(&told[..count]).into_owned();
    assert!(told.starts_with("HTTP/1.1 413") && told.contains("application/problem+json"), "{told}");
}

#[test]
fn errors_of_the_service_reach_the_keeper_by_name() {
    // Shows that layout and region are compared by the service, and a record that is gone is told as that.
    let (inner, clocks) = (Arc::new(MemoryStore::new()), Clocks::start());
    init(&*inner, &cluster()).unwrap();
    let server = Server::start(Arc::clone(&inner) as Shared, clocks);
    let service = client(vec![server.url()]);
    let hindrance = |config: RemoteConfig| {
        let mut keeper = RemoteKeeper::new(config).unwrap();
        let _ = step(&mut keeper, RemoteEvent::Time, &service, &mut || clocks.now(), &mut nonce);
        keeper.hindrance().cloned()
    };
    assert_eq!(hindrance(config()), None);
    let region = hindrance(RemoteConfig { region: Some(2), ..config() });
    let wrong_region = StoreError::WrongRegion { stored: 0, configured: 2 };
    assert_eq!(region, Some(Hindrance::Store(wrong_region)));
    let other: Layout =
        "reserved:1 timestamp:41 region:2 worker:7 sequence:13 epoch-ms:0 tick-ns:1000000".parse().unwrap();
    let layout = hindrance(RemoteConfig { layout: Some(other), ..config() });
    assert!(matches!(layout, Some(Hindrance::Store(StoreError::WrongLayout { .. }))), "{layout:?}");
    inner.delete_code(3);
    let missing = StoreError::Missing { subject: snowmint_lease::Subject::Code(3) };
    assert_eq!(hindrance(config()), Some(Hindrance::Store(missing)));
}

#[test]
fn an_address_over_tls_trusts_only_the_authority_that_is_given() {
    // Shows a call over TLS, and that another authority's certificate and a plain connection are no way in.
    let (certificate, key) = {
        let made = rcgen::generate_simple_self_signed(vec![String::from("localhost")]).unwrap();
        (made.cert, made.signing_key)
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let server_config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server_config));
    let server = Server::with(memory(), Clocks::start(), None, Some(acceptor));
    let url = format!("https://localhost:{}", server.port);
    let trusting = |ca_pem: String| {
        let tls = Some(HttpTls { ca_pem, identity: None });
        HttpLeases::new(HttpConfig { tls, ..HttpConfig::new(vec![url.clone()]) }).unwrap()
    };
    let answer = trusting(certificate.pem()).call(&acquire(nonce()));
    assert!(answer.is_ok(), "{answer:?}");
    let other = rcgen::generate_simple_self_signed(vec![String::from("localhost")]).unwrap();
    let told = trusting(other.cert.pem()).call(&acquire(nonce()));
    assert!(matches!(told, Err(CallError::Store(StoreError::Unreachable { .. }))), "{told:?}");
    let plain = client(vec![format!("http://localhost:{}", server.port)]).call(&acquire(nonce()));
    assert!(plain.is_err());
}

#[test]
fn a_fleet_over_a_bad_network_mints_no_id_twice() {
    // Shows, with real generators: four clients, two services over one redb store, wires that are cut and mended at
    // random, services and clients that restart; no ID comes twice, and each client mints in the end.
    let seed = u64::try_from(nonce() & u128::from(u64::MAX)).unwrap();
    println!("seed {seed:#x}: the order of threads is the machine's");
    let dir = tempfile::tempdir().unwrap();
    let store = redb(&dir.path().join("lease"));
    let clocks = Clocks::start();
    let mut servers = [0, 1].map(|_| Server::start(Arc::clone(&store), clocks));
    let proxies: Vec<Proxy> = servers.iter().map(|server| Proxy::start(server.port)).collect();
    let bases: Vec<String> = proxies.iter().map(Proxy::url).collect();
    let ids: Arc<Mutex<HashSet<u64>>> = Arc::default();
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|index| {
            let (service, ids, is_over) = (client(bases.clone()), Arc::clone(&ids), Arc::clone(&is_over));
            thread::spawn(move || live(index, seed, &service, clocks, &ids, &is_over))
        })
        .collect();
    let mut random = seed;
    let length_ms = if std::env::var_os("SNOWMINT_TEST_LONG").is_some() { 60_000 } else { 8_000 };
    let stop_at = Instant::now() + Duration::from_millis(length_ms);
    let mut restarts = 0;
    while Instant::now() < stop_at {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let wire = match (random >> 33) % 4 {
            0 | 1 => Wire::Whole,
            2 => Wire::NoReplies,
            _ => Wire::Cut,
        };
        let which = usize::try_from((random >> 40) % 2).unwrap();
        proxies[which].set(wire);
        if (random >> 50) % 20 == 0 {
            // The old instance ends in the middle of what it does; the new one remembers nothing.
            servers[which] = Server::start(Arc::clone(&store), clocks);
            proxies[which].lead_to(servers[which].port);
            restarts += 1;
        }
        thread::sleep(Duration::from_millis((random >> 45) % 150));
    }
    for proxy in &proxies {
        proxy.set(Wire::Whole);
    }
    thread::sleep(Duration::from_millis(200));
    is_over.store(true, Ordering::SeqCst);
    let grants: u32 = clients.into_iter().map(|client| client.join().unwrap()).sum();
    let count = ids.lock().unwrap().len();
    println!("{count} IDs of {grants} grants, {restarts} restarts of services");
    assert!(count > 1_000 && grants >= 4, "{count} IDs of {grants} grants show nothing");
}

/// One client's life, with restarts. Returns how many grants it had.
fn live(
    index: u64,
    seed: u64,
    service: &HttpLeases,
    clocks: Clocks,
    ids: &Mutex<HashSet<u64>>,
    is_over: &AtomicBool,
) -> u32 {
    let mut random = seed ^ (index << 32);
    let mut keeper = RemoteKeeper::new(config()).unwrap();
    let mut held: Option<(u64, Generator)> = None;
    let mut grants = 0;
    loop {
        let outcome = step(&mut keeper, RemoteEvent::Time, service, &mut || clocks.now(), &mut nonce);
        let now = clocks.now();
        if let Some(grant) = keeper.take_grant(now.boot_ms) {
            grants += 1;
            let ticket = grant.ticket();
            held = Some((ticket, Generator::new(Layout::SNOWMINT, grant, Policy::CLASSIC).unwrap()));
        }
        let mut has_minted = false;
        let until_ms = outcome.next_wake_boot_ms.min(now.boot_ms + 20);
        while let Some((ticket, generator)) = &mut held {
            let now = clocks.now();
            let ceiling_ms = keeper.ceiling_ms(*ticket, now.boot_ms);
            let bounds = Bounds { ceiling_ms, mark_ms: ceiling_ms, clock_error_ms: now.clock_error_ms };
            if let Ok(run) = generator.mint(now.wall_ms, &bounds, NonZeroU32::new(3).unwrap()) {
                has_minted = true;
                let mut ids = ids.lock().unwrap();
                for id in run {
                    assert!(ids.insert(id.get()), "ID {id} came twice");
                }
            }
            if now.boot_ms >= until_ms {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        if is_over.load(Ordering::SeqCst) && has_minted {
            return grants;
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        match (random >> 33) % 200 {
            // It dies without a word.
            0 => (keeper, held) = (RemoteKeeper::new(config()).unwrap(), None),
            1 => {
                let stopped = held.take().and_then(|(ticket, mut generator)| {
                    generator.stop().map(|last_reserved_ms| Stopped { ticket, last_reserved_ms })
                });
                let event = RemoteEvent::Release { stopped, then: Then::Acquire };
                let _ = step(&mut keeper, event, service, &mut || clocks.now(), &mut nonce);
            }
            _ => thread::sleep(Duration::from_millis(2)),
        }
    }
}

#[test]
fn a_renewal_through_another_instance_is_the_same_renewal() {
    // Shows that two instances over one redb store answer for each other, repeated or not.
    let dir = tempfile::tempdir().unwrap();
    let store = redb(&dir.path().join("lease"));
    let clocks = Clocks::start();
    let [one, other] = [0, 1].map(|_| Server::start(Arc::clone(&store), clocks));
    let [one, other] = [one, other].map(|server| (client(vec![server.url()]), server));
    let first = one.0.call(&acquire(nonce())).unwrap();
    let renew = Call::Renew(Renew {
        grant: first.grant,
        window_ms: WINDOW_MS,
        lead_ms: 0,
        held: first.nonce,
        nonce: kin_of(first.nonce, 1),
    });
    let renewed = other.0.call(&renew).unwrap();
    let again = one.0.call(&renew).unwrap();
    let (now_ms, clock_error_ms) = (again.now_ms, again.clock_error_ms);
    assert_eq!(again, Answer { is_repeated: true, now_ms, clock_error_ms, ..renewed });
}

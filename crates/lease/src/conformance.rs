//! The contract of [`Store`] as code: what every adapter's tests call.
//!
//! ```
//! use snowmint_lease::{ClusterRecord, MemoryStore, Store, conformance};
//!
//! conformance::run(&|cluster: &ClusterRecord| {
//!     let store = MemoryStore::new();
//!     snowmint_lease::init(&store, cluster).unwrap();
//!     Box::new(store)
//! });
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

use std::sync::Barrier;

use snowmint_core::Layout;

use crate::store::{self, scan_complete};
use crate::{
    ClusterRecord, CodeRecord, Event, Hindrance, Keeper, KeeperConfig, Loss, Notice, Now, Owner, Revision,
    State, Stopped, Store, StoreError, Subject, Then, init, protocol, step,
};

/// A store as the suite uses it.
pub type Made = Box<dyn Store + Send + Sync>;

/// Makes a fresh store that was founded with this cluster record. Stores of one suite MUST NOT share anything.
pub type Make<'a> = dyn Fn(&ClusterRecord) -> Made + 'a;

/// One case: it panics where the store breaks the contract.
pub type Case = fn(&Make<'_>);

/// Every case, with what it shows.
pub const CASES: &[(&str, Case)] = &[
    ("a founded store is complete: every code is there, unused", founded_is_complete),
    ("what was swapped in is read back, to the last bit", swap_is_read_back),
    ("a swap at a stale revision writes nothing", stale_swap_is_refused),
    ("a swap under a stale cluster record writes nothing", stale_cluster_is_refused),
    ("a revision never comes back", revisions_never_come_back),
    ("a swap touches one code only", swap_touches_one_code),
    ("the cluster record is swapped by its own revision", cluster_is_swapped),
    ("a code that does not exist is missing, not unused", absent_is_missing),
    ("nothing is founded twice", nothing_is_founded_twice),
    ("of swaps that race, one wins each round", racing_swaps_lose_nothing),
    ("a keeper acquires, renews and releases", keeper_lives),
    ("two keepers never share a code", keepers_never_share),
    ("a fence ends a grant, and its quarantine is kept", fence_ends_a_grant),
    ("a recovery ends every grant", recovery_ends_grants),
    ("holding the store alone counts as expiry", alone_counts_as_expiry),
    ("a cut-over ends one layout and begins the next above it", cutover_is_carried_out),
];

/// Runs every case, and names each before it runs.
pub fn run(make: &Make<'_>) {
    for (name, case) in CASES {
        println!("conformance: {name}");
        case(make);
    }
}

const T: u64 = 1_750_000_000_000;

fn cluster() -> ClusterRecord {
    // Eight codes: enough to tell them apart, few enough for a store across a network.
    let layout: Layout =
        "reserved:1 timestamp:41 region:2 worker:3 sequence:17 epoch-ms:1735689600000 tick-ns:1000000"
            .parse()
            .unwrap();
    ClusterRecord::new(0x0123_4567_89ab_cdef, layout, 1).unwrap()
}

fn now(boot_ms: u64) -> Now {
    Now { boot_ms, wall_ms: T + boot_ms, clock_error_ms: 1 }
}

/// A record with every field at an end of its range.
fn wide(nonce: u128) -> CodeRecord {
    CodeRecord {
        state: State::Expired,
        term: u32::MAX,
        owner: Some(Owner::new("\u{1f980}".repeat(crate::OWNER_CHARS_MAX)).unwrap()),
        floor_ms: u64::MAX - 1,
        end_ms: u64::MAX,
        stamp_ms: u64::MAX,
        clock_error_ms: u32::MAX,
        ttl_ms: u32::MAX,
        not_again_before_ms: u64::MAX,
        nonce,
    }
}

fn founded_is_complete(make: &Make<'_>) {
    let store = make(&cluster());
    assert_eq!(store.cluster().unwrap().record, cluster());
    let codes = scan_complete(&*store, &cluster()).unwrap();
    assert_eq!(codes.len(), 8);
    for (at, (code, stored)) in (0..).zip(&codes) {
        assert_eq!((*code, &stored.record), (at, &CodeRecord::UNUSED));
        assert_eq!(&store.read(at).unwrap(), stored);
    }
}

fn swap_is_read_back(make: &Make<'_>) {
    let store = make(&cluster());
    let guard = store.cluster().unwrap().revision;
    let mut revision = store.read(3).unwrap().revision;
    for record in [wide(u128::MAX), CodeRecord { nonce: 1, ..CodeRecord::UNUSED }, wide(2)] {
        let swapped = store.swap(3, revision, guard, &record).unwrap();
        assert_ne!(swapped, revision);
        revision = swapped;
        let read = store.read(3).unwrap();
        assert_eq!((read.record, read.revision), (record, revision));
    }
}

fn stale_swap_is_refused(make: &Make<'_>) {
    let store = make(&cluster());
    let guard = store.cluster().unwrap().revision;
    let first = store.read(0).unwrap().revision;
    let second = store.swap(0, first, guard, &wide(1)).unwrap();
    for stale in [first, Revision::new(second.get() + 1), Revision::new(u64::MAX)] {
        assert_eq!(store.swap(0, stale, guard, &wide(2)), Err(StoreError::Conflict { code: 0 }));
        assert_eq!(store.read(0).unwrap().record, wide(1));
    }
    assert!(store.swap(0, second, guard, &wide(3)).is_ok());
}

fn stale_cluster_is_refused(make: &Make<'_>) {
    let store = make(&cluster());
    let before = store.cluster().unwrap();
    let record = ClusterRecord { not_before_ms: T, ..cluster() };
    let guard = store.swap_cluster(before.revision, &record).unwrap();
    let code = store.read(0).unwrap();
    let stale = Revision::new(u64::MAX);
    for expected in [code.revision, stale] {
        assert_eq!(store.swap(0, expected, before.revision, &wide(1)), Err(StoreError::ClusterChanged));
    }
    assert_eq!(store.read(0).unwrap(), code);
    assert!(store.swap(0, code.revision, guard, &wide(1)).is_ok());
}

fn revisions_never_come_back(make: &Make<'_>) {
    let store = make(&cluster());
    let guard = store.cluster().unwrap().revision;
    let mut seen = vec![store.read(0).unwrap().revision];
    for _ in 0..20 {
        // The same bytes, so that only the store can tell the writes apart.
        let last = *seen.last().unwrap();
        let next = store.swap(0, last, guard, &wide(7)).unwrap();
        assert!(!seen.contains(&next));
        seen.push(next);
    }
}

fn swap_touches_one_code(make: &Make<'_>) {
    let store = make(&cluster());
    let guard = store.cluster().unwrap();
    let before = store.scan().unwrap();
    store.swap(5, before[5].1.revision, guard.revision, &wide(1)).unwrap();
    let after = store.scan().unwrap();
    for code in 0..8 {
        assert_eq!(before[code] == after[code], code != 5, "code {code}");
    }
    assert_eq!(store.cluster().unwrap(), guard);
}

fn cluster_is_swapped(make: &Make<'_>) {
    let store = make(&cluster());
    let first = store.cluster().unwrap().revision;
    let record = ClusterRecord {
        generation: u16::MAX,
        not_before_ms: u64::MAX,
        cutover_last_ms: Some(u64::MAX),
        former: vec![crate::FormerLayout { layout: Layout::HYBRID, last_ms: T }],
        ..cluster()
    };
    let second = store.swap_cluster(first, &record).unwrap();
    assert_ne!(first, second);
    assert_eq!(store.swap_cluster(first, &cluster()), Err(StoreError::ClusterChanged));
    let read = store.cluster().unwrap();
    assert_eq!((read.record, read.revision), (record, second));
}

fn absent_is_missing(make: &Make<'_>) {
    let store = make(&cluster());
    let guard = store.cluster().unwrap().revision;
    for code in [8, u32::MAX] {
        let missing = StoreError::Missing { subject: Subject::Code(code) };
        assert_eq!(store.read(code), Err(missing.clone()));
        assert_eq!(store.swap(code, Revision::new(0), guard, &wide(1)), Err(missing));
    }
    assert_eq!(store.scan().unwrap().len(), 8);
}

fn nothing_is_founded_twice(make: &Make<'_>) {
    let store = make(&cluster());
    let guard = store.cluster().unwrap();
    store.swap(0, store.read(0).unwrap().revision, guard.revision, &wide(1)).unwrap();
    let is_refused = |result| matches!(result, Err(StoreError::AlreadyInitialised { .. }));
    assert!(is_refused(init(&*store, &cluster())));
    assert!(is_refused(store.create_cluster(&cluster())));
    assert!(is_refused(store.create_codes(&[(0, CodeRecord::UNUSED)])));
    assert_eq!(store.read(0).unwrap().record, wide(1));
    assert_eq!(store.cluster().unwrap(), guard);
    // A code that a wider layout adds.
    store.create_codes(&[(8, CodeRecord::UNUSED)]).unwrap();
    assert_eq!(store.read(8).unwrap().record, CodeRecord::UNUSED);
}

fn racing_swaps_lose_nothing(make: &Make<'_>) {
    const THREADS: u64 = 4;
    const ADDED: u64 = 10;
    let store = make(&cluster());
    let barrier = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let guard = store.cluster().unwrap().revision;
                barrier.wait();
                let mut added = 0;
                while added < ADDED {
                    let stored = store.read(2).unwrap();
                    let record = CodeRecord { end_ms: stored.record.end_ms + 1, ..stored.record };
                    match store.swap(2, stored.revision, guard, &record) {
                        Ok(_) => added += 1,
                        Err(error) => assert_eq!(error, StoreError::Conflict { code: 2 }),
                    }
                }
            });
        }
    });
    assert_eq!(store.read(2).unwrap().record.end_ms, THREADS * ADDED);
}

/// A keeper with a store, a clock and nonces of its own.
struct Worker {
    keeper: Keeper,
    boot_ms: u64,
    nonce: u128,
}

impl Worker {
    fn new(name: &str, seed: u128) -> Self {
        let config = KeeperConfig::embedded(cluster().layout, 1, Owner::new(name).unwrap());
        Self { keeper: Keeper::new(config).unwrap(), boot_ms: 1_000, nonce: seed << 64 }
    }

    fn step(&mut self, store: &dyn Store, event: Event) -> Vec<Notice> {
        let at = now(self.boot_ms);
        let nonce = &mut self.nonce;
        let mut draw = || {
            *nonce += 1;
            *nonce
        };
        step(&mut self.keeper, event, store, &mut || at, &mut draw).notices
    }

    fn wake(&mut self, store: &dyn Store) -> Vec<Notice> {
        self.boot_ms = self.boot_ms.max(self.keeper.next_wake_boot_ms());
        self.step(store, Event::Time)
    }
}

fn keeper_lives(make: &Make<'_>) {
    let store = make(&cluster());
    let mut worker = Worker::new("a", 1);
    worker.step(&*store, Event::Time);
    let grant = worker.keeper.take_grant(worker.boot_ms).unwrap();
    let ceiling_ms = worker.keeper.ceiling_ms(grant.ticket(), worker.boot_ms);
    assert_eq!(ceiling_ms, T + 2_000);
    worker.wake(&*store);
    assert_eq!(worker.keeper.ceiling_ms(grant.ticket(), worker.boot_ms), T + 2_333);
    let stopped = Stopped { ticket: grant.ticket(), last_reserved_ms: T + 1_500 };
    let notices = worker.step(&*store, Event::Release { stopped: Some(stopped), then: Then::End });
    assert_eq!(notices, [Notice::Released { ticket: grant.ticket(), end_ms: T + 1_500 }]);
    let record = store.read(grant.node().worker()).unwrap().record;
    assert_eq!((record.state, record.term, record.end_ms), (State::Free, 1, T + 1_500));
}

fn keepers_never_share(make: &Make<'_>) {
    let store = make(&cluster());
    let mut codes = Vec::new();
    for seed in 0..9 {
        let mut worker = Worker::new("same name", seed);
        let notices = worker.step(&*store, Event::Time);
        match worker.keeper.take_grant(worker.boot_ms) {
            Some(grant) => codes.push(grant.node().worker()),
            None => assert!(
                matches!(&notices[..], [Notice::Hindered(Hindrance::NoneLeft(none))] if none.active == 8),
                "{notices:?}"
            ),
        }
    }
    codes.sort_unstable();
    assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7]);
}

fn fence_ends_a_grant(make: &Make<'_>) {
    let store = make(&cluster());
    let mut worker = Worker::new("a", 1);
    worker.step(&*store, Event::Time);
    let grant = worker.keeper.take_grant(worker.boot_ms).unwrap();
    let code = grant.node().worker();
    let end_ms = store.read(code).unwrap().record.end_ms;
    let fenced = store::fence(&*store, code, 10_000, &now(1_100), 77).unwrap();
    assert_eq!((fenced.state, fenced.term, fenced.end_ms), (State::Fenced, 2, end_ms));
    let notices = worker.wake(&*store);
    let loss = Loss::Superseded { state: State::Fenced, term: 2 };
    assert!(notices.contains(&Notice::Lost { ticket: grant.ticket(), loss }), "{notices:?}");
    assert_eq!(worker.keeper.ceiling_ms(grant.ticket(), worker.boot_ms), 0);
    // Past the quarantine by both clocks' errors, which are 1 ms each, and not before.
    let free = |boot_ms| store::free(&*store, code, &now(boot_ms), 78).unwrap();
    assert!(free(11_102).is_err());
    assert!(store::gc(&*store, &now(11_102), &mut || 79).unwrap().is_empty());
    assert_eq!(store::gc(&*store, &now(11_103), &mut || 79).unwrap(), [code]);
    let record = store.read(code).unwrap().record;
    assert_eq!((record.state, record.end_ms), (State::Free, end_ms));
}

fn recovery_ends_grants(make: &Make<'_>) {
    let store = make(&cluster());
    let mut worker = Worker::new("a", 1);
    worker.step(&*store, Event::Time);
    let before = worker.keeper.take_grant(worker.boot_ms).unwrap();
    let recovered = store::recover(&*store, T, 1_000, &now(1_100)).unwrap().unwrap();
    assert_eq!((recovered.generation, recovered.not_before_ms), (2, T + 2_100));
    let notices = worker.wake(&*store);
    let loss = Loss::Store(StoreError::WrongGeneration { stored: 2, granted: 1 });
    assert!(notices.contains(&Notice::Lost { ticket: before.ticket(), loss }), "{notices:?}");
    // Nothing is granted before the clock is past what the operator vouched for.
    let after = loop {
        worker.wake(&*store);
        if let Some(grant) = worker.keeper.take_grant(worker.boot_ms) {
            break grant;
        }
        assert!(worker.boot_ms < 10_000);
    };
    assert!(now(worker.boot_ms).wall_ms > T + 2_100 && after.floor_ms() >= T + 2_100);
    assert_ne!(after.ticket(), before.ticket());
}

fn alone_counts_as_expiry(make: &Make<'_>) {
    let store = make(&cluster());
    for seed in 0..8 {
        Worker::new("gone", seed).step(&*store, Event::Time);
    }
    let ends: Vec<_> = store.scan().unwrap().iter().map(|(_, stored)| stored.record.end_ms).collect();
    let mut nonce = 1 << 100;
    let mut draw = || {
        nonce += 1;
        nonce
    };
    assert_eq!(store::expire_all(&*store, &now(5_000), 0, &mut draw).unwrap(), 8);
    assert_eq!(store::expire_all(&*store, &now(5_000), 0, &mut draw).unwrap(), 0);
    for ((_, stored), end_ms) in store.scan().unwrap().iter().zip(ends) {
        assert_eq!((stored.record.state, stored.record.end_ms), (State::Expired, end_ms));
        let cluster = store.cluster().unwrap().record;
        let owner = Owner::new("next").unwrap();
        let bid = protocol::Bid { owner: &owner, window_ms: 1_000, lead_ms: 0 };
        let next = protocol::acquire(&stored.record, &cluster, &bid, &now(5_000), 1).unwrap();
        assert!(next.floor_ms >= end_ms);
    }
}

fn cutover_is_carried_out(make: &Make<'_>) {
    let store = make(&cluster());
    let mut old = Worker::new("old", 1);
    old.step(&*store, Event::Time);
    let ticket = old.keeper.take_grant(old.boot_ms).unwrap().ticket();
    // Twice as many workers; what lies below the timestamp is as wide as before.
    let next: Layout =
        "reserved:1 timestamp:41 region:2 worker:4 sequence:16 epoch-ms:1735689600000 tick-ns:1000000"
            .parse()
            .unwrap();
    // Within the window that the old worker was granted: it may stamp up to T + 2,000.
    let planned = store::plan_cutover(&*store, &next, T + 1_500, &now(1_100)).unwrap().unwrap();
    assert_eq!(planned.cutover_last_ms, Some(T + 1_499));
    let scanned = store::scan_cutover(&*store, &next).unwrap().unwrap();
    assert_eq!(scanned.cutover_last_ms, Some(T + 2_000));
    // It knows of the plan now, and is confirmed no more than that.
    for _ in 0..2 {
        old.wake(&*store);
        assert_eq!(old.keeper.view().unwrap().end_ms, T + 2_000);
    }
    let early = store::open_cutover(&*store, &next, &now(2_000)).unwrap();
    assert_eq!(early, Err(crate::CutoverRefusal::NotYet { last_ms: T + 2_000, wait_ms: 1 }));
    let opened = store::open_cutover(&*store, &next, &now(2_001)).unwrap().unwrap();
    assert_eq!((opened.layout, opened.cutover_last_ms, opened.not_before_ms), (next, None, T + 2_000));
    assert_eq!(opened.former, [crate::FormerLayout { layout: cluster().layout, last_ms: T + 2_000 }]);
    assert_eq!(store.cluster().unwrap().record, opened);
    let codes = scan_complete(&*store, &opened).unwrap();
    assert_eq!(codes.len(), 16);
    assert!(codes.iter().skip(8).all(|(_, stored)| stored.record == CodeRecord::UNUSED));
    // The old worker finds out, and a new one begins above.
    let notices = old.wake(&*store);
    let is_lost = |notice: &Notice| {
        matches!(notice, Notice::Lost { loss: Loss::Store(StoreError::WrongLayout { .. }), .. })
    };
    assert!(notices.iter().any(is_lost), "{notices:?}");
    assert_eq!(old.keeper.ceiling_ms(ticket, old.boot_ms), 0);
    let config = KeeperConfig::embedded(next, 1, Owner::new("new").unwrap());
    let mut new = Worker { keeper: Keeper::new(config).unwrap(), boot_ms: 2_002, nonce: 9 << 64 };
    new.step(&*store, Event::Time);
    assert!(new.keeper.take_grant(new.boot_ms).unwrap().floor_ms() >= T + 2_000);
    // Each act once more changes nothing.
    let before = store.cluster().unwrap();
    assert_eq!(store::plan_cutover(&*store, &next, T + 1_500, &now(3_000)).unwrap().unwrap(), opened);
    assert_eq!(store::scan_cutover(&*store, &next).unwrap().unwrap(), opened);
    assert_eq!(store::open_cutover(&*store, &next, &now(3_000)).unwrap().unwrap(), opened);
    assert_eq!(store.cluster().unwrap(), before);
}

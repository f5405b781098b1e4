//! Several workers as one, over a real store.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use snowmint::{Clock, Engine, Ids, Pool, SystemClock, Worker, WorkerConfig, WorkerError, fresh_nonce};
use snowmint_core::{Id, Layout, Policy, Refusal};
use snowmint_lease::{ClusterRecord, KeeperConfig, Now, Owner};
use snowmint_lease_redb::RedbStore;

/// The machine's clocks, of which the wall clock stands still while `frozen_ms` is set.
struct Freezable {
    frozen_ms: AtomicU64,
}

impl Freezable {
    fn new() -> Arc<Self> {
        Arc::new(Self { frozen_ms: AtomicU64::new(0) })
    }

    fn freeze(&self) {
        self.frozen_ms.store(SystemClock::new(0).now_ms(), Ordering::SeqCst);
    }
}

impl Clock for Freezable {
    fn now_ms(&self) -> u64 {
        match self.frozen_ms.load(Ordering::SeqCst) {
            0 => SystemClock::new(0).now_ms(),
            frozen_ms => frozen_ms,
        }
    }

    fn error_bound_ms(&self) -> u32 {
        0
    }

    fn boot_ms(&self) -> u64 {
        SystemClock::new(0).boot_ms()
    }

    fn pause(&self, _until_ms: u64, at_most: Duration) {
        std::thread::sleep(at_most);
    }
}

fn pool(directory: &std::path::Path, clock: &Arc<Freezable>, workers: u32, policy: Policy) -> Pool {
    let layout = Layout::SNOWMINT;
    let store = RedbStore::init(directory, &ClusterRecord::new(1, layout, 0).unwrap()).unwrap();
    let now = Now { boot_ms: clock.boot_ms(), wall_ms: clock.now_ms(), clock_error_ms: 0 };
    store.take_over(&now, 0, &mut fresh_nonce).unwrap();
    let (store, engine) = (Arc::new(store), Engine::new(None).unwrap());
    let workers = (0..workers).map(|nth| {
        let config = WorkerConfig {
            lease: KeeperConfig::embedded(layout, 0, Owner::new(format!("worker {nth}")).unwrap()),
            policy,
            acquire_wait_max: Duration::from_secs(10),
        };
        let store = Box::new(Arc::clone(&store));
        Worker::start(&engine, store, Arc::clone(clock) as Arc<dyn Clock>, config, Box::new(|_| {})).unwrap()
    });
    Pool::new(workers.collect()).unwrap()
}

/// A burst fills one worker's tick after another's before anything is refused, and what is refused is a full tick.
#[test]
fn a_burst_goes_on_with_the_next_worker() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Freezable::new();
    let pool = pool(directory.path(), &clock, 3, Policy::CLASSIC);
    clock.freeze();
    let taken = pool.try_mint_all(20_000, None);
    assert_eq!(taken.count, 3 * 4_096);
    assert_eq!(taken.error.unwrap().refusal(), Some(Refusal::Exhausted { wait_ms: 1 }));
    let ids: HashSet<_> = taken.runs.into_iter().flatten().collect();
    assert_eq!(ids.len(), 3 * 4_096);
    let codes: HashSet<_> = ids.iter().map(|id| (id.get() >> 12) & 0xff).collect();
    assert_eq!(codes.len(), 3);

    // A bounded wait for a tick that does not come.
    let started = Instant::now();
    let error = pool.mint(1, None, Duration::from_millis(5)).unwrap_err();
    assert_eq!(error.refusal(), Some(Refusal::Exhausted { wait_ms: 1 }));
    assert!(started.elapsed() >= Duration::from_millis(4));
    assert_eq!(pool.stop().0, 3, "every code is given back");
}

/// Every ID that is asked for after another one is greater, whichever worker gives it.
#[test]
fn what_is_minted_after_an_id_is_greater_on_every_worker() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Freezable::new();
    let pool = pool(directory.path(), &clock, 4, Policy::CLASSIC);
    let mut last = Id::new(0);
    for _ in 0..200 {
        let run = pool.mint(3, Some(last), Duration::from_secs(1)).unwrap();
        assert!(run.first() > last, "{:?} after {last}", run.first());
        last = run.into_iter().max().unwrap();
    }
    let ahead = Id::new(last.get() + (60_000 << 22));
    let error = pool.mint(1, Some(ahead), Duration::from_millis(5)).unwrap_err();
    assert!(matches!(error, WorkerError::Observe(_)), "a minute ahead: {error}");
    // And nobody else's minting is stopped by what a caller sends.
    assert!(pool.mint(1, None, Duration::from_secs(1)).is_ok());
}

/// Handles of threads share a pool: all IDs differ.
#[test]
fn handles_share_a_pool() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Freezable::new();
    let pool = Arc::new(pool(directory.path(), &clock, 2, Policy::CLASSIC));
    let mut all = HashSet::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let mut ids = Ids::new(Arc::clone(&pool));
                scope.spawn(move || (0..20_000).map(|_| ids.next_id().unwrap()).collect::<Vec<_>>())
            })
            .collect();
        for thread in threads {
            for id in thread.join().unwrap() {
                assert!(all.insert(id), "{id} twice");
            }
        }
    });
    assert_eq!(all.len(), 60_000);
}

/// A worker that has no code yet refuses, and mints as soon as it has one; a pool goes on with those that have.
#[test]
fn a_worker_without_a_code_is_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    // One code, and two workers that want it.
    let layout: Layout =
        "reserved:1 timestamp:41 sequence:22 epoch-ms:1735689600000 tick-ns:1000000".parse().unwrap();
    let store =
        Arc::new(RedbStore::init(directory.path(), &ClusterRecord::new(1, layout, 0).unwrap()).unwrap());
    let engine = Engine::new(None).unwrap();
    let spawn = |name: &str| {
        let config = WorkerConfig {
            lease: KeeperConfig::embedded(layout, 0, Owner::new(name).unwrap()),
            policy: Policy::CLASSIC,
            acquire_wait_max: Duration::ZERO,
        };
        let clock = Arc::new(SystemClock::new(0));
        Worker::spawn(&engine, Box::new(Arc::clone(&store)), clock, config, Box::new(|_| {})).unwrap()
    };
    let first = spawn("first");
    let until = Instant::now() + Duration::from_secs(10);
    while first.try_mint(1).is_err() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(5));
    }
    let second = spawn("second");
    assert_eq!(second.try_mint(1).unwrap_err().refusal(), Some(Refusal::LeaseLost));
    let pool = Pool::new(vec![second, first]).unwrap();
    for _ in 0..10 {
        assert!(pool.mint(1, None, Duration::from_millis(50)).is_ok());
    }
    // The one that holds the code gives it back: the other takes it.
    assert!(pool.workers()[1].stop().unwrap());
    assert!(pool.mint(1, None, Duration::from_secs(10)).is_ok());
}

//! What a fleet costs: codes, over thousands of starts, crashes and wrong clocks; and etcd, its writes and its space.
//!
//! Each has a short form, and a long one by `SNOWMINT_TEST_LONG`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

#[allow(unused_imports)] // Each test uses a part of it.
mod fleet;

use std::collections::HashSet;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fleet::etcd::{Cluster, layout};
use fleet::{Fleet, SLACK, boot_ms, child, now, wait_until, wall_ms};
use snowmint::{Clock, Engine, SystemClock, Worker, WorkerConfig, WorkerError, fresh_nonce};
use snowmint_core::{Id, Layout, Policy};
use snowmint_lease::graveyard::{Left, Reuse};
use snowmint_lease::store::scan_complete;
use snowmint_lease::{
    ClusterRecord, CodeRecord, Event, Hindrance, Keeper, KeeperConfig, Notice, Owner, Revision, Store,
    StoreError, Stored,
};
use snowmint_lease_etcd::{EtcdConfig, EtcdStore};

fn is_long() -> bool {
    std::env::var_os("SNOWMINT_TEST_LONG").is_some()
}

/// A region with a store, and an operator's view of it.
struct Region {
    config: EtcdConfig,
    cluster: ClusterRecord,
    store: EtcdStore,
}

impl Region {
    /// Founds a store with this many bits of codes.
    fn found(etcd: &Cluster, worker_bits: u32) -> Self {
        let times = EtcdConfig::new(Vec::new(), 0);
        let config = EtcdConfig {
            request_ms_max: times.request_ms_max,
            call_ms_max: times.call_ms_max,
            ..etcd.config(0)
        };
        let cluster = ClusterRecord::new(fresh_nonce(), layout(worker_bits), 0).unwrap();
        let store = EtcdStore::connect(config.clone()).unwrap();
        snowmint_lease::init(&store, &cluster).unwrap();
        Self { config, cluster, store }
    }

    fn keeper_config(&self, owner: &str, window_ms: u32) -> KeeperConfig {
        KeeperConfig { window_ms, ..KeeperConfig::fleet(self.cluster.layout, 0, Owner::new(owner).unwrap()) }
    }

    /// A worker with a connection of its own.
    fn worker(
        &self,
        engine: &Engine,
        clock: Arc<dyn Clock>,
        lease: KeeperConfig,
    ) -> Result<Worker, WorkerError> {
        let config =
            WorkerConfig { lease, policy: Policy::CLASSIC, acquire_wait_max: Duration::from_mins(1) };
        let store = Box::new(EtcdStore::connect(self.config.clone()).unwrap());
        Worker::start(engine, store, clock, config, Box::new(|_| {}))
    }

    fn codes(&self) -> Vec<(u32, Stored<CodeRecord>)> {
        scan_complete(&self.store, &self.cluster).unwrap()
    }

    /// What the graveyard says is left.
    fn left(&self) -> Left {
        left(&self.codes(), &self.cluster)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_snowmint"));
        command
            .args(line.split(' '))
            .args(["--store", &format!("etcd:{}", self.config.endpoints.join(",")), "--region", "0"])
            .args(["--etcd-prefix", &self.config.prefix]);
        command
    }
}

fn left(codes: &[(u32, Stored<CodeRecord>)], cluster: &ClusterRecord) -> Left {
    let now = now();
    Left::count(codes.iter().map(|(_, stored)| Reuse::of(&stored.record, cluster, &now)))
}

fn engine() -> Engine {
    Engine::new(Some(child::cache_dir())).unwrap()
}

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[times.len() / 2]
}

/// F4: thousands of starts and stops take one term each and no code for good; at each step the count of what is left is
/// true; and the last start mints as soon as the first.
#[test]
fn f4_starts_and_stops_use_up_no_code() {
    const AT_ONCE: usize = 3;
    let cycles = if is_long() { 5_000 } else { 240 };
    let Some(etcd) = Cluster::start(3) else { return };
    let region = Region::found(&etcd, 8);
    let (engine, started) = (engine(), Instant::now());
    let clock = Arc::new(SystemClock::new(1));
    let (mut seen, mut first_ids) = (HashSet::new(), Vec::new());
    for _ in 0..usize::div_ceil(cycles, AT_ONCE) {
        let begin = || {
            let begun = Instant::now();
            let worker = region.worker(&engine, clock.clone(), region.keeper_config("f4", 10_000)).unwrap();
            let run = worker.mint(10).unwrap();
            (worker, run, begun.elapsed())
        };
        let workers: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(begin)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let left = region.left();
        assert_eq!((left.held, left.never, left.now + left.later), (3, 0, 253), "{left:?}");
        std::thread::scope(|scope| {
            for (worker, run, took) in workers {
                for id in run {
                    assert!(seen.insert(id), "{id} twice");
                }
                first_ids.push(took);
                scope.spawn(move || assert!(worker.stop().unwrap()));
            }
        });
        let left = region.left();
        assert_eq!((left.held, left.never, left.now + left.later), (0, 0, 256), "{left:?}");
        assert!(
            left.later <= 3 && left.next_wait_ms.unwrap_or(0) <= 1,
            "a stop gives back at once: {left:?}"
        );
    }
    let codes = region.codes();
    let terms: usize = codes.iter().map(|(_, stored)| stored.record.term as usize).sum();
    let used = codes.iter().filter(|(_, stored)| stored.record.term > 0).count();
    let tenth = first_ids.len() / 10;
    let (first, last) = (median(&first_ids[..tenth]), median(&first_ids[first_ids.len() - tenth..]));
    println!(
        "{} starts in {:?} used {used} of 256 codes; to the first ID, the first tenth took {first:?} and the last {last:?}",
        first_ids.len(),
        started.elapsed(),
    );
    assert_eq!(terms, first_ids.len(), "each start took one term");
    assert!(last <= first * 2 + Duration::from_millis(100), "a start takes ever longer");
}

/// F4: processes that are killed and started again, more often than there are codes: each mints, within the time to live
/// of a lease where all codes are held by the dead; what is held is counted as held; no ID comes twice.
#[test]
fn f4_kills_use_up_no_code() {
    const WINDOW_MS: u32 = 1_000;
    let (kills, worker_bits) = if is_long() { (300, 8) } else { (20, 4) };
    let codes = 1 << worker_bits;
    let Some(mut fleet) = Fleet::start(3, worker_bits, WINDOW_MS) else { return };
    let cluster = fleet.store().cluster().unwrap().record;
    let (mut while_free, mut while_held) = (Vec::new(), Vec::new());
    for started in (0..kills).step_by(2) {
        let begun = Instant::now();
        let pair = [0, 1].map(|at| fleet.spawn(&fleet.orders(&format!("life-{}", started + at))));
        for at in pair {
            fleet.wait_minted(at);
        }
        let all_held = started + 2 > codes;
        if all_held { &mut while_held } else { &mut while_free }.push(begun.elapsed());
        let left = left(&fleet.records(), &cluster);
        let held = codes.min(started + 2);
        assert_eq!((left.held, left.now + left.later, left.never), (held, codes - held, 0), "{left:?}");
        for at in pair {
            fleet.kill(at);
        }
    }
    let worst = while_held.iter().max().unwrap();
    println!(
        "{kills} kills, {codes} codes; a pair of processes minted after {:?} while codes were free, after {:?} ({worst:?} at \
         worst) while the dead held all",
        median(&while_free),
        median(&while_held),
    );
    // Starting the process, and a poll or two to each side of the time to live.
    assert!(*worst <= fleet.ttl() + fleet.window() + 2 * SLACK);
    fleet.finish();
}

/// 256 workers crash; whoever comes then asks for a quarantine of 24 h. The 257th start is refused, and told when the next
/// code is free: by the library, by the command, and by the list.
#[test]
fn a_quarantine_that_has_all_codes_says_when_the_next_is_free() {
    const THREADS: usize = 16;
    const DAY_MS: u64 = 24 * 3_600_000;
    let Some(etcd) = Cluster::start(3) else { return };
    let region = Region::found(&etcd, 8);
    let started = Instant::now();
    let taken = Mutex::new(HashSet::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (region, taken) = (&region, &taken);
            scope.spawn(move || {
                for at in 0..256 / THREADS {
                    let config = region.keeper_config(&format!("crashed-{thread}-{at}"), 1_000);
                    let mut keeper = Keeper::new(config).unwrap();
                    // It is dropped without a word as soon as it has a grant.
                    let code = loop {
                        let step = step(&mut keeper, &region.store);
                        if let Some(grant) = keeper.take_grant(boot_ms()) {
                            break grant.node().worker();
                        }
                        sleep_until(step.next_wake_boot_ms);
                    };
                    assert!(taken.lock().unwrap().insert(code));
                }
            });
        }
    });
    println!("256 codes taken in {:?}", started.elapsed());
    assert_eq!(region.left(), Left { held: 256, ..Left::default() });

    let lease = KeeperConfig { quarantine_ms: DAY_MS, ..region.keeper_config("the 257th", 1_000) };
    let started = Instant::now();
    let error = region.worker(&engine(), Arc::new(SystemClock::new(1)), lease).unwrap_err();
    println!("after {:?}: {error}", started.elapsed());
    let WorkerError::NoGrant(Hindrance::NoneLeft(none)) = &error else { panic!("{error}") };
    let is_a_day = |wait_ms: u64| (DAY_MS - 60_000..=DAY_MS + 10).contains(&wait_ms);
    assert!((none.codes, none.active) == (256, 0) && is_a_day(none.wait_ms.unwrap()), "{none:?}");
    let tells_a_day = |text: &str| {
        ["the next one can in 23 h 5", "the next one can in 1 d 0 h"].iter().any(|it| text.contains(it))
    };
    assert!(tells_a_day(&error.to_string()), "{error}");
    let left = region.left();
    assert!(left.later == 256 && left.next_wait_ms.is_some_and(is_a_day), "{left:?}");

    let output = region.command("mint --clock assume:1").output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]), "{told}");
    assert!(tells_a_day(&told), "{told}");
    let output = region.command("lease list").output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    let sum = table.lines().last().unwrap();
    println!("{sum}");
    assert!(
        sum.starts_with("0 of 256 codes can be taken now; 0 are held; 256 can be later, the first in 23h 5")
    );
}

fn step(keeper: &mut Keeper, store: &dyn Store) -> snowmint_lease::Step {
    snowmint_lease::step(keeper, Event::Time, store, &mut now, &mut fresh_nonce)
}

fn sleep_until(wake_boot_ms: u64) {
    std::thread::sleep(Duration::from_millis(wake_boot_ms.saturating_sub(boot_ms()).min(1_000)));
}

/// The leases of 200 workers at the default window cost etcd at most 100 writes a second: its own revision is the count.
/// In real time, so that everybody holds from first to last.
#[test]
fn two_hundred_workers_write_at_most_a_hundred_times_a_second() {
    const WORKERS: usize = 200;
    const THREADS: usize = 8;
    let seconds = if is_long() { 120 } else { 12 };
    let Some(etcd) = Cluster::start(3) else { return };
    let region = Region::found(&etcd, 8);
    let stores: Vec<_> = (0..4).map(|_| EtcdStore::connect(region.config.clone()).unwrap()).collect();
    let (is_over, held, lapses) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (region, is_over, held, lapses) = (&region, &is_over, &held, &lapses);
            let store = &stores[thread % stores.len()];
            scope.spawn(move || {
                let new =
                    |at| Keeper::new(region.keeper_config(&format!("worker-{thread}-{at}"), 10_000)).unwrap();
                let mut keepers: Vec<_> = (0..WORKERS / THREADS).map(new).collect();
                while !is_over.load(Ordering::Relaxed) {
                    let next = keepers.iter_mut().min_by_key(|keeper| keeper.next_wake_boot_ms()).unwrap();
                    if next.next_wake_boot_ms() > boot_ms() {
                        std::thread::sleep(Duration::from_millis(2));
                        continue;
                    }
                    for notice in step(next, store).notices {
                        match notice {
                            Notice::Granted { .. } => drop(held.fetch_add(1, Ordering::Relaxed)),
                            Notice::Lapsed { .. } | Notice::Lost { .. } => {
                                lapses.fetch_add(1, Ordering::Relaxed);
                            }
                            _ => {}
                        }
                    }
                }
            });
        }
        wait_until("200 keepers hold a code each", || held.load(Ordering::Relaxed) == 200);
        let revision = etcd.revision();
        std::thread::sleep(Duration::from_secs(seconds));
        let writes = u64::try_from(etcd.revision() - revision).unwrap();
        is_over.store(true, Ordering::Relaxed);
        println!("{WORKERS} workers: {writes} writes in {seconds} s: {} a second", writes.div_ceil(seconds));
        assert!(writes <= 100 * seconds);
        // Each renews every third of its window, and none of them is missed.
        assert!(writes >= 200 * (seconds * 1_000 / 3_333) * 95 / 100, "{writes} are too few to hold by");
    });
    assert_eq!((held.into_inner(), lapses.into_inner()), (200, 0));
}

/// A day of 200 workers is 5.2 million renewals. With etcd's own compaction its file stops growing, far below the quota:
/// shown by renewals as fast as they go, as real records, and reckoned for the compaction by revision, which keeps 1,000
/// and runs every five minutes.
#[test]
fn compaction_keeps_a_day_of_renewals_below_the_quota() {
    const QUOTA_MB: u64 = 2 << 10;
    const DAY_SWAPS: u64 = 200 * 86_400 * 3 / 10;
    /// 200 workers, every third of 10 s, for five minutes; and what is kept.
    const KEPT_SWAPS: u64 = 200 * 300 * 3 / 10 + 1_000;
    const THREADS: usize = 8;
    let swaps = if is_long() { 500_000 } else { 12_000 };
    // Etcd looks at compaction by revision every five minutes only; by time it can be watched.
    let args = ["--auto-compaction-mode=periodic", "--auto-compaction-retention=1s"].map(String::from);
    let Some(etcd) = Cluster::start_with(3, "http", &args) else { return };
    (0..3).for_each(|at| etcd.wait_for(at));
    let region = Region::found(&etcd, 8);
    let cluster = region.store.cluster().unwrap().revision;
    let done = AtomicU64::new(0);
    let size = || u64::try_from(etcd.admin(0, async |client| client.status().await).db_size()).unwrap();
    let (begin_bytes, started) = (size(), Instant::now());
    let mut sizes = Vec::new();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (region, done) = (&region, &done);
            scope.spawn(move || {
                let store = EtcdStore::connect(region.config.clone()).unwrap();
                let owner = Owner::new(format!("mint-{thread}.example.net/12345")).unwrap();
                let codes = (0..25).map(|at| u32::try_from(thread * 25 + at).unwrap());
                let mut held: Vec<_> = codes.map(|code| (code, store.read(code).unwrap().revision)).collect();
                while done.load(Ordering::Relaxed) < swaps {
                    for (code, revision) in &mut held {
                        *revision = renew(&store, *code, *revision, cluster, &owner);
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        while done.load(Ordering::Relaxed) < swaps {
            sizes.push((done.load(Ordering::Relaxed), size()));
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let took = started.elapsed();
    // The largest that the file was in each third, and how fast it grew at first.
    let third = |nth: u64| {
        let is_in = |&&(at, _): &&(u64, u64)| at >= swaps * nth / 3 && at < swaps * (nth + 1) / 3;
        sizes.iter().filter(is_in).map(|&(_, bytes)| bytes).max().unwrap()
    };
    let (second, last) = (third(1), third(2));
    // Little was compacted by then. Never less than a record, its key and what etcd needs beside them.
    let (at, bytes) = *sizes.iter().find(|(at, _)| *at >= 500).unwrap();
    let swap_bytes = ((bytes - begin_bytes) / at).max(250);
    let (day_mb, kept_mb) = ((DAY_SWAPS * swap_bytes) >> 20, (KEPT_SWAPS * swap_bytes) >> 20);
    println!(
        "{swaps} swaps in {took:?}: etcd's file had {} kB at first, at most {} kB in the second third and {} kB in the last; \
         about {swap_bytes} bytes a swap at first. A day of {DAY_SWAPS} swaps would need {day_mb} MB without compaction; by \
         revision etcd keeps {KEPT_SWAPS} at most, {kept_mb} MB of {QUOTA_MB}",
        begin_bytes >> 10,
        second >> 10,
        last >> 10,
    );
    assert!(last <= second * 5 / 4 && last < swaps * swap_bytes / 2, "the file goes on growing");
    assert!(kept_mb * 2 < QUOTA_MB / 10);
}

/// What a renewal writes. Etcd may be busy electing a leader; nobody else writes the record.
fn renew(store: &EtcdStore, code: u32, expected: Revision, cluster: Revision, owner: &Owner) -> Revision {
    let now = now();
    let record = CodeRecord {
        state: snowmint_lease::State::Active,
        term: 1,
        owner: Some(owner.clone()),
        floor_ms: now.wall_ms,
        end_ms: now.wall_ms + 10_000,
        stamp_ms: now.wall_ms,
        clock_error_ms: 1,
        ttl_ms: 15_000,
        nonce: fresh_nonce(),
        ..CodeRecord::UNUSED
    };
    match store.swap(code, expected, cluster, &record) {
        Ok(revision) => revision,
        Err(StoreError::Unreachable { .. } | StoreError::Conflict { .. }) => {
            store.read(code).unwrap().revision
        }
        Err(error) => panic!("{error}"),
    }
}

/// The machine's clock, set so many milliseconds ahead.
struct AheadClock {
    machine: SystemClock,
    ahead_ms: AtomicI64,
}

impl Clock for AheadClock {
    fn now_ms(&self) -> u64 {
        self.machine.now_ms().saturating_add_signed(self.ahead_ms.load(Ordering::SeqCst))
    }

    fn error_bound_ms(&self) -> u32 {
        self.machine.error_bound_ms()
    }

    fn boot_ms(&self) -> u64 {
        self.machine.boot_ms()
    }

    fn pause(&self, _until_ms: u64, at_most: Duration) {
        std::thread::sleep(at_most.min(Duration::from_millis(5)));
    }
}

/// F15, on a fleet: a worker's clock steps 8 h ahead while it mints, it is restarted three times under it, and it is set
/// right again. It spoils one code at most; it mints on with another; and the others never notice. There are two of them,
/// so that nobody can outvote it.
#[test]
fn f15_a_worker_8_h_ahead_spoils_one_code() {
    const AHEAD_MS: i64 = 8 * 3_600_000;
    const WINDOW_MS: u32 = 2_000;
    let Some(etcd) = Cluster::start(3) else { return };
    let region = Region::found(&etcd, 4);
    let engine = engine();
    let seen = Mutex::new(HashSet::new());
    let take = |worker: &Worker| -> Id {
        let until = Instant::now() + Duration::from_secs(20);
        let run = loop {
            match worker.mint(10) {
                Ok(run) => break run,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut seen = seen.lock().unwrap();
        let first = run.first();
        run.into_iter().for_each(|id| assert!(seen.insert(id), "{id} twice"));
        first
    };
    let clock = Arc::new(AheadClock { machine: SystemClock::new(1), ahead_ms: AtomicI64::new(0) });
    let start = || region.worker(&engine, clock.clone(), region.keeper_config("ahead", WINDOW_MS)).unwrap();
    let spoiled = || {
        let wall_ms = wall_ms() + 60_000;
        region.codes().iter().filter(|(_, stored)| stored.record.end_ms > wall_ms).count()
    };
    let is_ahead = |layout: &Layout, id: Id| layout.time_of(id).unix_ms() > wall_ms() + 60_000;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let others: Vec<_> = ["one", "two"]
            .map(|owner| {
                let (region, engine, is_over, take) = (&region, &engine, &is_over, &take);
                scope.spawn(move || {
                    let lease = region.keeper_config(owner, WINDOW_MS);
                    let worker = region.worker(engine, Arc::new(SystemClock::new(1)), lease).unwrap();
                    let (mut count, mut longest, mut last) = (0, Duration::ZERO, Instant::now());
                    while !is_over.load(Ordering::Relaxed) {
                        let id = take(&worker);
                        assert!(!is_ahead(worker.layout(), id));
                        longest = longest.max(last.elapsed());
                        (count, last) = (count + 1, Instant::now());
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    assert!(worker.stop().unwrap());
                    (count, longest)
                })
            })
            .into();
        let layout = &region.cluster.layout;
        let mut worker = start();
        assert!(!is_ahead(layout, take(&worker)));
        clock.ahead_ms.store(AHEAD_MS, Ordering::SeqCst);
        assert!(is_ahead(layout, take(&worker)));
        for restart in 1..=3 {
            assert!(worker.stop().unwrap());
            worker = start();
            assert!(is_ahead(layout, take(&worker)), "restart {restart}");
            assert_eq!(spoiled(), 1, "restart {restart}");
        }
        clock.ahead_ms.store(0, Ordering::SeqCst);
        // The one that runs gives its code back for another; and so does whoever starts.
        assert!(!is_ahead(layout, take(&worker)));
        assert!(worker.stop().unwrap());
        worker = start();
        assert!(!is_ahead(layout, take(&worker)));
        assert!(worker.stop().unwrap());
        is_over.store(true, Ordering::Relaxed);
        for other in others {
            let (count, longest) = other.join().unwrap();
            println!("another worker minted {count} times, and waited {longest:?} at most");
            assert!(longest < Duration::from_secs(3));
        }
    });
    let left = region.left();
    println!("{left:?}");
    assert!(spoiled() <= 1);
    assert_eq!((left.held, left.later.min(1), left.never), (0, 1, 0), "{left:?}");
}

//! Workers over a real store, by clocks that step: what is waited out, what is refused, what is never repeated.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use snowmint::{Clock, Engine, Ids, SystemClock, Worker, WorkerConfig, WorkerError, fresh_nonce};
use snowmint_core::{Field, Id, Layout, NS_PER_MS, Policy, Refusal, Role};
use snowmint_lease::{ClusterRecord, Hindrance, KeeperConfig, Loss, Notice, Now, Owner, Phase, Store};
use snowmint_lease_redb::RedbStore;

/// The machine's clock, set so many milliseconds ahead or back.
struct SteppedClock {
    machine: SystemClock,
    offset_ms: AtomicI64,
}

impl SteppedClock {
    fn new(offset_ms: i64) -> Arc<Self> {
        Arc::new(Self { machine: SystemClock::new(0), offset_ms: AtomicI64::new(offset_ms) })
    }

    fn step(&self, ms: i64) {
        self.offset_ms.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for SteppedClock {
    fn now_ms(&self) -> u64 {
        self.machine.now_ms().saturating_add_signed(self.offset_ms.load(Ordering::SeqCst))
    }

    fn error_bound_ms(&self) -> u32 {
        self.machine.error_bound_ms()
    }

    fn boot_ms(&self) -> u64 {
        self.machine.boot_ms()
    }

    fn pause(&self, until_ms: u64, at_most: Duration) {
        self.machine.pause(until_ms.saturating_add_signed(-self.offset_ms.load(Ordering::SeqCst)), at_most);
    }
}

/// A wall clock that stands where it was put. Pauses end when the test says so.
struct FrozenClock {
    now_ms: AtomicU64,
    paused: Sender<u64>,
    go_on: Mutex<Receiver<()>>,
}

impl Clock for FrozenClock {
    fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn error_bound_ms(&self) -> u32 {
        0
    }

    fn boot_ms(&self) -> u64 {
        SystemClock::new(0).boot_ms()
    }

    fn pause(&self, until_ms: u64, _at_most: Duration) {
        // Nobody listening, or nobody to say go on: a pause that ends at once.
        let _ = self.paused.send(until_ms);
        let _ = self.go_on.lock().unwrap().recv();
    }
}

fn open(directory: &Path, layout: Layout, clock: &dyn Clock) -> RedbStore {
    let store = match RedbStore::open(directory) {
        Ok(store) => store,
        Err(_) => RedbStore::init(directory, &ClusterRecord::new(1, layout, 0).unwrap()).unwrap(),
    };
    let now = Now { boot_ms: clock.boot_ms(), wall_ms: clock.now_ms(), clock_error_ms: 0 };
    store.take_over(&now, 0, &mut fresh_nonce).unwrap();
    store
}

fn config(layout: Layout, policy: Policy) -> WorkerConfig {
    let owner = Owner::new("test").unwrap();
    WorkerConfig {
        lease: KeeperConfig::embedded(layout, 0, owner),
        policy,
        acquire_wait_max: Duration::from_secs(10),
    }
}

fn start(directory: &Path, policy: Policy, clock: Arc<dyn Clock>) -> Worker {
    start_by(Layout::SNOWMINT, directory, policy, clock).unwrap()
}

fn start_by(
    layout: Layout,
    directory: &Path,
    policy: Policy,
    clock: Arc<dyn Clock>,
) -> Result<Worker, WorkerError> {
    let store = Box::new(open(directory, layout, &*clock));
    Worker::start(&Engine::new(None).unwrap(), store, clock, config(layout, policy), Box::new(|_| {}))
}

/// A layout with one worker code, so that a restart has to take the same one.
fn one_code() -> Layout {
    let fields =
        [Field::new(Role::Reserved, 1), Field::new(Role::Timestamp, 41), Field::new(Role::Sequence, 22)];
    Layout::new(&fields, Layout::SNOWMINT.epoch_unix_ms(), NS_PER_MS).unwrap()
}

/// A rollback within `wait_ms_max` is waited out by the host; beyond it is refused; and with a lead it is ridden out.
#[test]
fn rollbacks_are_waited_out_refused_or_ridden_out() {
    let directory = tempfile::tempdir().unwrap();
    let clock = SteppedClock::new(0);
    let worker = start(directory.path(), Policy::CLASSIC, clock.clone());
    let mut seen = HashSet::new();
    let mut last = None;
    let mut keep = |id: Id| {
        assert!(seen.insert(id), "{id} twice");
        assert!(last.replace(id) < Some(id), "order fell");
    };
    for back_ms in [1, 5] {
        worker.mint(100).unwrap().into_iter().for_each(&mut keep);
        clock.step(-back_ms);
        worker.mint(100).unwrap().into_iter().for_each(&mut keep);
    }
    for back_ms in [300, 900, 2_000] {
        worker.mint(100).unwrap().into_iter().for_each(&mut keep);
        clock.step(-back_ms);
        let refusal = worker.mint(1).unwrap_err().refusal().unwrap();
        let Refusal::ClockRolledBack { by_ms, .. } = refusal else { panic!("{refusal}") };
        // By as much as the clock went back, less what the test itself took.
        assert!((1..=u64::try_from(back_ms).unwrap()).contains(&by_ms), "{refusal}");
        clock.step(back_ms);
    }
    worker.mint(100).unwrap().into_iter().for_each(&mut keep);
    drop(worker);

    let directory = tempfile::tempdir().unwrap();
    let clock = SteppedClock::new(0);
    let worker = start(directory.path(), Policy::CLASSIC.with_lead_ms(1_000), clock.clone());
    let (mut seen, mut last) = (HashSet::new(), None);
    let mut keep = |id: Id| {
        assert!(seen.insert(id), "{id} twice");
        assert!(last.replace(id) < Some(id), "order fell");
    };
    worker.mint(100).unwrap().into_iter().for_each(&mut keep);
    for back_ms in [1, 5, 300, 600] {
        clock.step(-back_ms);
        worker.mint(100).unwrap().into_iter().for_each(&mut keep);
    }
    clock.step(-2_000);
    let refusal = worker.mint(1).unwrap_err().refusal().unwrap();
    assert!(matches!(refusal, Refusal::ClockRolledBack { .. }), "{refusal}");
}

/// A clock that steps back further than a fleet would wait for a crashed worker: the code is given back with the end that
/// it reached, another is taken, and what was observed before still lies below.
#[test]
fn a_worker_whose_ids_lie_far_ahead_takes_another_code() {
    let directory = tempfile::tempdir().unwrap();
    let clock = SteppedClock::new(0);
    let worker = start(directory.path(), Policy::CLASSIC, clock.clone());
    let before: Vec<_> = worker.mint(100).unwrap().into_iter().collect();
    let code_of = |id: Id| (id.get() >> 12) & 0xff;
    clock.step(-3_600_000);
    assert!(matches!(worker.mint(1).unwrap_err().refusal(), Some(Refusal::ClockRolledBack { .. })));
    let after = mint_within(&worker, Duration::from_secs(10));
    assert_ne!(code_of(before[0]), code_of(after), "the code whose IDs lie ahead is left alone");
    assert!(after < before[0]);

    // What was observed binds the next instance too, here until the clock is past it.
    clock.step(3_600_000);
    let observed = mint_within(&worker, Duration::from_secs(10));
    worker.observe(observed).unwrap();
    clock.step(-7_200_000);
    for _ in 0..50 {
        let refusal = worker.mint(1).unwrap_err().refusal().unwrap();
        assert!(
            matches!(
                refusal,
                Refusal::ClockRolledBack { .. } | Refusal::BelowFloor { .. } | Refusal::LeaseLost
            ),
            "{refusal} below an ID that was observed"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    clock.step(7_200_000);
    assert!(mint_within(&worker, Duration::from_secs(10)) > observed);
    drop(worker);

    let store = RedbStore::open(directory.path()).unwrap();
    let now_ms = clock.now_ms();
    for (code, stored) in store.scan().unwrap() {
        assert!(stored.record.end_ms <= now_ms, "code {code} is spoiled up to {}", stored.record.end_ms);
    }
}

/// The next ID, as soon as there is one.
fn mint_within(worker: &Worker, at_most: Duration) -> Id {
    let until = std::time::Instant::now() + at_most;
    loop {
        match worker.mint(1) {
            Ok(run) => return run.first(),
            Err(error) => assert!(std::time::Instant::now() < until, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// F10: under a frozen clock the 4,097th ID is a time-out after a bounded wait, not an endless loop.
#[test]
fn f10_a_frozen_clock_is_a_bounded_wait() {
    let directory = tempfile::tempdir().unwrap();
    let (paused, _) = channel();
    let (_, go_on) = channel();
    let now_ms = AtomicU64::new(SystemClock::new(0).now_ms());
    let clock = Arc::new(FrozenClock { now_ms, paused, go_on: Mutex::new(go_on) });
    let worker = start(directory.path(), Policy::CLASSIC, clock);
    let mut count = 0;
    let refusal = loop {
        match worker.mint(100) {
            Ok(run) => count += run.count(),
            Err(error) => break error.refusal().unwrap(),
        }
    };
    assert_eq!((count, refusal), (4_096, Refusal::Exhausted { wait_ms: 1 }));
}

/// No lock is held during a wait: while one thread waits out a rollback, another mints.
#[test]
fn a_wait_holds_no_lock() {
    let directory = tempfile::tempdir().unwrap();
    let (paused, is_paused) = channel();
    let (go, go_on) = channel();
    let start_ms = SystemClock::new(0).now_ms();
    let clock = Arc::new(FrozenClock { now_ms: AtomicU64::new(start_ms), paused, go_on: Mutex::new(go_on) });
    let policy = Policy { wait_ms_max: 60_000, ..Policy::CLASSIC };
    let worker = start(directory.path(), policy, clock.clone());
    worker.mint(1).unwrap();
    clock.now_ms.store(start_ms - 5, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| worker.mint(1).unwrap().first());
        assert_eq!(is_paused.recv().unwrap(), start_ms, "the wait is until the clock is where it was");
        // The first is still waiting; the clock is set right, and a second thread mints meanwhile.
        clock.now_ms.store(start_ms, Ordering::SeqCst);
        let second = worker.mint(1).unwrap().first();
        assert_eq!(worker.standing().phase, Phase::Held);
        go.send(()).unwrap();
        assert!(waiting.join().unwrap() > second);
    });
}

/// F2: killed with `kill -9`, restarted with the wall clock 1 s and 1 h behind: no ID twice, whether a code is left
/// that can mint or not.
#[test]
fn f2_a_restart_after_a_crash_under_a_clock_that_is_behind() {
    for (layout, is_alone) in [(Layout::SNOWMINT, false), (one_code(), true)] {
        for back_ms in [1_000, 3_600_000] {
            let directory = tempfile::tempdir().unwrap();
            let mut seen = crashed_child(directory.path(), layout);
            assert!(!seen.is_empty());
            let clock = SteppedClock::new(-back_ms);
            match start_by(layout, directory.path(), Policy::CLASSIC, clock.clone()) {
                Ok(worker) => {
                    // With other codes about, one is taken that was never minted by.
                    assert!(!is_alone || back_ms == 1_000);
                    for id in worker.mint(1_000).unwrap() {
                        assert!(seen.insert(id), "{id} twice");
                    }
                }
                Err(WorkerError::NoGrant(Hindrance::NoneLeft(none))) => {
                    assert!(is_alone, "{none}");
                    assert!(none.wait_ms.is_some_and(|wait_ms| wait_ms > 0), "{none}");
                }
                Err(error) => panic!("{error}"),
            }
            // With the clock set right, and the old window over, everything mints.
            clock.step(back_ms);
            let worker = start_by(layout, directory.path(), Policy::CLASSIC, clock).unwrap();
            for id in worker.mint(1_000).unwrap() {
                assert!(seen.insert(id), "{id} twice");
            }
        }
    }
}

/// Runs this test binary as a process that mints until it is killed, and returns what it minted.
fn crashed_child(directory: &Path, layout: Layout) -> HashSet<Id> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_mints_until_it_is_killed", "--nocapture"])
        .env(CHILD_DIRECTORY, directory)
        .env(CHILD_LAYOUT, layout.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut seen = HashSet::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let Some(id) = line.strip_prefix("id ") else { continue };
        assert!(seen.insert(Id::new(id.parse().unwrap())));
        if seen.len() == 20_000 {
            // `kill` on Unix is SIGKILL.
            child.kill().unwrap();
        }
    }
    assert!(!child.wait().unwrap().success());
    seen
}

const CHILD_DIRECTORY: &str = "SNOWMINT_TEST_CHILD_DIRECTORY";
const CHILD_LAYOUT: &str = "SNOWMINT_TEST_CHILD_LAYOUT";

/// Not a test of its own: the process that [`crashed_child`] starts and kills. Alone it has nothing to do.
#[test]
fn child_mints_until_it_is_killed() {
    let Ok(directory) = std::env::var(CHILD_DIRECTORY) else { return };
    let layout = std::env::var(CHILD_LAYOUT).unwrap().parse().unwrap();
    let clock = Arc::new(SystemClock::new(0));
    let worker = start_by(layout, Path::new(&directory), Policy::CLASSIC, clock).unwrap();
    loop {
        for id in worker.mint(100).unwrap() {
            println!("id {id}");
        }
    }
}

/// A stop gives the code back at once, for the very next millisecond; what is stopped stays so.
#[test]
fn a_stop_gives_the_code_back() {
    let directory = tempfile::tempdir().unwrap();
    let clock = SteppedClock::new(0);
    let mut seen = HashSet::new();
    for term in 1..=20 {
        let worker = start_by(one_code(), directory.path(), Policy::CLASSIC, clock.clone()).unwrap();
        let view = worker.standing().view.unwrap();
        assert_eq!((view.code, view.term), (0, term));
        assert!(worker.mint(10).unwrap().into_iter().all(|id| seen.insert(id)));
        assert!(worker.stop().unwrap());
        assert!(worker.stop().unwrap(), "stopping twice is stopping once");
        assert_eq!(worker.mint(1).unwrap_err().refusal(), Some(Refusal::Stopped));
        assert!(worker.observe(Id::new(1)).is_err());
        drop(worker);
        let record = RedbStore::open(directory.path()).unwrap().read(0).unwrap().record;
        assert!(record.end_ms <= clock.now_ms(), "the end is what was reserved, not the window's");
    }
}

/// Four threads with handles of their own on one worker: every ID once, ascending for each handle, none stale.
#[test]
fn handles_of_one_worker_share_it() {
    let directory = tempfile::tempdir().unwrap();
    let worker = Arc::new(start(directory.path(), Policy::CLASSIC, SteppedClock::new(0)));
    let ids = Ids::new(Arc::clone(&worker));
    let all: Vec<Id> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let mut ids = ids.clone();
                scope.spawn(move || {
                    let mut own = Vec::new();
                    while own.len() < 50_000 {
                        match ids.next_id() {
                            Ok(id) => own.push(id),
                            // Four threads on fewer cores may wait out more than a tick; asking again is theirs.
                            Err(error) => {
                                assert!(
                                    matches!(error.refusal(), Some(Refusal::Exhausted { .. })),
                                    "{error}"
                                );
                            }
                        }
                    }
                    assert!(own.windows(2).all(|pair| pair[0] < pair[1]));
                    own
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), 200_000);
}

/// The lease ends while the worker mints: refused, never a repeat; and when the keeper has a new grant, it goes on.
#[test]
fn a_lost_lease_is_refused_and_a_new_one_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let clock = SteppedClock::new(0);
    let layout = Layout::SNOWMINT;
    let store: Arc<RedbStore> = Arc::new(open(directory.path(), layout, &*clock));
    let mut config = config(layout, Policy::CLASSIC);
    config.lease.window_ms = 300;
    let (told, notices) = channel();
    let worker = Worker::start(
        &Engine::new(None).unwrap(),
        Box::new(SharedStore(Arc::clone(&store))),
        clock.clone(),
        config,
        Box::new(move |notice| told.send(notice.clone()).unwrap()),
    )
    .unwrap();
    let mut seen: HashSet<Id> = worker.mint(100).unwrap().into_iter().collect();
    let first = worker.standing().view.unwrap();

    let now = Now { boot_ms: clock.boot_ms(), wall_ms: clock.now_ms(), clock_error_ms: 0 };
    snowmint_lease::store::fence(&*store, first.code, 1_000_000, &now, fresh_nonce()).unwrap();
    // Until the keeper notices, what is minted lies at or below the old end; then another code is taken.
    let second = loop {
        match worker.mint(1) {
            Ok(run) => {
                let id = run.first();
                assert!(seen.insert(id));
                let parts = layout.decode(id);
                if parts.worker != u64::from(first.code) {
                    break parts.worker;
                }
                assert!(
                    layout.epoch_unix_ms() + parts.tick <= first.end_ms + 300,
                    "above every confirmed end"
                );
            }
            Err(error) => {
                let refusal = error.refusal().unwrap();
                assert!(matches!(refusal, Refusal::LeaseLost | Refusal::Ceiling { .. }), "{refusal}");
            }
        }
    };
    assert_ne!(second, u64::from(first.code));
    drop(worker);
    let superseded = |notice: &Notice| matches!(notice, Notice::Lost { ticket, loss: Loss::Superseded { .. } } if *ticket == first.ticket);
    assert_eq!(notices.into_iter().filter(superseded).count(), 1);
}

/// What was observed binds the runs that handles hold: every later ID is greater, not only those minted later.
#[test]
fn an_observed_id_binds_every_handle() {
    let directory = tempfile::tempdir().unwrap();
    let (paused, _) = channel();
    let (_, go_on) = channel();
    let now_ms = AtomicU64::new(SystemClock::new(0).now_ms());
    let clock = Arc::new(FrozenClock { now_ms, paused, go_on: Mutex::new(go_on) });
    let policy = Policy::CLASSIC.with_lead_ms(100);
    let worker = start_by(Layout::HYBRID, directory.path(), policy, clock).unwrap();
    let worker = Arc::new(worker);
    let mut ids = Ids::new(Arc::clone(&worker));
    let first = ids.next_id().unwrap();
    // Another worker's ID of the same millisecond, with a later sequence.
    let layout = Layout::HYBRID;
    let parts = layout.decode(first);
    let node = layout.node(0, u32::try_from(parts.worker).unwrap() ^ 1).unwrap();
    let other = layout.compose(parts.tick, node, parts.sequence + 3_000).unwrap();
    worker.observe(other).unwrap();
    assert!(ids.next_id().unwrap() > other);
}

/// An observer that panics is its own affair: the lease is renewed all the same.
#[test]
fn an_observer_that_panics_does_not_end_the_lease() {
    let directory = tempfile::tempdir().unwrap();
    let clock = SteppedClock::new(0);
    let store = Box::new(open(directory.path(), Layout::SNOWMINT, &*clock));
    let mut config = config(Layout::SNOWMINT, Policy::CLASSIC);
    config.lease.window_ms = 300;
    let observer = Box::new(|_: &Notice| panic!("on purpose"));
    let worker = Worker::start(&Engine::new(None).unwrap(), store, clock.clone(), config, observer).unwrap();
    let end_ms = worker.standing().view.unwrap().end_ms;
    while worker.standing().view.unwrap().end_ms < end_ms + 600 {
        std::thread::sleep(Duration::from_millis(20));
    }
    worker.mint(1).unwrap();
    assert!(worker.stop().unwrap());
}

/// A store that a test and a worker share.
struct SharedStore(Arc<RedbStore>);

impl Store for SharedStore {
    fn cluster(&self) -> Result<snowmint_lease::Stored<ClusterRecord>, snowmint_lease::StoreError> {
        self.0.cluster()
    }

    fn read(
        &self,
        code: u32,
    ) -> Result<snowmint_lease::Stored<snowmint_lease::CodeRecord>, snowmint_lease::StoreError> {
        self.0.read(code)
    }

    fn scan(
        &self,
    ) -> Result<Vec<(u32, snowmint_lease::Stored<snowmint_lease::CodeRecord>)>, snowmint_lease::StoreError>
    {
        self.0.scan()
    }

    fn swap(
        &self,
        code: u32,
        expected: snowmint_lease::Revision,
        cluster: snowmint_lease::Revision,
        record: &snowmint_lease::CodeRecord,
    ) -> Result<snowmint_lease::Revision, snowmint_lease::StoreError> {
        self.0.swap(code, expected, cluster, record)
    }

    fn swap_cluster(
        &self,
        expected: snowmint_lease::Revision,
        record: &ClusterRecord,
    ) -> Result<snowmint_lease::Revision, snowmint_lease::StoreError> {
        self.0.swap_cluster(expected, record)
    }

    fn create_codes(
        &self,
        codes: &[(u32, snowmint_lease::CodeRecord)],
    ) -> Result<(), snowmint_lease::StoreError> {
        self.0.create_codes(codes)
    }

    fn create_cluster(&self, record: &ClusterRecord) -> Result<(), snowmint_lease::StoreError> {
        self.0.create_cluster(record)
    }
}

//! What a process of the fleet does: it mints at a bounded rate, and tells everything on its standard output.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use snowmint::{Clock, Engine, SystemClock, Worker, WorkerConfig};
use snowmint_core::{Layout, Policy};
use snowmint_lease::{
    ClusterRecord, CodeRecord, KeeperConfig, Notice, Owner, Revision, State, Store, StoreError, Stored,
};
use snowmint_lease_etcd::{EtcdConfig, EtcdStore};

/// The variable that holds the orders.
pub const ORDERS: &str = "SNOWMINT_TEST_FLEET_ORDERS";

/// From here on a step of the wall clock is told.
const STEP_MS_MIN: u64 = 500;

/// What a process is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Orders {
    pub endpoints: Vec<String>,
    pub prefix: String,
    pub region: u32,
    pub layout: String,
    pub owner: String,
    pub window_ms: u32,
    /// The error bound that its clock claims.
    pub clock_error_ms: u32,
    /// How long a start waits for a code.
    pub acquire_wait_ms: u64,
    /// At most, and how many IDs each.
    pub runs_per_s: u32,
    pub run_count: u32,
    /// Whether it waits, before its first swap, for the test to say go.
    pub asks_before_first_swap: bool,
    /// Whether it compares its clock with its peers', which takes a scan before a swap.
    pub compares_clocks: bool,
    /// Whether its clocks go at half their speed, which no worker can notice: to see that the collector does.
    pub has_slow_clocks: bool,
}

impl Orders {
    pub fn new(config: &EtcdConfig, layout: Layout, owner: &str, window_ms: u32) -> Self {
        Self {
            endpoints: config.endpoints.clone(),
            prefix: config.prefix.clone(),
            region: config.region,
            layout: layout.to_string(),
            owner: owner.to_owned(),
            window_ms,
            clock_error_ms: 1,
            acquire_wait_ms: 60_000,
            runs_per_s: 200,
            run_count: 50,
            asks_before_first_swap: false,
            compares_clocks: true,
            has_slow_clocks: false,
        }
    }

    /// The store's times in the proportion to the window that the defaults have to the default window.
    pub fn etcd_config(&self) -> EtcdConfig {
        let part = |percent: u32| (self.window_ms * percent / 100).max(20);
        EtcdConfig {
            prefix: self.prefix.clone(),
            connect_ms_max: part(10),
            request_ms_max: part(15),
            call_ms_max: part(30),
            keep_alive_reply_ms_max: part(20),
            retry_ms_min: (part(1) / 2).max(5),
            retry_ms_max: part(10),
            ..EtcdConfig::new(self.endpoints.clone(), self.region)
        }
    }

    pub fn layout(&self) -> Layout {
        self.layout.parse().unwrap()
    }
}

/// What a process tells, one JSON text a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Line {
    /// It has a worker.
    Began { boot_ms: u64, wall_ms: u64 },
    /// It has none, and ends.
    NotBegun { error: String },
    /// It waits for a word before its first swap.
    AsksToSwap,
    /// A swap was sent to the store; `error` tells what came of it.
    Swap {
        code: u32,
        term: u32,
        floor_ms: u64,
        end_ms: u64,
        is_active: bool,
        /// The lower half of it.
        nonce: u64,
        sent_boot_ms: u64,
        replied_boot_ms: u64,
        error: Option<String>,
    },
    /// A record was read.
    Read { code: u32, nonce: u64, replied_boot_ms: u64 },
    /// What the keeper told its observer.
    Notice { kind: String, ticket: u64, text: String, boot_ms: u64 },
    /// IDs: the first, the stride, the count; the boot-time clock before and after they were asked for; the wall clock
    /// after.
    Run(u64, u64, u32, u64, u64, u64),
    /// From now on it is refused, for this reason.
    Refused { reason: String, error: String, boot_ms: u64 },
    /// The wall clock was stepped against the boot-time clock.
    Stepped { boot_ms: u64, wall_ms: u64 },
    /// It was told to stop. Whether the store has confirmed that the code is given back.
    Ended { is_released: bool },
}

impl Line {
    fn tell(&self) {
        let mut text = serde_json::to_string(self).unwrap();
        text.push('\n');
        // Whoever reads it is gone: so is the reason to go on.
        if std::io::stdout().lock().write_all(text.as_bytes()).is_err() {
            std::process::exit(1);
        }
    }
}

/// Where the compiled component is kept between processes.
pub fn cache_dir() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("component-cache")
}

/// A store that tells of each swap and read: what the keeper makes of them is then checked from without.
struct Telling {
    store: EtcdStore,
    go: Mutex<Option<Receiver<()>>>,
}

fn boot_ms() -> u64 {
    SystemClock::new(0).boot_ms()
}

#[allow(clippy::cast_possible_truncation)] // The lower half is enough to tell nonces apart.
const fn lower_half(nonce: u128) -> u64 {
    nonce as u64
}

impl Store for Telling {
    fn cluster(&self) -> Result<Stored<ClusterRecord>, StoreError> {
        self.store.cluster()
    }

    fn read(&self, code: u32) -> Result<Stored<CodeRecord>, StoreError> {
        let stored = self.store.read(code)?;
        let nonce = lower_half(stored.record.nonce);
        Line::Read { code, nonce, replied_boot_ms: boot_ms() }.tell();
        Ok(stored)
    }

    fn scan(&self) -> Result<Vec<(u32, Stored<CodeRecord>)>, StoreError> {
        self.store.scan()
    }

    fn swap(
        &self,
        code: u32,
        expected: Revision,
        cluster: Revision,
        record: &CodeRecord,
    ) -> Result<Revision, StoreError> {
        let sent_boot_ms = boot_ms();
        if let Some(go) = self.go.lock().unwrap().take() {
            Line::AsksToSwap.tell();
            go.recv().unwrap();
        }
        let swapped = self.store.swap(code, expected, cluster, record);
        Line::Swap {
            code,
            term: record.term,
            floor_ms: record.floor_ms,
            end_ms: record.end_ms,
            is_active: record.state == State::Active,
            nonce: lower_half(record.nonce),
            sent_boot_ms,
            replied_boot_ms: boot_ms(),
            error: swapped.as_ref().err().map(ToString::to_string),
        }
        .tell();
        swapped
    }

    fn swap_cluster(&self, expected: Revision, record: &ClusterRecord) -> Result<Revision, StoreError> {
        self.store.swap_cluster(expected, record)
    }

    fn create_codes(&self, codes: &[(u32, CodeRecord)]) -> Result<(), StoreError> {
        self.store.create_codes(codes)
    }

    fn create_cluster(&self, record: &ClusterRecord) -> Result<(), StoreError> {
        self.store.create_cluster(record)
    }
}

/// Clocks that go at half their speed from when it was made.
struct SlowClock {
    machine: SystemClock,
    began: (u64, u64),
}

impl SlowClock {
    fn new(machine: SystemClock) -> Self {
        Self { machine, began: (machine.boot_ms(), machine.now_ms()) }
    }
}

impl Clock for SlowClock {
    fn now_ms(&self) -> u64 {
        u64::midpoint(self.began.1, self.machine.now_ms())
    }

    fn error_bound_ms(&self) -> u32 {
        self.machine.error_bound_ms()
    }

    fn boot_ms(&self) -> u64 {
        u64::midpoint(self.began.0, self.machine.boot_ms())
    }

    fn pause(&self, until_ms: u64, at_most: Duration) {
        self.machine.pause(until_ms, at_most);
    }
}

fn notice_line(notice: &Notice) -> Line {
    let (kind, ticket) = match notice {
        Notice::Granted { ticket, .. } => ("granted", *ticket),
        Notice::Renewed { ticket, .. } => ("renewed", *ticket),
        Notice::Unconfirmed { ticket, .. } => ("unconfirmed", *ticket),
        Notice::Lapsed { ticket } => ("lapsed", *ticket),
        Notice::Resumed { ticket, .. } => ("resumed", *ticket),
        Notice::Lost { ticket, .. } => ("lost", *ticket),
        Notice::Released { ticket, .. } => ("released", *ticket),
        Notice::Unreleased { ticket } => ("unreleased", *ticket),
        Notice::Hindered(_) => ("hindered", 0),
        Notice::OddPeers { .. } => ("odd-peers", 0),
        Notice::Uncompared { .. } => ("uncompared", 0),
    };
    Line::Notice { kind: kind.into(), ticket, text: format!("{notice:?}"), boot_ms: boot_ms() }
}

/// What the parent says on the standard input. Its end is the process's end, whatever this is doing.
fn listen(go: Sender<()>) -> Receiver<()> {
    let (told, stop) = channel();
    std::thread::spawn(move || {
        for word in std::io::stdin().lock().lines() {
            match word.as_deref() {
                Ok("go") => drop(go.send(())),
                Ok("stop") => drop(told.send(())),
                _ => break,
            }
        }
        std::process::exit(1);
    });
    stop
}

/// Mints until it is told to stop, or killed. Alone it has nothing to do.
#[test]
#[ignore = "the child of another test"]
fn child_mints_until_it_is_told() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let orders: Orders = serde_json::from_str(&orders).unwrap();
    // The test runner has left its own line open.
    println!();
    let (go, may_go) = channel();
    let stop = listen(go);
    let clock = SystemClock::new(orders.clock_error_ms);
    let workers_clock: Arc<dyn Clock> =
        if orders.has_slow_clocks { Arc::new(SlowClock::new(clock)) } else { Arc::new(clock) };
    let store = Telling {
        store: EtcdStore::new(orders.etcd_config()).unwrap(),
        go: Mutex::new(orders.asks_before_first_swap.then_some(may_go)),
    };
    let owner = Owner::new(orders.owner.clone()).unwrap();
    let config = WorkerConfig {
        lease: KeeperConfig {
            window_ms: orders.window_ms,
            compares_clocks: orders.compares_clocks,
            ..KeeperConfig::fleet(orders.layout(), orders.region, owner)
        },
        // Nothing is waited out: each refusal is to be seen.
        policy: Policy { wait_ms_max: 0, ..Policy::CLASSIC },
        acquire_wait_max: Duration::from_millis(orders.acquire_wait_ms),
    };
    let observer = Box::new(|notice: &Notice| notice_line(notice).tell());
    let engine = Engine::new(Some(cache_dir())).unwrap();
    let worker = match Worker::start(&engine, Box::new(store), workers_clock, config, observer) {
        Ok(worker) => worker,
        Err(error) => return Line::NotBegun { error: error.to_string() }.tell(),
    };
    Line::Began { boot_ms: clock.boot_ms(), wall_ms: clock.now_ms() }.tell();
    let pause = Duration::from_secs(1) / orders.runs_per_s;
    let ahead_ms = || clock.now_ms().wrapping_sub(clock.boot_ms());
    let (mut refused, mut told_ahead_ms) = (String::new(), ahead_ms());
    let mut next = Instant::now();
    while stop.try_recv().is_err() {
        if ahead_ms().abs_diff(told_ahead_ms) > STEP_MS_MIN {
            told_ahead_ms = ahead_ms();
            Line::Stepped { boot_ms: clock.boot_ms(), wall_ms: clock.now_ms() }.tell();
        }
        let before_boot_ms = clock.boot_ms();
        match worker.mint(orders.run_count) {
            Ok(run) => {
                refused.clear();
                let (first, after_boot_ms) = (run.first().get(), clock.boot_ms());
                let wall_ms = clock.now_ms();
                Line::Run(first, run.stride(), run.count(), before_boot_ms, after_boot_ms, wall_ms).tell();
            }
            Err(error) => {
                let reason =
                    error.refusal().map_or_else(|| error.to_string(), |refusal| refusal.reason().into());
                if reason != refused {
                    refused.clone_from(&reason);
                    Line::Refused { reason, error: error.to_string(), boot_ms: before_boot_ms }.tell();
                }
            }
        }
        next = (next + pause).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()).min(pause));
    }
    Line::Ended { is_released: worker.stop().unwrap() }.tell();
}

//! A fleet for tests: real workers in processes of their own, over a real etcd on loopback.
//!
//! | part | what it is |
//! |---|---|
//! | [`Fleet`] | an etcd cluster, a founded store, and the processes that mint from it |
//! | [`child`] | what such a process does: it mints at a bounded rate, and tells everything on its standard output |
//! | [`Collector`] | what they told, and what must be true of it: see [`collector::violations`] |
//!
//! A process is this test binary, told by its environment to run [`child`]. It ends with its standard input, so that none
//! outlives a test, however that ends.
#![allow(dead_code, unreachable_pub)] // Each test uses a part of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use snowmint::{Clock, Engine, SystemClock, fresh_nonce};
use snowmint_core::Layout;
use snowmint_lease::protocol::ttl_ms;
use snowmint_lease::{ClusterRecord, CodeRecord, Now, Store, Stored};
use snowmint_lease_etcd::{EtcdConfig, EtcdStore};

pub mod child;
pub mod collector;
#[path = "../../../crates/lease-etcd/tests/common/mod.rs"]
pub mod etcd;

pub use child::{Line, Orders};
pub use collector::{Collector, Log};
use etcd::{Cluster, PATIENCE};

/// What a busy machine may add to a time that a fleet promises.
pub const SLACK: Duration = Duration::from_secs(3);

/// The machine's boot-time clock, which all processes share.
pub fn boot_ms() -> u64 {
    SystemClock::new(0).boot_ms()
}

/// The machine's wall clock.
pub fn wall_ms() -> u64 {
    SystemClock::new(0).now_ms()
}

/// Both clocks, as an operator's command reads them.
pub fn now() -> Now {
    Now { boot_ms: boot_ms(), wall_ms: wall_ms(), clock_error_ms: 1 }
}

/// Waits, and looks every few milliseconds. A panic names what never came.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "waited {PATIENCE:?} for this: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Workers, each in a process of its own, and their store.
pub struct Fleet {
    pub etcd: Cluster,
    /// Where the store is, with an operator's times.
    pub config: EtcdConfig,
    pub layout: Layout,
    pub window_ms: u32,
    pub collector: Collector,
    minters: Vec<Minter>,
}

/// A process that mints.
struct Minter {
    /// Its place in the collector.
    at: usize,
    child: Child,
    input: Option<ChildStdin>,
    reader: Option<JoinHandle<()>>,
}

impl Fleet {
    /// Founds region 0 in a new cluster of so many members. `None`, with a word, where there is no etcd.
    pub fn start(members: usize, worker_bits: u32, window_ms: u32) -> Option<Self> {
        let etcd = Cluster::start(members)?;
        Some(Self::found(etcd, 0, worker_bits, window_ms, Collector::default()))
    }

    /// Founds a region in a cluster that is there.
    pub fn found(etcd: Cluster, region: u32, worker_bits: u32, window_ms: u32, collector: Collector) -> Self {
        let layout = etcd::layout(worker_bits);
        // An operator has more patience than a worker.
        let times = EtcdConfig { request_ms_max: 5_000, call_ms_max: 10_000, ..etcd.config(region) };
        let config = EtcdConfig { connect_ms_max: 2_000, ..times };
        let store = EtcdStore::connect(config.clone()).unwrap();
        let record = ClusterRecord::new(fresh_nonce(), layout, region).unwrap();
        snowmint_lease::init(&store, &record).unwrap();
        // Compiled once, here: the processes find it in the cache.
        drop(Engine::new(Some(child::cache_dir())).unwrap());
        Self { etcd, config, layout, window_ms, collector, minters: Vec::new() }
    }

    /// The lease's time to live.
    pub fn ttl(&self) -> Duration {
        Duration::from_millis(u64::from(ttl_ms(self.window_ms)))
    }

    pub fn window(&self) -> Duration {
        Duration::from_millis(u64::from(self.window_ms))
    }

    /// What a worker of this fleet is told, to be changed where a test wants it otherwise.
    pub fn orders(&self, owner: &str) -> Orders {
        Orders::new(&self.config, self.layout, owner, self.window_ms)
    }

    /// Starts a worker, and returns its place.
    pub fn spawn(&mut self, orders: &Orders) -> usize {
        self.spawn_with(orders, &[])
    }

    /// Starts a worker with more in its environment.
    pub fn spawn_with(&mut self, orders: &Orders, environment: &[(&str, OsString)]) -> usize {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "fleet::child::child_mints_until_it_is_told", "--ignored", "--nocapture"])
            .env(child::ORDERS, serde_json::to_string(orders).unwrap())
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let at = self.collector.enter(Log::new(orders));
        let (output, input) = (child.stdout.take().unwrap(), child.stdin.take());
        let collector = self.collector.clone();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { break };
                // The test runner's own lines, and the last one of a process that was killed, are none.
                if let Ok(line) = serde_json::from_str(&line) {
                    collector.take(at, line);
                }
            }
        });
        self.minters.push(Minter { at, child, input, reader: Some(reader) });
        at
    }

    /// Starts so many workers, and waits until each of them has minted.
    pub fn mint(&mut self, count: usize) -> Vec<usize> {
        let workers: Vec<_> =
            (0..count).map(|at| self.spawn(&self.orders(&format!("worker-{at}")))).collect();
        for &at in &workers {
            self.wait_minted(at);
        }
        workers
    }

    fn minter(&mut self, at: usize) -> &mut Minter {
        self.minters.iter_mut().find(|minter| minter.at == at).unwrap()
    }

    fn signal(&mut self, at: usize, signal: Signal) {
        kill_process(Pid::from_child(&self.minter(at).child), signal).unwrap();
    }

    /// `kill -9`.
    pub fn kill(&mut self, at: usize) {
        self.minter(at).end();
    }

    /// Freezes a worker (SIGSTOP).
    pub fn freeze(&mut self, at: usize) {
        self.signal(at, Signal::STOP);
    }

    /// Thaws it (SIGCONT).
    pub fn thaw(&mut self, at: usize) {
        self.signal(at, Signal::CONT);
    }

    /// Lets a worker that waits before its first swap go on ([`Orders::asks_before_first_swap`]).
    pub fn go(&mut self, at: usize) {
        writeln!(self.minter(at).input.as_mut().unwrap(), "go").unwrap();
    }

    /// Tells a worker to stop, as a service manager would, and does not wait.
    pub fn tell_to_stop(&mut self, at: usize) {
        writeln!(self.minter(at).input.as_mut().unwrap(), "stop").unwrap();
    }

    /// Stops a worker, and waits for its end. Whether it has given its code back.
    pub fn stop(&mut self, at: usize) -> bool {
        self.tell_to_stop(at);
        self.wait_ended(at);
        self.log(at, |log| log.ended == Some(true))
    }

    /// Waits until a process has ended by itself, and all that it told is here.
    pub fn wait_ended(&mut self, at: usize) {
        let minter = self.minter(at);
        wait_until("a worker's process has ended", || minter.child.try_wait().unwrap().is_some());
        minter.end();
    }

    pub fn log<T>(&self, at: usize, look: impl FnOnce(&Log) -> T) -> T {
        self.collector.look(|logs| look(&logs[at]))
    }

    /// Waits until something is true of what a worker told.
    pub fn wait(&self, at: usize, what: &str, mut is_so: impl FnMut(&Log) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !self.log(at, &mut is_so) {
            let tail = self.log(at, Log::tail);
            assert!(Instant::now() < until, "waited {PATIENCE:?} for worker {at} and this: {what}\n{tail}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until a worker has minted anything.
    pub fn wait_minted(&self, at: usize) {
        self.wait(at, "it mints", |log| !log.runs.is_empty());
    }

    /// Waits until a worker has asked for IDs after this moment and got them; how long it took.
    pub fn wait_minted_since(&self, at: usize, since_boot_ms: u64) -> Duration {
        self.wait(at, "it mints again", |log| log.first_run_since(since_boot_ms).is_some());
        Duration::from_millis(self.log(at, |log| log.first_run_since(since_boot_ms)).unwrap())
    }

    /// Waits until a worker refuses, and has minted nothing since it began to.
    pub fn wait_refused(&self, at: usize) {
        self.wait(at, "it refuses", Log::is_refusing);
    }

    /// Waits until a worker has asked for IDs since now, whatever came of it.
    pub fn wait_minted_or_refused(&self, at: usize) {
        let since_ms = boot_ms();
        self.wait(at, "it asks for IDs", |log| log.first_run_since(since_ms).is_some() || log.is_refusing());
    }

    /// Each of these workers mints again, by itself, within one TTL of the moment that what was wrong was over.
    pub fn check_resumed(&self, workers: &[usize], over_boot_ms: u64) {
        for &at in workers {
            let took = self.wait_minted_since(at, over_boot_ms);
            println!("worker {at} mints again {took:?} after the fault");
            let tail = || self.log(at, Log::tail);
            assert!(took <= self.ttl() + SLACK, "worker {at} minted again only after {took:?}\n{}", tail());
        }
    }

    /// An operator's own store.
    pub fn store(&self) -> EtcdStore {
        EtcdStore::connect(self.config.clone()).unwrap()
    }

    /// All code records.
    pub fn records(&self) -> Vec<(u32, Stored<CodeRecord>)> {
        self.store().scan().unwrap()
    }

    /// Ends every worker, and checks all that was told, by itself and against etcd's records.
    pub fn finish(self) {
        self.finish_and_keep_etcd();
    }

    /// As [`Fleet::finish`], and gives the cluster back for another region of its own prefix.
    pub fn finish_and_keep_etcd(mut self) -> Cluster {
        self.end_all();
        let records = self.records();
        self.collector.check();
        self.collector.check_records(self.config.region, &records);
        self.etcd
    }

    /// Ends every worker, and checks all that was told: for a store whose records are older than what was minted.
    pub fn finish_without_records(mut self) {
        self.end_all();
        self.collector.check();
    }

    /// `kill -9` of every worker.
    pub fn end_all(&mut self) {
        self.minters.iter_mut().for_each(Minter::end);
    }
}

impl Minter {
    /// Ends the process, and waits until all that it told is taken in. Again is no harm.
    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for Minter {
    fn drop(&mut self) {
        self.end();
    }
}

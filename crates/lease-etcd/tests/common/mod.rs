//! A real etcd for tests: members on loopback, in directories that are gone afterwards. Only its own children are ever
//! stopped.
#![allow(dead_code, unreachable_pub)] // Each test uses a part of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use etcd_client::{Client, ConnectOptions};
use rustix::process::{Pid, Signal, kill_process};
use snowmint_core::Layout;
use snowmint_lease::{ClusterRecord, Now};
use snowmint_lease_etcd::EtcdConfig;
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub mod net;
pub mod proxy;

/// Names the programs that this machine has to do without; set by `cargo xtask test`.
const WITHOUT: &str = "SNOWMINT_TEST_WITHOUT";

/// How long anything that etcd does by itself may take on a machine that is busy.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Where etcd is. `None`, and a word about it, where it is missing and may be; a failure where it may not.
pub fn etcd() -> Option<PathBuf> {
    program("etcd", "etcd-server", "the etcd store")
}

/// Where a program of a Debian package is. `None`, and a word about it, where it is missing and may be; a failure where
/// it may not.
pub fn program(name: &str, package: &str, tests: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian's services lie where only root's PATH leads.
    let dirs = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/bin")]);
    let found = dirs.map(|dir| dir.join(name)).find(|program| program.is_file());
    if found.is_some() {
        return found;
    }
    let advice = format!("{name} is not installed (on Debian: apt-get install {package})");
    let is_excused = std::env::var(WITHOUT).is_ok_and(|names| names.split(',').any(|other| other == name));
    let must = std::env::var_os("CI").is_some() || rustix::process::geteuid().is_root();
    assert!(is_excused || !must, "{advice}");
    eprintln!("SKIPPED: {advice}; {tests} is not tested");
    None
}

/// A cluster of etcd members, each a process of its own.
pub struct Cluster {
    program: PathBuf,
    dir: TempDir,
    members: Vec<Member>,
    runtime: Runtime,
    more_args: Vec<String>,
    scheme: &'static str,
    stores: AtomicU32,
    /// `None`: they are on loopback. Dropped last, when its members have ended.
    net: Option<net::Net>,
}

struct Member {
    name: String,
    host: String,
    client_port: u16,
    peer_port: u16,
    child: Option<Child>,
}

impl Cluster {
    /// Starts members, and waits until each of them answers.
    pub fn start(count: usize) -> Option<Self> {
        let cluster = Self::start_with(count, "http", &[])?;
        for at in 0..count {
            cluster.wait_for(at);
        }
        Some(cluster)
    }

    /// Starts members in a network of their own, where they can be cut off from each other, and waits.
    pub fn start_apart(count: usize) -> Option<Self> {
        let program = etcd()?;
        let net = net::Net::new(count)?;
        let cluster = Self::new(program, count, "http", &[], Some(net));
        for at in 0..count {
            cluster.wait_for(at);
        }
        Some(cluster)
    }

    /// Starts members with more arguments, and does not wait.
    pub fn start_with(count: usize, scheme: &'static str, more_args: &[String]) -> Option<Self> {
        Some(Self::new(etcd()?, count, scheme, more_args, None))
    }

    fn new(
        program: PathBuf,
        count: usize,
        scheme: &'static str,
        more_args: &[String],
        net: Option<net::Net>,
    ) -> Self {
        let ports: Vec<_> = (0..count * 2).map(|_| port()).collect();
        let members = (0..count)
            .map(|at| Member {
                name: format!("m{at}"),
                host: net.as_ref().map_or_else(|| String::from("127.0.0.1"), |net| net.host(at)),
                client_port: ports[at * 2],
                peer_port: ports[at * 2 + 1],
                child: None,
            })
            .collect();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut cluster = Self {
            program,
            dir: TempDir::new().unwrap(),
            members,
            runtime,
            more_args: more_args.to_vec(),
            scheme,
            stores: AtomicU32::new(0),
            net,
        };
        (0..count).for_each(|at| cluster.run(at));
        cluster
    }

    /// Starts a member: for the first time, or again in the same directory.
    pub fn run(&mut self, at: usize) {
        let peers: Vec<_> = self
            .members
            .iter()
            .map(|member| format!("{}=http://{}:{}", member.name, member.host, member.peer_port))
            .collect();
        let member = &self.members[at];
        assert!(member.child.is_none());
        let client_url = self.url(at);
        let peer_url = format!("http://{}:{}", member.host, member.peer_port);
        let log = File::create(self.dir.path().join(format!("{}.log", member.name))).unwrap();
        let mut command = match &self.net {
            Some(net) => {
                let mut command = net.command(at);
                command.arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        let child = command
            .env_clear()
            .args(["--name", &member.name, "--data-dir"])
            .arg(self.data_dir(at))
            .args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url])
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &peers.join(","), "--initial-cluster-state", "new"])
            .args(["--logger", "zap", "--log-level", "warn"])
            .args(&self.more_args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.members[at].child = Some(child);
    }

    pub fn data_dir(&self, at: usize) -> PathBuf {
        self.dir.path().join(&self.members[at].name)
    }

    pub fn url(&self, at: usize) -> String {
        let Member { host, client_port, .. } = &self.members[at];
        format!("{}://{host}:{client_port}", self.scheme)
    }

    pub fn port(&self, at: usize) -> u16 {
        self.members[at].client_port
    }

    pub fn urls(&self) -> Vec<String> {
        (0..self.members.len()).map(|at| self.url(at)).collect()
    }

    /// A prefix of its own, and times that are short for tests.
    pub fn config(&self, region: u32) -> EtcdConfig {
        let store = self.stores.fetch_add(1, Ordering::Relaxed);
        EtcdConfig {
            prefix: format!("test/{store}"),
            request_ms_max: 600,
            call_ms_max: 1_500,
            connect_ms_max: 500,
            retry_ms_max: 300,
            ..EtcdConfig::new(self.urls(), region)
        }
    }

    /// Cuts two members off from each other; both are reached by everybody else. Only of [`Cluster::start_apart`].
    pub fn cut(&self, one: usize, other: usize) {
        self.net.as_ref().unwrap().cut(one, other);
    }

    /// Lets them reach each other again.
    pub fn heal(&self, one: usize, other: usize) {
        self.net.as_ref().unwrap().heal(one, other);
    }

    /// `kill -9` of one member, by its id.
    pub fn kill(&mut self, at: usize) {
        let mut child = self.members[at].child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Its process, for what looks into it or gets in its way.
    pub fn pid(&self, at: usize) -> u32 {
        self.members[at].child.as_ref().unwrap().id()
    }

    /// Waits until a member has ended by itself, and returns what it logged.
    pub fn wait_ended(&mut self, at: usize) -> String {
        let member = &mut self.members[at];
        let mut child = member.child.take().unwrap();
        let until = Instant::now() + PATIENCE;
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > until {
                // Dropped, it would go on for ever.
                member.child = Some(child);
                panic!("{} has not ended", member.name);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        fs::read_to_string(self.dir.path().join(format!("{}.log", member.name))).unwrap()
    }

    /// Freezes one member.
    pub fn stop(&self, at: usize) {
        self.signal(at, Signal::STOP);
    }

    /// Thaws it.
    pub fn cont(&self, at: usize) {
        self.signal(at, Signal::CONT);
    }

    fn signal(&self, at: usize, signal: Signal) {
        let child = self.members[at].child.as_ref().unwrap();
        kill_process(Pid::from_child(child), signal).unwrap();
    }

    /// Runs something with a client of one member: what an operator would do.
    pub fn admin<T>(
        &self,
        at: usize,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, etcd_client::Error>,
    ) -> T {
        self.try_admin(at, work).unwrap()
    }

    pub fn try_admin<T>(
        &self,
        at: usize,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, etcd_client::Error>,
    ) -> Result<T, etcd_client::Error> {
        let options = ConnectOptions::new()
            .with_timeout(Duration::from_secs(5))
            .with_connect_timeout(Duration::from_secs(1));
        self.runtime.block_on(async {
            let mut client = Client::connect([self.url(at)], Some(options)).await?;
            work(&mut client).await
        })
    }

    /// Waits until a member answers what needs the whole cluster.
    pub fn wait_for(&self, at: usize) {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.try_admin(at, async |client| client.get("health", None).await) {
                Ok(_) => return,
                Err(error) if Instant::now() > until => {
                    let log = self.dir.path().join(format!("{}.log", self.members[at].name));
                    panic!("{error}\n{}", fs::read_to_string(log).unwrap());
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Which member leads, as another one sees it.
    pub fn leader(&self, seen_by: usize) -> usize {
        let leader = self.admin(seen_by, async |client| client.status().await).leader();
        let is_leader = |&at: &usize| {
            self.try_admin(at, async |client| client.status().await)
                .is_ok_and(|status| status.header().unwrap().member_id() == leader)
        };
        (0..self.members.len()).find(is_leader).unwrap()
    }

    /// etcd's own revision: it grows by one with each transaction that writes.
    pub fn revision(&self) -> i64 {
        self.admin(0, async |client| client.get("none", None).await).header().unwrap().revision()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.members.iter_mut().filter_map(|member| member.child.as_mut()) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A port that a member can have, and keep while it is away: below those that the system gives to whoever connects, none
/// twice in a process, and from a random one on.
fn port() -> u16 {
    const PORTS: std::ops::Range<u32> = 10_000..32_000;
    static FIRST: OnceLock<u32> = OnceLock::new();
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let first = *FIRST.get_or_init(|| u32::try_from(RandomState::new().hash_one(()) >> 33).unwrap());
    loop {
        let nth = first.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % (PORTS.end - PORTS.start);
        let port = u16::try_from(PORTS.start + nth).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Copies a directory as `cp -r` would.
pub fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

pub const T: u64 = 1_750_000_000_000;

/// Eight codes a region.
pub fn cluster_record(region: u32) -> ClusterRecord {
    ClusterRecord::new(0x5eed, layout(3), region).unwrap()
}

/// A layout with this many bits of codes.
pub fn layout(worker_bits: u32) -> Layout {
    format!(
        "reserved:1 timestamp:41 region:2 worker:{worker_bits} sequence:{} epoch-ms:1735689600000 tick-ns:1000000",
        20 - worker_bits
    )
    .parse()
    .unwrap()
}

pub fn now(boot_ms: u64) -> Now {
    Now { boot_ms, wall_ms: T + boot_ms, clock_error_ms: 1 }
}

/// How long a call took, and what came of it.
pub fn timed<T>(call: impl FnOnce() -> T) -> (T, Duration) {
    let started = Instant::now();
    let done = call();
    (done, started.elapsed())
}

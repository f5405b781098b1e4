//! What the tests share: clocks that are told, nonces that are counted, and a file that fails on command.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // For tests only.

use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use redb::{BackendError, StorageBackend, backends::FileBackend};
use snowmint_core::Layout;
use snowmint_lease::{ClusterRecord, Event, Keeper, KeeperConfig, Notice, Now, Owner, Store, step};

/// The wall clock at boot.
pub const T: u64 = 1_750_000_000_000;

pub fn now(boot_ms: u64) -> Now {
    Now { boot_ms, wall_ms: T + boot_ms, clock_error_ms: 1 }
}

pub fn cluster() -> ClusterRecord {
    ClusterRecord::new(0x5eed, Layout::SNOWMINT, 1).unwrap()
}

pub fn nonces(seed: u128) -> impl FnMut() -> u128 {
    let mut nonce = seed << 64;
    move || {
        nonce += 1;
        nonce
    }
}

/// A keeper with a clock that it shares and nonces of its own.
pub struct Worker {
    pub keeper: Keeper,
    pub boot_ms: Arc<AtomicU64>,
    nonce: Box<dyn FnMut() -> u128>,
}

impl Worker {
    pub fn new(seed: u128, boot_ms: Arc<AtomicU64>) -> Self {
        let owner = Owner::new(format!("worker-{seed}")).unwrap();
        let keeper = Keeper::new(KeeperConfig::embedded(Layout::SNOWMINT, 1, owner)).unwrap();
        Self { keeper, boot_ms, nonce: Box::new(nonces(seed)) }
    }

    pub fn now_boot_ms(&self) -> u64 {
        self.boot_ms.load(Ordering::SeqCst)
    }

    pub fn step(&mut self, store: &dyn Store, event: Event) -> Vec<Notice> {
        let boot_ms = self.boot_ms.clone();
        let mut clock = || now(boot_ms.load(Ordering::SeqCst));
        step(&mut self.keeper, event, store, &mut clock, &mut self.nonce).notices
    }

    /// Moves the clock to when the keeper wants to be told, and tells it.
    pub fn wake(&mut self, store: &dyn Store) -> Vec<Notice> {
        self.boot_ms.fetch_max(self.keeper.next_wake_boot_ms(), Ordering::SeqCst);
        self.step(store, Event::Time)
    }
}

/// What a [`Faulty`] file does wrong, and when. Shared with the test.
#[derive(Debug, Default)]
pub struct Plan {
    /// Writes, changes of length and syncs that still succeed; below 0: all do.
    left: AtomicI64,
    /// The system's number of the error that they fail with afterwards.
    errno: AtomicI64,
    /// The clock, and how far each sync moves it.
    pub boot_ms: Arc<AtomicU64>,
    pub sync_ms: AtomicU64,
    /// How many there were.
    pub count: AtomicI64,
}

impl Plan {
    pub fn sound(boot_ms: &Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(Self { left: AtomicI64::new(-1), boot_ms: boot_ms.clone(), ..Self::default() })
    }

    /// From the `left`-th change from now on, every one fails.
    pub fn fail_after(&self, left: i64, errno: i32) {
        self.errno.store(errno.into(), Ordering::SeqCst);
        self.left.store(left, Ordering::SeqCst);
    }

    pub fn heal(&self) {
        self.left.store(-1, Ordering::SeqCst);
    }

    fn change(&self) -> io::Result<()> {
        self.count.fetch_add(1, Ordering::SeqCst);
        match self.left.load(Ordering::SeqCst) {
            ..0 => Ok(()),
            0 => Err(io::Error::from_raw_os_error(self.errno.load(Ordering::SeqCst).try_into().unwrap())),
            1.. => {
                self.left.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        }
    }
}

/// A file that fails by plan.
#[derive(Debug)]
pub struct Faulty {
    pub file: FileBackend,
    pub plan: Arc<Plan>,
}

impl StorageBackend for Faulty {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.plan.change()?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.plan.change()?;
        self.plan.boot_ms.fetch_add(self.plan.sync_ms.load(Ordering::SeqCst), Ordering::SeqCst);
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.plan.change()?;
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }
}

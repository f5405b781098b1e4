//! The wasmtime host of Snowmint: 64-bit, time-sorted, unique IDs, minted by a WebAssembly component under a lease.
//!
//! An [`Engine`] compiles the component once. A [`Worker`] takes a worker code from a lease store, keeps it in the
//! background, and mints runs by an instance of the component on that grant. An [`Ids`] gives a thread IDs one at a
//! time out of such runs.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use snowmint::{Clock, Engine, Ids, SystemClock, Worker, WorkerConfig, fresh_nonce};
//! use snowmint_core::{Layout, Policy};
//! use snowmint_lease::{ClusterRecord, KeeperConfig, Now, Owner};
//! use snowmint_lease_redb::RedbStore;
//!
//! # let directory = tempfile::tempdir()?;
//! # let directory = directory.path();
//! let layout = Layout::SNOWMINT;
//! let clock = SystemClock::new(u32::MAX); // Nobody vouches for this clock's error, so none is enforced below.
//!
//! // Once for each region; then `RedbStore::open`.
//! let store = RedbStore::init(directory, &ClusterRecord::new(fresh_nonce(), layout, 0)?)?;
//! // Holding the store's lock, what a process that died has held is expired.
//! let now = Now { boot_ms: clock.boot_ms(), wall_ms: clock.now_ms(), clock_error_ms: u32::MAX };
//! store.take_over(&now, 0, &mut fresh_nonce)?;
//!
//! let config = WorkerConfig {
//!     lease: KeeperConfig {
//!         clock_error_ms_max: u32::MAX,
//!         ..KeeperConfig::embedded(layout, 0, Owner::new("example")?)
//!     },
//!     policy: Policy { clock_error_ms_max: u32::MAX, ..Policy::CLASSIC },
//!     acquire_wait_max: Duration::from_secs(2),
//! };
//! let observer = Box::new(|notice: &snowmint_lease::Notice| eprintln!("{notice:?}"));
//! let worker = Worker::start(&Engine::new(None)?, Box::new(store), Arc::new(clock), config, observer)?;
//!
//! let worker = Arc::new(worker);
//! let mut ids = Ids::new(Arc::clone(&worker));
//! let first = ids.next_id()?;
//! assert!(ids.next_id()? > first);
//! assert!(worker.stop()?); // The code is free again at once.
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Words
//!
//! | word | meaning |
//! |---|---|
//! | engine | the component, compiled for this machine |
//! | instance | one generator of the component in a memory of its own: one grant |
//! | client | IDs from a service elsewhere, fetched ahead |
//! | pool | several workers as one |
//! | worker | a lease that is kept, and the instance that mints by it |
//! | refusal | why nothing is minted; see [`snowmint_core::Refusal`] |
//!
//! # What is not here
//!
//! No rule about IDs or leases: core and lease decide. No second way to mint: what a worker gives was minted by the
//! component. No globals, and no environment is read: the command does that, and passes values.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![forbid(unsafe_code)]

mod bindings;
mod client;
mod clock;
mod counters;
mod engine;
mod ids;
mod peers;
mod pool;
mod translate;
mod worker;

pub use client::{Client, ClientConfig, ClientError};
pub use clock::{
    Assumed, ChosenSource, Chrony, Clock, ClockBound, ClockNotice, ClockObserver, ClockSource, DRIFT_PPM_MAX,
    Kernel, Sample, Source, SourceError, StepAwareness, SystemClock, WatchedClock,
};
pub use counters::{Bursts, Counters};
pub use engine::{
    CodecError, Engine, EngineError, Instance, InstanceError, Lifecycle, Reading, Status, TextError,
    TextFault,
};
pub use ids::{Ids, RunSource};
pub use peers::{PEER_PAUSE, Peer, PeerNotice, Peers};
pub use pool::{COUNT_MAX, Pool, Taken};
pub use worker::{Observer, Standing, Worker, WorkerConfig, WorkerError, fresh_nonce};

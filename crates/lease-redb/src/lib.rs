//! The embedded lease store: one directory, one redb file, one process.
//!
//! ```
//! use snowmint_core::Layout;
//! use snowmint_lease::{ClusterRecord, Event, Keeper, KeeperConfig, Now, Owner};
//! use snowmint_lease_redb::RedbStore;
//!
//! # let temp = tempfile::tempdir()?;
//! # let dir = temp.path().join("lease");
//! # let mut clock = || Now { boot_ms: 5_000, wall_ms: 1_750_000_000_000, clock_error_ms: 1 };
//! # let mut drawn = 0;
//! # let mut nonce = || { drawn += 1; drawn };
//! // Once, by an operator:
//! drop(RedbStore::init(&dir, &ClusterRecord::new(0x5eed, Layout::SNOWMINT, 0)?)?);
//!
//! // Whenever the process starts:
//! let store = RedbStore::open(&dir)?;
//! store.take_over(&clock(), 0, &mut nonce)?;
//! let mut keeper = Keeper::new(KeeperConfig::embedded(Layout::SNOWMINT, 0, Owner::new("host-a")?))?;
//! let _ = snowmint_lease::step(&mut keeper, Event::Time, &store, &mut clock, &mut nonce);
//! assert!(keeper.take_grant(5_000).is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it relies on, and checks
//!
//! | relied on | checked |
//! |---|---|
//! | one process at a time | `store.lock` is locked as long as the store is open; a file system that cannot lock is refused |
//! | what was confirmed is on the disk | every swap is a two-phase commit, synced; the directory is synced after init |
//! | after a failed write, nobody knows what is on the disk | the first error of the disk stays until the store is opened again |
//! | the file is the one that was founded | it knows its inode and time of birth, which a plain copy has not (best effort) |
//! | the file is still there | before and after each swap its path leads to it, else the store is gone |
//! | the file is whole | all checksums are verified at open; what redb panics on is caught and reported |
//!
//! An old backup that is put back *in place*, so that the inode stays, cannot be told from the store: that is an
//! operator's act, which needs [`RedbStore::recover`].

#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod fault;
mod place;
mod store;

pub use redb::{StorageBackend, backends::FileBackend};
pub use store::{FORMAT_VERSION, Recovery, RedbStore};

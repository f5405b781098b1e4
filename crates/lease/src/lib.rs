//! Leases of worker codes: who may mint with which code, up to which millisecond, proven by nothing but
//! compare-and-swap.
//!
//! A **code** is the worker part of a node. A store keeps a record for each; a **keeper** holds one code for one
//! generator, by swapping the code's record ahead of the clock. What the store has confirmed is the **ceiling**: the
//! last millisecond that may be stamped. The next grant of a code begins above it, so that two grants of one code
//! never share a millisecond, whatever clocks, pauses and networks do.
//!
//! ```
//! use snowmint_core::Layout;
//! use snowmint_lease::{ClusterRecord, Event, Keeper, KeeperConfig, MemoryStore, Now, Owner, Stopped, Then};
//!
//! let store = MemoryStore::new();
//! snowmint_lease::init(&store, &ClusterRecord::new(0x5eed, Layout::SNOWMINT, 0)?)?;
//!
//! // The caller reads the clocks and draws the nonces.
//! let mut clock = || Now { boot_ms: 5_000, wall_ms: 1_750_000_000_000, clock_error_ms: 1 };
//! let mut drawn = 0;
//! let mut nonce = || { drawn += 1; drawn };
//!
//! let config = KeeperConfig::embedded(Layout::SNOWMINT, 0, Owner::new("host-a")?);
//! let mut keeper = Keeper::new(config)?;
//! let step = snowmint_lease::step(&mut keeper, Event::Time, &store, &mut clock, &mut nonce);
//! assert_eq!(step.next_wake_boot_ms, 5_333); // A third of the window later.
//!
//! let grant = keeper.take_grant(5_000).unwrap();
//! let ticket = grant.ticket();
//! assert_eq!(keeper.take_grant(5_000), None); // One grant, one generator.
//! assert_eq!(keeper.ceiling_ms(ticket, 5_000), 1_750_000_001_000);
//! assert_eq!(keeper.ceiling_ms(ticket, 6_000), 0); // Past the deadline nothing is certain.
//!
//! // The generator was stopped, and told how far it went.
//! let stopped = Stopped { ticket, last_reserved_ms: 1_750_000_000_000 };
//! let release = Event::Release { stopped: Some(stopped), then: Then::End };
//! let _ = snowmint_lease::step(&mut keeper, release, &store, &mut clock, &mut nonce);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Rooms
//!
//! | module | holds |
//! |---|---|
//! | [`protocol`] | the operations: pure functions from record to record |
//! | [`store`] | what is asked of a store, and what can be done with nothing more (init, fence, free, gc, recover) |
//! | [`cutover`] | from one layout to the next, over any store |
//! | [`keeper`] | the worker's side: a state machine without IO |
//! | [`desk`] | the service's side for runtimes that cannot reach a store: runs the operations for them |
//! | [`remote`] | such a runtime's side: a state machine without IO |
//! | [`regions`] | whether two stores would make the same IDs |
//! | [`agreement`] | whether my clock agrees with my peers' |
//! | [`exchange`] | when a worker is better off with another code |
//! | [`graveyard`] | when each code can be granted again |
//! | [`encoding`] | the bytes of a record |
//!
//! # What is not here
//!
//! No IO, no async, no clock, no randomness: times and nonces are arguments. No dependency but `snowmint-core`, and
//! no `unsafe`. Stores that keep anything are crates of their own.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `memory` | `MemoryStore` |
//! | `conformance` | the module `conformance`: the cases that every store must pass |
//! | `explore` | keepers that can be copied and compared: for a model checker, never for a program that mints |

#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod agreement;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod cutover;
pub mod desk;
mod driver;
pub mod encoding;
mod error;
pub mod exchange;
pub mod graveyard;
pub mod keeper;
#[cfg(feature = "memory")]
mod memory;
pub mod protocol;
mod record;
pub mod regions;
pub mod remote;
pub mod store;

pub use cutover::CutoverRefusal;
pub use desk::{CallError, Desk, DeskConfig};
pub use driver::{Step, perform, step};
pub use encoding::DecodeError;
pub use error::{StoreError, Subject};
pub use keeper::{
    EMBEDDED_WINDOW_MS_DEFAULT, Event, FLEET_WINDOW_MS_DEFAULT, Hindrance, Keeper, KeeperConfig,
    KeeperConfigError, Loss, Notice, Output, Phase, Reply, Request, RequestId, Stopped, Then, View,
    WINDOW_MS_MIN,
};
#[cfg(feature = "memory")]
pub use memory::{MemoryBackup, MemoryStore};
pub use protocol::{FENCE_QUARANTINE_MS_DEFAULT, LeaseRefusal, NoneLeft, Now};
pub use record::{
    CODES_MAX, ClusterError, ClusterRecord, CodeRecord, FORMER_LAYOUTS_MAX, FormerLayout, OWNER_CHARS_MAX,
    Owner, OwnerError, State,
};
pub use remote::{LeaseService, RemoteConfig, RemoteEvent, RemoteKeeper};
pub use store::{Revision, Store, Stored, init};

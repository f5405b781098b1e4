//! A deterministic world around the real core, protocol and keeper: ordinary load never reaches the dangerous edge,
//! so here the edge is ordinary.
//!
//! One seed, one run. A [`Scenario`] says what kind of world it is; a [`World`] is stepped, one thing at a time, and
//! knows what nobody in it can: who issued what. It breaks nothing by itself: whatever goes wrong goes wrong through
//! the ports that a real host has, too (clocks, a network, a store, a process that stands still).
//!
//! ```
//! use snowmint_sim::{Scenario, World};
//!
//! let mut world = World::new(Scenario::from_seed(7));
//! world.record();
//! while world.step() {
//!     for line in world.take_lines() {
//!         let _ = line.to_string(); // A time line to read.
//!     }
//! }
//! assert_eq!(world.violation(), None);
//! assert!(world.summary().ids > 0);
//! ```
//!
//! # What is modelled
//!
//! | part | how |
//! |---|---|
//! | wall clocks | [`Shape`]: steady, drifting, stepping, smeared, sawtooth, frozen; honest about it or not; one of a region hours ahead among right ones |
//! | boot-time clocks | true time, from anywhere |
//! | networks | [`Network`]: lost, late and doubled messages; hosts and regions that are cut off |
//! | stores | `MemoryStore`, with errors, backups, restores and their recovery, deleted records |
//! | processes | pause anywhere, also between the check of the bounds and the issue; crash; are cloned with their memory |
//! | operators | fence, free, restore, cut over |
//!
//! A smaller world to watch, with faults by hand, is [`lanes`].
//!
//! What must never happen is a [`Rule`]. Uniqueness is exact: cursors of each code as [`Spans`].
//!
//! # What is not here
//!
//! No clock, no thread, no randomness but the seed's: the same run on every machine, in a browser too. Memory clones
//! *inside* a window that was confirmed before the clone are not promised to be unique, and are counted as excused.

#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod clock;
mod host;
pub mod lanes;
mod ledger;
mod rng;
mod scenario;
mod spans;
mod world;

pub use clock::{Shape, Step, WallClock};
pub use ledger::{Rule, Summary, Violation};
pub use rng::Rng;
pub use scenario::{BEGIN_MS, Clocks, Fault, Load, Network, Scenario};
pub use spans::Spans;
pub use world::{Line, Machine, World};

/// Runs the world of a scenario to its end.
pub fn run(scenario: Scenario) -> (Summary, Option<Violation>) {
    let mut world = World::new(scenario);
    world.run();
    (world.summary().clone(), world.violation().cloned())
}

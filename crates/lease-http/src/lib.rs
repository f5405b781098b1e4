//! Leases over HTTP, for runtimes that cannot reach a store.
//!
//! A service has the store, and runs the operations of [`snowmint_lease::desk`] on its own clock. A runtime keeps its code
//! by a [`snowmint_lease::RemoteKeeper`], which makes calls; this crate carries them.
//!
//! | module | holds |
//! |---|---|
//! | [`message`] | calls and answers, as HTTP carries them |
//! | [`problem`] | errors, as problem documents |
//! | [`service`] | a service's side for whatever server there is |
//! | [`client`] (feature `client`, on by default) | the blocking client |
//!
//! ```no_run
//! use snowmint_lease::{Now, Owner, RemoteConfig, RemoteEvent, RemoteKeeper, remote};
//! use snowmint_lease_http::{HttpConfig, HttpLeases, Secret};
//!
//! # let mut clock = || Now { boot_ms: 5_000, wall_ms: 1_750_000_000_000, clock_error_ms: 1 };
//! # let mut drawn = 0;
//! # let mut nonce = || { drawn += 1; drawn };
//! let bases = vec!["http://10.0.0.1:8080".into(), "http://10.0.0.2:8080".into()];
//! let service = HttpLeases::new(HttpConfig { token: Some(Secret::new("...")), ..HttpConfig::new(bases) })?;
//! let mut keeper = RemoteKeeper::new(RemoteConfig::new(Owner::new("edge-7")?))?;
//! let step = remote::step(&mut keeper, RemoteEvent::Time, &service, &mut clock, &mut nonce);
//! # let _ = step.next_wake_boot_ms;
//! if let Some(grant) = keeper.take_grant(5_000) {
//!     assert!(keeper.ceiling_ms(grant.ticket(), 5_000) > 0);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The protocol, and why it is safe, is told in `docs/leases-over-http.md`.
//!
//! # What is not here
//!
//! No server, no environment variable, no redirect, no proxy, no number in JSON that has more than 32 bits. No `unsafe`.

#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[cfg(feature = "client")]
pub mod client;
pub mod identity;
pub mod message;
pub mod problem;
pub mod service;
mod text;

#[cfg(feature = "client")]
pub use client::{HttpConfig, HttpIdentity, HttpLeases, HttpTls, Secret};
pub use identity::{IDENTITY_PATH, read_identity};
pub use message::{PATH, REQUEST_BYTES_MAX, Request};
pub use problem::{Fault, Problem};
pub use service::{Response, is_for_leases, respond, serve};

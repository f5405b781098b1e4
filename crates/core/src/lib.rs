//! The core of Snowmint: what an ID is, and when one may be minted.
//!
//! An ID is 64 bits. Time and sequence together form the **cursor**, one integer that only grows; region and worker
//! form the **node**; the [`Layout`] says where the bits of each lie. A [`Generator`] holds the next cursor and
//! nothing else, and every rule of the system is a bound on the **tick** of what it issues next: the clock (plus a
//! lead), the **ceiling** of its lease, the durable **high-water mark**, the layout's end. What a bound forbids is a
//! [`Refusal`], which names the bound and how long to wait.
//!
//! ```
//! use core::num::NonZeroU32;
//! use snowmint_core::{Bounds, Generator, Grant, Layout, Policy};
//!
//! // A lease would grant the node and its floor; here nobody else mints.
//! let layout = Layout::SNOWMINT;
//! let grant = Grant::new(layout.node(0, 1)?, 1, 0);
//! let mut generator = Generator::new(layout, grant, Policy::CLASSIC)?;
//!
//! let now_ms = 1_750_000_000_000; // The caller reads the clock.
//! let run = generator.mint(now_ms, &Bounds::OPEN, NonZeroU32::new(3).unwrap())?;
//! let ids: Vec<u64> = run.into_iter().map(u64::from).collect();
//! assert_eq!(ids[1], ids[0] + 1);
//! assert_eq!(layout.decode(ids[2].into()).worker, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Reading IDs
//!
//! | question | answer |
//! |---|---|
//! | what is this text? | [`TextForm`], [`ForeignForm`]; [`WideId`] for UUIDs and other wide kinds |
//! | what does this ID hold? | [`Layout::values`], [`Layout::time_of`], [`Layout::warnings`] |
//! | which scheme made it? | [`Ranking`], over every [`Scheme`] |
//! | where in a line of a log is one? | [`words`], [`is_id_like`] |
//! | which IDs have this time? | [`Layout::ids_at`] |
//! | which layout holds what I need? | [`Requirements`] |
//! | how do I change my layout? | [`CutoverPlan`], [`FormatHistory`] |
//!
//! # Features
//!
//! `serde`: [`Id`] as a string of digits in JSON and its like. Off by default, and then there is no dependency.
//!
//! # What is not here
//!
//! No clock is read, nobody sleeps, nothing is allocated, no thread is started: time and bounds are arguments. There
//! is no dependency by default, and no `unsafe`. Leases are made in `snowmint-lease`, whose grants are what a generator takes.
//!
//! # Words
//!
//! | word | meaning |
//! |---|---|
//! | tick | the layout's unit of time, counted from its epoch |
//! | sequence | counts within a tick |
//! | cursor | `(tick << sequence bits) \| sequence` |
//! | node | region and worker |
//! | grant | the right to mint for one node, above a floor |
//! | run | IDs of one tick: first, stride, count |
//! | scheme | a layout that others mint by, and what is known of it |
//! | form | a way to write an ID as text |

#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(test, snowmint_mutations))]
extern crate std;

mod catalogue;
mod extract;
mod fields;
mod generator;
mod history;
mod id;
mod layout;
#[doc(hidden)]
pub mod mutation;
mod policy;
mod ports;
mod rank;
mod refusal;
mod requirements;
#[cfg(feature = "serde")]
mod serde;
mod text;
mod time;
mod trust;
mod warning;
mod wide;

pub use catalogue::{Caution, Scheme, Status};
pub use extract::{is_id_like, words};
#[cfg(target_has_atomic = "64")]
pub use generator::AtomicGenerator;
pub use generator::{Bounds, CursorCell, Generator, Grant, ObserveError, SharedGenerator};
pub use history::{CutoverError, CutoverPlan, FORMATS_MAX, Format, FormatHistory, HistoryError, Side};
pub use id::{Id, Node, Run, RunIds};
pub use layout::{
    FIELDS_MAX, Field, FieldError, FieldNameError, ID_BITS, Layout, LayoutError, LayoutTextError, NS_PER_MS,
    NotBegunError, Parts, Role,
};
pub use policy::{
    CLOCK_ERROR_MS_MAX_DEFAULT, ConfigError, HYBRID_LEAD_MS, KERNEL_CLOCK_ERROR_MS_MAX_DEFAULT,
    MARK_WINDOW_MS_DEFAULT, POLICY_MS_MAX, Policy, PolicyError, PolicyLength, WAIT_MS_MAX_DEFAULT,
};
pub use ports::{LeaseError, MarkError, MintError, Minter, Ports, StartError};
pub use rank::{CANDIDATES_MAX, Candidate, Form, Ranking, Reason, ReasonKind, Verdict};
pub use refusal::{Refusal, Wait};
pub use requirements::{
    Check, Derived, MS_PER_YEAR, Margin, Need, Requirements, RequirementsError, Shortfall, WayOut,
};
pub use text::{
    DECIMAL_BYTES_MAX, ForeignForm, Found, ParseError, ParseErrorKind, Text, TextForm, write_decimal,
};
pub use time::{TickError, TickIds, TimeError, TimeErrorKind, TimeText, UnixTime};
pub use trust::ClockTrust;
pub use warning::{Warning, Warnings, written_by_javascript};
pub use wide::{WideId, WideKind};

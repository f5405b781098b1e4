//! Clocks: the wall clock that IDs are stamped by, the boot-time clock that leases are kept by, and who vouches for the
//! first. docs/clocks.md is the operator's page.
//!
//! A [`Source`] tells a bound of the wall clock's error when it is asked; `watch` says what that bound is worth later;
//! a [`WatchedClock`] asks in the background. Which bound is believed is core's to say ([`snowmint_core::ClockTrust`]).

mod chrony;
mod clock_bound;
mod kernel;
mod source;
mod watch;
mod watched;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

pub use chrony::Chrony;
pub use clock_bound::ClockBound;
pub use kernel::Kernel;
pub use source::{
    Assumed, ChosenSource, ClockSource, DRIFT_PPM_MAX, Sample, Source, SourceError, StepAwareness,
};
pub use watched::{ClockNotice, ClockObserver, WatchedClock};

/// How close to the end of a pause the thread stops sleeping and spins: the operating system wakes a sleeper late by
/// about this much, and a late minter loses a part of its tick.
const SPIN: Duration = Duration::from_micros(300);

/// How long it may take to read both clocks for the two to be called one moment.
const PAIR_MAX: Duration = Duration::from_millis(1);

/// What a host needs of a machine's clocks.
pub trait Clock: Send + Sync {
    /// The wall clock in Unix milliseconds, rounded down. MAY step back. 0 for a clock before 1970.
    fn now_ms(&self) -> u64;

    /// The largest error of the wall clock in milliseconds. MUST be `u32::MAX` when unknown.
    fn error_bound_ms(&self) -> u32;

    /// The boot-time clock in milliseconds: MUST NOT step back, and MUST go on while the machine sleeps.
    fn boot_ms(&self) -> u64;

    /// Waits until the wall clock reads `until_ms` (Unix milliseconds), for `at_most` at the longest. MAY return
    /// earlier.
    fn pause(&self, until_ms: u64, at_most: Duration);
}

/// The machine's own clocks.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    error_bound_ms: u32,
}

impl SystemClock {
    /// The machine's clocks, with an error bound that the operator answers for; `u32::MAX`: unknown.
    pub const fn new(error_bound_ms: u32) -> Self {
        Self { error_bound_ms }
    }
}

/// The wall clock's distance from 1970; nothing before it.
fn since_unix_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// How long ago the machine booted, its sleep included.
fn since_boot() -> Duration {
    since(ClockId::Boottime)
}

/// What a clock reads that counts from boot; so it is never negative.
fn since(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// In nanoseconds; 2^64 of them are 584 years.
fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

/// One moment, by both clocks, in nanoseconds since boot and since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    boot_ns: u64,
    wall_ns: u64,
}

impl Reading {
    /// Reads both clocks. `None`: this thread was held up each time, and the two are no pair.
    fn now() -> Option<Self> {
        (0..3).find_map(|_| {
            let before = since_boot();
            let wall = since_unix_epoch();
            let after = since_boot();
            let took = after.saturating_sub(before);
            (took <= PAIR_MAX)
                .then(|| Self { boot_ns: nanos(before.saturating_add(took / 2)), wall_ns: nanos(wall) })
        })
    }
}

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        u64::try_from(since_unix_epoch().as_millis()).unwrap_or(u64::MAX)
    }

    fn error_bound_ms(&self) -> u32 {
        self.error_bound_ms
    }

    fn boot_ms(&self) -> u64 {
        nanos(since_boot()) / 1_000_000
    }

    fn pause(&self, until_ms: u64, at_most: Duration) {
        let deadline = std::time::Instant::now() + at_most;
        let until = Duration::from_millis(until_ms);
        loop {
            // Both are read anew each time: the wall clock may be set while we wait.
            let wall_left = until.saturating_sub(since_unix_epoch());
            let left = wall_left.min(deadline.saturating_duration_since(std::time::Instant::now()));
            if left.is_zero() {
                return;
            }
            match left.checked_sub(SPIN) {
                Some(sleep) if !sleep.is_zero() => std::thread::sleep(sleep),
                _ => std::hint::spin_loop(),
            }
        }
    }
}

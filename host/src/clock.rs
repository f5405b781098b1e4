//! Clocks: the wall clock that IDs are stamped by, and the boot-time clock that leases are kept by.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// How close to the end of a pause the thread stops sleeping and spins: the operating system wakes a sleeper late by
/// about this much, and a late minter loses a part of its tick.
const SPIN: Duration = Duration::from_micros(300);

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

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        u64::try_from(since_unix_epoch().as_millis()).unwrap_or(u64::MAX)
    }

    fn error_bound_ms(&self) -> u32 {
        self.error_bound_ms
    }

    fn boot_ms(&self) -> u64 {
        let now = clock_gettime(ClockId::Boottime);
        // Neither is negative: the clock counts from boot.
        u64::try_from(now.tv_sec).unwrap_or(0) * 1_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
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

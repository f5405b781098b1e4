//! A clock whose error somebody vouches for.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use snowmint_core::ClockTrust;

use super::source::{Sample, Source, SourceError};
use super::watch::Watch;
use super::{Clock, Reading, SystemClock, nanos, since_boot};

/// How often both clocks are compared when nobody mints; a mint compares them at each tick.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The machine's clocks, with an error bound that a [`Source`] vouches for.
///
/// The source is asked in the background, so that no mint waits for it. Between answers its bound grows by 500 ppm, and
/// after 30 s without one it is unknown. Each reading of the bound compares the wall clock with the boot-time clock: a
/// step of more than 5 ms makes the bound unknown until the source is asked again, and counts as an error of its own
/// until the source has measured again. Above the limit the clock is refused, until its bound is at 80 % of it
/// ([`ClockTrust`]).
///
/// Dropping it ends its thread, without waiting for a source that hangs.
pub struct WatchedClock {
    shared: Arc<Shared>,
}

/// What befell a watched clock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClockNotice {
    /// The wall clock was stepped.
    Stepped {
        /// By how much, in milliseconds; below 0, it was set back.
        by_ms: i64,
        /// How many steps were seen, this one included.
        steps: u64,
    },
    /// The source does not vouch for the clock.
    Unsure {
        /// Why.
        error: SourceError,
    },
    /// The source vouches for the clock again.
    Sure,
    /// The bound is above the limit: nothing is minted by this clock.
    Refused {
        /// The bound in milliseconds; `u32::MAX` when it is unknown.
        error_bound_ms: u32,
        /// The limit.
        error_ms_max: u32,
    },
    /// The clock is believed again.
    Believed {
        /// The bound in milliseconds.
        error_bound_ms: u32,
    },
}

impl fmt::Display for ClockNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stepped { by_ms, steps } => {
                let direction = if *by_ms < 0 { "back" } else { "forward" };
                write!(
                    f,
                    "the wall clock was stepped {direction} by {} ms (step {steps})",
                    by_ms.unsigned_abs()
                )
            }
            Self::Unsure { error } => write!(f, "the clock's source does not vouch for it: {error}"),
            Self::Sure => f.write_str("the clock's source vouches for it again"),
            Self::Refused { error_bound_ms: u32::MAX, error_ms_max } => write!(
                f,
                "the clock's error bound is unknown, and the limit is {error_ms_max} ms: nothing is minted by it"
            ),
            Self::Refused { error_bound_ms, error_ms_max } => write!(
                f,
                "the clock may be off by {error_bound_ms} ms, and the limit is {error_ms_max} ms: nothing is minted \
                 by it"
            ),
            Self::Believed { error_bound_ms } => {
                write!(f, "the clock is believed again: it may be off by {error_bound_ms} ms")
            }
        }
    }
}

/// Told of each notice, on the clock's own thread; for logs and metrics. MUST NOT block.
pub type ClockObserver = Box<dyn FnMut(&ClockNotice) + Send>;

struct Shared {
    name: &'static str,
    way_out: &'static str,
    state: Mutex<State>,
    /// There is something to do for the thread, or somebody waits for its first answer.
    changed: Condvar,
}

struct State {
    watch: Watch,
    trust: ClockTrust,
    /// What the source last refused for.
    error: Option<SourceError>,
    is_dropped: bool,
    /// The source is to be asked at once.
    is_wanted: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while the lock was held leaves numbers that were true a moment before, and they age.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares the clocks, and judges the bound. No lock is held over anything slow.
    fn bound_ms(&self) -> u32 {
        let mut state = self.state();
        // Read with the lock held: a reading that came late would look like a step back.
        let reading = Reading::now();
        let boot_ns = reading.map_or_else(|| nanos(since_boot()), |reading| reading.boot_ns);
        if let Some(reading) = reading
            && state.watch.look(reading).is_some()
        {
            state.is_wanted = true;
            self.changed.notify_all();
        }
        if !state.watch.was_asked() {
            // Unknown, but nothing that the source is to make good for.
            return u32::MAX;
        }
        let bound_ms = state.watch.bound_ms(boot_ns);
        state.trust.judge(bound_ms)
    }
}

impl WatchedClock {
    /// Watches the machine's clock by `source`, believing it up to a bound of `error_ms_max` milliseconds (`u32::MAX`:
    /// any bound will do). The error is the operating system's, which starts no thread.
    pub fn start(
        source: Box<dyn Source>,
        error_ms_max: u32,
        observer: ClockObserver,
    ) -> std::io::Result<Self> {
        let mut watch = Watch::default();
        if let Some(reading) = Reading::now() {
            watch.look(reading);
        }
        let shared = Arc::new(Shared {
            name: source.name(),
            way_out: source.way_out(),
            state: Mutex::new(State {
                watch,
                trust: ClockTrust::new(error_ms_max),
                error: None,
                is_dropped: false,
                is_wanted: true,
            }),
            changed: Condvar::new(),
        });
        let watcher = Watcher {
            source,
            observer,
            shared: Arc::clone(&shared),
            told_steps: 0,
            told_error: None,
            told_refused: false,
        };
        std::thread::Builder::new().name("snowmint-clock".into()).spawn(move || watcher.run())?;
        Ok(Self { shared })
    }

    /// Waits until the source was asked once, for `at_most`; so that a bound is known from the start if there is one.
    pub fn wait(&self, at_most: Duration) {
        let state = self.shared.state();
        // Whether it was, or time is up, the bound tells.
        drop(self.shared.changed.wait_timeout_while(state, at_most, |state| !state.watch.was_asked()));
    }

    /// The source's name.
    pub fn source(&self) -> &'static str {
        self.shared.name
    }

    /// The largest bound that is believed, in milliseconds; `u32::MAX`: any.
    pub fn error_ms_max(&self) -> u32 {
        self.shared.state().trust.error_ms_max()
    }

    /// How many steps of the wall clock were seen.
    pub fn steps(&self) -> u64 {
        self.shared.state().watch.steps()
    }

    /// The last step in milliseconds, below 0 for a clock that was set back; 0 if there was none.
    pub fn last_step_ms(&self) -> i64 {
        rounded_ms(self.shared.state().watch.last_step_ns())
    }

    /// Whether minting by this clock is refused now, and why: names the source and what to do.
    pub fn refusal(&self) -> Option<String> {
        let bound_ms = self.shared.bound_ms();
        let state = self.shared.state();
        let limit_ms = state.trust.error_ms_max();
        if bound_ms <= limit_ms {
            return None;
        }
        let (name, way_out) = (self.shared.name, self.shared.way_out);
        let what = match &state.error {
            Some(error) if bound_ms == u32::MAX => error.to_string(),
            None if bound_ms == u32::MAX => {
                "it has not answered, or the clock was stepped a moment ago".into()
            }
            _ => format!("the clock may be off by {bound_ms} ms, and the limit is {limit_ms} ms"),
        };
        Some(format!(
            "the clock's error must be at most {limit_ms} ms, and its source `{name}` does not vouch for that: \
             {what}. To synchronise the clock: {way_out}"
        ))
    }
}

/// Away from 0, so that no step is called none.
fn rounded_ms(ns: i64) -> i64 {
    let ms = i64::try_from(ns.unsigned_abs().div_ceil(1_000_000)).unwrap_or(i64::MAX);
    if ns < 0 { -ms } else { ms }
}

impl Clock for WatchedClock {
    fn now_ms(&self) -> u64 {
        SystemClock::new(0).now_ms()
    }

    fn error_bound_ms(&self) -> u32 {
        self.shared.bound_ms()
    }

    fn boot_ms(&self) -> u64 {
        SystemClock::new(0).boot_ms()
    }

    fn pause(&self, until_ms: u64, at_most: Duration) {
        SystemClock::new(0).pause(until_ms, at_most);
    }
}

impl Drop for WatchedClock {
    fn drop(&mut self) {
        self.shared.state().is_dropped = true;
        self.shared.changed.notify_all();
    }
}

impl fmt::Debug for WatchedClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state();
        f.debug_struct("WatchedClock")
            .field("source", &self.shared.name)
            .field("watch", &state.watch)
            .field("trust", &state.trust)
            .finish_non_exhaustive()
    }
}

/// The clock's thread.
struct Watcher {
    source: Box<dyn Source>,
    observer: ClockObserver,
    shared: Arc<Shared>,
    told_steps: u64,
    told_error: Option<SourceError>,
    told_refused: bool,
}

impl Watcher {
    fn run(mut self) {
        let interval = self.source.interval();
        let mut asked = None;
        loop {
            // Before the source is asked, so that a step until then ends only what was known before.
            self.shared.bound_ms();
            let is_wanted = std::mem::take(&mut self.shared.state().is_wanted);
            if is_wanted || asked.is_none_or(|asked: Instant| asked.elapsed() >= interval) {
                asked = Some(Instant::now());
                self.ask();
            }
            self.tell();
            let state = self.shared.state();
            let waited = self
                .shared
                .changed
                .wait_timeout_while(state, LOOK_INTERVAL, |state| !state.is_dropped && !state.is_wanted);
            if waited.unwrap_or_else(PoisonError::into_inner).0.is_dropped {
                return;
            }
        }
    }

    fn ask(&mut self) {
        let steps = self.shared.state().watch.steps();
        let asked_boot_ns = nanos(since_boot());
        let result: Result<Sample, SourceError> = self.source.sample();
        self.shared.bound_ms();
        let mut state = self.shared.state();
        // An answer that a step fell into may be of before it; the step has asked for another.
        if state.watch.steps() == steps {
            state.watch.sampled(asked_boot_ns, &result);
            state.error = result.err();
            self.shared.changed.notify_all();
        }
    }

    /// Tells what has changed, with no lock held.
    fn tell(&mut self) {
        let bound_ms = self.shared.bound_ms();
        let mut notices = Vec::new();
        let state = self.shared.state();
        if state.watch.steps() != self.told_steps {
            self.told_steps = state.watch.steps();
            let by_ms = rounded_ms(state.watch.last_step_ns());
            notices.push(ClockNotice::Stepped { by_ms, steps: self.told_steps });
        }
        // Not each of two errors that differ only in their words, as with a number in them.
        if state.error.is_some() != self.told_error.is_some() {
            self.told_error.clone_from(&state.error);
            notices.push(match &state.error {
                Some(error) => ClockNotice::Unsure { error: error.clone() },
                None => ClockNotice::Sure,
            });
        }
        let is_refused = !state.trust.is_trusted();
        if is_refused != self.told_refused {
            self.told_refused = is_refused;
            notices.push(if is_refused {
                let error_ms_max = state.trust.error_ms_max();
                ClockNotice::Refused { error_bound_ms: bound_ms, error_ms_max }
            } else {
                ClockNotice::Believed { error_bound_ms: bound_ms }
            });
        }
        drop(state);
        for notice in notices {
            // What an observer does is its own; the clock is watched all the same.
            let _ = catch_unwind(AssertUnwindSafe(|| (self.observer)(&notice)));
        }
    }
}

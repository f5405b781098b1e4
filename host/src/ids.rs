//! IDs one at a time, out of runs.

use std::sync::Arc;
use std::time::Duration;

use snowmint_core::{Id, Run, RunIds};

use crate::pool::Pool;
use crate::worker::{Worker, WorkerError};

/// How many IDs a handle takes at once. The source is asked once for so many; what is left of them when their millisecond
/// is over becomes a gap.
const RUN_COUNT: u32 = 256;

/// What gives runs to [`Ids`]: a worker, several as one, or a service elsewhere.
pub trait RunSource: Send + Sync {
    /// Why there is no run.
    type Error;

    /// A run of up to `max` IDs of one tick. MAY wait for a moment.
    fn take(&self, max: u32) -> Result<Run, Self::Error>;

    /// The greatest ID that was observed: what is left of runs that were taken before is dropped. 0: none.
    fn observed(&self) -> Id;

    /// The wall clock in Unix milliseconds: a run is dropped when the millisecond in which it was taken is over.
    fn now_ms(&self) -> u64;
}

impl RunSource for Worker {
    type Error = WorkerError;

    fn take(&self, max: u32) -> Result<Run, WorkerError> {
        self.mint(max)
    }

    fn observed(&self) -> Id {
        self.observed()
    }

    fn now_ms(&self) -> u64 {
        self.clock().now_ms()
    }
}

impl RunSource for Pool {
    type Error = WorkerError;

    fn take(&self, max: u32) -> Result<Run, WorkerError> {
        let wait_ms_max = self.workers().first().map_or(0, |worker| worker.policy().wait_ms_max);
        self.mint(max, None, Duration::from_millis(u64::from(wait_ms_max)))
    }

    fn observed(&self) -> Id {
        self.observed()
    }

    fn now_ms(&self) -> u64 {
        self.now_ms()
    }
}

/// A handle for one thread: gives IDs one at a time out of runs that it takes from what several handles share.
///
/// A clone is a handle of its own, for another thread. IDs of one handle of a [`Worker`] ascend; of a [`Pool`], and
/// between handles, order is that of milliseconds only.
///
/// | call | gives | asks the source |
/// |---|---|---|
/// | [`Ids::next_id`] | one ID, stamped now | once for 256 of one millisecond |
/// | [`Worker::mint`] | a run of up to `max` of one tick | once |
#[derive(Debug)]
pub struct Ids<S: RunSource = Worker> {
    source: Arc<S>,
    run: Option<RunIds>,
    /// When the run was taken (Unix milliseconds).
    taken_ms: u64,
    process: u32,
}

impl<S: RunSource> Ids<S> {
    /// A handle on what gives runs.
    pub fn new(source: Arc<S>) -> Self {
        Self { source, run: None, taken_ms: 0, process: std::process::id() }
    }

    /// The next ID. What is left of a run is dropped when its millisecond is over, so that IDs are never stale, and when
    /// an ID above it was observed.
    pub fn next_id(&mut self) -> Result<Id, S::Error> {
        // A fork holds a copy of the run.
        let is_fresh = self.taken_ms == self.source.now_ms() && self.process == std::process::id();
        let observed = self.source.observed();
        let run = self.run.as_mut().filter(|run| is_fresh && run.rest().first() > observed);
        if let Some(id) = run.and_then(Iterator::next) {
            return Ok(id);
        }
        let mut run = self.source.take(RUN_COUNT)?.into_iter();
        // After the mint, which may have waited for the next millisecond.
        self.taken_ms = self.source.now_ms();
        let id = run.next();
        self.run = Some(run);
        match id {
            Some(id) => Ok(id),
            // A run is never empty; if it were, the next is asked for.
            None => self.next_id(),
        }
    }
}

impl<S: RunSource> Clone for Ids<S> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.source))
    }
}

//! IDs one at a time, out of runs.

use std::sync::Arc;
use std::time::Instant;

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

    /// Counts the periods for which IDs are fresh: what is left of a run is dropped when the one is over in which it was
    /// taken. For a worker a period is a millisecond of the wall clock.
    fn period(&self) -> u64;
}

impl RunSource for Worker {
    type Error = WorkerError;

    fn take(&self, max: u32) -> Result<Run, WorkerError> {
        self.mint(max)
    }

    fn observed(&self) -> Id {
        self.observed()
    }

    fn period(&self) -> u64 {
        self.clock().now_ms()
    }
}

impl RunSource for Pool {
    type Error = WorkerError;

    fn take(&self, max: u32) -> Result<Run, WorkerError> {
        self.mint(max, None, self.wait_max())
    }

    fn observed(&self) -> Id {
        self.observed()
    }

    fn period(&self) -> u64 {
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
/// | [`Ids::next_id`] | one ID, stamped now | once for 256 of one period |
/// | [`Ids::next_id_async`] | the same, in a task | the same |
/// | [`Worker::mint`] | a run of up to `max` of one tick | once |
#[derive(Debug)]
pub struct Ids<S: RunSource = Worker> {
    source: Arc<S>,
    run: Option<RunIds>,
    /// The period in which the run was taken.
    taken_in: u64,
    process: u32,
}

impl<S: RunSource> Ids<S> {
    /// A handle on what gives runs.
    pub fn new(source: Arc<S>) -> Self {
        Self { source, run: None, taken_in: 0, process: std::process::id() }
    }

    /// The next ID. What is left of a run is dropped when its period is over, so that IDs are never stale, and when an ID
    /// above it was observed.
    pub fn next_id(&mut self) -> Result<Id, S::Error> {
        loop {
            if let Some(id) = self.held() {
                return Ok(id);
            }
            let run = self.source.take(RUN_COUNT)?;
            self.hold(run);
        }
    }

    /// The next ID of the run that is held, if it is still fresh.
    fn held(&mut self) -> Option<Id> {
        // A fork holds a copy of the run.
        let is_fresh = self.taken_in == self.source.period() && self.process == std::process::id();
        let observed = self.source.observed();
        self.run.as_mut().filter(|run| is_fresh && run.rest().first() > observed)?.next()
    }

    /// After the mint, which may have waited for the next period.
    fn hold(&mut self, run: Run) {
        self.taken_in = self.source.period();
        self.process = std::process::id();
        self.run = Some(run.into_iter());
    }
}

impl Ids<Pool> {
    /// As [`Ids::next_id`], for a task of an async runtime: waits without blocking its thread, by Tokio's timer.
    pub async fn next_id_async(&mut self) -> Result<Id, WorkerError> {
        let mut give_up_at = None;
        loop {
            if let Some(id) = self.held() {
                return Ok(id);
            }
            let error = match self.source.try_mint(RUN_COUNT, None) {
                Ok(run) => {
                    self.hold(run);
                    continue;
                }
                Err(error) => error,
            };
            let now = Instant::now();
            let give_up_at = *give_up_at.get_or_insert(now + self.source.wait_max());
            match error.pause(give_up_at.saturating_duration_since(now)) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(error),
            }
        }
    }
}

impl<S: RunSource> Clone for Ids<S> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.source))
    }
}

//! IDs one at a time, out of runs.

use std::sync::Arc;

use snowmint_core::{Id, RunIds};

use crate::worker::{Worker, WorkerError};

/// How many IDs a handle takes at once. The component is entered once for so many; what is left of them when their
/// millisecond is over becomes a gap.
const RUN_COUNT: u32 = 256;

/// A handle for one thread: gives IDs one at a time out of runs that it takes from a shared [`Worker`].
///
/// A clone is a handle of its own, for another thread. IDs of one handle ascend; between handles order is that of
/// milliseconds only.
///
/// | call | gives | enters the component |
/// |---|---|---|
/// | [`Ids::next_id`] | one ID, stamped now | once for 256 of one millisecond |
/// | [`Worker::mint`] | a run of up to `max` of one tick | once |
#[derive(Debug)]
pub struct Ids {
    worker: Arc<Worker>,
    run: Option<RunIds>,
    /// When the run was taken (Unix milliseconds).
    taken_ms: u64,
    process: u32,
}

impl Ids {
    /// A handle on a worker.
    pub fn new(worker: Arc<Worker>) -> Self {
        Self { worker, run: None, taken_ms: 0, process: std::process::id() }
    }

    /// The next ID. What is left of a run is dropped when its millisecond is over, so that IDs are never stale, and when
    /// the worker has observed an ID above it.
    pub fn next_id(&mut self) -> Result<Id, WorkerError> {
        // A fork holds a copy of the run.
        let is_fresh = self.taken_ms == self.worker.clock().now_ms() && self.process == std::process::id();
        let observed = self.worker.observed();
        let run = self.run.as_mut().filter(|run| is_fresh && run.rest().first() > observed);
        if let Some(id) = run.and_then(Iterator::next) {
            return Ok(id);
        }
        let mut run = self.worker.mint(RUN_COUNT)?.into_iter();
        // After the mint, which may have waited for the next millisecond.
        self.taken_ms = self.worker.clock().now_ms();
        let id = run.next();
        self.run = Some(run);
        match id {
            Some(id) => Ok(id),
            // A run is never empty; if it were, the next is asked for.
            None => self.next_id(),
        }
    }
}

impl Clone for Ids {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.worker))
    }
}

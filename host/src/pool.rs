//! Several workers as one: a burst that fills one worker's tick goes on with the next.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use snowmint_core::{Id, Run, Wait};

use crate::engine::EngineError;
use crate::worker::{Worker, WorkerError};

/// The most IDs that one call takes.
pub const COUNT_MAX: u32 = 1_000_000;

/// Workers of one layout and region that mint as one.
///
/// | call | gives | waits |
/// |---|---|---|
/// | [`Pool::try_mint`] | one run, of the first worker that has one | no |
/// | [`Pool::mint`] | one run | for the policy's longest wait at most |
/// | [`Pool::try_mint_all`] | what can be had now of so many IDs | no |
/// | [`crate::Ids::next_id`] | one ID, out of runs | as [`Pool::mint`] |
///
/// Order is that of one worker within a run, and that of milliseconds between runs. Where an ID must be greater than
/// another's, give that as `after`.
#[derive(Debug)]
pub struct Pool {
    workers: Vec<Worker>,
    /// Where the next call begins, so that calls at once do not wait for one worker's lock.
    next: AtomicUsize,
}

/// What could be had of so many IDs.
#[derive(Debug, Default)]
pub struct Taken {
    /// Runs, each of one tick of one worker.
    pub runs: Vec<Run>,
    /// How many IDs they hold.
    pub count: u64,
    /// Why there are no more, if fewer than asked for.
    pub error: Option<WorkerError>,
}

impl Pool {
    /// These workers as one. They MUST be of one layout and region, and follow one clock. `None`: there is none.
    pub fn new(workers: Vec<Worker>) -> Option<Self> {
        (!workers.is_empty()).then(|| Self { workers, next: AtomicUsize::new(0) })
    }

    /// The workers.
    pub fn workers(&self) -> &[Worker] {
        &self.workers
    }

    /// The wall clock that IDs are stamped by, in Unix milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.workers.first().map_or(0, |worker| worker.clock().now_ms())
    }

    /// The longest wait that the policy allows.
    pub(crate) fn wait_max(&self) -> Duration {
        let wait_ms_max = self.workers.first().map_or(0, |worker| worker.policy().wait_ms_max);
        Duration::from_millis(u64::from(wait_ms_max))
    }

    /// The greatest ID that any worker observed; 0 if none was.
    pub(crate) fn observed(&self) -> Id {
        self.workers.iter().map(Worker::observed).max().unwrap_or(Id::new(0))
    }

    /// A run of up to `max` IDs of one tick, of the first worker that has one. `after`: all greater than this ID.
    ///
    /// The error is that of the worker that can be waited for least long.
    pub fn try_mint(&self, max: u32, after: Option<Id>) -> Result<Run, WorkerError> {
        let from = self.next.fetch_add(1, Ordering::Relaxed);
        let (head, tail) = self.workers.split_at(from % self.workers.len());
        let mut least: Option<WorkerError> = None;
        for worker in tail.iter().chain(head) {
            match Self::mint_after(worker, max, after) {
                Ok(run) => return Ok(run),
                Err(error) => {
                    if least.as_ref().is_none_or(|least| is_sooner(&error, least)) {
                        least = Some(error);
                    }
                }
            }
        }
        Err(least.unwrap_or(WorkerError::Slow))
    }

    fn mint_after(worker: &Worker, max: u32, after: Option<Id>) -> Result<Run, WorkerError> {
        if let Some(after) = after {
            worker.try_observe(after)?;
        }
        worker.try_mint(max)
    }

    /// As many of `count` IDs as can be had now, over all workers.
    pub fn try_mint_all(&self, count: u64, after: Option<Id>) -> Taken {
        let mut taken = Taken::default();
        while taken.count < count {
            let left = u32::try_from(count - taken.count).unwrap_or(u32::MAX);
            match self.try_mint(left, after) {
                Ok(run) => {
                    taken.count += u64::from(run.count());
                    taken.runs.push(run);
                }
                Err(error) => {
                    taken.error = Some(error);
                    break;
                }
            }
        }
        taken
    }

    /// As [`Pool::try_mint`], waiting for `wait` at most. Holds no lock meanwhile.
    pub fn mint(&self, max: u32, after: Option<Id>, wait: Duration) -> Result<Run, WorkerError> {
        let mut give_up_at = None;
        loop {
            let error = match self.try_mint(max, after) {
                Ok(run) => return Ok(run),
                Err(error) => error,
            };
            let now = Instant::now();
            let left = give_up_at.get_or_insert(now + wait).saturating_duration_since(now);
            match error.pause(left) {
                Some(pause) => self.pause(&error, pause),
                None => return Err(error),
            }
        }
    }

    fn pause(&self, error: &WorkerError, pause: Duration) {
        match (error.wait(), self.workers.first().map(Worker::clock)) {
            (Wait::Ms(wait_ms), Some(clock)) => clock.pause(clock.now_ms().saturating_add(wait_ms), pause),
            _ => std::thread::sleep(pause),
        }
    }

    /// Stops every worker and gives its code back. Returns how many codes the store confirmed, and the first failure.
    pub fn stop(&self) -> (usize, Option<EngineError>) {
        let mut released = 0;
        let mut failure = None;
        std::thread::scope(|scope| {
            let stops: Vec<_> = self.workers.iter().map(|worker| scope.spawn(|| worker.stop())).collect();
            for stop in stops {
                match stop.join() {
                    Ok(Ok(true)) => released += 1,
                    Ok(Ok(false)) | Err(_) => {}
                    Ok(Err(error)) => failure = failure.take().or(Some(error)),
                }
            }
        });
        (released, failure)
    }
}

/// Whether waiting for one is known to be shorter than for the other.
fn is_sooner(one: &WorkerError, other: &WorkerError) -> bool {
    let wait_ms = |error: &WorkerError| match error.wait() {
        Wait::Ms(wait_ms) => (0, wait_ms),
        Wait::Unknown => (1, 0),
        Wait::Never => (2, 0),
    };
    wait_ms(one) < wait_ms(other)
}

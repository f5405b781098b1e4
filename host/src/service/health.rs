//! `/livez` and `/readyz`.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use snowmint::{Clock, Worker, WorkerError};
use snowmint_core::Refusal;
use utoipa::ToSchema;

use super::App;
use super::problem::Problem;

/// That the process runs, and nothing more.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Alive {
    /// Always `alive`.
    status: &'static str,
}

/// Whether the process runs. Says nothing of leases: a restart would not give one back.
#[utoipa::path(
    get,
    path = "/livez",
    tag = "operations",
    responses((status = 200, description = "It runs", body = Alive)),
)]
pub(super) async fn livez() -> Json<Alive> {
    Json(Alive { status: "alive" })
}

/// That IDs can be had.
#[derive(Debug, Serialize, ToSchema)]
#[allow(clippy::struct_field_names)] // The names are the contract's.
pub(super) struct Ready {
    /// Always `ready`.
    status: &'static str,
    /// How many workers can mint.
    workers_ready: usize,
    /// How many there are.
    workers: usize,
    /// How long minting goes on without the store, in milliseconds, by the worker that can longest.
    headroom_ms: u64,
    /// The largest error of the wall clock in milliseconds; none where it is unknown.
    clock_error_ms: Option<u32>,
}

/// Whether IDs can be had: a lease, headroom, and a clock that is believed.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "operations",
    responses(
        (status = 200, description = "IDs can be had", body = Ready),
        (status = 503, description = "None can be had: why, and for how long", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn readyz(State(app): State<Arc<App>>) -> Result<Json<Ready>, Problem> {
    if app.is_draining() {
        return Err(Problem::unavailable("draining", "the service is stopping; ask another"));
    }
    ready(&app).map(Json)
}

/// What `/readyz` says.
pub(super) fn ready(app: &App) -> Result<Ready, Problem> {
    let pool = &app.region()?.pool;
    let mut error = None;
    let mut workers_ready = 0;
    for worker in pool.workers() {
        match readiness(worker) {
            Ok(()) => workers_ready += 1,
            Err(refused) => error = Some((refused, worker.standing())),
        }
    }
    let workers = pool.workers().len();
    match error {
        Some((error, standing)) if workers_ready == 0 => {
            let problem = Problem::of_worker(&error);
            // A lost lease has a reason behind it, which is what an operator needs.
            let why = match (standing.clash, standing.hindrance) {
                (Some(clash), _) => Some(clash.to_string()),
                (None, hindrance) => hindrance.map(|hindrance| hindrance.to_string()),
            };
            Err(match (error.refusal(), why) {
                (Some(Refusal::LeaseLost), Some(why)) => Problem::unavailable(problem.reason(), why),
                _ => problem,
            })
        }
        _ => {
            let ceiling_ms = pool.workers().iter().filter_map(Worker::ceiling_ms).max();
            let clock_error_ms = app.clock.error_bound_ms();
            Ok(Ready {
                status: "ready",
                workers_ready,
                workers,
                headroom_ms: ceiling_ms.unwrap_or(0).saturating_sub(pool.now_ms()),
                clock_error_ms: (clock_error_ms != u32::MAX).then_some(clock_error_ms),
            })
        }
    }
}

/// Whether a worker can mint now, or within the wait that its policy allows.
fn readiness(worker: &Worker) -> Result<(), WorkerError> {
    match worker.probe() {
        Ok(()) => Ok(()),
        Err(error) if matches!(error.refusal(), Some(Refusal::Exhausted { .. })) => Ok(()),
        Err(error) => {
            let wait_max = Duration::from_millis(worker.policy().wait_ms_max.into());
            let is_short = matches!(error.refusal(), Some(Refusal::ClockRolledBack { .. }));
            if is_short && error.pause(wait_max).is_some() { Ok(()) } else { Err(error) }
        }
    }
}

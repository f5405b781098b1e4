//! `/metrics`: what is counted, in Prometheus' text form.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Metric, MetricFamily, MetricType};
use prometheus::{
    Encoder, Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry,
    TextEncoder,
};
use snowmint::{Bursts, Clock, Counters, Worker};
use snowmint_core::Refusal;
use snowmint_lease::graveyard::{Left, Reuse};
use snowmint_lease::store::scan_complete;
use snowmint_lease::{ClusterRecord, CodeRecord};
use snowmint_lease::{Notice, Revision, Store, StoreError, Stored};

use super::problem::Problem;
use super::{App, Region};

/// The bounds of durations, in seconds: around the 5 ms that a mint may take, and what a store takes.
const SECONDS: &[f64] = &[
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0,
];

/// Every refusal has a series from the beginning, so that a rate is never missing.
const REASONS: [&str; 9] = [
    Refusal::Stopped.reason(),
    Refusal::LayoutEnded { last_ms: 0 }.reason(),
    Refusal::LeaseLost.reason(),
    Refusal::BelowFloor { floor_ms: 0, wait_ms: 0 }.reason(),
    Refusal::Ceiling { ceiling_ms: 0 }.reason(),
    Refusal::Mark { mark_ms: 0 }.reason(),
    Refusal::ClockUncertain { error_bound_ms: 0, error_ms_max: 0 }.reason(),
    Refusal::ClockRolledBack { by_ms: 0, wait_ms: 0 }.reason(),
    Refusal::Exhausted { wait_ms: 0 }.reason(),
];

/// What is counted as it happens; the rest is read when it is asked for.
#[derive(Clone)]
pub(crate) struct Metrics {
    mint_seconds: Histogram,
    sync_seconds: Histogram,
    renew_failures: IntCounter,
}

impl Metrics {
    pub(crate) fn new() -> Result<Self, prometheus::Error> {
        let seconds = |name: &str, help: &str| {
            Histogram::with_opts(HistogramOpts::new(name, help).buckets(SECONDS.to_vec()))
        };
        Ok(Self {
            mint_seconds: seconds(
                "snowmint_mint_duration_seconds",
                "How long a request to mint took, its waits included, until its IDs were there.",
            )?,
            sync_seconds: seconds(
                "snowmint_mark_sync_duration_seconds",
                "How long the store took to make a lease's end durable, which is its high-water mark too.",
            )?,
            renew_failures: IntCounter::new(
                "snowmint_lease_renew_failures_total",
                "Renewals of leases that were not confirmed.",
            )?,
        })
    }

    pub(super) fn minted(&self, took: Duration) {
        self.mint_seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn noticed(&self, notice: &Notice) {
        if let Notice::Unconfirmed { .. } = notice {
            self.renew_failures.inc();
        }
    }

    /// A store whose swaps are timed.
    pub(crate) fn timed<S>(&self, store: S) -> Timed<S> {
        Timed { store, seconds: self.sync_seconds.clone() }
    }
}

/// A store whose swaps are timed.
pub(crate) struct Timed<S> {
    store: S,
    seconds: Histogram,
}

impl<S: Store> Store for Timed<S> {
    fn cluster(&self) -> Result<Stored<ClusterRecord>, StoreError> {
        self.store.cluster()
    }

    fn read(&self, code: u32) -> Result<Stored<CodeRecord>, StoreError> {
        self.store.read(code)
    }

    fn scan(&self) -> Result<Vec<(u32, Stored<CodeRecord>)>, StoreError> {
        self.store.scan()
    }

    fn swap(
        &self,
        code: u32,
        expected: Revision,
        cluster: Revision,
        record: &CodeRecord,
    ) -> Result<Revision, StoreError> {
        let timer = self.seconds.start_timer();
        let swapped = self.store.swap(code, expected, cluster, record);
        match &swapped {
            Ok(_) => timer.observe_duration(),
            Err(_) => {
                timer.stop_and_discard();
            }
        }
        swapped
    }

    fn swap_cluster(&self, expected: Revision, record: &ClusterRecord) -> Result<Revision, StoreError> {
        self.store.swap_cluster(expected, record)
    }

    fn create_codes(&self, codes: &[(u32, CodeRecord)]) -> Result<(), StoreError> {
        self.store.create_codes(codes)
    }

    fn create_cluster(&self, record: &ClusterRecord) -> Result<(), StoreError> {
        self.store.create_cluster(record)
    }
}

/// What is counted, in Prometheus' text form.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "operations",
    responses(
        (status = 200, description = "Metrics", body = String, content_type = "text/plain"),
        (status = 500, description = "They cannot be written", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    // The codes' states are read from the store, which blocks.
    let text = tokio::task::spawn_blocking(move || text(&app)).await;
    match text {
        Ok(Ok(text)) => {
            Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
        }
        Ok(Err(error)) => Err(broken(&error)),
        Err(error) => Err(broken(&error)),
    }
}

fn broken(error: &dyn std::fmt::Display) -> Problem {
    let status = axum::http::StatusCode::INTERNAL_SERVER_ERROR;
    Problem::new(status, "metrics", format!("the metrics cannot be written: {error}"))
}

fn text(app: &App) -> Result<Vec<u8>, prometheus::Error> {
    let registry = Registry::new();
    registry.register(Box::new(app.metrics.mint_seconds.clone()))?;
    registry.register(Box::new(app.metrics.sync_seconds.clone()))?;
    registry.register(Box::new(app.metrics.renew_failures.clone()))?;
    let region = app.region.get();
    workers(region, &registry)?;
    clock(app, region, &registry)?;
    if let Some(region) = region {
        codes(app, region, &registry)?;
    }
    let mut text = Vec::new();
    TextEncoder::new().encode(&registry.gather(), &mut text)?;
    Ok(text)
}

/// Registers a counter that stands at `value`.
fn counter(registry: &Registry, name: &str, help: &str, value: u64) -> Result<(), prometheus::Error> {
    let counter = IntCounter::new(name, help)?;
    counter.inc_by(value);
    registry.register(Box::new(counter))
}

fn gauge(registry: &Registry, name: &str, help: &str, value: f64) -> Result<(), prometheus::Error> {
    let gauge = Gauge::new(name, help)?;
    gauge.set(value);
    registry.register(Box::new(gauge))
}

/// Milliseconds as seconds; exact for 285,000 years.
#[allow(clippy::cast_precision_loss)]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}

/// Of all workers; zeros before there are any.
fn workers(region: Option<&Region>, registry: &Registry) -> Result<(), prometheus::Error> {
    let workers = region.map_or(&[][..], |region| region.pool.workers());
    let counters: Vec<Counters> = workers.iter().map(Worker::counters).collect();
    counter(
        registry,
        "snowmint_ids_minted_total",
        "IDs that were minted.",
        counters.iter().map(|counters| counters.ids).sum(),
    )?;
    let refusals = IntCounterVec::new(
        Opts::new(
            "snowmint_refusals_total",
            "Refusals to mint, by their reason; each time a worker was asked.",
        ),
        &["reason"],
    )?;
    for reason in REASONS {
        let refused = counters.iter().filter_map(|counters| counters.refusals.get(reason));
        refusals.with_label_values(&[reason]).inc_by(refused.sum());
    }
    registry.register(Box::new(refusals))?;
    let exhausted = Refusal::Exhausted { wait_ms: 0 }.reason();
    counter(
        registry,
        "snowmint_sequence_exhausted_total",
        "How often a worker's tick was full.",
        counters.iter().filter_map(|counters| counters.refusals.get(exhausted)).sum(),
    )?;
    let rolled_back_ms = counters.iter().map(|counters| counters.rolled_back_ms).max().unwrap_or(0);
    gauge(
        registry,
        "snowmint_clock_rollback_ms",
        "How far the wall clock is behind what was minted, in milliseconds; 0 when it is not.",
        seconds(rolled_back_ms) * 1_000.0,
    )?;
    let bursts = counters.iter().fold(Bursts::default(), |all, counters| all.and(&counters.bursts));
    registry.register(Box::new(BurstHistogram::new(bursts)?))?;
    // The best of the workers: while one has headroom, IDs are had.
    let now_ms = region.map_or(0, |region| region.pool.now_ms());
    let headroom = workers.iter().filter_map(Worker::ceiling_ms).max();
    gauge(
        registry,
        "snowmint_lease_ceiling_headroom_seconds",
        "How long minting goes on without the store, by the worker that can longest.",
        seconds(headroom.unwrap_or(0).saturating_sub(now_ms)),
    )
}

fn clock(app: &App, region: Option<&Region>, registry: &Registry) -> Result<(), prometheus::Error> {
    let bound_ms = app.clock.error_bound_ms();
    gauge(
        registry,
        "snowmint_clock_error_bound_seconds",
        "The largest error of the wall clock; +Inf when it is unknown.",
        if bound_ms == u32::MAX { f64::INFINITY } else { seconds(bound_ms.into()) },
    )?;
    let Some(region) = region else { return Ok(()) };
    let last_ms = region.cluster().record.last_ms();
    gauge(
        registry,
        "snowmint_epoch_remaining_seconds",
        "How long until the layout's last tick, or the planned cut-over.",
        seconds(last_ms.saturating_sub(app.clock.now_ms())),
    )
}

/// The codes of the region, as the store has them; none while it does not answer.
fn codes(app: &App, region: &Region, registry: &Registry) -> Result<(), prometheus::Error> {
    let cluster = &region.cluster().record;
    let Ok(codes) = scan_complete(&*region.store, cluster) else { return Ok(()) };
    let now = app.now();
    let left = Left::count(codes.iter().map(|(_, stored)| Reuse::of(&stored.record, cluster, &now)));
    let gauge = IntGaugeVec::new(
        Opts::new(
            "snowmint_worker_codes",
            "Worker codes of the region: that can be taken now, later, are held, or cannot be taken any more.",
        ),
        &["state"],
    )?;
    for (state, count) in
        [("now", left.now), ("later", left.later), ("held", left.held), ("never", left.never)]
    {
        gauge.with_label_values(&[state]).set(count.into());
    }
    registry.register(Box::new(gauge))
}

/// The bursts that workers have counted.
struct BurstHistogram {
    desc: Desc,
    bursts: Bursts,
}

impl BurstHistogram {
    const NAME: &str = "snowmint_ids_per_worker_tick";
    const HELP: &str = "How many IDs a worker minted in a tick in which it minted any: real bursts.";

    fn new(bursts: Bursts) -> Result<Self, prometheus::Error> {
        let desc =
            Desc::new(Self::NAME.into(), Self::HELP.into(), Vec::new(), std::collections::HashMap::new())?;
        Ok(Self { desc, bursts })
    }
}

impl Collector for BurstHistogram {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    #[allow(clippy::cast_precision_loss)] // Bounds are small; a sum that is that large is as good rounded.
    fn collect(&self) -> Vec<MetricFamily> {
        let mut histogram = prometheus::proto::Histogram::default();
        let mut cumulated = 0;
        let mut buckets = Vec::new();
        for (bound, count) in Bursts::BOUNDS.iter().zip(self.bursts.buckets()) {
            cumulated += count;
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(*bound as f64);
            bucket.set_cumulative_count(cumulated);
            buckets.push(bucket);
        }
        histogram.set_bucket(buckets);
        histogram.set_sample_count(self.bursts.buckets().iter().sum());
        histogram.set_sample_sum(self.bursts.sum() as f64);
        let mut metric = Metric::default();
        metric.set_histogram(histogram);
        let mut family = MetricFamily::default();
        family.set_name(Self::NAME.into());
        family.set_help(Self::HELP.into());
        family.set_field_type(MetricType::HISTOGRAM);
        family.set_metric(vec![metric]);
        vec![family]
    }
}

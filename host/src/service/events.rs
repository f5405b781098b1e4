//! What is told in the log: one event for each transition, not for each time that it is noticed again.

use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::Duration;

use snowmint::{ClockNotice, Observer, PeerNotice};
use snowmint_lease::{Hindrance, Notice};

use super::{App, Metrics, health};

/// How often it is looked whether the service is ready.
const READINESS_INTERVAL: Duration = Duration::from_millis(100);

/// Tells of a worker's lease, and counts.
pub(crate) fn worker_observer(worker: u32, metrics: Metrics) -> Observer {
    let mut told = Told::default();
    Box::new(move |notice| {
        metrics.noticed(notice);
        told.notice(worker, notice);
    })
}

/// What was told of a worker's lease and stands.
#[derive(Default)]
struct Told {
    is_unconfirmed: bool,
    hindrance: Option<Discriminant<Hindrance>>,
}

impl Told {
    fn notice(&mut self, worker: u32, notice: &Notice) {
        match notice {
            Notice::Granted { code, floor_ms, end_ms, .. } => {
                *self = Self::default();
                tracing::info!(worker, code, floor_ms, end_ms, "a lease is granted");
            }
            Notice::Renewed { end_ms, .. } => {
                if self.is_unconfirmed {
                    tracing::info!(worker, end_ms, "the lease is renewed again");
                }
                *self = Self::default();
            }
            Notice::Unconfirmed { error, .. } => {
                if !self.is_unconfirmed {
                    tracing::warn!(worker, %error, "the lease could not be renewed; minting goes on to its end");
                }
                self.is_unconfirmed = true;
            }
            Notice::Lapsed { .. } => {
                tracing::warn!(worker, "the lease lapsed: minting stops until the store confirms it");
            }
            Notice::Resumed { end_ms, .. } => {
                *self = Self::default();
                tracing::info!(worker, end_ms, "the lease is resumed");
            }
            Notice::Lost { loss, .. } => tracing::error!(worker, %loss, "the lease is lost"),
            Notice::Released { end_ms, .. } => tracing::info!(worker, end_ms, "the code is given back"),
            Notice::Unreleased { .. } => {
                tracing::warn!(worker, "the code could not be given back; it expires by itself");
            }
            Notice::Hindered(hindrance) => {
                // Its numbers change each time that it is met again.
                if self.hindrance.replace(discriminant(hindrance)) != Some(discriminant(hindrance)) {
                    tracing::warn!(worker, %hindrance, "no code can be had now");
                }
            }
            Notice::OddPeers { codes, peers } => {
                tracing::warn!(worker, ?codes, peers, "the clocks of these codes' holders show another time");
            }
            Notice::Uncompared { error } => {
                tracing::warn!(worker, %error, "clocks are not compared: other codes' records cannot be read");
            }
        }
    }
}

/// Tells of the clock. `is_enforced`: somebody set a limit to its error; if nobody did, its bound is no news.
pub(crate) fn clock_observer(notice: &ClockNotice, is_enforced: bool) {
    match notice {
        ClockNotice::Stepped { by_ms, steps } => tracing::warn!(by_ms, steps, "{notice}"),
        ClockNotice::Refused { .. } | ClockNotice::Unsure { .. } if is_enforced => tracing::warn!("{notice}"),
        _ if is_enforced => tracing::info!("{notice}"),
        _ => {}
    }
}

/// Tells of another region's service.
pub(crate) fn peer_observer(name: &str, notice: &PeerNotice) {
    match notice {
        PeerNotice::Apart { .. } => tracing::info!("the peer {name} {notice}"),
        PeerNotice::Clashing(_) => tracing::error!("the peer {name} {notice}"),
        PeerNotice::Unreachable(_) => tracing::warn!("the peer {name} {notice}"),
    }
}

/// Tells when the service becomes ready, and when it no longer is. Runs until it is dropped.
pub(crate) async fn watch_readiness(app: Arc<App>) {
    let mut interval = tokio::time::interval(READINESS_INTERVAL);
    let mut told: Option<&'static str> = None;
    loop {
        interval.tick().await;
        let (state, detail) = match health::ready(&app) {
            Ok(_) => ("ready", String::new()),
            Err(problem) => (problem.reason(), problem.detail().to_owned()),
        };
        if told.replace(state) == Some(state) {
            continue;
        }
        match state {
            "ready" => tracing::info!("ready: IDs can be had"),
            reason => tracing::warn!(reason, detail, "not ready: no ID can be had"),
        }
        super::server::status(state);
    }
}

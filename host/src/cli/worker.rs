//! Flags of commands that mint.

use std::time::Duration;

use clap::Args;
use clap::builder::FalseyValueParser;
use snowmint::{WatchedClock, WorkerConfig};
use snowmint_core::{Layout, Policy};
use snowmint_lease::{KeeperConfig, Owner};

use super::CliError;
use super::clock::ClockArgs;
use super::length::Length;

/// How a worker holds its lease, and by which policy it mints.
#[derive(Args, Debug)]
pub(super) struct WorkerArgs {
    /// The name to hold the lease by: the host's, and behind a `/` what tells its workers apart. Owners of one host have one
    /// voice when clocks are compared [default: host name and process id].
    #[arg(long, value_name = "NAME", env = "SNOWMINT_OWNER")]
    owner: Option<String>,

    /// How long minting goes on without the store, in milliseconds [default: 1000, with etcd 10000].
    #[arg(long, value_name = "MS", env = "SNOWMINT_WINDOW_MS")]
    window_ms: Option<u32>,

    /// How long the code of a process that died stays unused: `24h`, `500ms`, or milliseconds. None is needed for
    /// uniqueness.
    #[arg(long, value_name = "TIME", default_value = "0", env = "SNOWMINT_QUARANTINE")]
    quarantine: Length,

    #[command(flatten)]
    pub(super) clock: ClockArgs,

    /// How far ahead of the wall clock an ID may be stamped, in milliseconds [default: the layout's].
    #[arg(long, value_name = "MS", env = "SNOWMINT_LEAD_MS")]
    lead_ms: Option<u32>,

    /// How long a clock that stepped back, or a full tick, is waited out, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = snowmint_core::WAIT_MS_MAX_DEFAULT, env = "SNOWMINT_WAIT_MS_MAX")]
    wait_ms_max: u32,

    /// Start each tick at a varying sequence, so that `id % n` is even at low load.
    #[arg(long, env = "SNOWMINT_SPREAD", value_parser = FalseyValueParser::new())]
    spread: bool,
}

impl WorkerArgs {
    /// A worker of this layout and region.
    pub(super) fn config(
        &self,
        layout: Layout,
        region: u32,
        is_fleet: bool,
        clock: &WatchedClock,
    ) -> Result<WorkerConfig, CliError> {
        let owner = self.owner.clone().unwrap_or_else(|| {
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            format!("{host}/{}", std::process::id())
        });
        let owner = Owner::new(owner).map_err(CliError::usage)?;
        let defaults = if is_fleet {
            KeeperConfig::fleet(layout, region, owner)
        } else {
            KeeperConfig::embedded(layout, region, owner)
        };
        let mut policy = Policy {
            wait_ms_max: self.wait_ms_max,
            clock_error_ms_max: clock.error_ms_max(),
            spread: self.spread,
            ..Policy::of_layout(&layout)
        };
        if let Some(lead_ms) = self.lead_ms {
            policy = policy.with_lead_ms(lead_ms);
        }
        policy.check(&layout).map_err(CliError::usage)?;
        let lease = KeeperConfig {
            window_ms: self.window_ms.unwrap_or(defaults.window_ms),
            quarantine_ms: self.quarantine.ms(),
            clock_error_ms_max: policy.clock_error_ms_max,
            ..defaults
        };
        let acquire_wait_max = Duration::from_millis(2 * u64::from(lease.window_ms));
        Ok(WorkerConfig { lease, policy, acquire_wait_max })
    }
}

//! `snowmint init`: founds the lease store.

use std::fmt::Write;

use clap::Args;
use clap::builder::FalseyValueParser;
use snowmint::SystemClock;
use snowmint_core::{Layout, Policy};
use snowmint_lease::ClusterRecord;

use super::CliError;
use super::store::{RecoverArgs, StoreArgs};

/// Found the lease store, once for each region.
#[derive(Args, Debug)]
pub(super) struct Init {
    #[command(flatten)]
    store: StoreArgs,

    /// Take over a store that was lost, damaged, copied, or put back from a backup: everybody's grants end. Give
    /// `--layout` and `--region` as they were, where nothing that is left tells.
    #[arg(long, env = "SNOWMINT_RECOVER", value_parser = FalseyValueParser::new(), requires = "not_before")]
    recover: bool,

    /// With --recover: no grant begins at or below this Unix millisecond. Every ID ever minted in the region must lie
    /// at or below it: you vouch for that.
    #[arg(long, value_name = "MS", env = "SNOWMINT_NOT_BEFORE", requires = "recover")]
    not_before: Option<u64>,

    /// With --recover, of a store in etcd: the highest generation that anybody remembers. A backup can be older than the
    /// last recovery, and would count to the same generation once more.
    #[arg(long, value_name = "G", env = "SNOWMINT_GENERATION_KNOWN", requires = "recover")]
    generation_known: Option<u16>,

    /// In etcd: no ID was ever minted for this region. You vouch for that: keys that somebody deleted look like keys that
    /// never were.
    #[arg(long, env = "SNOWMINT_NEW", value_parser = FalseyValueParser::new(), conflicts_with = "recover")]
    new: bool,

    /// The longest lead that any worker of the store was run with, in milliseconds [default: the layout's].
    #[arg(long, value_name = "MS", env = "SNOWMINT_LEAD_MS")]
    lead_ms: Option<u32>,

    /// The longest window that any worker of the store was run with, in milliseconds: with --recover, and in etcd, no
    /// grant begins within one and a lead from now.
    #[arg(long, value_name = "MS", env = "SNOWMINT_WINDOW_MS", default_value_t = snowmint_lease::FLEET_WINDOW_MS_DEFAULT)]
    window_ms: u32,
}

impl Init {
    pub(super) fn run(&self) -> Result<(), CliError> {
        let clock = SystemClock::new(u32::MAX);
        let layout = self.store.layout()?.unwrap_or(Layout::SNOWMINT);
        let lead_ms = self.lead_ms.unwrap_or(Policy::of_layout(&layout).lead_ms);
        // As far as a grant of before can reach.
        let reach_ms = self.window_ms.saturating_add(lead_ms);
        let opened = match (self.recover, self.not_before) {
            (true, Some(not_before_ms)) => {
                let args = RecoverArgs { not_before_ms, reach_ms, generation_known: self.generation_known };
                self.store.recover(&args, &clock)?
            }
            (false, None) => self.store.init(self.new, reach_ms, &clock)?,
            // The parser compares flags, but not those of the environment and the configuration file.
            _ => return Err(CliError::Usage("`--recover` and `--not-before` go together".into())),
        };
        let ClusterRecord { uuid, layout, region, generation, not_before_ms, .. } = &opened.cluster;
        let codes = opened.cluster.codes();
        let mut text = format!("store {uuid:032x}\nlayout {layout}\n");
        let _ = writeln!(text, "region {region}, {codes} codes, generation {generation}");
        if *not_before_ms > 0 {
            let _ = writeln!(text, "no grant begins at or below {not_before_ms} (Unix ms)");
        }
        super::print(&text)
    }
}

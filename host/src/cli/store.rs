//! The lease store that a command works on.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use etcetera::BaseStrategy;
use snowmint::{Clock, fresh_nonce};
use snowmint_core::Layout;
use snowmint_lease::{ClusterRecord, Now, Store, StoreError};
use snowmint_lease_redb::{Recovery, RedbStore};

use super::{CliError, layout_file};

/// Which store, which layout, which region.
#[derive(Args, Debug)]
pub(super) struct StoreArgs {
    /// The lease store: `redb:DIR`, a directory of its own [default: redb in the user's data directory].
    #[arg(long, value_name = "STORE", env = "SNOWMINT_STORE")]
    store: Option<Place>,

    /// The layout: `snowmint`, `hybrid`, `sharded`, or a TOML file [default: the store's; for a new one, snowmint].
    #[arg(long, value_name = "NAME|FILE", env = "SNOWMINT_LAYOUT")]
    layout: Option<String>,

    /// The region that the store's codes belong to [default: the store's; for a new one, 0].
    #[arg(long, value_name = "R", env = "SNOWMINT_REGION")]
    region: Option<u32>,
}

/// Where a store is.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// An embedded store in this directory.
    Redb(PathBuf),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("redb", "")) => {
                Err("`redb:` names no directory; give one, as in `redb:/var/lib/snowmint`".into())
            }
            Some(("redb", directory)) => Ok(Self::Redb(directory.into())),
            _ => Err("give `redb:DIR`, as in `redb:/var/lib/snowmint`".into()),
        }
    }
}

/// A store that was opened, with its cluster record.
pub(super) struct Opened {
    pub(super) store: RedbStore,
    pub(super) cluster: ClusterRecord,
}

impl StoreArgs {
    fn directory(&self) -> Result<PathBuf, CliError> {
        match &self.store {
            Some(Place::Redb(directory)) => Ok(directory.clone()),
            None => match etcetera::choose_base_strategy() {
                Ok(base) => Ok(base.data_dir().join("snowmint")),
                Err(_) => Err(CliError::Usage(
                    "there is no home directory to keep the lease store in; name one with `--store redb:DIR`"
                        .into(),
                )),
            },
        }
    }

    /// Whether several machines mint from this store: then each one's clock must be vouched for.
    pub(super) fn is_fleet(&self) -> bool {
        match self.store {
            Some(Place::Redb(_)) | None => false,
        }
    }

    /// The layout that the flags name, if they do.
    pub(super) fn layout(&self) -> Result<Option<Layout>, CliError> {
        self.layout.as_deref().map(layout_file::find).transpose()
    }

    /// Founds the store and opens it.
    pub(super) fn init(&self, clock: &dyn Clock) -> Result<Opened, CliError> {
        let cluster = self.new_cluster(clock)?;
        let store = RedbStore::init(&self.directory()?, &cluster).map_err(CliError::failed)?;
        Ok(Opened { store, cluster })
    }

    /// Makes a store usable again whose history is not known; see [`RedbStore::recover`].
    pub(super) fn recover(
        &self,
        not_before_ms: u64,
        window_ms: u32,
        clock: &dyn Clock,
    ) -> Result<Opened, CliError> {
        let directory = self.directory()?;
        // What can be read of the store tells its layout and region; flags are only compared with it.
        let recovery = Recovery {
            uuid: fresh_nonce(),
            layout: self.layout()?,
            region: self.region,
            not_before_ms,
            window_ms,
        };
        let store = RedbStore::recover(&directory, &recovery, &now(clock)).map_err(CliError::failed)?;
        let cluster = store.cluster().map_err(CliError::failed)?.record;
        Ok(Opened { store, cluster })
    }

    fn new_cluster(&self, clock: &dyn Clock) -> Result<ClusterRecord, CliError> {
        let layout = self.layout()?.unwrap_or(Layout::SNOWMINT);
        let cluster =
            ClusterRecord::new(fresh_nonce(), layout, self.region.unwrap_or(0)).map_err(CliError::usage)?;
        layout.check_begun(clock.now_ms()).map_err(CliError::usage)?;
        Ok(cluster)
    }

    /// Opens the store; where there is none, and `init` asks for it, founds it.
    pub(super) fn open(&self, init: bool, clock: &dyn Clock) -> Result<Opened, CliError> {
        let directory = self.directory()?;
        let store = match RedbStore::open(&directory) {
            Err(StoreError::NotInitialised { .. }) if init => return self.init(clock),
            Err(StoreError::NotInitialised { place }) => {
                let flag = self.store.as_ref().map_or_else(String::new, |_| format!(" --store redb:{place}"));
                return Err(CliError::Failed(format!(
                    "there is no lease store at {place}: found one, once, with `snowmint init{flag}`, or give `--init`"
                )));
            }
            result => result.map_err(CliError::failed)?,
        };
        let cluster = store.cluster().map_err(CliError::failed)?.record;
        self.check(&cluster)?;
        Ok(Opened { store, cluster })
    }

    /// What the flags say must be what the store says.
    fn check(&self, cluster: &ClusterRecord) -> Result<(), CliError> {
        if let Some(layout) = self.layout()?
            && layout != cluster.layout
        {
            return Err(CliError::failed(StoreError::WrongLayout {
                stored: cluster.layout.to_string(),
                configured: layout.to_string(),
            }));
        }
        if let Some(region) = self.region
            && region != cluster.region
        {
            return Err(CliError::failed(StoreError::WrongRegion {
                stored: cluster.region,
                configured: region,
            }));
        }
        Ok(())
    }
}

/// Both clocks now.
pub(super) fn now(clock: &dyn Clock) -> Now {
    Now { boot_ms: clock.boot_ms(), wall_ms: clock.now_ms(), clock_error_ms: clock.error_bound_ms() }
}

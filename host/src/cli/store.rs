//! The lease store that a command works on.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use etcetera::BaseStrategy;
use snowmint::{Clock, fresh_nonce};
use snowmint_core::Layout;
use snowmint_lease::protocol::{self, LeaseRefusal};
use snowmint_lease::regions::Identity;
use snowmint_lease::{ClusterRecord, EMBEDDED_WINDOW_MS_DEFAULT, Now, Store, StoreError, Subject};
#[cfg(feature = "etcd")]
use snowmint_lease_etcd as etcd;
use snowmint_lease_http::{HttpConfig, HttpLeases, HttpTls};
use snowmint_lease_redb::{Recovery, RedbStore};

use etcd::{EtcdConfig, EtcdIdentity, EtcdStore, EtcdTls, EtcdUser, Secret};

#[cfg(not(feature = "etcd"))]
use super::without_etcd as etcd;
use super::{CliError, layout_file};

/// Which store, which layout, which region.
#[derive(Args, Debug)]
pub(super) struct StoreArgs {
    /// The lease store: `redb:DIR`, a directory of its own for one process; `etcd:URL,URL` and so on, the members of a
    /// region's etcd cluster; or, to mint where neither can be reached, `http://HOST:PORT`, one or more addresses of a
    /// service that leases [default: redb in the user's data directory].
    #[arg(long, value_name = "STORE", env = "SNOWMINT_STORE")]
    store: Option<Place>,

    /// The layout: `snowmint`, `hybrid`, `sharded`, or a TOML file [default: the store's; for a new one, snowmint].
    #[arg(long, value_name = "NAME|FILE", env = "SNOWMINT_LAYOUT")]
    layout: Option<String>,

    /// The region that the store's codes belong to; etcd is always told [default: the store's; for a new one, 0].
    #[arg(long, value_name = "R", env = "SNOWMINT_REGION")]
    region: Option<u32>,

    /// A file with the token that a service asks of those who lease, in its first line.
    #[arg(long, value_name = "FILE", env = "SNOWMINT_LEASE_TOKEN_FILE")]
    lease_token_file: Option<PathBuf>,

    /// The certificate authorities to trust, for an `https` service that leases: a PEM file. No others are trusted.
    #[arg(long, value_name = "FILE", env = "SNOWMINT_LEASE_CA")]
    lease_ca: Option<PathBuf>,

    #[command(flatten)]
    etcd: EtcdArgs,
}

/// How etcd is reached. None of it means anything to an embedded store.
#[derive(Args, Debug)]
struct EtcdArgs {
    /// What the store's keys in etcd begin with [default: snowmint].
    #[arg(long = "etcd-prefix", value_name = "PREFIX", env = "SNOWMINT_ETCD_PREFIX")]
    prefix: Option<String>,

    /// The certificate authorities to trust, for `https` members: a PEM file. No others are trusted.
    #[arg(long = "etcd-ca", value_name = "FILE", env = "SNOWMINT_ETCD_CA")]
    ca: Option<PathBuf>,

    /// The client's own certificate, where etcd asks for one: a PEM file.
    #[arg(long = "etcd-cert", value_name = "FILE", env = "SNOWMINT_ETCD_CERT", requires = "key")]
    cert: Option<PathBuf>,

    /// The key of that certificate: a PEM file.
    #[arg(long = "etcd-key", value_name = "FILE", env = "SNOWMINT_ETCD_KEY", requires = "cert")]
    key: Option<PathBuf>,

    /// The name in the members' certificates, where it is not the host of their address.
    #[arg(long = "etcd-server-name", value_name = "NAME", env = "SNOWMINT_ETCD_SERVER_NAME")]
    server_name: Option<String>,

    /// Who to be for etcd, where it asks.
    #[arg(long = "etcd-user", value_name = "NAME", env = "SNOWMINT_ETCD_USER")]
    user: Option<String>,

    /// A file with that user's password, in its first line.
    #[arg(long = "etcd-password-file", value_name = "FILE", env = "SNOWMINT_ETCD_PASSWORD_FILE")]
    password_file: Option<PathBuf>,
}

/// Where a store is.
#[derive(Clone, Debug)]
enum Place {
    /// An embedded store in this directory.
    Redb(PathBuf),
    /// A region's etcd cluster, by its members.
    Etcd(Vec<String>),
    /// A service that leases from its own, by its addresses.
    Service(Vec<String>),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("redb", "")) => {
                Err("`redb:` names no directory; give one, as in `redb:/var/lib/snowmint`".into())
            }
            Some(("redb", directory)) => Ok(Self::Redb(directory.into())),
            Some(("etcd", "")) => {
                Err("`etcd:` names no member; give one or more, as in `etcd:http://127.0.0.1:2379`".into())
            }
            Some(("etcd", members)) => Ok(Self::Etcd(members.split(',').map(str::to_owned).collect())),
            Some(("http" | "https", _)) => Ok(Self::Service(text.split(',').map(str::to_owned).collect())),
            _ => Err("give `redb:DIR`, as in `redb:/var/lib/snowmint`, `etcd:URL,URL`, as in \
                      `etcd:http://127.0.0.1:2379`, or `http://HOST:PORT` of a service that leases"
                .into()),
        }
    }
}

/// What an operator says who recovers a store.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecoverArgs {
    pub(super) not_before_ms: u64,
    /// The longest window of any worker, and its lead: as far as a grant can reach that the store has forgotten.
    pub(super) reach_ms: u32,
    /// The highest generation that anybody remembers; `None`: nobody does.
    pub(super) generation_known: Option<u16>,
}

/// A store that was opened, with its cluster record.
pub(super) struct Opened {
    pub(super) store: OpenedStore,
    pub(super) cluster: ClusterRecord,
}

/// A store of either kind.
#[allow(clippy::large_enum_variant)] // There is one, for the whole run.
pub(super) enum OpenedStore {
    Redb(RedbStore),
    Etcd(EtcdStore),
}

impl OpenedStore {
    /// What can be done with every store.
    pub(super) fn as_store(&self) -> &dyn Store {
        match self {
            Self::Redb(store) => store,
            Self::Etcd(store) => store,
        }
    }

    /// For a worker of its own. Whoever holds an embedded store alone counts what a former process held as expired;
    /// in a fleet nobody can.
    pub(super) fn for_worker(
        self,
        now: &Now,
        quarantine_ms: u64,
    ) -> Result<Box<dyn Store + Send>, StoreError> {
        Ok(Box::new(self.for_service(now, quarantine_ms)?))
    }

    /// The same for several workers, and whoever else asks.
    pub(super) fn for_service(
        self,
        now: &Now,
        quarantine_ms: u64,
    ) -> Result<Arc<dyn Store + Send + Sync>, StoreError> {
        match self {
            Self::Redb(store) => {
                store.take_over(now, quarantine_ms, &mut fresh_nonce)?;
                Ok(Arc::new(store))
            }
            Self::Etcd(store) => Ok(Arc::new(store)),
        }
    }
}

impl StoreArgs {
    /// Whether other processes use the store at the same time.
    pub(super) const fn is_fleet(&self) -> bool {
        matches!(self.store, Some(Place::Etcd(_) | Place::Service(_)))
    }

    fn place(&self) -> Result<Place, CliError> {
        match &self.store {
            Some(place) => Ok(place.clone()),
            None => match etcetera::choose_base_strategy() {
                Ok(base) => Ok(Place::Redb(base.data_dir().join("snowmint"))),
                Err(_) => Err(CliError::Usage(
                    "there is no home directory to keep the lease store in; name one with `--store redb:DIR`"
                        .into(),
                )),
            },
        }
    }

    /// The service that leases, if the flags name one, for a lease with this window.
    pub(super) fn service(&self, window_ms: u32) -> Result<Option<HttpLeases>, CliError> {
        let Some(Place::Service(bases)) = &self.store else { return Ok(None) };
        let text = self.lease_token_file.as_deref().map(read_text).transpose()?;
        let token =
            text.map(|text| snowmint_lease_http::Secret::new(text.lines().next().unwrap_or_default()));
        let ca_pem = self.lease_ca.as_deref().map(read_text).transpose()?;
        let tls = ca_pem.map(|ca_pem| HttpTls { ca_pem, identity: None });
        let config = HttpConfig { token, tls, ..HttpConfig::new(bases.clone()) }.for_window(window_ms);
        HttpLeases::new(config).map(Some).map_err(failed)
    }

    /// What a service that leases says of its store, if that is what the flags say, too.
    pub(super) fn check_identity(&self, identity: &Identity) -> Result<(), CliError> {
        let cluster = ClusterRecord::new(identity.uuid, identity.layout, identity.region);
        self.check(&cluster.map_err(CliError::failed)?)
    }

    /// The layout that the flags name, if they do.
    pub(super) fn layout(&self) -> Result<Option<Layout>, CliError> {
        self.layout.as_deref().map(layout_file::find).transpose()
    }

    fn etcd_config(&self, members: &[String]) -> Result<EtcdConfig, CliError> {
        let region = self.region.ok_or_else(|| {
            CliError::Usage(
                "a region's keys in etcd lie apart from another's: say which with `--region R`".into(),
            )
        })?;
        let etcd = &self.etcd;
        let identity = match (&etcd.cert, &etcd.key) {
            (Some(cert), Some(key)) => {
                Some(EtcdIdentity { cert_pem: read_text(cert)?, key_pem: Secret::new(read_text(key)?) })
            }
            (None, None) => None,
            // The parser compares flags, but not those of the environment and the configuration file.
            _ => return Err(CliError::Usage("`--etcd-cert` and `--etcd-key` go together".into())),
        };
        let ca_pem = etcd.ca.as_deref().map(read_text).transpose()?;
        let tls = match ca_pem {
            Some(ca_pem) => Some(EtcdTls { ca_pem, identity, server_name: etcd.server_name.clone() }),
            None if identity.is_some() || etcd.server_name.is_some() => {
                return Err(CliError::Usage(
                    "a certificate or a server name for etcd needs `--etcd-ca FILE`: whom to trust".into(),
                ));
            }
            None => None,
        };
        let user = match (&etcd.user, &etcd.password_file) {
            (Some(name), Some(file)) => {
                let text = read_text(file)?;
                let password = Secret::new(text.lines().next().unwrap_or_default());
                Some(EtcdUser { name: name.clone(), password })
            }
            (None, None) => None,
            _ => return Err(CliError::Usage("`--etcd-user` and `--etcd-password-file` go together".into())),
        };
        let config = EtcdConfig::new(members.to_vec(), region);
        let prefix = etcd.prefix.clone().unwrap_or_else(|| config.prefix.clone());
        Ok(EtcdConfig { prefix, user, tls, ..config })
    }

    /// Founds the store and opens it. `reach_ms` is as far as a grant can reach that a store in etcd may have given
    /// before it was emptied: the longest window of any worker, and its lead.
    ///
    /// In etcd `is_new` is the operator's word that no ID was ever minted for the region: keys that somebody deleted look
    /// like keys that never were.
    pub(super) fn init(&self, is_new: bool, reach_ms: u32, clock: &dyn Clock) -> Result<Opened, CliError> {
        let cluster = self.new_cluster(clock)?;
        match self.place()? {
            Place::Redb(directory) => {
                let store = RedbStore::init(&directory, &cluster).map_err(CliError::failed)?;
                Ok(Opened { store: OpenedStore::Redb(store), cluster })
            }
            Place::Etcd(members) => {
                let store = EtcdStore::connect(self.etcd_config(&members)?).map_err(failed)?;
                // An embedded store's lock file remembers that there was one; deleted keys leave nothing behind.
                if !is_new && let Err(StoreError::NotInitialised { place }) = store.cluster() {
                    return Err(self.not_initialised(&place));
                }
                let cluster = protocol::found(&cluster, reach_ms, &now(clock)).map_err(CliError::failed)?;
                snowmint_lease::init(&store, &cluster).map_err(CliError::failed)?;
                Ok(Opened { store: OpenedStore::Etcd(store), cluster })
            }
            Place::Service(_) => Err(no_store()),
        }
    }

    /// Makes a store usable again whose history is not known; see `RedbStore::recover` and `EtcdStore::recover`.
    pub(super) fn recover(&self, args: &RecoverArgs, clock: &dyn Clock) -> Result<Opened, CliError> {
        let store = match self.place()? {
            Place::Redb(directory) => {
                // What can be read of the store tells its layout and region; flags are only compared with it.
                let recovery = Recovery {
                    uuid: fresh_nonce(),
                    layout: self.layout()?,
                    region: self.region,
                    not_before_ms: args.not_before_ms,
                    window_ms: args.reach_ms,
                };
                OpenedStore::Redb(RedbStore::recover(&directory, &recovery, &now(clock)).map_err(failed)?)
            }
            Place::Etcd(members) => {
                let config = self.etcd_config(&members)?;
                let recovery = etcd::Recovery {
                    cluster: self.cluster_to_recover(&config, args.generation_known)?,
                    not_before_ms: args.not_before_ms,
                    window_ms: args.reach_ms,
                };
                OpenedStore::Etcd(EtcdStore::recover(config, &recovery, &now(clock)).map_err(failed)?)
            }
            Place::Service(_) => return Err(no_store()),
        };
        let cluster = store.as_store().cluster().map_err(CliError::failed)?.record;
        Ok(Opened { store, cluster })
    }

    /// What a recovery of a store in etcd goes by: the cluster record, if it can be read. If not, nothing is left that
    /// tells, and nothing is guessed: a default beside a live region would make duplicates.
    fn cluster_to_recover(
        &self,
        config: &EtcdConfig,
        generation_known: Option<u16>,
    ) -> Result<ClusterRecord, CliError> {
        let store = EtcdStore::connect(config.clone()).map_err(failed)?;
        match store.cluster() {
            Ok(stored) => {
                if self.layout.is_none() {
                    return Err(CliError::Failed(format!(
                        "what is in etcd can be older than the last cut-over, and a recovery would bring the layout of \
                         before back: say with `--layout` which one the region was minted by last (it is for `{}`)",
                        stored.record.layout
                    )));
                }
                self.check(&stored.record)?;
                let generation = stored.record.generation.max(generation_known.unwrap_or(0));
                Ok(ClusterRecord { generation, ..stored.record })
            }
            Err(
                StoreError::NotInitialised { .. }
                | StoreError::Missing { subject: Subject::Cluster }
                | StoreError::Damaged { subject: Subject::Cluster, .. },
            ) => {
                let (Some(layout), Some(generation)) = (self.layout()?, generation_known) else {
                    let flags = "`--layout` and `--generation-known`";
                    return Err(CliError::failed(StoreError::Untold { flags }));
                };
                let cluster =
                    ClusterRecord::new(fresh_nonce(), layout, config.region).map_err(CliError::usage)?;
                Ok(ClusterRecord { generation: generation.max(1), ..cluster })
            }
            Err(error) => Err(CliError::failed(error)),
        }
    }

    fn new_cluster(&self, clock: &dyn Clock) -> Result<ClusterRecord, CliError> {
        let layout = self.layout()?.unwrap_or(Layout::SNOWMINT);
        let cluster =
            ClusterRecord::new(fresh_nonce(), layout, self.region.unwrap_or(0)).map_err(CliError::usage)?;
        layout.check_begun(clock.now_ms()).map_err(CliError::usage)?;
        Ok(cluster)
    }

    /// Refuses `--init` where founding is an operator's act.
    pub(super) fn check_init(&self, init: bool) -> Result<(), CliError> {
        if init && self.is_fleet() {
            return Err(CliError::Usage(
                "`--init` founds an embedded store only: found a region's in etcd once, with `snowmint init`"
                    .into(),
            ));
        }
        Ok(())
    }

    /// Opens the store; where there is none, and `init` asks for it, founds it.
    pub(super) fn open(&self, init: bool, clock: &dyn Clock) -> Result<Opened, CliError> {
        self.opened(self.try_open()?, init, clock)
    }

    /// The same, again and again while the store does not answer, which `wait` is told of each time.
    pub(super) fn open_or_wait(
        &self,
        init: bool,
        clock: &dyn Clock,
        mut wait: impl FnMut(&StoreError),
    ) -> Result<Opened, CliError> {
        loop {
            match self.try_open()? {
                Err(error) if error.is_transient() => wait(&error),
                opened => return self.opened(opened, init, clock),
            }
        }
    }

    fn try_open(&self) -> Result<Result<Opened, StoreError>, CliError> {
        Ok(match self.place()? {
            Place::Redb(directory) => RedbStore::open(&directory).and_then(|store| {
                let cluster = store.cluster()?.record;
                Ok(Opened { store: OpenedStore::Redb(store), cluster })
            }),
            Place::Etcd(members) => EtcdStore::connect(self.etcd_config(&members)?).and_then(|store| {
                let cluster = store.cluster()?.record;
                Ok(Opened { store: OpenedStore::Etcd(store), cluster })
            }),
            Place::Service(_) => return Err(no_store()),
        })
    }

    fn opened(
        &self,
        opened: Result<Opened, StoreError>,
        init: bool,
        clock: &dyn Clock,
    ) -> Result<Opened, CliError> {
        match opened {
            Ok(opened) => {
                self.check(&opened.cluster)?;
                Ok(opened)
            }
            Err(StoreError::NotInitialised { .. }) if init && !self.is_fleet() => {
                self.init(true, EMBEDDED_WINDOW_MS_DEFAULT, clock)
            }
            Err(StoreError::NotInitialised { place }) => Err(self.not_initialised(&place)),
            Err(error) => Err(failed(error)),
        }
    }

    fn not_initialised(&self, place: &str) -> CliError {
        let flags = self.as_flags();
        if !self.is_fleet() {
            return CliError::Failed(format!(
                "there is no lease store at {place}: found one, once, with `snowmint init{flags}`, or give `--init`"
            ));
        }
        // A slip in the region looks like a region that was never founded.
        let layout = self.layout().ok().flatten().unwrap_or(Layout::SNOWMINT);
        if let Err(error) = ClusterRecord::new(0, layout, self.region.unwrap_or(0)) {
            return CliError::usage(error);
        }
        // Keys that somebody deleted look like keys that never were.
        CliError::Failed(format!(
            "there is no lease store at {place}. If no ID was ever minted for this region, found it, once, with `snowmint \
             init --new{flags}`. If any was, its records were deleted, and looking the same is all that is left: put them \
             back, or run `snowmint init --recover --not-before MS --generation-known G{flags}` with a time above all that \
             was stamped"
        ))
    }

    /// The flags that name the same store again.
    fn as_flags(&self) -> String {
        let mut flags = match &self.store {
            Some(Place::Redb(directory)) => format!(" --store redb:{}", directory.display()),
            Some(Place::Etcd(members)) => format!(" --store etcd:{}", members.join(",")),
            Some(Place::Service(bases)) => format!(" --store {}", bases.join(",")),
            None => String::new(),
        };
        if let Some(layout) = &self.layout {
            flags.push_str(&format!(" --layout {layout}"));
        }
        if let Some(region) = self.region {
            flags.push_str(&format!(" --region {region}"));
        }
        if let Some(prefix) = &self.etcd.prefix {
            flags.push_str(&format!(" --etcd-prefix {prefix}"));
        }
        flags
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

/// What is said to whoever wants to look at a store by a service that leases from it.
fn no_store() -> CliError {
    CliError::Usage(
        "a service leases from its store, and shows it to nobody: run this where the store can be reached"
            .into(),
    )
}

/// A slip in the flags is bad usage; whatever else a store says is a failure.
fn failed(error: StoreError) -> CliError {
    match error {
        StoreError::Misconfigured { .. } | StoreError::Refused(LeaseRefusal::NotBeforeTooLate { .. }) => {
            CliError::usage(error)
        }
        error => CliError::failed(error),
    }
}

pub(super) fn read_text(path: &Path) -> Result<String, CliError> {
    std::fs::read_to_string(path)
        .map_err(|error| CliError::Usage(format!("the file {} cannot be read: {error}", path.display())))
}

/// Both clocks now.
pub(super) fn now(clock: &dyn Clock) -> Now {
    Now { boot_ms: clock.boot_ms(), wall_ms: clock.now_ms(), clock_error_ms: clock.error_bound_ms() }
}

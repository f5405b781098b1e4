//! In place of stores in etcd, in a build without them: the same names, and a word on how to have them.

use snowmint_lease::{ClusterRecord, CodeRecord, Now, Revision, Store, StoreError, Stored};

/// As in the real one.
#[derive(Clone)]
pub(super) struct EtcdConfig {
    pub(super) prefix: String,
    pub(super) region: u32,
    pub(super) user: Option<EtcdUser>,
    pub(super) tls: Option<EtcdTls>,
}

impl EtcdConfig {
    pub(super) fn new(_members: Vec<String>, region: u32) -> Self {
        Self { prefix: String::from("snowmint"), region, user: None, tls: None }
    }
}

#[derive(Clone)]
pub(super) struct EtcdUser {
    pub(super) name: String,
    pub(super) password: Secret,
}

#[derive(Clone)]
pub(super) struct EtcdTls {
    pub(super) ca_pem: String,
    pub(super) identity: Option<EtcdIdentity>,
    pub(super) server_name: Option<String>,
}

#[derive(Clone)]
pub(super) struct EtcdIdentity {
    pub(super) cert_pem: String,
    pub(super) key_pem: Secret,
}

#[derive(Clone)]
pub(super) struct Secret(String);

impl Secret {
    pub(super) fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }
}

pub(super) struct Recovery {
    pub(super) cluster: ClusterRecord,
    pub(super) not_before_ms: u64,
    pub(super) window_ms: u32,
}

/// There is none.
pub(super) enum EtcdStore {}

impl EtcdStore {
    /// Always an error. Everything that was said is looked at all the same, so that nothing is passed over in silence.
    pub(super) fn connect(config: EtcdConfig) -> Result<Self, StoreError> {
        let EtcdConfig { prefix, region, user, tls } = config;
        drop((prefix, region));
        if let Some(EtcdUser { name, password: Secret(password) }) = user {
            drop((name, password));
        }
        if let Some(EtcdTls { ca_pem, identity, server_name }) = tls {
            drop((ca_pem, server_name));
            if let Some(EtcdIdentity { cert_pem, key_pem: Secret(key_pem) }) = identity {
                drop((cert_pem, key_pem));
            }
        }
        Err(StoreError::Misconfigured {
            detail: String::from(
                "this program was built without stores in etcd; install `protoc` (Debian: protobuf-compiler) and build it \
                 again",
            ),
        })
    }

    pub(super) fn recover(config: EtcdConfig, recovery: &Recovery, _now: &Now) -> Result<Self, StoreError> {
        let Recovery { cluster, not_before_ms, window_ms } = recovery;
        let _ = (cluster, not_before_ms, window_ms);
        Self::connect(config)
    }
}

impl Store for EtcdStore {
    fn cluster(&self) -> Result<Stored<ClusterRecord>, StoreError> {
        match *self {}
    }

    fn read(&self, _: u32) -> Result<Stored<CodeRecord>, StoreError> {
        match *self {}
    }

    fn scan(&self) -> Result<Vec<(u32, Stored<CodeRecord>)>, StoreError> {
        match *self {}
    }

    fn swap(&self, _: u32, _: Revision, _: Revision, _: &CodeRecord) -> Result<Revision, StoreError> {
        match *self {}
    }

    fn swap_cluster(&self, _: Revision, _: &ClusterRecord) -> Result<Revision, StoreError> {
        match *self {}
    }

    fn create_codes(&self, _: &[(u32, CodeRecord)]) -> Result<(), StoreError> {
        match *self {}
    }

    fn create_cluster(&self, _: &ClusterRecord) -> Result<(), StoreError> {
        match *self {}
    }
}

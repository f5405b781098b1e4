//! What is asked of a store, and what can be done with nothing more.

use crate::protocol;
use crate::{ClusterRecord, CodeRecord, Now, StoreError, Subject};

pub use crate::cutover::{open_cutover, plan_cutover, scan_cutover, withdraw_cutover};

/// Which write of a record was read: any write of it makes another. Opaque, of one record of one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Revision(u64);

impl Revision {
    /// The store's own number for it.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The store's own number for it.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// A record with the revision at which it was read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stored<T> {
    /// The record.
    pub record: T,
    /// Its revision.
    pub revision: Revision,
}

/// A place that keeps one cluster record and a record for each code, and can compare and swap.
///
/// - A swap that returned `Ok` MUST be durable, and every later read, by anybody, MUST see it or a later one.
/// - A swap MUST write nothing unless both revisions are as expected, in one atomic step.
/// - A revision MUST never come back once another write was made.
/// - An error other than [`StoreError::Unreachable`] and [`StoreError::Io`] MUST mean that nothing was written.
/// - A record that is absent MUST be an error, never a default.
/// - A store MUST NOT retry a swap by itself: it could win against its own reply.
/// - It MAY block. It reads no clock for the protocol's sake, and expires nothing by itself.
///
/// The conformance suite (feature `conformance`) is this contract as code.
pub trait Store {
    /// The cluster record. [`StoreError::NotInitialised`] if there is none, and no code was ever granted.
    fn cluster(&self) -> Result<Stored<ClusterRecord>, StoreError>;

    /// The record of a code.
    fn read(&self, code: u32) -> Result<Stored<CodeRecord>, StoreError>;

    /// All code records that exist, in the order of their codes. Whether they are complete is for the caller to
    /// judge: see [`scan_complete`].
    fn scan(&self) -> Result<Vec<(u32, Stored<CodeRecord>)>, StoreError>;

    /// Puts `record` in place of the code's, if that is at `expected` and the cluster record at `cluster`, and
    /// returns its new revision. [`StoreError::Conflict`] and [`StoreError::ClusterChanged`] say which is not; where
    /// neither is, the latter.
    fn swap(
        &self,
        code: u32,
        expected: Revision,
        cluster: Revision,
        record: &CodeRecord,
    ) -> Result<Revision, StoreError>;

    /// Puts `record` in place of the cluster's, if that is at `expected`, and returns its new revision.
    fn swap_cluster(&self, expected: Revision, record: &ClusterRecord) -> Result<Revision, StoreError>;

    /// Creates code records, each of which MUST NOT exist: [`StoreError::AlreadyInitialised`]. MAY be one atomic
    /// step or one for each record.
    fn create_codes(&self, codes: &[(u32, CodeRecord)]) -> Result<(), StoreError>;

    /// Creates the cluster record, which MUST NOT exist: [`StoreError::AlreadyInitialised`].
    fn create_cluster(&self, record: &ClusterRecord) -> Result<(), StoreError>;
}

/// Founds a cluster in an empty store: all code records first, the cluster record last, so that a store with a
/// cluster record is complete. What was cut off before can be run again.
///
/// Refuses where a code was granted before: then the cluster record was lost, which is for a recovery. Where the store
/// cannot remember that there was one, give what [`protocol::found`] makes of `cluster`.
pub fn init(store: &dyn Store, cluster: &ClusterRecord) -> Result<(), StoreError> {
    let place = || String::from("this place");
    match store.cluster() {
        Ok(_) => return Err(StoreError::AlreadyInitialised { place: place() }),
        Err(StoreError::NotInitialised { .. }) => {}
        Err(error) => return Err(error),
    }
    let existing = store.scan()?;
    if existing.iter().any(|(_, stored)| stored.record != CodeRecord::UNUSED) {
        return Err(StoreError::Missing { subject: Subject::Cluster });
    }
    let missing: Vec<_> = (0..cluster.codes())
        .filter(|code| existing.binary_search_by_key(code, |(existing, _)| *existing).is_err())
        .map(|code| (code, CodeRecord::UNUSED))
        .collect();
    store.create_codes(&missing)?;
    store.create_cluster(cluster)
}

/// All code records of the cluster. A code without one is [`StoreError::Missing`].
pub fn scan_complete(
    store: &dyn Store,
    cluster: &ClusterRecord,
) -> Result<Vec<(u32, Stored<CodeRecord>)>, StoreError> {
    let scan = store.scan()?;
    check_complete(&scan, cluster)?;
    Ok(scan)
}

/// Whether a scan shows all code records of the cluster. A code without one is [`StoreError::Missing`].
pub fn check_complete(scan: &[(u32, Stored<CodeRecord>)], cluster: &ClusterRecord) -> Result<(), StoreError> {
    let mut found = scan.iter().map(|(code, _)| *code);
    for code in 0..cluster.codes() {
        if found.next() != Some(code) {
            return Err(StoreError::Missing { subject: Subject::Code(code) });
        }
    }
    Ok(())
}

/// Counts every active code as expired, on the evidence that the caller holds the store alone: the process that
/// held it before has ended, and this one has granted nothing yet. Returns how many there were.
///
/// For embedded stores, which check both before they call it. `nonce` gives 128 fresh random bits a call.
pub fn expire_all(
    store: &dyn Store,
    now: &Now,
    quarantine_ms: u64,
    nonce: &mut dyn FnMut() -> u128,
) -> Result<u32, StoreError> {
    let cluster = store.cluster()?;
    let mut expired = 0;
    for (code, stored) in scan_complete(store, &cluster.record)? {
        if let Ok(record) = protocol::expire_alone(&stored.record, quarantine_ms, now, nonce()) {
            store.swap(code, stored.revision, cluster.revision, &record)?;
            expired += 1;
        }
    }
    Ok(expired)
}

/// Takes a code from whoever holds it: an operator's act. It is quarantined for `quarantine_ms`
/// ([`protocol::FENCE_QUARANTINE_MS_DEFAULT`]).
pub fn fence(
    store: &dyn Store,
    code: u32,
    quarantine_ms: u64,
    now: &Now,
    nonce: u128,
) -> Result<CodeRecord, StoreError> {
    let cluster = store.cluster()?;
    let stored = store.read(code)?;
    let record = protocol::fence(&stored.record, quarantine_ms, now, nonce);
    store.swap(code, stored.revision, cluster.revision, &record)?;
    Ok(record)
}

/// Frees a code that is past its quarantine: anyone's act. The inner error is the protocol's refusal.
pub fn free(
    store: &dyn Store,
    code: u32,
    now: &Now,
    nonce: u128,
) -> Result<Result<CodeRecord, protocol::LeaseRefusal>, StoreError> {
    let cluster = store.cluster()?;
    let stored = store.read(code)?;
    let record = match protocol::free(&stored.record, now, nonce) {
        Ok(record) => record,
        Err(refusal) => return Ok(Err(refusal)),
    };
    store.swap(code, stored.revision, cluster.revision, &record)?;
    Ok(Ok(record))
}

/// Frees every code that is past its quarantine, and returns which. Nothing is ever deleted.
pub fn gc(store: &dyn Store, now: &Now, nonce: &mut dyn FnMut() -> u128) -> Result<Vec<u32>, StoreError> {
    let cluster = store.cluster()?;
    let mut freed = Vec::new();
    for (code, stored) in scan_complete(store, &cluster.record)? {
        let Ok(record) = protocol::free(&stored.record, now, nonce()) else { continue };
        match store.swap(code, stored.revision, cluster.revision, &record) {
            Ok(_) => freed.push(code),
            // Somebody else took or freed it.
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(freed)
}

/// Raises the generation of a store that was put back from a backup or found as a copy: every grant of before is
/// over, and none begins before `not_before_ms` (nor before now plus a window). Returns the new record.
///
/// Only where the store has never been recovered since the backup was made: see [`recover_after`].
pub fn recover(
    store: &dyn Store,
    not_before_ms: u64,
    window_ms: u32,
    now: &Now,
) -> Result<Result<ClusterRecord, protocol::LeaseRefusal>, StoreError> {
    recover_after(store, 0, not_before_ms, window_ms, now)
}

/// [`recover`], of a store that may have been recovered before: `generation_known` is the highest generation that
/// anybody remembers. A backup that is older than the last recovery does not, and would count to the same generation
/// once more: its grants would bear the tickets of grants that were given before.
pub fn recover_after(
    store: &dyn Store,
    generation_known: u16,
    not_before_ms: u64,
    window_ms: u32,
    now: &Now,
) -> Result<Result<ClusterRecord, protocol::LeaseRefusal>, StoreError> {
    let stored = store.cluster()?;
    let generation = stored.record.generation.max(generation_known);
    let known = ClusterRecord { generation, ..stored.record };
    let record = match protocol::recover(&known, not_before_ms, window_ms, now) {
        Ok(record) => record,
        Err(refusal) => return Ok(Err(refusal)),
    };
    store.swap_cluster(stored.revision, &record)?;
    Ok(Ok(record))
}

/// Several keepers of one process share a store.
impl<S: Store + ?Sized> Store for std::sync::Arc<S> {
    fn cluster(&self) -> Result<Stored<ClusterRecord>, StoreError> {
        (**self).cluster()
    }

    fn read(&self, code: u32) -> Result<Stored<CodeRecord>, StoreError> {
        (**self).read(code)
    }

    fn scan(&self) -> Result<Vec<(u32, Stored<CodeRecord>)>, StoreError> {
        (**self).scan()
    }

    fn swap(
        &self,
        code: u32,
        expected: Revision,
        cluster: Revision,
        record: &CodeRecord,
    ) -> Result<Revision, StoreError> {
        (**self).swap(code, expected, cluster, record)
    }

    fn swap_cluster(&self, expected: Revision, record: &ClusterRecord) -> Result<Revision, StoreError> {
        (**self).swap_cluster(expected, record)
    }

    fn create_codes(&self, codes: &[(u32, CodeRecord)]) -> Result<(), StoreError> {
        (**self).create_codes(codes)
    }

    fn create_cluster(&self, record: &ClusterRecord) -> Result<(), StoreError> {
        (**self).create_cluster(record)
    }
}

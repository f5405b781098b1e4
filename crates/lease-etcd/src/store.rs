//! The store itself.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::process;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use etcd_client::{
    Compare, CompareOp, GetOptions, GetResponse, KeyValue, ResponseHeader, Txn, TxnOp, TxnOpResponse,
    TxnResponse,
};
use snowmint_lease::{
    CODES_MAX, ClusterRecord, CodeRecord, Now, Revision, Store, StoreError, Stored, Subject, protocol,
};
use tokio::runtime::{Builder, Runtime};

use crate::EtcdConfig;
use crate::members::Members;
use crate::seen::{Floor, Seen};

/// How many operations etcd takes in one transaction, unless its `--max-txn-ops` says otherwise.
const TXN_OPS_MAX: usize = 128;

/// How many records one read of a scan asks for: with the longest owners about 1.2 MB, of the 4 that a reply may have.
const PAGE: i64 = 2_048;

/// How much longer than a call's own limit is waited for it, should its thread not be running.
const SLACK: Duration = Duration::from_millis(500);

/// What an operator says who recovers a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Uuid, layout and region, should the cluster record have to be made anew; layout and region must be those of one
    /// that can be read. Its generation is the highest that anybody remembers.
    pub cluster: ClusterRecord,
    /// No grant begins at or below: a Unix millisecond at or above all that may have been stamped.
    pub not_before_ms: u64,
    /// The longest window of any keeper of the store, in milliseconds: no grant begins within one from now either.
    pub window_ms: u32,
}

/// A lease store in etcd: one cluster's records under one prefix, for one region.
///
/// | made by | for |
/// |---|---|
/// | [`EtcdStore::connect`] | whoever wants to know at once that etcd answers, and knows the user |
/// | [`EtcdStore::new`] | a worker that starts while etcd is away, and goes on as soon as it is back |
/// | [`EtcdStore::recover`] | a store whose records were deleted, damaged, or put back from a backup |
///
/// The first two find an empty prefix as well as a founded store: [`snowmint_lease::init`] founds one.
///
/// A call blocks for `call_ms_max` at most. It may be made from any thread, also from one of an async runtime, which it
/// then blocks.
pub struct EtcdStore {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    inner: Arc<Inner>,
    pid: u32,
}

struct Inner {
    members: Members,
    seen: Seen,
    /// `<prefix>/<region>/`.
    root: String,
}

impl EtcdStore {
    /// A store that asks nobody anything yet. Only [`StoreError::Misconfigured`] and [`StoreError::Io`] (no thread to be
    /// had) are possible.
    pub fn new(config: EtcdConfig) -> Result<Self, StoreError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("snowmint-etcd")
            .enable_all()
            .build()
            .map_err(|error| StoreError::Io { detail: error.to_string() })?;
        let root = format!("{}/{}/", config.prefix, config.region);
        let wait = Duration::from_millis(u64::from(config.call_ms_max)) + SLACK;
        let members = match block(&runtime, wait, Members::new(config)) {
            Ok(members) => members,
            Err(error) => {
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let inner = Arc::new(Inner { members, seen: Seen::default(), root });
        Ok(Self { runtime: Some(runtime), inner, pid: process::id() })
    }

    /// A store whose etcd has answered, and let this user read.
    pub fn connect(config: EtcdConfig) -> Result<Self, StoreError> {
        let store = Self::new(config)?;
        store.call(async |inner| inner.get(&inner.cluster_key()).await)?;
        Ok(store)
    }

    /// Makes a store usable again whose history is not known: every grant of before is over, and none begins before the
    /// time that the operator vouches for.
    ///
    /// The cluster record's generation is raised first, or the record made anew; then each code record that is missing
    /// or damaged is made anew, and every other is kept. It can be run again, and each time raises the generation. A key
    /// among the codes that is none is for the operator to delete.
    pub fn recover(config: EtcdConfig, recovery: &Recovery, now: &Now) -> Result<Self, StoreError> {
        let store = Self::connect(config)?;
        store.check_region(&recovery.cluster)?;
        let key = store.inner.cluster_key();
        let found = store.call(async move |inner: Arc<Inner>| inner.get(&key).await)?;
        let (known, expected) = match &found {
            Some(found) => (known_cluster(found, &recovery.cluster)?, Some(revision_of(found))),
            None => (recovery.cluster.clone(), None),
        };
        let raised = protocol::recover(&known, recovery.not_before_ms, recovery.window_ms, now)
            .map_err(StoreError::Refused)?;
        match expected {
            Some(expected) => drop(store.swap_cluster(expected, &raised)?),
            None => store.create_cluster(&raised)?,
        }
        // From here on nobody is granted anything until all records are whole again.
        let (missing, damaged) =
            store.call(move |inner| async move { inner.broken_codes(raised.codes()).await })?;
        for (code, expected) in damaged {
            store.call(move |inner| async move { inner.replace_code(code, expected).await })?;
        }
        store.create_codes(&missing)?;
        Ok(store)
    }

    /// Runs one call on the store's own thread, and waits for it.
    fn call<T, F>(&self, call: impl FnOnce(Arc<Inner>) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        if self.pid != process::id() {
            return Err(StoreError::Forked);
        }
        let Some(runtime) = &self.runtime else { return Err(ended()) };
        let wait = Duration::from_millis(u64::from(self.inner.members.config().call_ms_max)) + SLACK;
        block(runtime, wait, call(Arc::clone(&self.inner)))
    }
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore").field("config", self.inner.members.config()).finish_non_exhaustive()
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Waits for nothing, so that it may be dropped anywhere; a process that was forked off has no such threads.
            if self.pid == process::id() {
                runtime.shutdown_background();
            } else {
                std::mem::forget(runtime);
            }
        }
    }
}

/// Waits by a channel, not by the runtime: that also works on a thread of another runtime, and has a limit of its own.
fn block<T: Send + 'static>(
    runtime: &Runtime,
    wait: Duration,
    call: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    let (sender, receiver) = sync_channel(1);
    let running = runtime.spawn(async move {
        // Nobody waits any more: then nobody is told.
        let _ = sender.send(call.await);
    });
    match receiver.recv_timeout(wait) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => {
            running.abort();
            Err(StoreError::Unreachable { detail: String::from("the call took too long") })
        }
        Err(RecvTimeoutError::Disconnected) => Err(ended()),
    }
}

fn ended() -> StoreError {
    StoreError::Unreachable { detail: String::from("the store's own thread gave the call up") }
}

impl Store for EtcdStore {
    fn cluster(&self) -> Result<Stored<ClusterRecord>, StoreError> {
        self.call(|inner| async move { inner.cluster().await })
    }

    fn read(&self, code: u32) -> Result<Stored<CodeRecord>, StoreError> {
        self.call(move |inner| async move {
            let found = inner.get(&inner.code_key(code)).await?;
            let found = found.ok_or(StoreError::Missing { subject: Subject::Code(code) })?;
            parse_code(code, &found)
        })
    }

    fn scan(&self) -> Result<Vec<(u32, Stored<CodeRecord>)>, StoreError> {
        self.call(|inner| async move { inner.scan().await })
    }

    fn swap(
        &self,
        code: u32,
        expected: Revision,
        cluster: Revision,
        record: &CodeRecord,
    ) -> Result<Revision, StoreError> {
        let put = record.encode();
        self.call(move |inner| async move { inner.swap(code, expected, cluster, put).await })
    }

    fn swap_cluster(&self, expected: Revision, record: &ClusterRecord) -> Result<Revision, StoreError> {
        self.check_region(record)?;
        let put = record.encode();
        self.call(move |inner| async move { inner.swap_cluster(expected, put).await })
    }

    fn create_codes(&self, codes: &[(u32, CodeRecord)]) -> Result<(), StoreError> {
        if let Some((code, _)) = codes.iter().find(|(code, _)| *code >= CODES_MAX) {
            let detail = format!("code {code} is asked for, of {CODES_MAX} at most");
            return Err(StoreError::Misconfigured { detail });
        }
        // Each step is a call with a limit of its own: a large layout has hundreds.
        codes.chunks(TXN_OPS_MAX).try_for_each(|codes| {
            let puts: Vec<_> =
                codes.iter().map(|(code, record)| (self.inner.code_key(*code), record.encode())).collect();
            self.call(move |inner| async move { inner.create(puts).await })
        })
    }

    fn create_cluster(&self, record: &ClusterRecord) -> Result<(), StoreError> {
        self.check_region(record)?;
        let puts = vec![(self.inner.cluster_key(), record.encode())];
        self.call(move |inner| async move { inner.create(puts).await })
    }
}

impl EtcdStore {
    /// What is written must be what this store would read.
    fn check_region(&self, record: &ClusterRecord) -> Result<(), StoreError> {
        self.inner.check_region(record)
    }
}

impl Inner {
    fn cluster_key(&self) -> String {
        format!("{}cluster", self.root)
    }

    fn codes_prefix(&self) -> String {
        format!("{}code/", self.root)
    }

    fn code_key(&self, code: u32) -> String {
        format!("{}code/{code:05}", self.root)
    }

    fn check_region(&self, record: &ClusterRecord) -> Result<(), StoreError> {
        let configured = self.members.config().region;
        if record.region == configured {
            Ok(())
        } else {
            Err(StoreError::WrongRegion { stored: record.region, configured })
        }
    }

    /// One key, by a linearizable read.
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        let mut response = self.range(key.to_owned(), GetOptions::new()).await?;
        Ok(response.take_kvs().pop())
    }

    async fn range(&self, key: String, options: GetOptions) -> Result<GetResponse, StoreError> {
        let before = self.seen.floor()?;
        let response = self.members.get(key, options).await?;
        self.seen.check(before, floor_of(response.header())?)?;
        Ok(response)
    }

    async fn cluster(&self) -> Result<Stored<ClusterRecord>, StoreError> {
        let before = self.seen.floor_if_same();
        let mut response = self.members.get(self.cluster_key(), GetOptions::new()).await?;
        let answer = floor_of(response.header())?;
        // If it is another store than before, its record may still say that it was recovered.
        let is_same = before.map_or(Ok(()), |before| self.seen.check(before, answer));
        let Some(found) = response.take_kvs().pop() else {
            is_same?;
            return Err(self.no_cluster().await?);
        };
        let stored = parse_cluster(&found)?;
        self.check_region(&stored.record)?;
        self.seen.know(&stored.record, answer)?;
        Ok(stored)
    }

    /// Why there is no cluster record: there never was, or it was lost.
    async fn no_cluster(&self) -> Result<StoreError, StoreError> {
        let place = || format!("the keys {} of etcd", self.root);
        let is_unused = |stored: &Stored<CodeRecord>| stored.record == CodeRecord::UNUSED;
        match self.scan().await {
            Ok(codes) if codes.iter().all(|(_, stored)| is_unused(stored)) => {
                Ok(StoreError::NotInitialised { place: place() })
            }
            // It may have been founded and granted from since.
            Ok(_) => match self.get(&self.cluster_key()).await? {
                Some(_) => Ok(StoreError::ClusterChanged),
                None => Ok(StoreError::Missing { subject: Subject::Cluster }),
            },
            Err(error) => Err(error),
        }
    }

    async fn scan(&self) -> Result<Vec<(u32, Stored<CodeRecord>)>, StoreError> {
        let prefix = self.codes_prefix();
        let parse = |found: &KeyValue| {
            let code = code_of(&prefix, found.key())?;
            Ok((code, parse_code(code, found)?))
        };
        self.scan_keys().await?.iter().map(parse).collect()
    }

    /// Page by page, each a linearizable read: each record is as of then or later, which is all that is asked.
    async fn scan_keys(&self) -> Result<Vec<KeyValue>, StoreError> {
        let prefix = self.codes_prefix();
        // '0' follows '/': all keys that begin with the prefix.
        let end = format!("{}code0", self.root);
        let mut found = Vec::new();
        let mut from = prefix.clone();
        loop {
            let options = GetOptions::new().with_range(end.clone()).with_limit(PAGE);
            let mut response = self.range(from, options).await?;
            let is_more = response.more();
            found.extend(response.take_kvs());
            match found.last() {
                Some(last) if is_more => {
                    let last = std::str::from_utf8(last.key()).map_err(|_| foreign(&prefix))?;
                    from = format!("{last}\0");
                }
                _ => return Ok(found),
            }
        }
    }

    async fn swap(
        &self,
        code: u32,
        expected: Revision,
        cluster: Revision,
        put: Vec<u8>,
    ) -> Result<Revision, StoreError> {
        let (cluster_key, code_key) = (self.cluster_key(), self.code_key(code));
        let keys_only = || Some(GetOptions::new().with_keys_only());
        let txn = Txn::new()
            .when([is_at(&cluster_key, cluster), is_at(&code_key, expected)])
            .and_then([TxnOp::put(code_key.clone(), put.clone(), None)])
            .or_else([
                TxnOp::get(cluster_key.clone(), keys_only()),
                TxnOp::get(code_key.clone(), keys_only()),
            ]);
        match self.txn(txn, &code_key, Some(expected), &put).await? {
            Outcome::Written(revision) => Ok(revision),
            Outcome::Refused(found) => Err(why_not(code, cluster, &found)),
        }
    }

    /// Of the codes below `codes`, those without a record (as they are to be made anew), and those whose record cannot
    /// be read.
    async fn broken_codes(&self, codes: u32) -> Result<(Vec<(u32, CodeRecord)>, Damaged), StoreError> {
        let mut found = BTreeMap::new();
        for key_value in self.scan_keys().await? {
            let code = code_of(&self.codes_prefix(), key_value.key())?;
            found.insert(code, key_value);
        }
        let missing = (0..codes).filter(|code| !found.contains_key(code));
        let missing = missing.map(|code| (code, CodeRecord::UNUSED)).collect();
        let mut damaged = Vec::new();
        for (code, key_value) in &found {
            match parse_code(*code, key_value) {
                Ok(_) => {}
                Err(StoreError::Damaged { .. }) => damaged.push((*code, revision_of(key_value))),
                Err(error) => return Err(error),
            }
        }
        Ok((missing, damaged))
    }

    /// Puts an unused record in place of one that cannot be read. The cluster record says from when on it is granted.
    async fn replace_code(&self, code: u32, expected: Revision) -> Result<(), StoreError> {
        let (key, put) = (self.code_key(code), CodeRecord::UNUSED.encode());
        let txn =
            Txn::new().when([is_at(&key, expected)]).and_then([TxnOp::put(key.clone(), put.clone(), None)]);
        match self.txn(txn, &key, Some(expected), &put).await? {
            Outcome::Written(_) => Ok(()),
            Outcome::Refused(_) => Err(StoreError::Conflict { code }),
        }
    }

    async fn swap_cluster(&self, expected: Revision, put: Vec<u8>) -> Result<Revision, StoreError> {
        let key = self.cluster_key();
        let txn = Txn::new()
            .when([is_at(&key, expected)])
            .and_then([TxnOp::put(key.clone(), put.clone(), None)])
            .or_else([TxnOp::get(key.clone(), Some(GetOptions::new().with_keys_only()))]);
        match self.txn(txn, &key, Some(expected), &put).await? {
            Outcome::Written(revision) => Ok(revision),
            Outcome::Refused(found) if found.first().is_some_and(Option::is_some) => {
                Err(StoreError::ClusterChanged)
            }
            Outcome::Refused(_) => Err(StoreError::Missing { subject: Subject::Cluster }),
        }
    }

    /// Creates all, or none if one of them exists.
    async fn create(&self, puts: Vec<(String, Vec<u8>)>) -> Result<(), StoreError> {
        let Some((key, value)) = puts.first().cloned() else { return Ok(()) };
        let absent =
            |(key, _): &(String, Vec<u8>)| Compare::create_revision(key.clone(), CompareOp::Equal, 0);
        let txn = Txn::new()
            .when(puts.iter().map(absent).collect::<Vec<_>>())
            .and_then(puts.into_iter().map(|(key, value)| TxnOp::put(key, value, None)).collect::<Vec<_>>());
        match self.txn(txn, &key, None, &value).await? {
            Outcome::Written(_) => Ok(()),
            Outcome::Refused(_) => {
                Err(StoreError::AlreadyInitialised { place: format!("the keys {} of etcd", self.root) })
            }
        }
    }

    /// Sends a transaction, once. `key` is (one of) what it puts, `expected` the revision that this is put in place of.
    async fn txn(
        &self,
        txn: Txn,
        key: &str,
        expected: Option<Revision>,
        put: &[u8],
    ) -> Result<Outcome, StoreError> {
        let before = self.seen.floor()?;
        let response = match self.members.txn(txn).await {
            Ok(response) => response,
            // etcd may say so of what it has written: it looks before, and again after.
            Err(full @ StoreError::Full { .. }) => {
                let found = self.get(key).await.map_err(unknown)?;
                let found = found.as_ref().map(|found| (revision_of(found), found.value()));
                return after_full(full, expected, put, found).map(Outcome::Written);
            }
            Err(error) => return Err(error),
        };
        let answer = floor_of(response.header())?;
        match self.seen.check(before, answer) {
            Ok(()) => Ok(Outcome::of(&response)),
            // Another store wrote it, which is not to be told as if nothing had been written.
            Err(error) if response.succeeded() => Err(unknown(error)),
            Err(error) => Err(error),
        }
    }
}

/// Codes with the revision at which each is.
type Damaged = Vec<(u32, Revision)>;

/// The cluster as far as a recovery can know it: the record if it can be read and fits what the operator says, and the
/// highest generation.
fn known_cluster(found: &KeyValue, configured: &ClusterRecord) -> Result<ClusterRecord, StoreError> {
    let stored = match parse_cluster(found) {
        Ok(stored) => stored.record,
        Err(StoreError::Damaged { .. }) => return Ok(configured.clone()),
        Err(error) => return Err(error),
    };
    if stored.layout != configured.layout {
        return Err(StoreError::WrongLayout {
            stored: stored.layout.to_string(),
            configured: configured.layout.to_string(),
        });
    }
    if stored.region != configured.region {
        return Err(StoreError::WrongRegion { stored: stored.region, configured: configured.region });
    }
    Ok(ClusterRecord { generation: stored.generation.max(configured.generation), ..stored })
}

/// What a transaction did.
enum Outcome {
    /// It put; its own revision is that of what it put.
    Written(Revision),
    /// A comparison failed. What its reads found, each one key at most: the key's revision.
    Refused(Vec<Option<Revision>>),
}

impl Outcome {
    fn of(response: &TxnResponse) -> Self {
        if response.succeeded() {
            return Self::Written(revision(response.header().map_or(0, ResponseHeader::revision)));
        }
        let found = response.op_responses().into_iter().map(|read| match read {
            TxnOpResponse::Get(read) => read.kvs().first().map(revision_of),
            _ => None,
        });
        Self::Refused(found.collect())
    }
}

/// Which comparison of a swap failed: where both did, it is the cluster's that is told.
fn why_not(code: u32, cluster: Revision, found: &[Option<Revision>]) -> StoreError {
    match *found {
        [None, _] => StoreError::Missing { subject: Subject::Cluster },
        [Some(found), _] if found != cluster => StoreError::ClusterChanged,
        [_, None] => StoreError::Missing { subject: Subject::Code(code) },
        [_, Some(_)] => StoreError::Conflict { code },
        _ => StoreError::Unreachable { detail: String::from("etcd's answer does not fit the question") },
    }
}

/// What became of a put that etcd had no space for, by a read after it.
fn after_full(
    full: StoreError,
    expected: Option<Revision>,
    put: &[u8],
    found: Option<(Revision, &[u8])>,
) -> Result<Revision, StoreError> {
    match found {
        found if found.map(|(revision, _)| revision) == expected => Err(full),
        Some((revision, value)) if value == put => Ok(revision),
        // Somebody else wrote it, before or afterwards.
        _ => Err(unknown(full)),
    }
}

/// The error of a write whose outcome is not known, whatever the error says.
fn unknown(error: StoreError) -> StoreError {
    match error {
        StoreError::Unreachable { .. } => error,
        error => StoreError::Unreachable { detail: error.to_string() },
    }
}

/// True if the key exists and is at this revision. No key is ever at one that etcd does not give.
fn is_at(key: &str, revision: Revision) -> Compare {
    let revision = i64::try_from(revision.get()).ok().filter(|&revision| revision > 0).unwrap_or(-1);
    Compare::mod_revision(key, CompareOp::Equal, revision)
}

fn revision(number: i64) -> Revision {
    Revision::new(u64::try_from(number).unwrap_or_default())
}

fn revision_of(found: &KeyValue) -> Revision {
    revision(found.mod_revision())
}

fn floor_of(header: Option<&ResponseHeader>) -> Result<Floor, StoreError> {
    let no_header = || StoreError::Unreachable { detail: String::from("etcd's answer has no header") };
    header.map(Floor::of).ok_or_else(no_header)
}

fn parse_cluster(found: &KeyValue) -> Result<Stored<ClusterRecord>, StoreError> {
    let record = ClusterRecord::decode(found.value())
        .map_err(|error| StoreError::from_decode(Subject::Cluster, error))?;
    Ok(Stored { record, revision: revision_of(found) })
}

fn parse_code(code: u32, found: &KeyValue) -> Result<Stored<CodeRecord>, StoreError> {
    let record = CodeRecord::decode(found.value())
        .map_err(|error| StoreError::from_decode(Subject::Code(code), error))?;
    Ok(Stored { record, revision: revision_of(found) })
}

/// The code of a key: exactly five digits.
fn code_of(prefix: &str, key: &[u8]) -> Result<u32, StoreError> {
    let key = std::str::from_utf8(key).map_err(|_| foreign(prefix))?;
    let digits = key.strip_prefix(prefix).filter(|digits| digits.len() == 5);
    let is_code = |code: &u32| *code < CODES_MAX;
    digits
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|digits| digits.parse().ok())
        .filter(is_code)
        .ok_or_else(|| foreign(key))
}

fn foreign(key: &str) -> StoreError {
    StoreError::Unreadable { detail: format!("there is a key at {key} that Snowmint did not write") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_keys_of_codes_are_codes() {
        // Shows that a code's key has five digits and is in range, and that any other key is refused.
        let code = |key: &str| code_of("p/0/code/", key.as_bytes());
        assert_eq!(code("p/0/code/00017"), Ok(17));
        assert_eq!(code("p/0/code/65535"), Ok(65_535));
        for key in ["p/0/code/17", "p/0/code/65536", "p/0/code/+0017", "p/0/code/000170", "p/0/code/", "q"] {
            assert!(matches!(code(key), Err(StoreError::Unreadable { .. })), "{key}");
        }
        assert!(code_of("p", b"p\xff").is_err());
    }

    #[test]
    fn a_refused_swap_says_what_was_not_as_expected() {
        // Shows the order: no cluster record, another, no code record, another.
        let at = |number| Some(Revision::new(number));
        let cluster = Revision::new(5);
        for (found, expected) in [
            (vec![None, at(9)], StoreError::Missing { subject: Subject::Cluster }),
            (vec![None, None], StoreError::Missing { subject: Subject::Cluster }),
            (vec![at(6), at(9)], StoreError::ClusterChanged),
            (vec![at(6), None], StoreError::ClusterChanged),
            (vec![at(5), None], StoreError::Missing { subject: Subject::Code(3) }),
            (vec![at(5), at(9)], StoreError::Conflict { code: 3 }),
        ] {
            assert_eq!(why_not(3, cluster, &found), expected);
        }
        assert!(why_not(3, cluster, &[]).is_transient());
    }

    #[test]
    fn a_full_store_is_asked_what_it_wrote() {
        // Shows that "no space" is believed only once a read shows the record as it was; what was written all the same
        // is a success, and what somebody else wrote leaves the outcome open.
        let full = StoreError::Full { detail: String::from("no space") };
        let at = Revision::new;
        let after = |expected, found| after_full(full.clone(), expected, b"mine", found);
        assert_eq!(after(Some(at(4)), Some((at(4), b"old"))), Err(full.clone()));
        assert_eq!(after(Some(at(4)), Some((at(5), b"mine"))), Ok(at(5)));
        assert!(after(Some(at(4)), Some((at(6), b"else"))).unwrap_err().is_transient());
        assert!(after(Some(at(4)), None).unwrap_err().is_transient());
        assert_eq!(after(None, None), Err(full.clone()));
        assert_eq!(after(None, Some((at(5), b"mine"))), Ok(at(5)));
    }
}

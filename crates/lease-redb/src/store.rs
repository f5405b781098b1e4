//! The store itself.

use std::fs::{File, OpenOptions};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redb::backends::FileBackend;
use redb::{
    Builder, Database, Durability, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition,
    WriteTransaction,
};
use snowmint_core::Layout;
use snowmint_lease::{
    ClusterRecord, CodeRecord, DecodeError, Now, Revision, State, Store, StoreError, Stored, Subject,
    protocol, store,
};

use crate::fault::{Fault, from_io, from_panic, is_lasting, means_unreadable};
use crate::place::{Founded, Identity, Lock, Place, Watched};

/// The version of the tables in the file.
pub const FORMAT_VERSION: u32 = 1;

/// By code: 8 bytes of revision, then the record.
const CODES: TableDefinition<'static, u32, &'static [u8]> = TableDefinition::new("codes");
/// The cluster record, as a code's.
const CLUSTER: TableDefinition<'static, (), &'static [u8]> = TableDefinition::new("cluster");
/// What the file knows of itself.
const FILE: TableDefinition<'static, &'static str, &'static [u8]> = TableDefinition::new("file");
const VERSION_KEY: &str = "version";
const IDENTITY_KEY: &str = "identity";

/// The cluster record's revision begins with its generation above this many bits.
const REVISION_BITS: u32 = 48;

/// The records of 65,536 codes fit; redb's default is a gigabyte.
const CACHE_BYTES: usize = 16 << 20;

/// What an operator says who recovers a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// 128 fresh random bits, should a new store have to be made.
    pub uuid: u128,
    /// The store's layout. Must be what can still be read of the store; where nothing can, it must be given.
    pub layout: Option<Layout>,
    /// The store's region, likewise.
    pub region: Option<u32>,
    /// No grant begins at or below: a Unix millisecond at or above all that may have been stamped.
    pub not_before_ms: u64,
    /// The longest window of any keeper of the store, in milliseconds: no grant begins within one from now either.
    pub window_ms: u32,
}

/// A lease store in a directory of its own, for one process.
///
/// | made by | for |
/// |---|---|
/// | [`RedbStore::init`] | a directory in which there never was a store |
/// | [`RedbStore::open`] | every start |
/// | [`RedbStore::recover`] | a store that was lost, damaged, copied, or put back from a backup |
///
/// The first error of the disk stays: every later call returns it, until the store is opened again.
#[derive(Debug)]
pub struct RedbStore {
    /// `None` only while it is dropped.
    db: Option<Database>,
    place: Place,
    file: Watched,
    lock: Lock,
    pid: u32,
    failed: Mutex<Option<StoreError>>,
    has_granted: AtomicBool,
}

impl RedbStore {
    /// Founds a store, and opens it. The directory is made where it does not exist.
    ///
    /// All or nothing, also if the process dies in between: it can be run again. Refuses where there is a store
    /// ([`StoreError::AlreadyInitialised`]) or was one ([`StoreError::Gone`]).
    pub fn init(dir: &Path, cluster: &ClusterRecord) -> Result<Self, StoreError> {
        let place = Place::new(dir);
        place.create_dir()?;
        let lock = place.lock()?;
        if place.has_store()? {
            return Err(StoreError::AlreadyInitialised { place: place.name() });
        }
        if place.mark().founded.is_some() {
            return Err(StoreError::Gone { place: place.name() });
        }
        found(&place, cluster)?;
        let opened = open_db(&place, FileCheck::Own, |backend| backend)?;
        Self::assemble(place, lock, opened)
    }

    /// Opens a store that was founded. Nothing is granted, and nobody's grant is touched: see
    /// [`RedbStore::take_over`].
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        Self::open_through(dir, |backend| backend)
    }

    /// [`RedbStore::open`] with something between redb and its file: to break it, to slow it, or to watch it.
    pub fn open_through<B: StorageBackend>(
        dir: &Path,
        wrap: impl FnOnce(FileBackend) -> B,
    ) -> Result<Self, StoreError> {
        let place = Place::new(dir);
        if !place.has_store()? {
            // Without a store nothing is made, not even a lock file.
            return Err(match place.mark().founded {
                Some(_) => StoreError::Gone { place: place.name() },
                None => StoreError::NotInitialised { place: place.name() },
            });
        }
        let lock = place.lock()?;
        let opened = open_db(&place, FileCheck::Own, wrap)?;
        Self::assemble(place, lock, opened)
    }

    /// Makes a store usable again whose history is not known: every grant of before is over, and none begins before
    /// the time that the operator vouches for.
    ///
    /// A store that can be read keeps its records and raises its generation. One that cannot is set aside as
    /// `store.redb.damaged`, and a new one is founded for the layout and region that its lock file tells.
    pub fn recover(dir: &Path, recovery: &Recovery, now: &Now) -> Result<Self, StoreError> {
        let place = Place::new(dir);
        place.create_dir()?;
        let lock = place.lock()?;
        if place.has_store()? {
            match open_whole_db(&place) {
                Ok(opened) => return Self::raise(place, lock, opened, recovery, now),
                Err(error) if means_unreadable(&error) => {}
                Err(error) => return Err(error),
            }
        }
        // Everything is checked before what is left of the old store is moved.
        let cluster = raised(&recovery.remembered(place.mark().founded)?, recovery, now)?;
        place.set_store_aside()?;
        found(&place, &cluster)?;
        let opened = open_db(&place, FileCheck::Own, |backend| backend)?;
        Self::assemble(place, lock, opened)
    }

    /// Counts what the process before this one held as expired: it has ended, since this one holds the lock. Returns
    /// how many codes there were. To be called before the first grant; refused afterwards.
    ///
    /// `quarantine_ms` 0 is none, which is safe. `nonce` gives 128 fresh random bits a call.
    pub fn take_over(
        &self,
        now: &Now,
        quarantine_ms: u64,
        nonce: &mut dyn FnMut() -> u128,
    ) -> Result<u32, StoreError> {
        if self.has_granted.load(Ordering::Acquire) {
            return Err(StoreError::InUse {
                by: String::from("this process, which has granted codes of it"),
            });
        }
        store::expire_all(self, now, quarantine_ms, nonce)
    }

    /// Raises the generation of a store that is whole, and makes the file as it lies the store's own.
    fn raise(
        place: Place,
        lock: Lock,
        (db, file): (Database, Watched),
        recovery: &Recovery,
        now: &Now,
    ) -> Result<Self, StoreError> {
        let identity = Identity::of(&open_file(&place)?)?;
        let known = place.mark().founded;
        let raise = || {
            let before = read_cluster(&db)?;
            recovery.check_same(&before.record.layout, before.record.region)?;
            // The file may be an old backup of the store that the lock file speaks of: then the generation is that one's, and
            // its layout must not come back if it was cut over since.
            if let Some(founded) = known
                && founded.layout != before.record.layout
                && before.record.former.iter().all(|former| former.layout != founded.layout)
            {
                return Err(StoreError::WrongLayout {
                    stored: before.record.layout.to_string(),
                    configured: founded.layout.to_string(),
                }
                .into());
            }
            let known = known.map_or(0, |founded| founded.generation);
            let generation = before.record.generation.max(known);
            let cluster = raised(&ClusterRecord { generation, ..before.record }, recovery, now)?;
            // Revisions of the writes that the file has forgotten must not come back either.
            let revision = first_revision(&cluster).max(before.revision.get() + 1);
            write(&db, |txn| {
                let bytes = with_revision(revision, &cluster.encode());
                txn.open_table(CLUSTER)?.insert((), &*bytes)?;
                txn.open_table(FILE)?.insert(IDENTITY_KEY, &*identity.encode())?;
                Ok(())
            })
        };
        guarded(raise)?;
        Self::assemble(place, lock, (db, file))
    }

    /// Puts the parts together, and notes in the lock file that there is a store.
    fn assemble(place: Place, mut lock: Lock, (db, file): (Database, Watched)) -> Result<Self, StoreError> {
        let cluster = guarded(|| read_cluster(&db))?.record;
        let mark = place.mark();
        let founded = Founded::of(&cluster);
        if mark.founded != Some(founded) {
            lock.write(&mark.with_founded(founded))?;
        }
        let pid = std::process::id();
        let (failed, has_granted) = (Mutex::new(None), AtomicBool::new(false));
        Ok(Self { db: Some(db), place, file, lock, pid, failed, has_granted })
    }

    fn failed(&self) -> MutexGuard<'_, Option<StoreError>> {
        // One assignment at a time: a panic elsewhere leaves nothing half done.
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one call, unless the store has failed before; what fails lastingly is kept.
    fn call<T>(&self, call: impl FnOnce(&Database) -> Result<T, Fault>) -> Result<T, StoreError> {
        if self.pid != std::process::id() {
            return Err(StoreError::Forked);
        }
        if let Some(error) = &*self.failed() {
            return Err(error.clone());
        }
        let Some(db) = &self.db else { return Err(StoreError::Io { detail: String::from("closed") }) };
        let result = self.check_place().and_then(|()| guarded(|| call(db)));
        // A file that was taken away meanwhile keeps nothing of what was just written to it.
        let result = result.and_then(|done| self.check_place().map(|()| done));
        if let Err(error) = &result
            && is_lasting(error)
        {
            self.failed().get_or_insert(error.clone());
        }
        result
    }

    fn check_place(&self) -> Result<(), StoreError> {
        let place = self.place.name();
        self.file.check(&place)?;
        self.lock.check(&place)
    }

    fn already(&self) -> StoreError {
        StoreError::AlreadyInitialised { place: self.place.name() }
    }
}

impl Drop for RedbStore {
    fn drop(&mut self) {
        // Closing writes, and a damaged file can make redb panic: nobody is left to be told.
        let db = self.db.take();
        let _ = catch_unwind(AssertUnwindSafe(|| drop(db)));
    }
}

impl Store for RedbStore {
    fn cluster(&self) -> Result<Stored<ClusterRecord>, StoreError> {
        self.call(read_cluster)
    }

    fn read(&self, code: u32) -> Result<Stored<CodeRecord>, StoreError> {
        self.call(|db| {
            let table = db.begin_read()?.open_table(CODES)?;
            let value = table.get(code)?.ok_or(StoreError::Missing { subject: Subject::Code(code) })?;
            Ok(parse_code(code, value.value())?)
        })
    }

    fn scan(&self) -> Result<Vec<(u32, Stored<CodeRecord>)>, StoreError> {
        self.call(scan)
    }

    fn swap(
        &self,
        code: u32,
        expected: Revision,
        cluster: Revision,
        record: &CodeRecord,
    ) -> Result<Revision, StoreError> {
        if record.state == State::Active {
            self.has_granted.store(true, Ordering::Release);
        }
        self.call(|db| {
            write(db, |txn| {
                let found = read_cluster_in(&txn.open_table(CLUSTER)?)?;
                if found.revision != cluster {
                    return Err(StoreError::ClusterChanged.into());
                }
                let mut table = txn.open_table(CODES)?;
                let subject = Subject::Code(code);
                let found = match table.get(code)? {
                    Some(value) => parse_code(code, value.value())?.revision,
                    None => return Err(StoreError::Missing { subject }.into()),
                };
                if found != expected {
                    return Err(StoreError::Conflict { code }.into());
                }
                let revision = expected.get() + 1;
                table.insert(code, &*with_revision(revision, &record.encode()))?;
                Ok(Revision::new(revision))
            })
        })
    }

    fn swap_cluster(&self, expected: Revision, record: &ClusterRecord) -> Result<Revision, StoreError> {
        self.call(|db| {
            write(db, |txn| {
                let mut table = txn.open_table(CLUSTER)?;
                if read_cluster_in(&table)?.revision != expected {
                    return Err(StoreError::ClusterChanged.into());
                }
                let revision = expected.get() + 1;
                table.insert((), &*with_revision(revision, &record.encode()))?;
                Ok(Revision::new(revision))
            })
        })
    }

    fn create_codes(&self, codes: &[(u32, CodeRecord)]) -> Result<(), StoreError> {
        self.call(|db| {
            write(db, |txn| {
                let mut table = txn.open_table(CODES)?;
                for (code, record) in codes {
                    if table.insert(code, &*with_revision(1, &record.encode()))?.is_some() {
                        return Err(self.already().into());
                    }
                }
                Ok(())
            })
        })
    }

    fn create_cluster(&self, record: &ClusterRecord) -> Result<(), StoreError> {
        self.call(|db| {
            write(db, |txn| {
                let bytes = with_revision(first_revision(record), &record.encode());
                if txn.open_table(CLUSTER)?.insert((), &*bytes)?.is_some() {
                    return Err(self.already().into());
                }
                Ok(())
            })
        })
    }
}

/// Whether a file that is opened must be the one that was founded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileCheck {
    Own,
    Any,
}

/// Catches what redb panics on: it checks some of its own invariants so, and a damaged file can break them.
fn guarded<T>(call: impl FnOnce() -> Result<T, Fault>) -> Result<T, StoreError> {
    // Whatever a panic leaves half done is not used again: the error is a lasting one.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(Fault::into_store_error),
        Err(panic) => Err(from_panic(&*panic)),
    }
}

/// One durable transaction: both phases synced, or nothing.
fn write<T>(db: &Database, change: impl FnOnce(&WriteTransaction) -> Result<T, Fault>) -> Result<T, Fault> {
    let mut txn = db.begin_write()?;
    txn.set_durability(Durability::Immediate)?;
    txn.set_two_phase_commit(true);
    match change(&txn) {
        Ok(done) => {
            txn.commit()?;
            Ok(done)
        }
        Err(fault) => {
            txn.abort()?;
            Err(fault)
        }
    }
}

/// The cluster record's first revision in a generation: above those of all generations before.
const fn first_revision(cluster: &ClusterRecord) -> u64 {
    (cluster.generation as u64) << REVISION_BITS
}

fn with_revision(revision: u64, record: &[u8]) -> Vec<u8> {
    [&revision.to_le_bytes(), record].concat()
}

fn parse<T>(
    subject: Subject,
    bytes: &[u8],
    decode: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
) -> Result<Stored<T>, StoreError> {
    let truncated = DecodeError::Truncated { bytes: bytes.len(), expected: 8 };
    let split = bytes.split_first_chunk().ok_or(truncated);
    let (revision, record) = split.map_err(|error| StoreError::from_decode(subject, error))?;
    let record = decode(record).map_err(|error| StoreError::from_decode(subject, error))?;
    Ok(Stored { record, revision: Revision::new(u64::from_le_bytes(*revision)) })
}

fn parse_code(code: u32, bytes: &[u8]) -> Result<Stored<CodeRecord>, StoreError> {
    parse(Subject::Code(code), bytes, CodeRecord::decode)
}

fn read_cluster(db: &Database) -> Result<Stored<ClusterRecord>, Fault> {
    read_cluster_in(&db.begin_read()?.open_table(CLUSTER)?)
}

fn read_cluster_in(table: &impl ReadableTable<(), &'static [u8]>) -> Result<Stored<ClusterRecord>, Fault> {
    let subject = Subject::Cluster;
    // A store in its place has one: it is founded in another place, and then moved.
    let value = table.get(())?.ok_or(StoreError::Missing { subject })?;
    Ok(parse(subject, value.value(), ClusterRecord::decode)?)
}

fn scan(db: &Database) -> Result<Vec<(u32, Stored<CodeRecord>)>, Fault> {
    let table = db.begin_read()?.open_table(CODES)?;
    let mut codes = Vec::new();
    for entry in table.iter()? {
        let (code, value) = entry?;
        codes.push((code.value(), parse_code(code.value(), value.value())?));
    }
    Ok(codes)
}

/// The cluster after a recovery.
fn raised(before: &ClusterRecord, recovery: &Recovery, now: &Now) -> Result<ClusterRecord, StoreError> {
    protocol::recover(before, recovery.not_before_ms, recovery.window_ms, now).map_err(StoreError::Refused)
}

impl Recovery {
    /// What is given must be what the store was for.
    fn check_same(&self, layout: &Layout, region: u32) -> Result<(), StoreError> {
        match (self.layout, self.region) {
            (Some(configured), _) if configured != *layout => Err(StoreError::WrongLayout {
                stored: layout.to_string(),
                configured: configured.to_string(),
            }),
            (_, Some(configured)) if configured != region => {
                Err(StoreError::WrongRegion { stored: region, configured })
            }
            _ => Ok(()),
        }
    }

    /// The record of a store of which only the lock file is left, or nothing. Never a default: a region or layout that
    /// was another one's would make duplicates.
    fn remembered(&self, founded: Option<Founded>) -> Result<ClusterRecord, StoreError> {
        let (layout, region) = match (founded, self.layout, self.region) {
            (Some(founded), ..) => {
                self.check_same(&founded.layout, founded.region)?;
                (founded.layout, founded.region)
            }
            (None, Some(layout), Some(region)) => (layout, region),
            (None, None, Some(_)) => return Err(StoreError::Untold { flags: "`--layout`" }),
            (None, Some(_), None) => return Err(StoreError::Untold { flags: "`--region`" }),
            (None, None, None) => return Err(StoreError::Untold { flags: "`--layout` and `--region`" }),
        };
        let cluster = ClusterRecord::new(self.uuid, layout, region)
            .map_err(|error| StoreError::Io { detail: error.to_string() })?;
        let generation = founded.map_or(cluster.generation, |founded| founded.generation);
        Ok(ClusterRecord { generation, ..cluster })
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
    builder
}

/// Makes a whole store beside its place, then moves it there: whoever looks sees none, or all of it.
fn found(place: &Place, cluster: &ClusterRecord) -> Result<(), StoreError> {
    cluster.check().map_err(|error| StoreError::Io { detail: error.to_string() })?;
    place.remove_new_store()?;
    let path = place.new_store_path();
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(&path);
    let file = file.map_err(|error| from_io(&error))?;
    let identity = Identity::of(&file)?;
    let codes: Vec<_> = (0..cluster.codes()).map(|code| (code, CodeRecord::UNUSED)).collect();
    guarded(|| {
        let db = builder().create_with_backend(FileBackend::new(file)?)?;
        write(&db, |txn| {
            let mut table = txn.open_table(FILE)?;
            table.insert(VERSION_KEY, &FORMAT_VERSION.to_le_bytes()[..])?;
            table.insert(IDENTITY_KEY, &*identity.encode())?;
            let mut table = txn.open_table(CODES)?;
            for (code, record) in &codes {
                table.insert(code, &*with_revision(1, &record.encode()))?;
            }
            // One transaction, so that the order does not matter here; it is that of every store.
            txn.open_table(CLUSTER)?
                .insert((), &*with_revision(first_revision(cluster), &cluster.encode()))?;
            Ok(())
        })
    })?;
    place.publish_new_store()
}

fn open_file(place: &Place) -> Result<File, StoreError> {
    let file = OpenOptions::new().read(true).write(true).open(place.store_path());
    file.map_err(|error| from_io(&error))
}

/// Opens the file of a store whose lock is held.
fn open_db<B: StorageBackend>(
    place: &Place,
    check: FileCheck,
    wrap: impl FnOnce(FileBackend) -> B,
) -> Result<(Database, Watched), StoreError> {
    let file = open_file(place)?;
    if file.metadata().map_err(|error| from_io(&error))?.len() == 0 {
        // redb would make a new database of it.
        return Err(StoreError::Unreadable { detail: String::from("its file is empty") });
    }
    let identity = Identity::of(&file)?;
    let watched = Watched::new(place.store_path(), &file)?;
    let open = || {
        let db = builder().create_with_backend(wrap(FileBackend::new(file)?))?;
        check_file(&db, &identity, check)?;
        Ok(db)
    };
    Ok((guarded(open)?, watched))
}

/// Opens whatever file is there, and reads all of it.
fn open_whole_db(place: &Place) -> Result<(Database, Watched), StoreError> {
    let (db, watched) = open_db(place, FileCheck::Any, |backend| backend)?;
    guarded(|| {
        let cluster = read_cluster(&db)?.record;
        let codes = scan(&db)?;
        Ok(store::check_complete(&codes, &cluster)?)
    })?;
    Ok((db, watched))
}

fn check_file(db: &Database, identity: &Identity, check: FileCheck) -> Result<(), Fault> {
    let table = db.begin_read()?.open_table(FILE)?;
    let no_store = || StoreError::Unreadable { detail: String::from("its file is no lease store") };
    let version = table.get(VERSION_KEY)?.ok_or_else(no_store)?;
    let version = version.value().try_into().map(u32::from_le_bytes).map_err(|_| no_store())?;
    if version != FORMAT_VERSION {
        return Err(StoreError::WrongVersion { found: version, expected: FORMAT_VERSION }.into());
    }
    if check == FileCheck::Own {
        let stored = table.get(IDENTITY_KEY)?.ok_or_else(no_store)?;
        let stored = Identity::decode(stored.value()).ok_or_else(no_store)?;
        if let Some(detail) = stored.difference(identity) {
            return Err(StoreError::Copied { detail }.into());
        }
    }
    Ok(())
}

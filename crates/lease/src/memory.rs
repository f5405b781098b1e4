//! A store in memory: for tests and simulations, and for nothing whose IDs outlive the process.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use snowmint_core::mutation::{self, Mutation};

use crate::{ClusterRecord, CodeRecord, Revision, State, Store, StoreError, Stored, Subject};

/// A [`Store`] in memory. It keeps bytes, not records, so that whoever uses it goes through the encoding too.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: Mutex<Kept>,
}

/// All that a [`MemoryStore`] held at one moment.
#[derive(Clone, Debug)]
pub struct MemoryBackup {
    cluster: Option<(Revision, Vec<u8>)>,
    codes: BTreeMap<u32, (Revision, Vec<u8>)>,
}

#[derive(Debug, Default)]
struct Kept {
    writes: u64,
    cluster: Option<(Revision, Vec<u8>)>,
    codes: BTreeMap<u32, (Revision, Vec<u8>)>,
}

impl Kept {
    fn next_revision(&mut self) -> Revision {
        self.writes += 1;
        Revision::new(self.writes)
    }

    fn cluster(&self) -> Result<Stored<ClusterRecord>, StoreError> {
        match &self.cluster {
            Some((revision, bytes)) => {
                let record = ClusterRecord::decode(bytes)
                    .map_err(|error| StoreError::from_decode(Subject::Cluster, error))?;
                Ok(Stored { record, revision: *revision })
            }
            None if self.codes.keys().any(|&code| self.read(code).is_ok_and(|code| code.record.term > 0)) => {
                Err(StoreError::Missing { subject: Subject::Cluster })
            }
            None => Err(StoreError::NotInitialised { place: String::from("memory") }),
        }
    }

    fn read(&self, code: u32) -> Result<Stored<CodeRecord>, StoreError> {
        let subject = Subject::Code(code);
        if mutation::active(Mutation::MissingIsUnused) && !self.codes.contains_key(&code) {
            return Ok(Stored { record: CodeRecord::UNUSED, revision: Revision::new(0) });
        }
        let (revision, bytes) = self.codes.get(&code).ok_or(StoreError::Missing { subject })?;
        let record = CodeRecord::decode(bytes).map_err(|error| StoreError::from_decode(subject, error))?;
        Ok(Stored { record, revision: *revision })
    }
}

impl MemoryStore {
    /// An empty store. [`crate::init`] makes it one that can be leased from.
    pub fn new() -> Self {
        Self::default()
    }

    /// Deletes the record of a code, as an operator's slip would.
    pub fn delete_code(&self, code: u32) {
        self.lock().codes.remove(&code);
    }

    /// Deletes the cluster record, as an operator's slip would.
    pub fn delete_cluster(&self) {
        self.lock().cluster = None;
    }

    /// Puts bytes in place of a code's record, as a bad disk would.
    pub fn damage_code(&self, code: u32, bytes: &[u8]) {
        let mut state = self.lock();
        let revision = state.next_revision();
        state.codes.insert(code, (revision, bytes.to_vec()));
    }

    /// A backup of what it holds now.
    pub fn backup(&self) -> MemoryBackup {
        let state = self.lock();
        MemoryBackup { cluster: state.cluster.clone(), codes: state.codes.clone() }
    }

    /// Puts a backup back, as an operator does who must then raise the generation ([`crate::store::recover`]) before
    /// any worker reaches the store. Revisions of writes that this forgets do not come back.
    pub fn restore(&self, backup: &MemoryBackup) {
        let mut state = self.lock();
        state.cluster.clone_from(&backup.cluster);
        state.codes.clone_from(&backup.codes);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Every write below is one assignment, so a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn cluster(&self) -> Result<Stored<ClusterRecord>, StoreError> {
        self.lock().cluster()
    }

    fn read(&self, code: u32) -> Result<Stored<CodeRecord>, StoreError> {
        self.lock().read(code)
    }

    fn scan(&self) -> Result<Vec<(u32, Stored<CodeRecord>)>, StoreError> {
        let state = self.lock();
        if mutation::active(Mutation::MissingIsUnused)
            && let Ok(cluster) = state.cluster()
        {
            return (0..cluster.record.codes()).map(|code| Ok((code, state.read(code)?))).collect();
        }
        state.codes.keys().map(|&code| Ok((code, state.read(code)?))).collect()
    }

    fn swap(
        &self,
        code: u32,
        expected: Revision,
        cluster: Revision,
        record: &CodeRecord,
    ) -> Result<Revision, StoreError> {
        let mut state = self.lock();
        let (found, _) = state.cluster.as_ref().ok_or(StoreError::Missing { subject: Subject::Cluster })?;
        if *found != cluster {
            return Err(StoreError::ClusterChanged);
        }
        let found = state.read(code)?;
        let is_blind = mutation::active(Mutation::RenewWithoutCompare)
            && record.state == State::Active
            && record.term <= found.record.term;
        if found.revision != expected && !is_blind {
            return Err(StoreError::Conflict { code });
        }
        let revision = state.next_revision();
        state.codes.insert(code, (revision, record.encode()));
        Ok(revision)
    }

    fn swap_cluster(&self, expected: Revision, record: &ClusterRecord) -> Result<Revision, StoreError> {
        let mut state = self.lock();
        let (found, _) = state.cluster.as_ref().ok_or(StoreError::Missing { subject: Subject::Cluster })?;
        if *found != expected {
            return Err(StoreError::ClusterChanged);
        }
        let revision = state.next_revision();
        state.cluster = Some((revision, record.encode()));
        Ok(revision)
    }

    fn create_codes(&self, codes: &[(u32, CodeRecord)]) -> Result<(), StoreError> {
        let mut state = self.lock();
        if codes.iter().any(|(code, _)| state.codes.contains_key(code)) {
            return Err(StoreError::AlreadyInitialised { place: String::from("memory") });
        }
        for (code, record) in codes {
            let revision = state.next_revision();
            state.codes.insert(*code, (revision, record.encode()));
        }
        Ok(())
    }

    fn create_cluster(&self, record: &ClusterRecord) -> Result<(), StoreError> {
        let mut state = self.lock();
        if state.cluster.is_some() {
            return Err(StoreError::AlreadyInitialised { place: String::from("memory") });
        }
        let revision = state.next_revision();
        state.cluster = Some((revision, record.encode()));
        Ok(())
    }
}

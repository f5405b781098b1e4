//! The store of the model: a copy is cheap, and revisions come from outside.

use std::cell::RefCell;
use std::sync::Arc;

use snowmint_core::mutation::{self, Mutation};
use snowmint_lease::{ClusterRecord, CodeRecord, Revision, State, Store, StoreError, Stored, Subject};

/// All that is kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kept {
    pub(crate) cluster: Arc<Stored<ClusterRecord>>,
    pub(crate) codes: Codes,
}

/// The code records; `None` was deleted.
pub(crate) type Codes = Vec<Option<Arc<Stored<CodeRecord>>>>;

/// A [`Store`] over [`Kept`], for one call.
pub(crate) struct ModelStore {
    kept: RefCell<Kept>,
    /// What a write is called: a number that nobody remembers.
    fresh: Revision,
    fresh_cluster: Revision,
}

impl ModelStore {
    pub(crate) fn new(kept: Kept, fresh: Revision, fresh_cluster: Revision) -> Self {
        Self { kept: RefCell::new(kept), fresh, fresh_cluster }
    }

    pub(crate) fn into_kept(self) -> Kept {
        self.kept.into_inner()
    }
}

/// The revision of a write: the number of its nonce, which is as fresh, so that one number says both.
pub(crate) fn revision_of(record: &CodeRecord, fresh: Revision) -> Revision {
    if mutation::active(Mutation::NoncePerProcess) {
        return fresh;
    }
    u64::try_from(record.nonce).map_or(fresh, Revision::new)
}

impl Store for ModelStore {
    fn cluster(&self) -> Result<Stored<ClusterRecord>, StoreError> {
        Ok((*self.kept.borrow().cluster).clone())
    }

    fn read(&self, code: u32) -> Result<Stored<CodeRecord>, StoreError> {
        match self.kept.borrow().codes.get(code as usize) {
            Some(Some(stored)) => Ok((**stored).clone()),
            _ if mutation::active(Mutation::MissingIsUnused) => {
                Ok(Stored { record: CodeRecord::UNUSED, revision: Revision::new(0) })
            }
            _ => Err(StoreError::Missing { subject: Subject::Code(code) }),
        }
    }

    fn scan(&self) -> Result<Vec<(u32, Stored<CodeRecord>)>, StoreError> {
        let codes = 0..u32::try_from(self.kept.borrow().codes.len()).unwrap_or(u32::MAX);
        codes
            .map(|code| self.read(code).map(|stored| (code, stored)))
            .filter(|read| !matches!(read, Err(StoreError::Missing { .. })))
            .collect()
    }

    fn swap(
        &self,
        code: u32,
        expected: Revision,
        cluster: Revision,
        record: &CodeRecord,
    ) -> Result<Revision, StoreError> {
        if self.kept.borrow().cluster.revision != cluster {
            return Err(StoreError::ClusterChanged);
        }
        let found = self.read(code)?;
        let is_blind = mutation::active(Mutation::RenewWithoutCompare)
            && record.state == State::Active
            && record.term <= found.record.term;
        if found.revision != expected && !is_blind {
            return Err(StoreError::Conflict { code });
        }
        let record = CodeRecord { stamp_ms: 0, ..record.clone() };
        let revision = revision_of(&record, self.fresh);
        if let Some(place) = self.kept.borrow_mut().codes.get_mut(code as usize) {
            *place = Some(Arc::new(Stored { record, revision }));
        }
        Ok(revision)
    }

    fn swap_cluster(&self, expected: Revision, record: &ClusterRecord) -> Result<Revision, StoreError> {
        let mut kept = self.kept.borrow_mut();
        if kept.cluster.revision != expected {
            return Err(StoreError::ClusterChanged);
        }
        kept.cluster = Arc::new(Stored { record: record.clone(), revision: self.fresh_cluster });
        Ok(self.fresh_cluster)
    }

    fn create_codes(&self, _codes: &[(u32, CodeRecord)]) -> Result<(), StoreError> {
        Err(StoreError::AlreadyInitialised { place: String::from("the model") })
    }

    fn create_cluster(&self, _record: &ClusterRecord) -> Result<(), StoreError> {
        Err(StoreError::AlreadyInitialised { place: String::from("the model") })
    }
}

//! Whether it is still the same etcd that answers: one that was put back from a backup, or another cluster behind one
//! of the endpoints, is not.

use std::sync::{Mutex, MutexGuard, PoisonError};

use etcd_client::ResponseHeader;
use snowmint_lease::{ClusterRecord, StoreError};

/// What the answers so far have shown.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    floor: Floor,
    /// Of the cluster record as last read.
    known: Option<(u128, u16)>,
    /// It is not the same any more, and this tells.
    other: Option<String>,
}

/// What an answer to a request that is sent now must be at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Floor {
    /// The cluster's id. `None`: not known yet.
    cluster_id: Option<u64>,
    /// The store's revision, which never falls.
    revision: i64,
}

impl Floor {
    pub(crate) const fn of(header: &ResponseHeader) -> Self {
        Self { cluster_id: Some(header.cluster_id()), revision: header.revision() }
    }
}

impl Seen {
    /// To be asked before a request is sent.
    pub(crate) fn floor(&self) -> Result<Floor, StoreError> {
        let state = self.lock();
        match &state.other {
            Some(detail) => Err(StoreError::Copied { detail: detail.clone() }),
            None => Ok(state.floor),
        }
    }

    /// As [`Seen::floor`], for reading the cluster record: what it says can make another store this one's successor.
    pub(crate) fn floor_if_same(&self) -> Option<Floor> {
        let state = self.lock();
        state.other.is_none().then_some(state.floor)
    }

    /// Takes an answer in, and refuses it if it is another store's.
    pub(crate) fn check(&self, before: Floor, answer: Floor) -> Result<(), StoreError> {
        let mut state = self.lock();
        let detail = if before.cluster_id.is_some() && before.cluster_id != answer.cluster_id {
            String::from("another etcd cluster answers at one of the endpoints")
        } else if answer.revision < before.revision {
            format!("etcd's revision went back from {} to {}", before.revision, answer.revision)
        } else {
            state.floor.cluster_id = answer.cluster_id;
            state.floor.revision = state.floor.revision.max(answer.revision);
            return Ok(());
        };
        state.other.get_or_insert(detail.clone());
        Err(StoreError::Copied { detail })
    }

    /// Takes the cluster record in. A store that is another than before counts as this one again once a recovery has
    /// raised its generation: then no grant of before holds.
    pub(crate) fn know(&self, cluster: &ClusterRecord, answer: Floor) -> Result<(), StoreError> {
        let mut state = self.lock();
        if let Some(detail) = &state.other {
            let is_recovered = state
                .known
                .is_some_and(|(uuid, generation)| uuid == cluster.uuid && generation < cluster.generation);
            if !is_recovered {
                return Err(StoreError::Copied { detail: detail.clone() });
            }
            state.other = None;
            state.floor = answer;
        }
        state.known = Some((cluster.uuid, cluster.generation));
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No panic is possible while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use snowmint_core::Layout;

    use super::*;

    fn at(cluster_id: u64, revision: i64) -> Floor {
        Floor { cluster_id: Some(cluster_id), revision }
    }

    fn cluster(uuid: u128, generation: u16) -> ClusterRecord {
        ClusterRecord { generation, ..ClusterRecord::new(uuid, Layout::SNOWMINT, 0).unwrap() }
    }

    #[test]
    fn answers_may_cross_but_not_go_back() {
        // Shows that an answer is held against what was known when its request was sent, and not against later answers.
        let seen = Seen::default();
        let before = seen.floor().unwrap();
        assert_eq!(seen.check(before, at(1, 11)), Ok(()));
        assert_eq!(seen.check(before, at(1, 10)), Ok(()));
        assert_eq!(seen.floor(), Ok(at(1, 11)));
        assert_eq!(seen.check(at(1, 11), at(1, 11)), Ok(()));
    }

    #[test]
    fn another_store_is_refused_until_it_was_recovered() {
        // Shows that a revision that fell, or another cluster's id, is refused for every call from then on; neither the
        // same generation nor another uuid makes it good, and a raised generation does.
        for other in [at(1, 9), at(2, 10)] {
            let seen = Seen::default();
            seen.check(Floor::default(), at(1, 10)).unwrap();
            seen.know(&cluster(7, 3), at(1, 10)).unwrap();
            assert!(matches!(seen.check(at(1, 10), other), Err(StoreError::Copied { .. })));
            assert!(matches!(seen.floor(), Err(StoreError::Copied { .. })));
            assert_eq!(seen.floor_if_same(), None);
            for same in [cluster(7, 3), cluster(8, 4), cluster(7, 2)] {
                assert!(matches!(seen.know(&same, other), Err(StoreError::Copied { .. })));
            }
            assert_eq!(seen.know(&cluster(7, 4), other), Ok(()));
            assert_eq!(seen.floor(), Ok(other));
        }
    }
}

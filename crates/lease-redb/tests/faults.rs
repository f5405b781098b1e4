//! A disk that fails under an open store.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

mod common;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Faulty, Plan, T, Worker, cluster, nonces, now};
use snowmint_lease::{CodeRecord, Event, Loss, Notice, Phase, Store, StoreError};
use snowmint_lease_redb::RedbStore;

const EIO: i32 = 5;
const EACCES: i32 = 13;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const EDQUOT: i32 = 122;

#[test]
fn any_error_of_the_disk_ends_the_grant_until_the_store_is_opened_again() {
    // Shows, for each kind of error: ceiling 0 at once, the error by its own name, the store failed although the disk
    // is sound again, and after opening it again a grant above all that was confirmed.
    for (errno, reason) in
        [(EIO, "io"), (ENOSPC, "full"), (EDQUOT, "full"), (EROFS, "read-only"), (EACCES, "read-only")]
    {
        let temp = tempfile::tempdir().unwrap();
        drop(RedbStore::init(temp.path(), &cluster()).unwrap());
        let boot_ms = Arc::new(AtomicU64::new(1_000));
        let plan = Plan::sound(&boot_ms);
        let wrapped = plan.clone();
        let store = RedbStore::open_through(temp.path(), |file| Faulty { file, plan: wrapped }).unwrap();
        let mut worker = Worker::new(1, boot_ms.clone());
        worker.step(&store, Event::Time);
        let grant = worker.keeper.take_grant(1_000).unwrap();
        let ceiling_ms = worker.keeper.ceiling_ms(grant.ticket(), 1_000);
        assert_eq!(ceiling_ms, T + 2_000);

        plan.fail_after(0, errno);
        let notices = worker.wake(&store);
        let [Notice::Lost { ticket, loss: Loss::Store(error) }] = &notices[..] else { panic!("{notices:?}") };
        assert_eq!((*ticket, error.reason()), (grant.ticket(), reason));
        assert_eq!(worker.keeper.ceiling_ms(grant.ticket(), worker.now_boot_ms()), 0);

        plan.heal();
        assert_eq!(store.cluster().unwrap_err(), *error, "the store went on after an error");
        worker.wake(&store);
        assert_eq!(worker.keeper.take_grant(worker.now_boot_ms()), None);

        drop(store);
        let store = RedbStore::open(temp.path()).unwrap();
        store.take_over(&now(worker.now_boot_ms()), 0, &mut nonces(7)).unwrap();
        boot_ms.store(10_000, Ordering::SeqCst);
        worker.wake(&store);
        let next = worker.keeper.take_grant(worker.now_boot_ms()).unwrap();
        assert!(next.node() == grant.node() && next.floor_ms() >= ceiling_ms);
        assert_ne!(next.ticket(), grant.ticket());
    }
}

#[test]
fn a_swap_that_fails_anywhere_is_done_or_not_done() {
    // Shows, for a failure at each single write and sync of a swap: a reopened file holds the old record or the new
    // one, and the new one if the swap was confirmed.
    let temp = tempfile::tempdir().unwrap();
    drop(RedbStore::init(temp.path(), &cluster()).unwrap());
    for (end_ms, left) in (1_001..).zip(0..) {
        let plan = Plan::sound(&Arc::default());
        let wrapped = plan.clone();
        let store = RedbStore::open_through(temp.path(), |file| Faulty { file, plan: wrapped }).unwrap();
        let guard = store.cluster().unwrap().revision;
        let before = store.read(3).unwrap();
        let record = CodeRecord { end_ms, ..before.record.clone() };
        plan.fail_after(left, EIO);
        let swapped = store.swap(3, before.revision, guard, &record);
        let is_through = plan.count.load(Ordering::SeqCst) > 0 && swapped.is_ok();
        if swapped.is_err() {
            assert!(store.read(3).is_err(), "write {left}: the store went on after an error");
        }
        drop(store);
        let store = RedbStore::open(temp.path()).unwrap();
        let found = store.read(3).unwrap().record;
        assert!(found == record || (found == before.record && swapped.is_err()), "write {left}: {found:?}");
        assert_eq!(store.scan().unwrap().len(), 256, "write {left}");
        if is_through {
            assert!(left >= 3, "a durable swap syncs twice at least, and writes");
            break;
        }
    }
}

#[test]
fn f13_a_sync_of_four_seconds_stops_minting_at_the_confirmed_end_and_no_longer() {
    // F13: shows that while the disk hangs the ceiling stays what was confirmed until the deadline, is 0 after it, and
    // comes back by itself with the same grant, as soon as the disk does.
    let temp = tempfile::tempdir().unwrap();
    drop(RedbStore::init(temp.path(), &cluster()).unwrap());
    let boot_ms = Arc::new(AtomicU64::new(1_000));
    let plan = Plan::sound(&boot_ms);
    let wrapped = plan.clone();
    let store = RedbStore::open_through(temp.path(), |file| Faulty { file, plan: wrapped }).unwrap();
    let mut worker = Worker::new(1, boot_ms.clone());
    worker.step(&store, Event::Time);
    let ticket = worker.keeper.take_grant(1_000).unwrap().ticket();
    // What a minting thread reads while the keeper's thread hangs in the store.
    let view = worker.keeper.view().unwrap();
    assert_eq!((view.ceiling_ms(1_999), view.ceiling_ms(2_000)), (T + 2_000, 0));

    plan.sync_ms.store(4_000, Ordering::SeqCst);
    boot_ms.store(1_333, Ordering::SeqCst);
    let syncs = plan.clone();
    // The first renewal hangs; from then on the disk is well.
    let boot_then_ms = boot_ms.clone();
    let notices = worker.step(&HealsAfterSwap { store: &store, plan: syncs }, Event::Time);
    assert!(boot_then_ms.load(Ordering::SeqCst) >= 5_333);
    assert!(notices.contains(&Notice::Lapsed { ticket }), "{notices:?}");
    assert!(
        matches!(notices.last(), Some(Notice::Resumed { ticket: same, .. }) if *same == ticket),
        "{notices:?}"
    );
    let now_boot_ms = worker.now_boot_ms();
    assert_eq!(worker.keeper.phase(now_boot_ms), Phase::Held);
    assert!(worker.keeper.ceiling_ms(ticket, now_boot_ms) > T + now_boot_ms);
}

/// A store whose disk is well again after its first swap.
struct HealsAfterSwap<'a> {
    store: &'a RedbStore,
    plan: Arc<Plan>,
}

impl Store for HealsAfterSwap<'_> {
    fn cluster(&self) -> Result<snowmint_lease::Stored<snowmint_lease::ClusterRecord>, StoreError> {
        self.store.cluster()
    }

    fn read(&self, code: u32) -> Result<snowmint_lease::Stored<CodeRecord>, StoreError> {
        self.store.read(code)
    }

    fn scan(&self) -> Result<Vec<(u32, snowmint_lease::Stored<CodeRecord>)>, StoreError> {
        self.store.scan()
    }

    fn swap(
        &self,
        code: u32,
        expected: snowmint_lease::Revision,
        cluster: snowmint_lease::Revision,
        record: &CodeRecord,
    ) -> Result<snowmint_lease::Revision, StoreError> {
        let swapped = self.store.swap(code, expected, cluster, record);
        self.plan.sync_ms.store(0, Ordering::SeqCst);
        swapped
    }

    fn swap_cluster(
        &self,
        expected: snowmint_lease::Revision,
        record: &snowmint_lease::ClusterRecord,
    ) -> Result<snowmint_lease::Revision, StoreError> {
        self.store.swap_cluster(expected, record)
    }

    fn create_codes(&self, codes: &[(u32, CodeRecord)]) -> Result<(), StoreError> {
        self.store.create_codes(codes)
    }

    fn create_cluster(&self, record: &snowmint_lease::ClusterRecord) -> Result<(), StoreError> {
        self.store.create_cluster(record)
    }
}

#[test]
fn f14_a_store_that_is_deleted_under_a_running_service_fails_closed() {
    // F14: shows that deleting the file, the lock file or the whole directory stops the holder at its next renewal,
    // although the open file would still take writes; and that putting it back needs opening it again.
    for deleted in ["store.redb", "store.lock", "."] {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("lease");
        let store = RedbStore::init(&dir, &cluster()).unwrap();
        let mut worker = Worker::new(1, Arc::new(AtomicU64::new(1_000)));
        worker.step(&store, Event::Time);
        let ticket = worker.keeper.take_grant(1_000).unwrap().ticket();
        let (path, aside) = (dir.join(deleted), temp.path().join("aside"));
        if deleted == "." { fs::rename(&dir, &aside) } else { fs::rename(&path, &aside) }.unwrap();

        let gone = StoreError::Gone { place: dir.display().to_string() };
        let notices = worker.wake(&store);
        assert_eq!(notices, [Notice::Lost { ticket, loss: Loss::Store(gone.clone()) }], "{deleted}");
        assert_eq!(worker.keeper.ceiling_ms(ticket, worker.now_boot_ms()), 0);

        fs::rename(&aside, if deleted == "." { &dir } else { &path }).unwrap();
        assert_eq!(store.cluster().unwrap_err(), gone, "{deleted}");
        drop(store);
        assert!(RedbStore::open(&dir).is_ok(), "{deleted}");
    }
}

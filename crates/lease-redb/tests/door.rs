//! What is refused at the door: every state of a directory in which there is no sound store of one's own.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use common::{T, Worker, cluster, nonces, now};
use redb::{Database, ReadableDatabase, TableDefinition};
use snowmint_core::Layout;
use snowmint_lease::{ClusterRecord, Event, Hindrance, Loss, Notice, State, Store, StoreError, cutover};
use snowmint_lease_redb::{FORMAT_VERSION, Recovery, RedbStore};

fn recovery() -> Recovery {
    Recovery { uuid: 9, layout: None, region: None, not_before_ms: T + 60_000, window_ms: 1_000 }
}

/// A founded store with one code granted up to `T + 2000`, closed.
fn founded(dir: &Path) -> u32 {
    let store = RedbStore::init(dir, &cluster()).unwrap();
    let mut worker = Worker::new(1, Arc::new(AtomicU64::new(1_000)));
    worker.step(&store, Event::Time);
    worker.keeper.take_grant(1_000).unwrap().node().worker()
}

fn refusal(dir: &Path) -> StoreError {
    match RedbStore::open(dir) {
        Ok(_) => panic!("opened"),
        Err(error) => error,
    }
}

#[test]
fn an_absent_or_empty_directory_is_not_initialised_and_stays_as_it_is() {
    // F3's kind, F14's other half: shows that nothing is made where nothing was founded, and that the error says how.
    let temp = tempfile::tempdir().unwrap();
    for dir in [temp.path().to_path_buf(), temp.path().join("absent")] {
        let error = refusal(&dir);
        assert_eq!(error, StoreError::NotInitialised { place: dir.display().to_string() });
        assert!(error.to_string().contains("snowmint init"), "{error}");
    }
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
}

#[test]
fn f14_an_emptied_directory_is_refused_as_such() {
    // Shows that a store whose file was deleted is neither opened nor founded anew without an explicit recovery.
    let temp = tempfile::tempdir().unwrap();
    let code = founded(temp.path());
    fs::remove_file(temp.path().join("store.redb")).unwrap();
    let gone = StoreError::Gone { place: temp.path().display().to_string() };
    assert_eq!(refusal(temp.path()), gone);
    assert_eq!(RedbStore::init(temp.path(), &cluster()).unwrap_err(), gone);
    assert!(gone.to_string().contains("--recover --not-before"));

    let store = RedbStore::recover(temp.path(), &recovery(), &now(5_000)).unwrap();
    let recovered = store.cluster().unwrap().record;
    assert_eq!((recovered.generation, recovered.not_before_ms), (2, T + 60_000));
    let mut worker = Worker::new(2, Arc::new(AtomicU64::new(5_000)));
    let notices = worker.step(&store, Event::Time);
    assert!(
        matches!(&notices[..], [Notice::Hindered(Hindrance::NoneLeft(none))] if none.wait_ms == Some(55_001))
    );
    worker.boot_ms.store(60_001, std::sync::atomic::Ordering::SeqCst);
    worker.step(&store, Event::Time);
    let grant = worker.keeper.take_grant(60_001).unwrap();
    assert!(grant.floor_ms() >= T + 60_000);
    assert_ne!(grant.ticket(), cluster().ticket(code, 1));
}

#[test]
fn a_founding_that_was_cut_off_can_be_run_again() {
    // Shows that what a crash inside init leaves (a lock file, half a new file) is no store, and no obstacle.
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("store.lock"), "snowmint\npid 1\n").unwrap();
    fs::write(temp.path().join("store.redb.new"), vec![7; 10_000]).unwrap();
    assert!(matches!(refusal(temp.path()), StoreError::NotInitialised { .. }));
    RedbStore::init(temp.path(), &cluster()).unwrap();
    assert!(!temp.path().join("store.redb.new").exists());
    // The crash between the move and the note in the lock file.
    fs::write(temp.path().join("store.lock"), "").unwrap();
    RedbStore::open(temp.path()).unwrap();
    fs::remove_file(temp.path().join("store.redb")).unwrap();
    assert!(matches!(refusal(temp.path()), StoreError::Gone { .. }), "the note was not made up for");
}

#[test]
fn a_store_is_founded_once() {
    // Shows that init refuses a directory with a store, open or closed, and leaves it as it is.
    let temp = tempfile::tempdir().unwrap();
    let store = RedbStore::init(temp.path(), &cluster()).unwrap();
    assert!(matches!(RedbStore::init(temp.path(), &cluster()), Err(StoreError::InUse { .. })));
    drop(store);
    let other = ClusterRecord::new(99, Layout::HYBRID, 0).unwrap();
    assert!(matches!(RedbStore::init(temp.path(), &other), Err(StoreError::AlreadyInitialised { .. })));
    assert_eq!(RedbStore::open(temp.path()).unwrap().cluster().unwrap().record, cluster());
}

#[test]
fn a_second_handle_is_refused_and_names_the_first() {
    // F5's and F6's kind: shows that one process has the store, and that the other is told which.
    let temp = tempfile::tempdir().unwrap();
    let store = RedbStore::init(temp.path(), &cluster()).unwrap();
    let by = format!("process {}", std::process::id());
    assert_eq!(refusal(temp.path()), StoreError::InUse { by });
    drop(store);
    assert!(RedbStore::open(temp.path()).is_ok());
}

#[test]
fn taking_over_is_for_before_the_first_grant() {
    // Shows that holding the lock counts as expiry of what the process before held, and of nothing that this one
    // granted.
    let temp = tempfile::tempdir().unwrap();
    let code = founded(temp.path());
    let store = RedbStore::open(temp.path()).unwrap();
    assert_eq!(store.read(code).unwrap().record.state, State::Active);
    assert_eq!(store.take_over(&now(2_000), 0, &mut nonces(9)).unwrap(), 1);
    let record = store.read(code).unwrap().record;
    assert_eq!((record.state, record.end_ms), (State::Expired, T + 2_000));
    let mut worker = Worker::new(2, Arc::new(AtomicU64::new(3_000)));
    worker.step(&store, Event::Time);
    // Of the codes that can mint, the one with the highest end: the one that was taken over.
    let grant = worker.keeper.take_grant(3_000).unwrap();
    assert_eq!((grant.node().worker(), grant.floor_ms()), (code, T + 2_000));
    assert!(matches!(store.take_over(&now(3_000), 0, &mut nonces(10)), Err(StoreError::InUse { .. })));
}

#[test]
fn a_copy_is_refused_until_it_is_recovered() {
    // Shows that a plain copy is known as one, that its original is not, and that a recovery makes it a store of its
    // own, of another generation.
    let temp = tempfile::tempdir().unwrap();
    let (original, copy) = (temp.path().join("original"), temp.path().join("copy"));
    let code = founded(&original);
    fs::create_dir(&copy).unwrap();
    fs::copy(original.join("store.redb"), copy.join("store.redb")).unwrap();
    let error = refusal(&copy);
    assert!(matches!(error, StoreError::Copied { .. }), "{error}");
    assert!(RedbStore::open(&original).is_ok());

    let other = Recovery { layout: Some(Layout::HYBRID), ..recovery() };
    assert!(matches!(RedbStore::recover(&copy, &other, &now(0)), Err(StoreError::WrongLayout { .. })));
    let other = Recovery { region: Some(2), ..recovery() };
    let error = RedbStore::recover(&copy, &other, &now(0)).unwrap_err();
    assert_eq!(error, StoreError::WrongRegion { stored: 1, configured: 2 });

    let store = RedbStore::recover(&copy, &recovery(), &now(0)).unwrap();
    assert_eq!(store.cluster().unwrap().record.generation, 2);
    assert_eq!(store.read(code).unwrap().record.end_ms, T + 2_000, "its records were lost");
    drop(store);
    assert!(RedbStore::open(&copy).is_ok());
    // Moving is not copying.
    let moved = temp.path().join("moved");
    fs::rename(&copy, &moved).unwrap();
    assert!(RedbStore::open(&moved).is_ok());
}

#[test]
fn an_old_backup_that_was_put_back_is_recovered_above_what_it_has_forgotten() {
    // Shows an operator who puts back a backup from before a recovery: the next generation is above both, a keeper that
    // lived through all of it is told so, and its old ticket and revisions mean nothing any more.
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("store.redb");
    drop(RedbStore::init(temp.path(), &cluster()).unwrap());
    let backup = fs::read(&path).unwrap();
    let store =
        RedbStore::recover(temp.path(), &Recovery { not_before_ms: 0, ..recovery() }, &now(0)).unwrap();
    let mut worker = Worker::new(1, Arc::new(AtomicU64::new(2_000)));
    worker.step(&store, Event::Time);
    let ticket = worker.keeper.take_grant(2_000).unwrap().ticket();
    drop(store);

    fs::write(&path, backup).unwrap();
    let store = RedbStore::recover(temp.path(), &recovery(), &now(2_000)).unwrap();
    assert_eq!(store.cluster().unwrap().record.generation, 3);
    let notices = worker.wake(&store);
    let loss = Loss::Store(StoreError::WrongGeneration { stored: 3, granted: 2 });
    assert_eq!(notices, [Notice::Lost { ticket, loss }]);
}

#[test]
fn a_backup_from_before_a_cutover_does_not_bring_the_old_layout_back() {
    // Shows that a recovery compares the file's layout with the one that was minted by last, as the lock file tells: IDs of
    // the old layout above its end would be IDs of the new one. A file that is further on than the lock file is the store.
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("store.redb");
    let store = RedbStore::init(temp.path(), &cluster()).unwrap();
    let (backup, lock) = (fs::read(&path).unwrap(), fs::read(temp.path().join("store.lock")).unwrap());
    let next = Layout::HYBRID;
    cutover::plan_cutover(&store, &next, T + 10_000, &now(0)).unwrap().unwrap();
    cutover::scan_cutover(&store, &next).unwrap().unwrap();
    cutover::open_cutover(&store, &next, &now(20_000)).unwrap().unwrap();
    drop(store);
    drop(RedbStore::open(temp.path()).unwrap());

    let opened = fs::read(&path).unwrap();
    fs::write(&path, backup).unwrap();
    let error = RedbStore::recover(temp.path(), &recovery(), &now(30_000)).unwrap_err();
    let wrong =
        StoreError::WrongLayout { stored: cluster().layout.to_string(), configured: next.to_string() };
    assert_eq!(error, wrong);

    fs::write(&path, opened).unwrap();
    fs::write(temp.path().join("store.lock"), lock).unwrap();
    let store = RedbStore::recover(temp.path(), &recovery(), &now(30_000)).unwrap();
    assert_eq!(store.cluster().unwrap().record.layout, next);
}

#[test]
fn a_recovery_begins_a_window_from_now_at_least() {
    // Shows that an operator's `--not-before` in the past does not let a grant begin where a forgotten one may reach.
    let temp = tempfile::tempdir().unwrap();
    founded(temp.path());
    let recovery = Recovery { not_before_ms: 5, ..recovery() };
    let store = RedbStore::recover(temp.path(), &recovery, &now(7_000)).unwrap();
    assert_eq!(store.cluster().unwrap().record.not_before_ms, T + 8_000);
}

#[test]
fn another_version_is_told_apart() {
    // Shows that tables and records of another version are refused as such, and are not recovered over.
    const FILE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("file");
    let temp = tempfile::tempdir().unwrap();
    founded(temp.path());
    let db = Database::open(temp.path().join("store.redb")).unwrap();
    let txn = db.begin_write().unwrap();
    txn.open_table(FILE).unwrap().insert("version", &9_u32.to_le_bytes()[..]).unwrap();
    txn.commit().unwrap();
    drop(db);
    let wrong = StoreError::WrongVersion { found: 9, expected: FORMAT_VERSION };
    assert_eq!(refusal(temp.path()), wrong);
    assert_eq!(RedbStore::recover(temp.path(), &recovery(), &now(0)).unwrap_err(), wrong);
}

#[test]
fn a_damaged_record_is_named_and_a_deleted_one_is_missing() {
    // F14: shows that one bad record stops whoever reads it, by name, and that a recovery mends it.
    const CODES: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("codes");
    let temp = tempfile::tempdir().unwrap();
    founded(temp.path());
    let db = Database::open(temp.path().join("store.redb")).unwrap();
    let mut bytes =
        db.begin_read().unwrap().open_table(CODES).unwrap().get(7).unwrap().unwrap().value().to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    let txn = db.begin_write().unwrap();
    {
        let mut table = txn.open_table(CODES).unwrap();
        table.insert(7, &bytes[..]).unwrap();
        table.remove(9).unwrap();
    }
    txn.commit().unwrap();
    drop(db);

    let store = RedbStore::open(temp.path()).unwrap();
    let error = store.read(7).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }) && error.to_string().contains("code 7"), "{error}");
    let error = store.read(9).unwrap_err();
    assert!(matches!(error, StoreError::Missing { .. }) && error.to_string().contains("code 9"), "{error}");
    let mut worker = Worker::new(2, Arc::new(AtomicU64::new(5_000)));
    let notices = worker.step(&store, Event::Time);
    assert!(matches!(&notices[..], [Notice::Hindered(Hindrance::Store(StoreError::Damaged { .. }))]));
    assert_eq!(worker.keeper.take_grant(5_000), None);
    drop(store);

    let store = RedbStore::recover(temp.path(), &recovery(), &now(0)).unwrap();
    assert_eq!(store.scan().unwrap().len(), 256);
    assert_eq!(store.cluster().unwrap().record.generation, 2);
    assert!(temp.path().join("store.redb.damaged").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn a_directory_that_cannot_be_written_is_read_only() {
    // Shows the error where not even root may make a file.
    let error = RedbStore::init(Path::new("/sys/snowmint"), &cluster()).unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error:?}");
}

#[test]
fn a_recovery_never_guesses_layout_or_region() {
    // Shows that a store of another layout and region is recovered as what it was, by its lock file; that flags which
    // contradict it are refused; and that where nothing tells, the flags are asked for: a default would make duplicates.
    let other = ClusterRecord::new(3, Layout::HYBRID, 2).unwrap();
    let told = |dir: &Path, recovery: &Recovery| match RedbStore::recover(dir, recovery, &now(5_000)) {
        Ok(store) => Ok(store.cluster().unwrap().record),
        Err(error) => Err(error.reason()),
    };
    for damage in [Damage::Deleted, Damage::Overwritten] {
        let temp = tempfile::tempdir().unwrap();
        drop(RedbStore::init(temp.path(), &other).unwrap());
        let file = temp.path().join("store.redb");
        match damage {
            Damage::Deleted => fs::remove_file(&file).unwrap(),
            Damage::Overwritten => fs::write(&file, b"no store at all").unwrap(),
        }
        let wrong = Recovery { region: Some(0), ..recovery() };
        assert_eq!(told(temp.path(), &wrong), Err("wrong-region"));
        let wrong = Recovery { layout: Some(Layout::SNOWMINT), ..recovery() };
        assert_eq!(told(temp.path(), &wrong), Err("wrong-layout"));
        let recovered = told(temp.path(), &recovery()).unwrap();
        assert_eq!((recovered.layout, recovered.region, recovered.generation), (Layout::HYBRID, 2, 2));
    }

    // Nothing is left that tells.
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("store.redb"), b"no store at all").unwrap();
    let blind = recovery();
    assert_eq!(told(temp.path(), &blind), Err("untold"));
    assert_eq!(told(temp.path(), &Recovery { region: Some(2), ..blind.clone() }), Err("untold"));
    assert_eq!(told(temp.path(), &Recovery { layout: Some(Layout::HYBRID), ..blind.clone() }), Err("untold"));
    assert!(temp.path().join("store.redb").exists(), "a refused recovery moves nothing");
    let seeing = Recovery { layout: Some(Layout::HYBRID), region: Some(2), ..blind };
    assert_eq!(told(temp.path(), &seeing).unwrap().region, 2);
}

enum Damage {
    Deleted,
    Overwritten,
}

#[test]
fn a_recovery_above_the_layouts_end_is_refused() {
    // Shows that microseconds given for milliseconds do not end a store for ever: what is raised never falls.
    let temp = tempfile::tempdir().unwrap();
    drop(RedbStore::init(temp.path(), &cluster()).unwrap());
    let late = Recovery { not_before_ms: T * 1_000, ..recovery() };
    let error = RedbStore::recover(temp.path(), &late, &now(5_000)).unwrap_err();
    assert!(error.to_string().contains("in milliseconds"), "{error}");
    assert_eq!(RedbStore::open(temp.path()).unwrap().cluster().unwrap().record.generation, 1);
}

#[test]
fn what_is_no_directory_is_named_as_such() {
    // Shows that a wrong path is not told as a failing disk.
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("file");
    fs::write(&file, b"").unwrap();
    let long = temp.path().join("x".repeat(300));
    for dir in [file.clone(), file.join("below"), long] {
        for result in [RedbStore::init(&dir, &cluster()), RedbStore::recover(&dir, &recovery(), &now(0))] {
            let error = result.unwrap_err();
            assert_eq!(error.reason(), "no-directory", "{error}");
        }
    }
}

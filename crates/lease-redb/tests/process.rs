//! Other processes, and their sudden death. The child is this very binary, told by its environment what to do.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

mod common;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use common::{T, Worker, cluster, nonces, now};
use snowmint_lease::{Event, State, Store, StoreError};
use snowmint_lease_redb::RedbStore;

const DIR: &str = "SNOWMINT_TEST_DIR";

fn child(name: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", name])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn dir() -> PathBuf {
    std::env::var_os(DIR).unwrap().into()
}

/// Renews as fast as the disk lets it, and says what was confirmed.
#[test]
#[ignore = "the child of another test"]
fn child_renews_for_ever() {
    let store = RedbStore::open(&dir()).unwrap();
    let mut worker = Worker::new(1, Arc::new(AtomicU64::new(1_000)));
    worker.step(&store, Event::Time);
    let grant = worker.keeper.take_grant(1_000).unwrap();
    loop {
        let end_ms = worker.keeper.view().unwrap().end_ms;
        println!("confirmed {} {end_ms}", grant.node().worker());
        worker.wake(&store);
    }
}

/// Tries to open the store, and says what comes of it.
#[test]
#[ignore = "the child of another test"]
fn child_opens() {
    match RedbStore::open(&dir()) {
        Ok(_) => println!("opened"),
        Err(error) => println!("refused: {error}"),
    }
}

#[test]
fn what_was_confirmed_survives_kill_9() {
    // F2: shows, over several lives that are killed while they write, that every end that was confirmed is in the
    // file, that the dead process's code is expired by the next one's lock, and that a grant begins above.
    let temp = tempfile::tempdir().unwrap();
    drop(RedbStore::init(temp.path(), &cluster()).unwrap());
    for life in 0..5_usize {
        let mut child = child("child_renews_for_ever", temp.path());
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut confirmed = lines.filter_map(|line| {
            let (_, words) = line.split_once("confirmed ")?;
            let (code, end_ms) = words.split_once(' ')?;
            Some((code.parse::<u32>().ok()?, end_ms.parse::<u64>().ok()?))
        });
        let mut last = confirmed.nth(3 + life * 7).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        if let Some(said) = confirmed.last() {
            last = said;
        }

        let store = RedbStore::open(temp.path()).unwrap();
        let (code, end_ms) = last;
        let record = store.read(code).unwrap().record;
        assert!(record.end_ms >= end_ms && record.state == State::Active, "life {life}: {record:?} {end_ms}");
        assert_eq!(store.take_over(&now(1_000), 0, &mut nonces(100 + life as u128)).unwrap(), 1);
        // The clock is set back below what was confirmed: nothing can be granted with that code.
        let mut worker = Worker::new(2, Arc::new(AtomicU64::new(record.end_ms - T + 1)));
        worker.step(&store, Event::Time);
        let grant = worker.keeper.take_grant(record.end_ms - T + 1).unwrap();
        assert_eq!((grant.node().worker(), grant.floor_ms()), (code, record.end_ms), "life {life}");
        store.take_over(&now(0), 0, &mut nonces(200)).unwrap_err();
        drop(store);
        let store = RedbStore::open(temp.path()).unwrap();
        store.take_over(&now(0), 0, &mut nonces(300 + life as u128)).unwrap();
    }
}

#[test]
fn another_process_is_refused_while_the_store_is_open() {
    // F5: shows that a second process on the same directory is told who has the store, and is let in afterwards.
    let temp = tempfile::tempdir().unwrap();
    let store = RedbStore::init(temp.path(), &cluster()).unwrap();
    let says = |child: Child| String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let said = says(child("child_opens", temp.path()));
    let refusal = StoreError::InUse { by: format!("process {}", std::process::id()) };
    assert!(said.contains(&format!("refused: {refusal}")), "{said}");
    drop(store);
    let said = says(child("child_opens", temp.path()));
    assert!(said.contains("opened"), "{said}");
}

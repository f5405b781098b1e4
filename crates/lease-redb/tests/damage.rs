//! A file that a bad disk changed. Alone in its binary, since it silences panics.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

mod common;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use common::{T, Worker, cluster, now};
use snowmint_lease::{Event, Store, StoreError};
use snowmint_lease_redb::{Recovery, RedbStore};

#[test]
fn no_damage_of_the_file_is_a_panic_or_another_record() {
    // Shows that a file that is cut off anywhere, or has a bit flipped, is refused or reads exactly as it was.
    let temp = tempfile::tempdir().unwrap();
    let (sound, broken) = (temp.path().join("sound"), temp.path().join("broken"));
    {
        let store = RedbStore::init(&sound, &cluster()).unwrap();
        Worker::new(1, Arc::new(AtomicU64::new(1_000))).step(&store, Event::Time);
    }
    let scan = RedbStore::open(&sound).unwrap().scan().unwrap();
    let path = sound.join("store.redb");
    let bytes = fs::read(&path).unwrap();
    std::panic::set_hook(Box::new(|_| {})); // What redb panics with is caught, and says nothing here.

    let mut refused = 0;
    let mut check = |bytes: &[u8], what: &str| {
        // In place, so that the file stays its own, as on a bad disk.
        fs::write(&path, bytes).unwrap();
        match RedbStore::open(&sound) {
            Ok(store) => match store.scan() {
                Ok(found) => assert_eq!(found, scan, "{what}"),
                Err(_) => refused += 1,
            },
            Err(
                StoreError::Unreadable { .. } | StoreError::WrongVersion { .. } | StoreError::Damaged { .. },
            ) => {
                refused += 1;
            }
            Err(error) => panic!("{what}: {error}"),
        }
    };
    let cuts = [0, 1, 8, 63, 319, 320, 511, 512, 4_095, 4_096, 8_192, bytes.len() / 2, bytes.len() - 1];
    for len in cuts {
        check(&bytes[..len], &format!("cut to {len}"));
    }
    let flips = (0..512 * 8).step_by(37).chain((4_096 * 8..bytes.len() * 8).step_by(16_411));
    for bit in flips {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        check(&flipped, &format!("bit {bit}"));
    }
    check(&vec![0xff; bytes.len()], "overwritten");
    let _ = std::panic::take_hook();
    assert!(refused > cuts.len(), "{refused}");

    // The error says what to do, and doing it helps.
    fs::create_dir(&broken).unwrap();
    fs::write(broken.join("store.redb"), "no store").unwrap();
    let error = RedbStore::open(&broken).unwrap_err();
    assert!(matches!(error, StoreError::Unreadable { .. }), "{error}");
    assert!(error.to_string().contains("--recover --not-before"), "{error}");
    let cluster = cluster();
    let (layout, region) = (Some(cluster.layout), Some(cluster.region));
    let recovery = Recovery { uuid: 9, layout, region, not_before_ms: T + 60_000, window_ms: 1_000 };
    RedbStore::recover(&broken, &recovery, &now(0)).unwrap();
}

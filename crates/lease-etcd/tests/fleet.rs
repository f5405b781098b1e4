//! Many keepers over one store.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

mod common;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use common::{Cluster, T, cluster_record, layout, now};
use snowmint_lease::{
    ClusterRecord, CodeRecord, Event, Keeper, KeeperConfig, Owner, Request, Revision, Stopped, Store,
    StoreError, Stored, Then, perform,
};
use snowmint_lease_etcd::EtcdStore;

/// Draws nonces that no other keeper draws.
fn nonces(seed: u128) -> impl FnMut() -> u128 {
    let mut drawn = seed << 64;
    move || {
        drawn += 1;
        drawn
    }
}

/// Counts the races that were lost.
struct Counting<'a> {
    store: EtcdStore,
    conflicts: &'a AtomicU32,
}

impl Store for Counting<'_> {
    fn cluster(&self) -> Result<Stored<ClusterRecord>, StoreError> {
        self.store.cluster()
    }

    fn read(&self, code: u32) -> Result<Stored<CodeRecord>, StoreError> {
        self.store.read(code)
    }

    fn scan(&self) -> Result<Vec<(u32, Stored<CodeRecord>)>, StoreError> {
        self.store.scan()
    }

    fn swap(
        &self,
        code: u32,
        expected: Revision,
        cluster: Revision,
        record: &CodeRecord,
    ) -> Result<Revision, StoreError> {
        let swapped = self.store.swap(code, expected, cluster, record);
        if swapped == Err(StoreError::Conflict { code }) {
            self.conflicts.fetch_add(1, Ordering::Relaxed);
        }
        swapped
    }

    fn swap_cluster(&self, expected: Revision, record: &ClusterRecord) -> Result<Revision, StoreError> {
        self.store.swap_cluster(expected, record)
    }

    fn create_codes(&self, codes: &[(u32, CodeRecord)]) -> Result<(), StoreError> {
        self.store.create_codes(codes)
    }

    fn create_cluster(&self, record: &ClusterRecord) -> Result<(), StoreError> {
        self.store.create_cluster(record)
    }
}

#[test]
fn keepers_that_contend_never_share_a_millisecond() {
    // Shows that of four keepers, each a thread with a connection of its own, that fight for two codes through real
    // races, no two grants of one code overlap.
    const ROUNDS: u64 = 25;
    let Some(etcd) = Cluster::start(3) else { return };
    let config = etcd.config(0);
    let founder = EtcdStore::connect(config.clone()).unwrap();
    let record = ClusterRecord::new(0x5eed, layout(1), 0).unwrap();
    snowmint_lease::init(&founder, &record).unwrap();
    let started = Instant::now();
    // Simulated time runs 20 times as fast as real time, for all of them alike.
    let boot_ms = || 1_000 + u64::try_from(started.elapsed().as_millis()).unwrap() * 20;
    let conflicts = AtomicU32::new(0);
    let grants = Mutex::new(BTreeMap::<u32, BTreeSet<(u64, u64)>>::new());
    std::thread::scope(|scope| {
        for seed in 1..=4 {
            let (config, grants, conflicts) = (config.clone(), &grants, &conflicts);
            scope.spawn(move || {
                let store = Counting { store: EtcdStore::connect(config).unwrap(), conflicts };
                let owner = Owner::new(format!("keeper {seed}")).unwrap();
                let mut keeper = Keeper::new(KeeperConfig::fleet(layout(1), 0, owner)).unwrap();
                let mut nonce = nonces(seed);
                let mut clock = || now(boot_ms());
                let mut round = 0;
                while round < ROUNDS {
                    let _ = snowmint_lease::step(&mut keeper, Event::Time, &store, &mut clock, &mut nonce);
                    let Some(grant) = keeper.take_grant(boot_ms()) else {
                        std::thread::sleep(std::time::Duration::from_millis(2));
                        continue;
                    };
                    round += 1;
                    // It mints for a while: to what is confirmed, of which it then gives most back.
                    let ceiling_ms = keeper.ceiling_ms(grant.ticket(), boot_ms());
                    let used_ms =
                        grant.floor_ms() + (ceiling_ms.max(grant.floor_ms()) - grant.floor_ms()) / 8;
                    let code = grant.node().worker();
                    let is_new =
                        grants.lock().unwrap().entry(code).or_default().insert((grant.floor_ms(), used_ms));
                    assert!(is_new || used_ms == grant.floor_ms());
                    let stopped = Stopped { ticket: grant.ticket(), last_reserved_ms: used_ms };
                    let then = if round < ROUNDS { Then::Acquire } else { Then::End };
                    let event = Event::Release { stopped: Some(stopped), then };
                    let _ = snowmint_lease::step(&mut keeper, event, &store, &mut clock, &mut nonce);
                }
                // Until the release is through.
                while keeper.next_wake_boot_ms() != u64::MAX {
                    let _ = snowmint_lease::step(&mut keeper, Event::Time, &store, &mut clock, &mut nonce);
                }
            });
        }
    });
    let grants = grants.into_inner().unwrap();
    let count: usize = grants.values().map(BTreeSet::len).sum();
    println!(
        "{count} grants of {} codes in {:?}; {} races lost",
        grants.len(),
        started.elapsed(),
        conflicts.into_inner()
    );
    assert_eq!(count as u64, 4 * ROUNDS);
    for (code, ranges) in grants {
        let mut last_ms = 0;
        for (floor_ms, used_ms) in ranges {
            assert!(floor_ms >= last_ms, "code {code}: a grant above {floor_ms}, after one to {last_ms}");
            last_ms = used_ms;
        }
    }
}

#[test]
fn two_hundred_keepers_write_at_most_a_hundred_times_a_second() {
    // Shows what a region's fleet costs etcd at the window of 10 s: its revisions, and scans that compare clocks, over half
    // a minute of simulated time.
    // Time does not pass while they write, so that it is the protocol that is measured, and not this machine.
    const KEEPERS: u128 = 200;
    const SECONDS: u64 = 30;
    let Some(etcd) = Cluster::start(3) else { return };
    let store = EtcdStore::connect(etcd.config(0)).unwrap();
    let record = ClusterRecord { layout: layout(8), ..cluster_record(0) };
    snowmint_lease::init(&store, &record).unwrap();
    let mut keepers: Vec<_> = (1..=KEEPERS)
        .map(|seed| {
            let owner = Owner::new(format!("worker {seed}")).unwrap();
            let keeper = Keeper::new(KeeperConfig::fleet(layout(8), 0, owner)).unwrap();
            (keeper, nonces(seed))
        })
        .collect();
    let scans = Cell::new(0_u64);
    let mut boot_ms = 1_000;
    let mut live_until = |end_ms: u64| {
        loop {
            // They start within three seconds.
            let due_ms = |(at, keeper): (u64, &Keeper)| keeper.next_wake_boot_ms().max(1_000 + at * 15);
            let (_, (keeper, nonce)) = (0..)
                .zip(&mut keepers)
                .min_by_key(|(at, (keeper, _))| due_ms((*at, keeper)))
                .filter(|(at, (keeper, _))| due_ms((*at, keeper)) < end_ms)?;
            boot_ms = boot_ms.max(keeper.next_wake_boot_ms());
            let mut event = Event::Time;
            loop {
                let output = keeper.handle(event, &now(boot_ms), nonce());
                let Some((id, request)) = output.request else { break };
                scans.set(scans.get() + u64::from(request == Request::Scan));
                event = Event::Reply { id, reply: perform(&store, &request) };
            }
        }
    };
    // Each hears the others before it takes a code.
    let started = Instant::now();
    let begin_ms = 1_000 + 10_000;
    let _: Option<()> = live_until(begin_ms);
    println!("{KEEPERS} keepers acquired in {:?}, with {} scans", started.elapsed(), scans.take());
    let (begin, started) = (etcd.revision(), Instant::now());
    let end_ms = begin_ms + SECONDS * 1_000;
    let _: Option<()> = live_until(end_ms);
    let writes = u64::try_from(etcd.revision() - begin).unwrap();
    println!("{} scans a second", scans.get() / SECONDS);
    // A third of the renewals: 200 workers renew 60 times a second.
    assert!(scans.get() <= 25 * SECONDS);
    println!(
        "{writes} writes in {SECONDS} simulated seconds: {} a second (in {:?} real time: {} writes a second, one after another)",
        writes / SECONDS,
        started.elapsed(),
        u128::from(writes) * 1_000 / started.elapsed().as_millis(),
    );
    assert!(writes <= 100 * SECONDS);
    // And everybody still holds.
    for (keeper, _) in &keepers {
        let view = keeper.view().unwrap();
        assert!(view.ceiling_ms(end_ms) > T + end_ms);
    }
}

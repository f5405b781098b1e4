//! What fails: members, leaders, quorums, wires, and operators who put an old backup back.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

mod common;

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::proxy::{Proxy, Wire};
use common::{Cluster, PATIENCE, T, cluster_record, copy_dir, now, timed};
use snowmint_lease::{
    Event, Keeper, KeeperConfig, Loss, Notice, Owner, Phase, Revision, Step, Store, StoreError, store,
};
use snowmint_lease_etcd::{EtcdConfig, EtcdStore};

/// The limit of a call in these tests, with what a busy machine adds.
const CALL: Duration = Duration::from_millis(2_300);

fn founded(config: &EtcdConfig) -> EtcdStore {
    let store = EtcdStore::connect(config.clone()).unwrap();
    snowmint_lease::init(&store, &cluster_record(config.region)).unwrap();
    store
}

/// One renewal's worth of calls, each of which must end within its limit.
fn exchange(store: &EtcdStore, nonce: u128) -> Result<Revision, StoreError> {
    let within = |took: Duration| assert!(took < CALL, "a call took {took:?}");
    let (cluster, took) = timed(|| store.cluster());
    within(took);
    let (code, took) = timed(|| store.read(0));
    within(took);
    let (cluster, code) = (cluster?, code?);
    let record = snowmint_lease::CodeRecord { nonce, ..code.record };
    let (swapped, took) = timed(|| store.swap(0, code.revision, cluster.revision, &record));
    within(took);
    swapped
}

/// Exchanges until one succeeds; in between nothing but `Unreachable` is said. Returns how long that took.
fn until_served(store: &EtcdStore) -> Duration {
    let started = Instant::now();
    let mut nonce = 1 << 90;
    loop {
        nonce += 1;
        match exchange(store, nonce) {
            Ok(_) => return started.elapsed(),
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
        assert!(started.elapsed() < PATIENCE);
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_lost_member_is_passed_over() {
    // Shows that with the leader frozen (SIGSTOP) and with a member killed (SIGKILL), whichever the store was talking
    // to, calls go on through the others or are Unreachable in time; and that a member that comes back is used again.
    let Some(mut etcd) = Cluster::start(3) else { return };
    let stores: Vec<_> = (0..4).map(|_| founded(&etcd.config(0))).collect();

    let leader = etcd.leader(0);
    etcd.stop(leader);
    for store in &stores {
        println!("leader frozen: served again after {:?}", until_served(store));
    }
    etcd.cont(leader);
    etcd.wait_for(leader);

    let victim = (leader + 1) % 3;
    etcd.kill(victim);
    for store in &stores {
        println!("member killed: served again after {:?}", until_served(store));
    }
    etcd.run(victim);
    etcd.wait_for(victim);

    // Now the others go: what serves is the one that came back with one that stayed.
    etcd.kill(leader);
    for store in &stores {
        println!("next member killed: served again after {:?}", until_served(store));
    }
}

#[test]
fn a_lost_quorum_is_unreachable_and_heals() {
    // Shows that without a quorum every call is Unreachable within its limit, also the swap, which is sent once only;
    // and that the same store serves again by itself once the quorum is back.
    let Some(mut etcd) = Cluster::start(3) else { return };
    let store = founded(&etcd.config(0));
    let (cluster, code) = (store.cluster().unwrap(), store.read(0).unwrap());
    etcd.kill(1);
    etcd.kill(2);
    for _ in 0..2 {
        type Call<'a> = (&'a str, &'a dyn Fn() -> Result<(), StoreError>);
        let calls: [Call<'_>; 4] = [
            ("cluster", &|| store.cluster().map(drop)),
            ("read", &|| store.read(0).map(drop)),
            ("scan", &|| store.scan().map(drop)),
            ("swap", &|| store.swap(0, code.revision, cluster.revision, &code.record).map(drop)),
        ];
        for (name, call) in calls {
            let (result, took) = timed(call);
            println!("{name} without a quorum: {took:?}: {}", result.clone().unwrap_err());
            assert!(result.unwrap_err().is_transient());
            assert!(took < CALL, "{name}: {took:?}");
        }
    }
    // A store that starts in the meantime is told, or waits.
    assert!(EtcdStore::connect(etcd.config(0)).unwrap_err().is_transient());
    etcd.run(1);
    etcd.run(2);
    println!("quorum back: served again after {:?}", until_served(&store));
}

/// A keeper with simulated clocks, so that nobody sleeps through a window.
struct Worker {
    keeper: Keeper,
    boot_ms: u64,
    nonce: u128,
}

impl Worker {
    fn new() -> Self {
        let config = KeeperConfig {
            // What a fault befalls first is to be the renewal, not the scan before it.
            compares_clocks: false,
            ..KeeperConfig::fleet(cluster_record(0).layout, 0, Owner::new("a").unwrap())
        };
        Self { keeper: Keeper::new(config).unwrap(), boot_ms: 1_000, nonce: 1 << 80 }
    }

    fn step(&mut self, store: &dyn Store) -> Vec<Notice> {
        let Self { keeper, boot_ms, nonce } = self;
        *boot_ms = (*boot_ms).max(keeper.next_wake_boot_ms());
        let mut draw = || {
            *nonce += 1;
            *nonce
        };
        let Step { notices, .. } =
            snowmint_lease::step(keeper, Event::Time, store, &mut || now(*boot_ms), &mut draw);
        notices
    }
}

#[test]
fn a_lost_reply_is_found_out_by_reading() {
    // Shows that a swap whose reply is lost is Unreachable though it was written, and sent only once; that one whose
    // request is lost is Unreachable too; and that a keeper learns by the nonce which of both it was.
    let Some(etcd) = Cluster::start(1) else { return };
    let proxy = Proxy::start(etcd.port(0));
    let config = etcd.config(0);
    let direct = founded(&config);
    let store = EtcdStore::connect(EtcdConfig { endpoints: vec![proxy.url()], ..config }).unwrap();

    // A renewal.
    let mut worker = Worker::new();
    worker.step(&store);
    let grant = worker.keeper.take_grant(worker.boot_ms).unwrap();
    let (ticket, code) = (grant.ticket(), grant.node().worker());
    for (wire, is_written) in [(Wire::NoReplies, true), (Wire::Cut, false), (Wire::NoReplies, true)] {
        let before = direct.read(code).unwrap();
        let revision = etcd.revision();
        proxy.set(wire);
        let notices = worker.step(&store);
        proxy.set(Wire::Whole);
        assert!(
            matches!(&notices[..], [Notice::Unconfirmed { error: StoreError::Unreachable { .. }, .. }]),
            "{notices:?}"
        );
        // It goes on to what is confirmed, and no further.
        assert_eq!(worker.keeper.phase(worker.boot_ms), Phase::Held);
        assert_eq!(worker.keeper.ceiling_ms(ticket, worker.boot_ms), before.record.end_ms);
        let after = direct.read(code).unwrap();
        assert_eq!(after.revision != before.revision, is_written);
        assert_eq!(etcd.revision() - revision, i64::from(is_written));

        let notices = worker.step(&store);
        let renewed = |notice: &Notice| matches!(notice, Notice::Renewed { .. });
        let count = notices.iter().filter(|notice| renewed(notice)).count();
        // Where it was written, that is taken over first; a renewal of its own follows.
        assert_eq!(count, if is_written { 2 } else { 1 }, "{notices:?}");
        let end_ms = direct.read(code).unwrap().record.end_ms;
        assert_eq!(worker.keeper.ceiling_ms(ticket, worker.boot_ms), end_ms);
        assert_eq!(end_ms, T + worker.boot_ms + 10_000);
    }

    // A claim.
    proxy.set(Wire::Whole);
    let mut other = Worker::new();
    other.nonce <<= 1;
    let cluster = store.cluster().unwrap();
    let scan = store.scan().unwrap();
    proxy.set(Wire::NoReplies);
    let swapped = store.swap(7, scan[7].1.revision, cluster.revision, &scan[7].1.record);
    proxy.set(Wire::Whole);
    assert!(swapped.unwrap_err().is_transient());
    assert!(direct.read(7).unwrap().revision > scan[7].1.revision);
    other.step(&store);
    assert!(other.keeper.take_grant(other.boot_ms).is_some());
}

#[test]
fn an_old_backup_is_noticed_and_needs_a_recovery() {
    // Shows that a store that saw etcd before its data was put back from a backup refuses everything afterwards, though
    // revisions fit again; that a recovery by an operator raises the generation; and that the same store then serves,
    // and its keeper gives up the grant of before and takes another above it.
    let Some(mut etcd) = Cluster::start(1) else { return };
    let config = etcd.config(0);
    let store = founded(&config);
    etcd.kill(0);
    let backup = etcd.data_dir(0).with_extension("backup");
    copy_dir(&etcd.data_dir(0), &backup);
    etcd.run(0);
    etcd.wait_for(0);
    until_served(&store);

    let mut worker = Worker::new();
    worker.step(&store);
    let grant = worker.keeper.take_grant(worker.boot_ms).unwrap();
    for _ in 0..3 {
        worker.step(&store);
    }
    let stamped_ms = worker.keeper.ceiling_ms(grant.ticket(), worker.boot_ms);
    assert!(stamped_ms > T);

    etcd.kill(0);
    fs::remove_dir_all(etcd.data_dir(0)).unwrap();
    fs::rename(&backup, etcd.data_dir(0)).unwrap();
    etcd.run(0);
    etcd.wait_for(0);

    let mut notices = Vec::new();
    while worker.keeper.phase(worker.boot_ms) == Phase::Held {
        notices.extend(worker.step(&store));
    }
    assert!(
        notices.iter().any(|notice| matches!(
            notice,
            Notice::Lost { loss: Loss::Store(StoreError::Copied { .. }), .. }
        )),
        "{notices:?}"
    );
    println!("{}", store.cluster().unwrap_err());
    assert!(matches!(store.cluster(), Err(StoreError::Copied { .. })));
    assert!(matches!(store.scan(), Err(StoreError::Copied { .. })));
    assert!(matches!(store.read(0), Err(StoreError::Copied { .. })));
    // Once its revision has passed the former one, too.
    for _ in 0..30 {
        etcd.admin(0, async |client| client.put("noise", "", None).await);
    }
    assert!(matches!(store.cluster(), Err(StoreError::Copied { .. })));

    let operator = EtcdStore::connect(config).unwrap();
    let raised = store::recover(&operator, stamped_ms, 10_000, &now(worker.boot_ms)).unwrap().unwrap();
    assert_eq!(raised.generation, 2);
    assert_eq!(store.cluster().unwrap().record, raised);
    let next = loop {
        worker.step(&store);
        if let Some(grant) = worker.keeper.take_grant(worker.boot_ms) {
            break grant;
        }
        assert!(worker.boot_ms < 120_000);
    };
    assert!(next.floor_ms() >= stamped_ms);
    assert_ne!(next.ticket(), grant.ticket());
}

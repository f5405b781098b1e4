//! A rolling cut-over of the layout in a real etcd, while workers mint.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

#[allow(unused_imports)] // Each test uses a part of it.
mod fleet;

use std::collections::HashSet;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fleet::etcd::{Cluster, layout};
use fleet::{child, wall_ms};
use snowmint::{Engine, SystemClock, Worker, WorkerConfig, WorkerError, fresh_nonce};
use snowmint_core::{Id, Layout, Policy, Refusal};
use snowmint_lease::{ClusterRecord, Hindrance, KeeperConfig, Owner, Store, StoreError};
use snowmint_lease_etcd::{EtcdConfig, EtcdStore};

const WINDOW_MS: u32 = 900;

fn worker(config: &EtcdConfig, layout: Layout, owner: &str) -> Result<Worker, WorkerError> {
    let config_of_worker = WorkerConfig {
        lease: KeeperConfig {
            window_ms: WINDOW_MS,
            ..KeeperConfig::fleet(layout, 0, Owner::new(owner).unwrap())
        },
        policy: Policy::CLASSIC,
        acquire_wait_max: Duration::from_secs(10),
    };
    let store = Box::new(EtcdStore::connect(config.clone()).unwrap());
    let engine = Engine::new(Some(child::cache_dir())).unwrap();
    Worker::start(&engine, store, Arc::new(SystemClock::new(1)), config_of_worker, Box::new(|_| {}))
}

/// What a worker minted, and what it last refused by.
struct Minted {
    ids: Vec<Id>,
    last_refusal: Option<Refusal>,
    hindrance: Option<Hindrance>,
}

fn mint_until(worker: &Worker, stop: &AtomicBool) -> Minted {
    let mut minted = Minted { ids: Vec::new(), last_refusal: None, hindrance: None };
    while !stop.load(Ordering::Relaxed) {
        match worker.mint(20) {
            Ok(run) => minted.ids.extend(run),
            Err(error) => minted.last_refusal = error.refusal(),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    minted.hindrance = worker.standing().hindrance;
    minted
}

fn cutover(config: &EtcdConfig, layout_file: &str, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_snowmint"))
        .args(["layout", "cutover", layout_file])
        .args(["--store", &format!("etcd:{}", config.endpoints.join(",")), "--region", "0"])
        .args(["--etcd-prefix", &config.prefix])
        .args(more)
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Under load: four workers of the old layout go on to its last millisecond and are refused there, a straggler that is
/// started for the old layout too late is told which layout there is, and workers of the new one mint above all of it. No
/// ID twice, and new ones above old ones.
#[test]
fn a_layout_is_cut_over_while_workers_mint() {
    let Some(etcd) = Cluster::start(3) else { return };
    let config = etcd.config(0);
    let (old, new) = (layout(8), Layout::preset("hybrid").unwrap());
    let store = EtcdStore::connect(config.clone()).unwrap();
    snowmint_lease::init(&store, &ClusterRecord::new(fresh_nonce(), old, 0).unwrap()).unwrap();

    let stop = AtomicBool::new(false);
    let (old_minted, new_ids, last_ms) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|nth| {
                let worker = worker(&config, old, &format!("old {nth}")).unwrap();
                let stop = &stop;
                scope.spawn(move || mint_until(&worker, stop))
            })
            .collect();

        // Slips are told, and change nothing.
        assert_eq!(
            cutover(&config, "hybrid", &["--act", "open"]).status.code(),
            Some(1),
            "nothing is planned"
        );
        assert_eq!(cutover(&config, "hybrid", &["--act", "plan"]).status.code(), Some(2), "no time is given");
        let sharded =
            cutover(&config, "sharded", &["--act", "plan", "--at", &(wall_ms() + 9_000).to_string()]);
        assert_eq!(sharded.status.code(), Some(1), "{}", text(&sharded));
        assert_eq!(store.cluster().unwrap().record.cutover_last_ms, None);

        let at = (wall_ms() + 4_000).to_string();
        let planned = cutover(&config, "hybrid", &["--act", "plan", "--at", &at]);
        assert_eq!(planned.status.code(), Some(0), "{}", text(&planned));
        let early = cutover(&config, "hybrid", &["--act", "open"]);
        assert_eq!(early.status.code(), Some(1), "{}", text(&early));
        // The region's bits move: nobody opens it before somebody has vouched for the other regions.
        let alone = cutover(&config, "hybrid", &["--act", "run", "--at", &at]);
        assert_eq!(alone.status.code(), Some(1), "{}", text(&alone));
        assert!(text(&alone).contains("--regions-agree"), "{}", text(&alone));
        // Run does the rest, and may be run again.
        let run = cutover(&config, "hybrid", &["--act", "run", "--at", &at, "--regions-agree", "--json"]);
        assert_eq!(run.status.code(), Some(0), "{}", text(&run));
        let again = cutover(&config, "hybrid", &["--act", "run", "--at", &at]);
        assert_eq!(again.status.code(), Some(0), "{}", text(&again));
        let cluster = store.cluster().unwrap().record;
        assert_eq!((cluster.layout, cluster.former.len()), (new, 1));
        let last_ms = cluster.former[0].last_ms;
        assert!(wall_ms() > last_ms, "opened once the old layout is over");

        let straggler = worker(&config, old, "straggler").unwrap_err();
        assert!(
            matches!(&straggler, WorkerError::NoGrant(Hindrance::Store(StoreError::WrongLayout { .. }))),
            "{straggler}"
        );
        let started = Instant::now();
        let mut new_ids = Vec::new();
        for nth in 0..3 {
            let worker = worker(&config, new, &format!("new {nth}")).unwrap();
            new_ids.extend(worker.mint(1_000).unwrap());
        }
        println!("three workers of the new layout began within {:?}", started.elapsed());
        stop.store(true, Ordering::Relaxed);
        let old_minted: Vec<_> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        (old_minted, new_ids, last_ms)
    });

    let mut all = HashSet::new();
    let mut highest = Id::new(0);
    for minted in &old_minted {
        assert!(minted.ids.len() > 1_000, "the old layout was minted by under load");
        let last = *minted.ids.last().unwrap();
        let stamped_ms = old.time_of(last).unix_ms();
        assert!(
            stamped_ms <= last_ms && last_ms - stamped_ms < 500,
            "to the last tick: {stamped_ms} of {last_ms}"
        );
        assert!(minted.ids.iter().all(|id| all.insert(*id)));
        assert!(
            matches!(minted.last_refusal, Some(Refusal::LeaseLost | Refusal::Ceiling { .. })),
            "{:?}",
            minted.last_refusal
        );
        assert!(
            matches!(minted.hindrance, Some(Hindrance::Store(StoreError::WrongLayout { .. }))),
            "{:?}",
            minted.hindrance
        );
        highest = highest.max(*minted.ids.iter().max().unwrap());
    }
    assert!(new_ids.iter().all(|id| *id > highest && all.insert(*id)), "new IDs lie above old ones");
}

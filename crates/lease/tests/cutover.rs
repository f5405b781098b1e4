//! A cut-over: cut off anywhere, run again, run by two at once; and what it refuses.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

use std::cell::{Cell, RefCell};

use proptest::prelude::*;
use snowmint_core::{CutoverError, FormatHistory, Layout, UnixTime};
use snowmint_lease::cutover::history;
use snowmint_lease::store::{self, open_cutover, plan_cutover, scan_cutover, withdraw_cutover};
use snowmint_lease::{
    ClusterError, ClusterRecord, CodeRecord, CutoverRefusal, Event, Keeper, KeeperConfig, MemoryStore, Now,
    Owner, Revision, Store, StoreError, Stored, init, step,
};

const T: u64 = 1_750_000_000_000;

fn layout(fields: &str) -> Layout {
    format!("{fields} epoch-ms:1735689600000 tick-ns:1000000").parse().unwrap()
}

/// Four codes.
fn old() -> Layout {
    layout("reserved:1 timestamp:41 region:2 worker:2 sequence:18")
}

/// Eight.
fn next() -> Layout {
    layout("reserved:1 timestamp:41 region:2 worker:3 sequence:17")
}

fn at(ms: u64) -> Now {
    Now { boot_ms: ms, wall_ms: T + ms, clock_error_ms: 1 }
}

fn founded(layout: Layout) -> MemoryStore {
    let store = MemoryStore::new();
    init(&store, &ClusterRecord::new(1, layout, 0).unwrap()).unwrap();
    store
}

/// A worker that was granted up to T + `ms` + 1,000.
fn grant(store: &dyn Store, layout: Layout, ms: u64, seed: u128) -> Keeper {
    let mut keeper = Keeper::new(KeeperConfig::embedded(layout, 0, Owner::new("worker").unwrap())).unwrap();
    let mut drawn = seed << 64;
    let mut nonce = || {
        drawn += 1;
        drawn
    };
    let _ = step(&mut keeper, Event::Time, store, &mut || at(ms), &mut nonce);
    keeper
}

/// All three acts, as an operator's script runs them.
fn script(store: &dyn Store) -> Result<ClusterRecord, StoreError> {
    plan_cutover(store, &next(), T + 1_500, &at(1_100))?.unwrap();
    scan_cutover(store, &next())?.unwrap();
    Ok(open_cutover(store, &next(), &at(2_001))?.unwrap())
}

/// A store whose nth call is answered by nothing: either carried out, or not.
struct CutOff<'a> {
    store: &'a MemoryStore,
    left: Cell<u32>,
    is_carried_out: bool,
}

impl CutOff<'_> {
    fn call<T>(&self, call: impl Fn(&MemoryStore) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let unreachable = StoreError::Unreachable { detail: String::from("cut off") };
        match self.left.get() {
            0 => Err(unreachable),
            left => {
                self.left.set(left - 1);
                if left > 1 {
                    return call(self.store);
                }
                if self.is_carried_out {
                    let _ = call(self.store);
                }
                Err(unreachable)
            }
        }
    }
}

impl Store for CutOff<'_> {
    fn cluster(&self) -> Result<Stored<ClusterRecord>, StoreError> {
        self.call(MemoryStore::cluster)
    }

    fn read(&self, code: u32) -> Result<Stored<CodeRecord>, StoreError> {
        self.call(|store| store.read(code))
    }

    fn scan(&self) -> Result<Vec<(u32, Stored<CodeRecord>)>, StoreError> {
        self.call(MemoryStore::scan)
    }

    fn swap(
        &self,
        code: u32,
        expected: Revision,
        cluster: Revision,
        record: &CodeRecord,
    ) -> Result<Revision, StoreError> {
        self.call(|store| store.swap(code, expected, cluster, record))
    }

    fn swap_cluster(&self, expected: Revision, record: &ClusterRecord) -> Result<Revision, StoreError> {
        self.call(|store| store.swap_cluster(expected, record))
    }

    fn create_codes(&self, codes: &[(u32, CodeRecord)]) -> Result<(), StoreError> {
        // One record after the other, as a store may.
        codes.iter().try_for_each(|code| self.call(|store| store.create_codes(std::slice::from_ref(code))))
    }

    fn create_cluster(&self, record: &ClusterRecord) -> Result<(), StoreError> {
        self.call(|store| store.create_cluster(record))
    }
}

fn assert_carried_out(store: &MemoryStore, what: &str) {
    let cluster = store.cluster().unwrap().record;
    assert_eq!((cluster.layout, cluster.cutover_last_ms, cluster.former.len()), (next(), None, 1), "{what}");
    assert_eq!(cluster.not_before_ms, cluster.former[0].last_ms, "{what}");
    let codes = store::scan_complete(store, &cluster).unwrap();
    assert_eq!(codes.len(), 8, "{what}");
    assert!(codes.iter().all(|(_, stored)| stored.record.end_ms <= cluster.former[0].last_ms), "{what}");
}

#[test]
fn an_operator_who_is_cut_off_at_any_call_runs_it_again() {
    // Shows, for each call to the store that the three acts make, whether it was carried out or not when the operator's
    // connection or machine failed, that the same script run again comes to the same end.
    let mut calls = 0;
    for is_carried_out in [false, true] {
        for left in 1.. {
            let store = founded(old());
            grant(&store, old(), 1_000, 1);
            let cut_off = CutOff { store: &store, left: Cell::new(left), is_carried_out };
            let was_cut_off = script(&cut_off).is_err();
            let record = script(&store).unwrap();
            let what = format!("call {left}, carried out: {is_carried_out}");
            assert_eq!(record.former[0].last_ms, T + 2_000, "{what}");
            assert_carried_out(&store, &what);
            if !was_cut_off {
                break;
            }
            calls += 1;
        }
    }
    assert!(calls >= 20, "{calls} calls");
}

type Other<'a> = Box<dyn FnMut(&MemoryStore) + 'a>;

/// A store that lets another operator do something before each of one's own writes.
struct Between<'a> {
    store: &'a MemoryStore,
    other: RefCell<Other<'a>>,
}

impl Store for Between<'_> {
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
        self.store.swap(code, expected, cluster, record)
    }

    fn swap_cluster(&self, expected: Revision, record: &ClusterRecord) -> Result<Revision, StoreError> {
        (self.other.borrow_mut())(self.store);
        self.store.swap_cluster(expected, record)
    }

    fn create_codes(&self, codes: &[(u32, CodeRecord)]) -> Result<(), StoreError> {
        (self.other.borrow_mut())(self.store);
        self.store.create_codes(codes)
    }

    fn create_cluster(&self, record: &ClusterRecord) -> Result<(), StoreError> {
        self.store.create_cluster(record)
    }
}

#[test]
fn two_operators_at_once_come_to_one_end() {
    // Shows that a second operator who runs any act, or all of them, just before each write of the first changes
    // nothing about the outcome; and that the later of two plans stands.
    type Act<'a> = &'a dyn Fn(&MemoryStore);
    let acts: [Act<'_>; 4] = [
        &|store| drop(plan_cutover(store, &next(), T + 1_800, &at(1_100))),
        &|store| drop(scan_cutover(store, &next())),
        &|store| drop(open_cutover(store, &next(), &at(2_001))),
        &|store| drop(script(store)),
    ];
    for (nth, act) in acts.iter().enumerate() {
        let store = founded(old());
        grant(&store, old(), 1_000, 1);
        script(&Between { store: &store, other: RefCell::new(Box::new(act)) }).unwrap();
        assert_carried_out(&store, &format!("act {nth}"));
    }
    let store = founded(old());
    for (cutover_ms, last_ms) in [(T + 5_000, T + 4_999), (T + 3_000, T + 4_999), (T + 6_000, T + 5_999)] {
        let record = plan_cutover(&store, &next(), cutover_ms, &at(1_100)).unwrap().unwrap();
        assert_eq!(record.cutover_last_ms, Some(last_ms));
    }
    assert_eq!(withdraw_cutover(&store).unwrap().cutover_last_ms, None);
    assert_eq!(withdraw_cutover(&store).unwrap(), store.cluster().unwrap().record);
}

#[test]
fn what_cannot_be_promised_is_refused_and_nothing_is_written() {
    // Shows each refusal, and that the cluster record is as it was.
    let store = founded(old());
    let before = store.cluster().unwrap();
    let refused = |outcome: Result<Result<ClusterRecord, CutoverRefusal>, StoreError>| {
        assert_eq!(store.cluster().unwrap(), before);
        let refusal = outcome.unwrap().unwrap_err();
        assert!(!refusal.to_string().is_empty());
        refusal
    };
    assert_eq!(refused(scan_cutover(&store, &next())), CutoverRefusal::NotPlanned);
    assert_eq!(refused(open_cutover(&store, &next(), &at(9_000))), CutoverRefusal::NotPlanned);
    let plan = |layout: &Layout, cutover_ms| refused(plan_cutover(&store, layout, cutover_ms, &at(1_000)));
    assert_eq!(plan(&old(), T + 2_000), CutoverRefusal::Plan(CutoverError::SameLayout));
    assert!(matches!(plan(&next(), T + 1_000), CutoverRefusal::Plan(CutoverError::Past { .. })));
    assert!(matches!(
        plan(&Layout::SHARDED, T + 2_000),
        CutoverRefusal::Plan(CutoverError::NotTimeFirst { .. })
    ));
    let lower = layout("reserved:1 timestamp:45 region:2 worker:2 sequence:14");
    assert!(matches!(plan(&lower, T + 2_000), CutoverRefusal::Plan(CutoverError::ValuesFall { .. })));
    let wide = layout("reserved:1 timestamp:41 region:2 worker:17 sequence:3");
    assert_eq!(plan(&wide, T + 2_000), CutoverRefusal::Cluster(ClusterError::Codes { codes: 1 << 17 }));

    // An end above the plan: whoever leaves the scan out is told so.
    grant(&store, old(), 1_000, 1);
    plan_cutover(&store, &next(), T + 1_500, &at(1_100)).unwrap().unwrap();
    let before = store.cluster().unwrap();
    let refusal = open_cutover(&store, &next(), &at(9_000)).unwrap().unwrap_err();
    assert_eq!(refusal, CutoverRefusal::NotScanned { end_ms: T + 2_000, last_ms: T + 1_499 });
    assert_eq!(store.cluster().unwrap(), before);
    // What a recovery vouched for counts as an end: the store has forgotten whose.
    store::recover(&store, T + 4_000, 1_000, &at(1_200)).unwrap().unwrap();
    let scanned = scan_cutover(&store, &next()).unwrap().unwrap();
    assert_eq!(scanned.cutover_last_ms, Some(T + 4_000));
    // A code that is missing is damage, also to a cut-over.
    store.delete_code(2);
    assert!(matches!(open_cutover(&store, &next(), &at(9_000)), Err(StoreError::Missing { .. })));
    assert!(matches!(scan_cutover(&store, &next()), Err(StoreError::Missing { .. })));
}

#[test]
fn a_layout_with_fewer_codes_grants_none_that_it_has_no_room_for() {
    // Shows a cut-over back from eight codes to four, and to eight again: each layout's grants have codes that it can
    // hold, and a code that was left out begins above its own end.
    let (store, eight, four) = (founded(next()), next(), old());
    let held: Vec<_> = (0..8).map(|seed| grant(&store, eight, 1_000, seed)).collect();
    assert!(held.iter().all(|keeper| keeper.view().is_some()));
    let mut ms = 2_000;
    for layout in [four, eight] {
        plan_cutover(&store, &layout, T + ms + 500, &at(ms)).unwrap().unwrap();
        scan_cutover(&store, &layout).unwrap().unwrap();
        ms += 5_000;
        let cluster = open_cutover(&store, &layout, &at(ms)).unwrap().unwrap();
        // Nobody of the old layout gives its code back.
        let mut nonce = u128::from(ms) << 32;
        let mut draw = || {
            nonce += 1;
            nonce
        };
        store::expire_all(&store, &at(ms), 0, &mut draw).unwrap();
        let codes = cluster.codes();
        for nth in 0..=codes {
            let keeper = grant(&store, layout, ms, u128::from(ms + u64::from(nth)));
            let code = keeper.view().map(|view| view.code);
            assert_eq!(code.is_some(), nth < codes, "{nth} of {codes}");
            assert!(code.is_none_or(|code| code < codes));
        }
        assert_eq!(store.scan().unwrap().len(), 8);
    }
    assert_eq!(store.cluster().unwrap().record.former.len(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whenever_grants_are_made_no_id_of_the_old_layout_lies_above_what_was_opened(
        tick_ms in prop::sample::select(vec![1_u64, 10, 1_000]),
        cutover_ms in 1_200_u64..9_000,
        grants in prop::collection::vec((1_000_u64..9_000, 0_u8..4), 0..6),
    ) {
        // Shows, for grants that are made before, between and after the acts, in layouts of several ticks: every end of
        // the old layout lies at or below the end of the tick that the new one begins after.
        let tick = |fields: &str| -> Layout {
            format!("{fields} epoch-ms:1735689600000 tick-ns:{}", tick_ms * 1_000_000).parse().unwrap()
        };
        let old = tick("reserved:1 timestamp:41 region:2 worker:2 sequence:18");
        let next = tick("reserved:1 timestamp:41 region:2 worker:3 sequence:17");
        let store = founded(old);
        let granted = |after: u8| {
            for (nth, (ms, _)) in (0..).zip(&grants).filter(|(_, (_, when))| *when == after) {
                grant(&store, old, *ms, nth + 1);
            }
        };
        granted(0);
        let Ok(planned) = plan_cutover(&store, &next, T + cutover_ms, &at(1_100)).unwrap() else { return Ok(()) };
        granted(1);
        let scanned = scan_cutover(&store, &next).unwrap().unwrap();
        prop_assert!(scanned.cutover_last_ms >= planned.cutover_last_ms);
        granted(2);
        let opened = open_cutover(&store, &next, &at(60_000)).unwrap().unwrap();
        granted(3);
        let last_ms = opened.former[0].last_ms;
        for (_, stored) in store.scan().unwrap() {
            prop_assert!(old.first_ms_above(stored.record.end_ms) <= old.first_ms_above(last_ms));
        }
        let keeper = grant(&store, next, 70_000, 99);
        prop_assert!(keeper.view().unwrap().floor_ms >= last_ms);
    }
}

/// IDs of before are read by the layout that made them, those of after by the new one, and what lies between is nobody's.
#[test]
fn a_cluster_tells_how_its_ids_are_read() {
    let store = founded(old());
    let fresh = store.cluster().unwrap().record;
    assert_eq!(history(&fresh).unwrap(), FormatHistory::new(old()));
    let record = script(&store).unwrap();
    let read = history(&record).unwrap();
    assert_eq!(read.current(), &next());
    let last_ms = record.former[0].last_ms;
    for (ms, layout, expected) in [
        (0, old(), Some(old())),
        (last_ms - T, old(), Some(old())),
        (last_ms - T + 1, next(), Some(next())),
        (100_000, next(), Some(next())),
    ] {
        let ids = layout.ids_at(UnixTime::from_unix_ms(T + ms)).unwrap();
        assert_eq!(read.layout_of(ids.first).copied(), expected, "{ms}");
    }
}

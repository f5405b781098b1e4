//! Faults that people met with systems like this one, each as a test of its whole kind.
#![allow(clippy::unwrap_used)] // It is all test.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::atomic::AtomicU64;

use snowmint_core::{
    Bounds, Field, FieldError, Generator, Grant, Layout, LayoutError, NS_PER_MS, ObserveError, Policy,
    Refusal, Role, SharedGenerator,
};

const T: u64 = 1_750_000_000_000;
const ONE: NonZeroU32 = NonZeroU32::MIN;

fn generator(layout: Layout, policy: Policy, floor_ms: u64) -> Generator {
    Generator::new(layout, Grant::new(layout.node(1, 2).unwrap(), 1, floor_ms), policy).unwrap()
}

/// F1: the sequence survives a rollback of any length, up and down as often as it likes.
#[test]
fn f1_the_sequence_goes_on_after_a_rollback() {
    let mut generator = generator(Layout::SNOWMINT, Policy::CLASSIC, 0);
    let mut seen = HashSet::new();
    for step in 0..4_096_u64 {
        let id = generator.mint(T, &Bounds::OPEN, ONE).unwrap().first();
        assert!(seen.insert(id));
        assert_eq!(Layout::SNOWMINT.decode(id).sequence, step);
        for back_ms in [1, 5, 300, 900, 2_000, step + 1] {
            let refusal = generator.mint(T - back_ms, &Bounds::OPEN, ONE).unwrap_err();
            let full = u64::from(step == 4_095);
            assert_eq!(refusal, Refusal::ClockRolledBack { by_ms: back_ms, wait_ms: back_ms + full });
        }
    }
    assert_eq!(generator.mint(T, &Bounds::OPEN, ONE), Err(Refusal::Exhausted { wait_ms: 1 }));
}

/// F2: whatever the clock says after a crash, a new life begins above the mark of the last.
#[test]
fn f2_a_restart_under_a_clock_that_is_behind_repeats_nothing() {
    for back_ms in [1, 1_000, 3_600_000] {
        for policy in [Policy::CLASSIC, Policy::HYBRID] {
            let mut first = generator(Layout::HYBRID, policy, 0);
            let bounds = Bounds { mark_ms: T + 1_000, ..Bounds::OPEN };
            let mut seen: HashSet<_> = first.mint(T, &bounds, NonZeroU32::MAX).unwrap().into_iter().collect();

            // The mark is all that is left of the first life.
            let grant = Grant::new(Layout::HYBRID.node(1, 2).unwrap(), 2, 0).above(Some(T + 1_000));
            let mut second = Generator::new(Layout::HYBRID, grant, policy).unwrap();
            let refusal = second.mint(T - back_ms, &Bounds::OPEN, ONE).unwrap_err();
            assert!(matches!(refusal, Refusal::BelowFloor { .. }), "{refusal}");
            let lead_ms = u64::from(policy.lead_ms);
            assert!(second.mint(T + 1_000 - lead_ms, &Bounds::OPEN, ONE).is_err());
            for id in second.mint(T + 1_001 - lead_ms, &Bounds::OPEN, NonZeroU32::MAX).unwrap() {
                assert!(seen.insert(id));
            }
        }
    }
}

/// Ticks of 1, 10, 256 and 1,000 ms across a hand-over at every offset within a tick: no ID twice, and a release
/// gives back all that was not reserved.
#[test]
fn hand_overs_within_a_tick_repeat_nothing() {
    for tick_ms in [1, 10, 256, 1_000] {
        let snowmint = Layout::SNOWMINT;
        let layout = Layout::new(snowmint.fields(), snowmint.epoch_unix_ms(), tick_ms * NS_PER_MS).unwrap();
        let mut seen = HashSet::new();
        let mut floor_ms = 0;
        let mut now_ms = T;
        for step in 0..2_000 {
            let mut generator = generator(layout, Policy::CLASSIC, floor_ms);
            match generator.mint(now_ms, &Bounds::OPEN, NonZeroU32::new(3).unwrap()) {
                Ok(run) => {
                    for id in run {
                        assert!(seen.insert(id), "{id} twice, with ticks of {tick_ms} ms");
                    }
                    now_ms += step % 7;
                }
                Err(Refusal::BelowFloor { wait_ms, .. }) => {
                    assert!(wait_ms <= tick_ms);
                    now_ms += wait_ms;
                    assert!(generator.mint(now_ms - 1, &Bounds::OPEN, ONE).is_err(), "the wait is exact");
                    let run = generator.mint(now_ms, &Bounds::OPEN, ONE).unwrap();
                    assert!(run.into_iter().all(|id| seen.insert(id)));
                }
                Err(refusal) => panic!("{refusal}"),
            }
            floor_ms = generator.stop().unwrap();
        }
        assert!(seen.len() > 100);
    }
}

/// F7: the last millisecond of the default layout mints, the next never does.
#[test]
fn f7_the_layout_ends_on_its_last_tick() {
    let last_ms = Layout::SNOWMINT.last_ms();
    assert_eq!(last_ms, 1_735_689_600_000 + (1 << 41) - 1);
    let mut generator = generator(Layout::SNOWMINT, Policy::HYBRID, 0);
    // The lead does not reach over the end either.
    assert_eq!(generator.mint(last_ms, &Bounds::OPEN, NonZeroU32::MAX).unwrap().count(), 4_096);
    for now_ms in [last_ms, last_ms + 1, u64::MAX, T] {
        assert_eq!(generator.mint(now_ms, &Bounds::OPEN, ONE), Err(Refusal::LayoutEnded { last_ms }));
    }
}

/// F9: at one ID in 10 ms, `id % n` is even with `spread`, and is not without.
#[test]
fn f9_spread_is_even_at_low_load() {
    for (spread, is_even) in [(true, true), (false, false)] {
        let mut generator = generator(Layout::SNOWMINT, Policy { spread, ..Policy::CLASSIC }, 0);
        let mut buckets = [0_u32; 16];
        let mut last = 0;
        for step in 0..10_000 {
            let id = generator.mint(T + step * 10, &Bounds::OPEN, ONE).unwrap().first().get();
            assert!(id > last);
            last = id;
            buckets[usize::try_from(id % 16).unwrap()] += 1;
        }
        let within = |count: u32| (500..=750).contains(&count);
        assert_eq!(buckets.into_iter().all(within), is_even, "{buckets:?}");
    }
}

/// 4 regions of 200 workers in one frozen millisecond, all sequences: fields in range, all different.
#[test]
fn a_whole_fleet_in_one_millisecond_is_all_different() {
    for (_, layout) in Layout::PRESETS {
        let mut ids = Vec::new();
        for (region, worker) in (0..4).flat_map(|region| (0..200).map(move |worker| (region, worker))) {
            let grant = Grant::new(layout.node(region, worker).unwrap(), 1, 0);
            let mut generator = Generator::new(layout, grant, Policy::CLASSIC).unwrap();
            for id in generator.mint(T, &Bounds::OPEN, NonZeroU32::MAX).unwrap() {
                let parts = layout.decode(id);
                assert_eq!((parts.region, parts.worker), (region.into(), worker.into()));
                assert_eq!(parts.tick, T - layout.epoch_unix_ms());
                assert!(i64::try_from(id.get()).is_ok_and(|id| id > 0));
                ids.push(id);
            }
        }
        let count = ids.len();
        assert_eq!(count as u64, 800 * layout.ids_per_tick());
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }
}

/// F19: what does not fit is refused with its range, on every way in; nothing is masked.
#[test]
fn f19_values_out_of_range_are_refused() {
    let layout = Layout::SNOWMINT;
    let check = |result: Result<_, FieldError>, role, value, max, text: &str| {
        let error = result.unwrap_err();
        assert_eq!(error, FieldError { role, value, max });
        assert_eq!(error.to_string(), text);
    };
    check(
        layout.node(4, 0).map(|_| ()),
        Role::Region,
        4,
        3,
        "region 4 does not fit the layout; it takes 0 to 3",
    );
    check(
        layout.node(0, 300).map(|_| ()),
        Role::Worker,
        300,
        255,
        "worker 300 does not fit the layout; it takes 0 to 255",
    );
    let node = layout.node(3, 255).unwrap();
    check(
        layout.compose(1 << 41, node, 0).map(|_| ()),
        Role::Timestamp,
        1 << 41,
        (1 << 41) - 1,
        "timestamp 2199023255552 does not fit the layout; it takes 0 to 2199023255551",
    );
    check(
        layout.compose(1, node, 4_096).map(|_| ()),
        Role::Sequence,
        4_096,
        4_095,
        "sequence 4096 does not fit the layout; it takes 0 to 4095",
    );
}

/// Lists of fields that are no layout, each with what is wrong and what to do.
#[test]
fn bad_layouts_are_refused_with_a_way_out() {
    use Role::{Other, Region, Reserved, Sequence, Shard, Timestamp, Worker};
    let check = |fields: &[(Role, u8)], tick_ns: u64, error: LayoutError, text: &str| {
        let fields: Vec<Field> = fields.iter().map(|&(role, bits)| Field::new(role, bits)).collect();
        let found = Layout::new(&fields, 0, tick_ns).unwrap_err();
        assert_eq!(found, error);
        assert!(found.to_string().contains(text), "{found}");
    };
    let ms = NS_PER_MS;
    check(&[], ms, LayoutError::Bits { bits: 0 }, "exactly 64");
    check(&[(Timestamp, 41), (Worker, 10), (Sequence, 12)], ms, LayoutError::Bits { bits: 63 }, "by 1 bits");
    check(
        &[(Reserved, 1), (Timestamp, 42), (Worker, 10), (Sequence, 12)],
        ms,
        LayoutError::Bits { bits: 65 },
        "narrow fields by 1 bits",
    );
    check(
        &[(Timestamp, 20), (Timestamp, 20), (Worker, 12), (Sequence, 12)],
        ms,
        LayoutError::RoleTwice { role: Timestamp },
        "more than one timestamp",
    );
    check(
        &[(Timestamp, 40), (Sequence, 12), (Sequence, 12)],
        ms,
        LayoutError::RoleTwice { role: Sequence },
        "more than one sequence",
    );
    check(&[(Worker, 52), (Sequence, 12)], ms, LayoutError::RoleMissing { role: Timestamp }, "no timestamp");
    check(&[(Timestamp, 52), (Worker, 12)], ms, LayoutError::RoleMissing { role: Sequence }, "no sequence");
    check(
        &[(Timestamp, 41), (Worker, 0), (Sequence, 23)],
        ms,
        LayoutError::FieldBits { role: Worker, bits: 0 },
        "0 bits wide",
    );
    check(&[(Timestamp, 64)], ms, LayoutError::FieldBits { role: Timestamp, bits: 64 }, "1 to 63");
    check(
        &[(Timestamp, 20), (Region, 32), (Sequence, 12), (Worker, 255)],
        ms,
        LayoutError::FieldBits { role: Worker, bits: 255 },
        "255 bits wide",
    );
    check(
        &[(Timestamp, 19), (Worker, 33), (Sequence, 12)],
        ms,
        LayoutError::FieldBits { role: Worker, bits: 33 },
        "1 to 32",
    );
    check(
        &[(Timestamp, 41), (Other, 11), (Sequence, 12)],
        ms,
        LayoutError::RoleNotMinted { role: Other },
        "`other`",
    );
    check(&[(Shard, 7); 9], ms, LayoutError::FieldCount { count: 9 }, "at most 8");
    check(&[(Timestamp, 41), (Worker, 11), (Sequence, 12)], 0, LayoutError::TickZero, "0 ns");
    check(
        &[(Timestamp, 41), (Worker, 11), (Sequence, 12)],
        1_500_000,
        LayoutError::TickNotWholeMs { tick_ns: 1_500_000 },
        "multiple of 1000000",
    );
    check(&[(Timestamp, 63), (Sequence, 1)], 1_000 * ms, LayoutError::EndsTooLate, "narrow the timestamp");
    let late = Layout::SNOWMINT.check_begun(1_735_689_600_000).unwrap_err();
    assert!(late.to_string().contains("not yet past"), "{late}");
}

/// The canonical text is a fingerprint: nothing else is read as a layout.
#[test]
fn only_the_canonical_text_is_a_layout() {
    let text = "reserved:1 timestamp:41 region:2 worker:8 sequence:12 epoch-ms:1735689600000 tick-ns:1000000";
    assert_eq!(Layout::SNOWMINT.to_string(), text);
    assert_eq!(text.parse(), Ok(Layout::SNOWMINT));
    for wrong in [
        "",
        " ",
        "reserved:1",
        &text.replace("worker", "Worker"),
        &text.replace("worker:8", "worker:08"),
        &text.replace("worker:8", "worker:+8"),
        &text.replace("worker:8", "worker:8/"),
        &text.replace("worker:8", "worker:8/worker"),
        &text.replace("worker:8", "worker:8/a b"),
        &text.replace("worker:8", "worker:300"),
        &text.replace("worker:8", "worker:9"),
        &text.replace(' ', "  "),
        &format!("{text} "),
        &format!("{text} more:1"),
        &text.replace("tick-ns:1000000", "tick-ns:18446744073709551616"),
        &text.replace("1000000", "0"),
    ] {
        assert!(wrong.parse::<Layout>().is_err(), "{wrong}");
    }
}

/// What is counted as suspect is what should not exist, and nothing else: an alarm must mean something.
#[test]
fn only_ids_that_should_not_exist_are_suspect() {
    let layout = Layout::HYBRID;
    let mut generator = generator(layout, Policy::HYBRID, 0);
    let own = generator.node();
    let other = layout.node(1, 3).unwrap();
    let tick = T - layout.epoch_unix_ms();
    let id = |node, tick| layout.compose(tick, node, 0).unwrap();
    let mut check = |id, ceiling_ms, suspects| {
        assert!(generator.observe(id, T, ceiling_ms).is_err());
        assert_eq!(generator.suspects(), suspects);
    };
    check(id(other, tick), 0, 0); // The lease is lost: nothing is said of the ID.
    check(id(other, tick + 2_000), u64::MAX, 0); // A clock that is ahead.
    check(snowmint_core::Id::new(u64::MAX), u64::MAX, 0); // Another layout's.
    check(id(own, tick), u64::MAX, 1); // A twin, or rounded.
    check(id(other, tick + 10), T + 9, 2); // Above what the lease reaches to.
}

/// Within a checked tick nothing passes the ceiling, the mark, the lead or the layout's end, however much is asked for;
/// and a refusal ends the check.
#[test]
fn a_checked_tick_stays_within_every_bound() {
    let layout = Layout::SNOWMINT;
    let policy = Policy::CLASSIC.with_lead_ms(10);
    let last_ms = layout.last_ms();
    for (now_ms, bounds, reach_ms) in [
        (T, Bounds::OPEN, T + 10),
        (T, Bounds { mark_ms: T + 2, ..Bounds::OPEN }, T + 2),
        (T, Bounds { ceiling_ms: T + 3, ..Bounds::OPEN }, T + 3),
        (last_ms - 4, Bounds::OPEN, last_ms),
    ] {
        let mut generator = generator(layout, policy, 0);
        let mut highest = generator.mint(now_ms, &bounds, ONE).unwrap().first();
        while let Some(run) = generator.mint_checked(now_ms, NonZeroU32::MAX) {
            highest = run.last().unwrap();
        }
        let parts = layout.decode(highest);
        assert_eq!(layout.epoch_unix_ms() + parts.tick, reach_ms, "{bounds:?}");
        assert_eq!((parts.sequence, parts.reserved, parts.region), (4_095, false, 1), "{bounds:?}");
    }

    let mut generator = generator(layout, policy, 0);
    generator.mint(T, &Bounds::OPEN, ONE).unwrap();
    assert!(generator.mint_checked(T, ONE).is_some());
    let lost = Bounds { ceiling_ms: 0, ..Bounds::OPEN };
    assert_eq!(generator.mint(T, &lost, ONE), Err(Refusal::LeaseLost));
    assert_eq!(generator.mint_checked(T, ONE), None, "old bounds do not live on");
}

/// What a client sends never stops a generator: neither an ID of any tick that there is, nor of tick 0, in which
/// nothing is ever minted and whose cursors mean something else.
#[test]
fn no_id_that_is_observed_stops_a_generator() {
    for (layout, policy) in [(Layout::SNOWMINT, Policy::CLASSIC), (Layout::HYBRID, Policy::HYBRID)] {
        let now_tick = T - layout.epoch_unix_ms();
        for own in [layout.node(0, 0).unwrap(), layout.node(3, 255).unwrap()] {
            for node in [layout.node(0, 0).unwrap(), layout.node(1, 2).unwrap(), layout.node(3, 255).unwrap()]
            {
                for tick in [0, 1, 2, now_tick - 1, now_tick, now_tick + 1, layout.last_tick()] {
                    for sequence in [0, 1, 2, 4_095] {
                        let id = layout.compose(tick, node, sequence).unwrap();
                        let mut generator = Generator::new(layout, Grant::new(own, 1, 0), policy).unwrap();
                        let shared =
                            SharedGenerator::<AtomicU64>::new(layout, Grant::new(own, 1, 0), policy).unwrap();
                        let context = format!("{layout} {own:?}: {tick} {node:?} {sequence}");
                        let observed = generator.observe(id, T, u64::MAX);
                        assert_eq!(shared.observe(id, T, u64::MAX), observed, "{context}");
                        let minted = generator.mint(T + 2, &Bounds::OPEN, ONE).map(|run| run.first());
                        let also = shared.mint(T + 2, &Bounds::OPEN, ONE).map(|run| run.first());
                        assert_eq!(also, minted, "{context}");
                        let minted = minted.unwrap_or_else(|refusal| panic!("{context}: {refusal}"));
                        assert!(observed.is_err() || minted > id, "{context}: {minted}");
                    }
                }
            }
        }
    }
}

/// What may be observed, at the very edge: one's own last ID may, the next may not; a reserved bit never.
#[test]
fn observe_at_the_edge() {
    let layout = Layout::HYBRID;
    let mut generator = generator(layout, Policy::HYBRID, 0);
    let last = generator.mint(T, &Bounds::OPEN, NonZeroU32::new(5).unwrap()).unwrap().last().unwrap();
    let tick = T - layout.epoch_unix_ms();
    let next = layout.compose(tick, generator.node(), 5).unwrap();
    assert_eq!(generator.observe(last, T, u64::MAX), Ok(()));
    assert_eq!(generator.observe(next, T, u64::MAX), Err(ObserveError::NotIssued));
    let other = layout.compose(tick, layout.node(1, 3).unwrap(), 7).unwrap();
    let reserved = snowmint_core::Id::new(other.get() | 1 << 63);
    assert_eq!(generator.observe(reserved, T, u64::MAX), Err(ObserveError::NotOfLayout));
    assert_eq!(generator.mint(T, &Bounds::OPEN, ONE).unwrap().first(), next, "nothing was touched");
}

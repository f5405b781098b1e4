//! The seven failures that are injected by name.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Mutex;

use snowmint_core::{AtomicGenerator, Bounds, Generator, Grant, Id, Layout, Policy, Refusal, Run, Wait};
use snowmint_lease::{
    ClusterRecord, Event, Keeper, KeeperConfig, Loss, MemoryStore, Notice, Now, Owner, Reply, Request,
    Stopped, Then, init, perform, step,
};
use snowmint_sim::{BEGIN_MS, Clocks, Fault, Load, Network, Scenario, Shape, Step, WallClock, World};

const LAYOUT: Layout = Layout::SNOWMINT;

fn ids(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap()
}

fn grant(worker: u32) -> Grant {
    Grant::new(LAYOUT.node(1, worker).unwrap(), 1, 0)
}

fn generator(worker: u32) -> Generator {
    Generator::new(LAYOUT, grant(worker), Policy::CLASSIC).unwrap()
}

/// Mints one ID by a clock at `true_ms` of true time.
fn mint(generator: &mut Generator, clock: &WallClock, true_ms: u64) -> Result<Id, Refusal> {
    generator.mint(clock.now_ms(true_ms * 1_000), &Bounds::OPEN, ids(1)).map(|run| run.first())
}

fn all(run: Run) -> impl Iterator<Item = u64> {
    run.into_iter().map(u64::from)
}

#[test]
fn injection_1_a_frozen_millisecond_and_its_4097th_id() {
    // Shows that a millisecond that does not end holds 4,096 IDs, that every later call is refused with the wait, and
    // that nothing is sticky: minting goes on with the clock.
    let frozen = Shape::Frozen { from_us: 0, until_us: 1_000_000 };
    let clock = WallClock { shape: frozen, ..WallClock::steady(BEGIN_MS) };
    let mut generator = generator(7);
    let minted: BTreeSet<_> = (0..4_096).map(|_| mint(&mut generator, &clock, 500).unwrap()).collect();
    assert_eq!(minted.len(), 4_096);
    for _ in 0..10 {
        assert_eq!(mint(&mut generator, &clock, 900), Err(Refusal::Exhausted { wait_ms: 1 }));
    }
    let next = mint(&mut generator, &clock, 1_000).unwrap();
    assert!(next > *minted.last().unwrap());
}

#[test]
fn injection_2_concurrent_callers() {
    // Shows that threads that share a generator share its milliseconds: each ID once, each thread's in order, and of
    // a frozen millisecond 4,096 in all.
    for seed in 0..20 {
        let shared = AtomicGenerator::new(LAYOUT, grant(7), Policy::CLASSIC).unwrap();
        let minted = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..4_u32 {
                let (shared, minted) = (&shared, &minted);
                scope.spawn(move || {
                    let mut own = Vec::new();
                    for ms in 0..50 {
                        while let Ok(run) = shared.mint(BEGIN_MS + ms, &Bounds::OPEN, ids(1 + thread * 7)) {
                            own.extend(all(run));
                        }
                    }
                    assert!(own.is_sorted(), "seed {seed}");
                    minted.lock().unwrap().extend(own);
                });
            }
        });
        let minted = minted.into_inner().unwrap();
        let distinct: BTreeSet<_> = minted.iter().collect();
        assert_eq!(distinct.len(), minted.len(), "seed {seed}");
        let decode = |id: &u64| LAYOUT.decode(Id::new(*id)).tick;
        let last = minted.iter().map(decode).max().unwrap();
        assert_eq!(minted.iter().filter(|id| decode(id) == last).count(), 4_096, "seed {seed}");
    }
}

#[test]
fn injection_3_a_rollback_by_1_5_and_2000_ms() {
    // Shows what each size of step brings, with a longest wait of 5 ms: 1 and 5 ms are waited out, 2,000 ms are not
    // worth waiting and time out at once, with the size of the step in the refusal (the alert). The worker that is
    // removed for it gives its code back at what it reserved, and takes another, by which the same clock can mint.
    let budget_ms = u64::from(Policy::CLASSIC.wait_ms_max);
    for (back_ms, is_waited_out) in [(1, true), (5, true), (2_000, false)] {
        let steps = vec![Step { at_us: 10_000_000, by_us: -1_000 * back_ms }];
        let clock = WallClock { shape: Shape::Stepping { steps }, ..WallClock::steady(BEGIN_MS) };
        let by_ms = back_ms.unsigned_abs();
        let mut generator = generator(7);
        // Just before the step, so that it takes the clock back by its whole length.
        let last = generator.mint(clock.now_ms(9_999_999) + 1, &Bounds::OPEN, ids(9)).unwrap();
        let refusal = mint(&mut generator, &clock, 10_000).unwrap_err();
        assert_eq!(refusal, Refusal::ClockRolledBack { by_ms, wait_ms: by_ms });
        assert_eq!(refusal.wait(), Wait::Ms(by_ms));
        assert_eq!(refusal.is_worth_waiting(budget_ms), is_waited_out, "{back_ms} ms");
        assert_eq!(refusal.reason(), "clock-rolled-back");
        // Waited out or not, the generator is as it was: it goes on where the clock is where it was.
        let next = mint(&mut generator, &clock, 10_000 + by_ms).unwrap();
        assert!(next > last.last().unwrap());
    }
    let mut fleet = Fleet::new("reserved:8 timestamp:41 region:2 worker:1 sequence:12");
    let at = |wall_ms, boot_ms| Now { boot_ms, wall_ms, clock_error_ms: 1 };
    let mut keeper = fleet.keeper("removed");
    fleet.step(&mut keeper, Event::Time, at(BEGIN_MS, 50_000));
    let first = keeper.take_grant(50_000).unwrap();
    let (ticket, node) = (first.ticket(), first.node());
    let mut generator = Generator::new(fleet.layout, first, Policy::CLASSIC).unwrap();
    let run = generator.mint(BEGIN_MS, &bounds(&keeper, 50_000), ids(9)).unwrap();
    let back = at(BEGIN_MS - 2_000, 50_100);
    let refusal = generator.mint(back.wall_ms, &bounds(&keeper, 50_100), ids(9)).unwrap_err();
    assert!(!refusal.is_worth_waiting(budget_ms));
    let stopped = Some(Stopped { ticket, last_reserved_ms: generator.stop().unwrap() });
    fleet.step(&mut keeper, Event::Release { stopped, then: Then::Acquire }, back);
    let second = keeper.take_grant(50_100).unwrap();
    assert_ne!(second.node(), node);
    let mut generator = Generator::new(fleet.layout, second, Policy::CLASSIC).unwrap();
    let other = generator.mint(back.wall_ms, &bounds(&keeper, 50_100), ids(9)).unwrap();
    let before: BTreeSet<_> = all(run).collect();
    assert!(all(other).all(|id| !before.contains(&id)));
}

/// Keepers over one store.
struct Fleet {
    layout: Layout,
    store: MemoryStore,
    nonces: u128,
}

impl Fleet {
    fn new(fields: &str) -> Self {
        let layout: Layout = format!("{fields} epoch-ms:1735689600000 tick-ns:1000000").parse().unwrap();
        let store = MemoryStore::new();
        init(&store, &ClusterRecord::new(1, layout, 0).unwrap()).unwrap();
        Self { layout, store, nonces: 0 }
    }

    fn keeper(&self, name: &str) -> Keeper {
        Keeper::new(KeeperConfig::embedded(self.layout, 0, Owner::new(name).unwrap())).unwrap()
    }

    /// One step at one moment.
    fn step(&mut self, keeper: &mut Keeper, event: Event, now: Now) -> Vec<Notice> {
        let nonces = &mut self.nonces;
        let mut nonce = || {
            *nonces += 1;
            *nonces
        };
        step(keeper, event, &self.store, &mut || now, &mut nonce).notices
    }
}

fn bounds(keeper: &Keeper, boot_ms: u64) -> Bounds {
    let view = keeper.view().unwrap();
    let ceiling_ms = keeper.ceiling_ms(view.ticket, boot_ms);
    Bounds { ceiling_ms, mark_ms: view.end_ms, clock_error_ms: 1 }
}

#[test]
fn injection_4_a_paused_owner_fenced_by_its_successor() {
    // Shows an owner that stands still between the check of its bounds and the issue, for as long as it takes another
    // to take its code: what it issues by them when it goes on lies in its own range, what the successor issued in
    // another; its renewal conflicts, and it mints nothing more. F11.
    let mut fleet = Fleet::new("reserved:9 timestamp:41 region:2 sequence:12");
    let at = |ms| Now { boot_ms: 50_000 + ms, wall_ms: BEGIN_MS + ms, clock_error_ms: 1 };
    let mut owner = fleet.keeper("owner");
    fleet.step(&mut owner, Event::Time, at(0));
    let grant = owner.take_grant(50_000).unwrap();
    let ticket = grant.ticket();
    let paused = AtomicGenerator::new(fleet.layout, grant, Policy::CLASSIC).unwrap();
    let checked = bounds(&owner, 50_900);

    let mut successor = fleet.keeper("successor");
    let mut ms = 0;
    let taken = loop {
        fleet.step(&mut successor, Event::Time, at(ms));
        if let Some(grant) = successor.take_grant(50_000 + ms) {
            break grant;
        }
        ms += 100;
        assert!(ms < 10_000, "the successor never got the code");
    };
    assert!(ms >= 1_500, "the code was taken after {ms} ms, before a whole TTL of silence");
    assert!(taken.floor_ms() >= checked.ceiling_ms);
    let successor_bounds = bounds(&successor, 50_000 + ms);
    let mut fresh = Generator::new(fleet.layout, taken, Policy::CLASSIC).unwrap();
    let theirs: BTreeSet<_> =
        all(fresh.mint(BEGIN_MS + ms, &successor_bounds, ids(4_096)).unwrap()).collect();

    // It goes on: by the clock that it read, and by the clock of now.
    let late = paused.mint(BEGIN_MS + 900, &checked, ids(4_096)).unwrap();
    assert!(all(late).all(|id| !theirs.contains(&id)));
    let refusal = paused.mint(BEGIN_MS + ms, &checked, ids(1)).unwrap_err();
    assert_eq!(refusal, Refusal::Ceiling { ceiling_ms: checked.ceiling_ms });
    assert_eq!(owner.ceiling_ms(ticket, 50_000 + ms), 0);
    // Its renewal reads before it writes, and learns that it is over.
    let notices = fleet.step(&mut owner, Event::Time, at(ms));
    let is_lost = |notice: &Notice| matches!(notice, Notice::Lost { loss: Loss::Superseded { .. }, .. });
    assert!(notices.iter().any(is_lost), "{notices:?}");
    assert_eq!(owner.ceiling_ms(ticket, 50_000 + ms), 0);
}

#[test]
fn injection_5_four_times_200_workers_in_one_frozen_millisecond() {
    // Shows the whole fleet in one millisecond that never ends: 4 regions of 200 workers mint 4,096 IDs each, and not
    // one more, none twice.
    let scenario = Scenario {
        regions: 4,
        leased: 200,
        // Every worker has its code by then, and has asked for more than the millisecond holds.
        run_ms: 20_000,
        window_ms: 10_000,
        load: Load { every_us: 100_000, runs: 1, ids_max: 4_096, is_even: true },
        clocks: Clocks::All(Shape::Frozen { from_us: 0, until_us: u64::MAX }),
        ..Scenario::quiet(9)
    };
    let mut world = World::new(scenario);
    world.run();
    assert_eq!(world.violation(), None, "seed 9");
    let summary = world.summary();
    assert_eq!((summary.ids, summary.duplicates), (4 * 200 * 4_096, 0), "{summary}");
    assert_eq!(summary.grants, 800, "{summary}");
    assert!(summary.refusals["exhausted"] > 800, "{summary}");
}

#[test]
fn injection_6_an_isolated_lease_service() {
    // Shows one worker whose store answers nothing any more: the ceiling stays where it was confirmed until the
    // deadline, and is 0 from then on; the generator refuses, and says that the lease is lost. When the store is back
    // the record is still its own, and the same generator goes on.
    let mut fleet = Fleet::new("reserved:8 timestamp:41 region:2 worker:1 sequence:12");
    let at = |ms| Now { boot_ms: 50_000 + ms, wall_ms: BEGIN_MS + ms, clock_error_ms: 1 };
    let mut keeper = fleet.keeper("isolated");
    fleet.step(&mut keeper, Event::Time, at(0));
    let grant = keeper.take_grant(50_000).unwrap();
    let mut generator = Generator::new(fleet.layout, grant, Policy::CLASSIC).unwrap();
    for ms in 0..1_000 {
        let output = keeper.handle(Event::Time, &at(ms), u128::from(ms) << 64);
        // Whatever it asks for is lost.
        drop(output);
        assert!(generator.mint(BEGIN_MS + ms, &bounds(&keeper, 50_000 + ms), ids(1)).is_ok(), "{ms} ms");
    }
    for ms in 1_000..5_000 {
        drop(keeper.handle(Event::Time, &at(ms), u128::from(ms) << 64));
        let refusal = generator.mint(BEGIN_MS + ms, &bounds(&keeper, 50_000 + ms), ids(1));
        assert_eq!(refusal, Err(Refusal::LeaseLost), "{ms} ms");
    }
    for ms in 5_000..6_000 {
        let mut output = keeper.handle(Event::Time, &at(ms), u128::from(ms) << 64);
        while let Some((id, request)) = output.request {
            let request: Request = request;
            let reply: Reply = perform(&fleet.store, &request);
            fleet.nonces += 1;
            output = keeper.handle(Event::Reply { id, reply }, &at(ms), fleet.nonces);
        }
    }
    assert!(generator.mint(BEGIN_MS + 6_000, &bounds(&keeper, 56_000), ids(1)).is_ok());
}

#[test]
fn injection_7_the_last_millisecond_of_41_bits_and_the_one_after() {
    // Shows that tick 2^41 - 1 holds its 4,096 IDs, all positive; that the next millisecond is refused, and every
    // later one, whatever the lead; and that a clock set back to before the end mints nothing twice. F7.
    let last_tick = (1_u64 << 41) - 1;
    let last_ms = LAYOUT.epoch_unix_ms() + last_tick;
    assert_eq!(LAYOUT.last_ms(), last_ms);
    let clock = WallClock::steady(last_ms);
    for policy in [Policy::CLASSIC, Policy::HYBRID] {
        let mut generator = Generator::new(LAYOUT, grant(7), policy).unwrap();
        let run = generator.mint(clock.now_ms(0), &Bounds::OPEN, ids(5_000)).unwrap();
        assert_eq!(run.count(), 4_096);
        let last = run.last().unwrap();
        assert_eq!(LAYOUT.decode(last).tick, last_tick);
        assert!(i64::try_from(last.get()).is_ok_and(|id| id > 0));
        let ended = Err(Refusal::LayoutEnded { last_ms });
        for after_ms in [0, 1, 2, 1_000, 3_600_000, 1 << 42] {
            assert_eq!(mint(&mut generator, &clock, after_ms), ended, "{after_ms} ms after");
        }
        assert_eq!(Refusal::LayoutEnded { last_ms }.wait(), Wait::Never);
        // Set back: nothing is left to mint, and nothing is minted twice.
        let back = generator.mint(last_ms - 60_000, &Bounds::OPEN, ids(1));
        assert!(
            matches!(back, Err(Refusal::LayoutEnded { .. } | Refusal::ClockRolledBack { .. })),
            "{back:?}"
        );
    }
}

#[test]
fn f15_a_worker_eight_hours_ahead_spoils_no_code_among_three_peers_and_one_at_most_where_there_are_fewer() {
    // F15: shows one worker of a region whose clock is set 8 h ahead and does not say so, from its start or later, among
    // 0 to 7 others, over messages that are lost, with releases: nothing is raised that peers could have seen (the rule
    // `Agreement`, in every world); among plenty of peers no code is spoilt at all; and where nobody can tell it, one is,
    // however often it gives that back.
    let by_us = 8 * 3_600_000_000;
    for seed in 0..120 {
        let peers = u32::try_from(seed % 8).unwrap();
        let is_late = seed % 3 > 0;
        // Where the others begin at the same time as it, it may be before them: it is set once they are there.
        let at_us = if is_late || peers >= 3 { 5_000_000 } else { 0 };
        let scenario = Scenario {
            leased: peers + 1,
            clocks: Clocks::OneSet(Step { at_us, by_us }),
            compares_clocks: true,
            run_ms: 40_000,
            load: Load { every_us: 10_000, runs: 1, ids_max: 10, is_even: true },
            // All of it is short of what makes peers silent for the time between two scans.
            network: Network {
                lost_per_mille: if is_late { 20 } else { 0 },
                ..Scenario::quiet(seed).network
            },
            fault_every_ms: 2_000,
            faults: vec![Fault::Release],
            ..Scenario::quiet(seed)
        };
        let mut world = World::new(scenario);
        world.run();
        assert_eq!(world.violation(), None, "seed {seed}");
        let spoilt = world.codes_above(0, BEGIN_MS + 3_600_000);
        // What is lost on the way may be a release: then it takes another code while the first expires.
        assert!(spoilt <= if is_late { 2 } else { 1 }, "seed {seed}: {spoilt} codes, {peers} peers");
        if peers >= 6 {
            assert_eq!(spoilt, 0, "seed {seed}: {peers} peers");
        }
        if peers < 2 && at_us == 0 {
            assert_eq!(spoilt, 1, "seed {seed}: nobody told it");
        }
    }
}

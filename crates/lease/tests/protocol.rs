//! Each operation of the protocol, as a table.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

use snowmint_core::{Layout, NS_PER_MS};
use snowmint_lease::protocol::{
    Bid, Choice, Holder, Watch, acquire, choose, expire, expire_alone, fence, found, free, recover, release,
    renew, ttl_ms,
};
use snowmint_lease::{
    ClusterRecord, CodeRecord, LeaseRefusal, MemoryStore, NoneLeft, Now, Owner, Revision, State, Stored,
    init, store,
};

const T: u64 = 1_750_000_000_000;
const WINDOW_MS: u32 = 1_000;

fn owner() -> Owner {
    Owner::new("me").unwrap()
}

fn cluster() -> ClusterRecord {
    ClusterRecord::new(1, Layout::SNOWMINT, 0).unwrap()
}

fn at(wall_ms: u64) -> Now {
    Now { boot_ms: 0, wall_ms, clock_error_ms: 5 }
}

/// A code of this state, used up to `end_ms`.
fn code(state: State, end_ms: u64) -> CodeRecord {
    CodeRecord {
        state,
        term: 3,
        owner: Some(Owner::new("former").unwrap()),
        floor_ms: end_ms.min(T),
        end_ms,
        stamp_ms: T,
        clock_error_ms: 5,
        ttl_ms: 1_500,
        not_again_before_ms: 0,
        nonce: 33,
    }
}

fn take(
    record: &CodeRecord,
    cluster: &ClusterRecord,
    lead_ms: u32,
    now: &Now,
) -> Result<CodeRecord, LeaseRefusal> {
    acquire(record, cluster, &Bid { owner: &owner(), window_ms: WINDOW_MS, lead_ms }, now, 44)
}

#[test]
fn acquire_takes_what_can_mint_now() {
    // Shows which codes are granted at T, from which floor and to which end, and why the others are not.
    let former = Some(Owner::new("former").unwrap());
    let not_free = |state| Err(LeaseRefusal::NotFree { state, owner: former.clone() });
    let not_yet = |floor_ms, wait_ms| Err(LeaseRefusal::NotYet { floor_ms, wait_ms });
    let quarantined =
        |end_ms, until_ms| CodeRecord { not_again_before_ms: until_ms, ..code(State::Expired, end_ms) };
    let plain = cluster();
    let recovered = ClusterRecord { not_before_ms: T - 7, generation: 2, ..cluster() };
    let recovering = ClusterRecord { not_before_ms: T + 7, generation: 2, ..cluster() };
    let cut_over = ClusterRecord { cutover_last_ms: Some(T + 300), ..cluster() };
    let ended = ClusterRecord { cutover_last_ms: Some(T - 1), ..cluster() };
    let whole = |floor_ms| Ok((floor_ms, T + 1_000));
    for (record, cluster, lead_ms, expected) in [
        (CodeRecord::UNUSED, &plain, 0, whole(0)),
        (code(State::Free, T - 1), &plain, 0, whole(T - 1)),
        (code(State::Expired, T - 1), &plain, 0, whole(T - 1)),
        (code(State::Active, T - 1), &plain, 0, not_free(State::Active)),
        (code(State::Fenced, T - 1), &plain, 0, not_free(State::Fenced)),
        // The clock must be past the end, or within the lead of it.
        (code(State::Free, T), &plain, 0, not_yet(T, 1)),
        (code(State::Free, T + 99), &plain, 0, not_yet(T + 99, 100)),
        // A window above the lead: what the generator may stamp now is not the end of it.
        (code(State::Free, T + 99), &plain, 100, Ok((T + 99, T + 1_100))),
        (code(State::Free, T + 100), &plain, 100, not_yet(T + 100, 1)),
        (code(State::Free, T + 2_000), &plain, 3_000, Ok((T + 2_000, T + 4_000))),
        // A quarantine must be past by both clocks' errors, 5 ms each.
        (quarantined(T - 50, T - 11), &plain, 0, whole(T - 50)),
        (
            quarantined(T - 50, T - 10),
            &plain,
            0,
            Err(LeaseRefusal::Quarantined { until_ms: T - 10, wait_ms: 1 }),
        ),
        // A recovery raises every floor.
        (CodeRecord::UNUSED, &recovered, 0, whole(T - 7)),
        (code(State::Free, T - 1), &recovered, 0, whole(T - 1)),
        (CodeRecord::UNUSED, &recovering, 0, not_yet(T + 7, 8)),
        // A cut-over clamps every end.
        (CodeRecord::UNUSED, &cut_over, 0, Ok((0, T + 300))),
        (CodeRecord::UNUSED, &ended, 0, Err(LeaseRefusal::LayoutEnded { last_ms: T - 1 })),
        (CodeRecord { term: u32::MAX, ..code(State::Free, 0) }, &plain, 0, Err(LeaseRefusal::TermsEnded)),
    ] {
        let taken = take(&record, cluster, lead_ms, &at(T));
        assert_eq!(
            taken.as_ref().map(|it| (it.floor_ms, it.end_ms)).map_err(Clone::clone),
            expected,
            "{record:?}"
        );
        if let Ok(taken) = taken {
            assert!(taken.is_valid() && taken.end_ms >= record.end_ms && taken.floor_ms >= record.end_ms);
            assert_eq!((taken.state, taken.term, taken.nonce), (State::Active, record.term + 1, 44));
            assert_eq!((taken.ttl_ms, taken.owner, taken.stamp_ms), (1_500, Some(owner()), T));
        }
    }
    assert_eq!(ttl_ms(u32::MAX), u32::MAX);
}

#[test]
fn renew_never_lowers_an_end() {
    // Shows how far a renewal reaches, also by a clock that was set back or is not believed, and at a cut-over.
    let holder = Holder { term: 3, nonce: 33 };
    let plain = cluster();
    let cut_over = ClusterRecord { cutover_last_ms: Some(T + 300), ..cluster() };
    for (end_ms, cluster, window_ms, wall_ms, expected) in [
        (T + 500, &plain, WINDOW_MS, T, T + 1_000),
        (T + 500, &plain, WINDOW_MS, T - 3_600_000, T + 500),
        (T + 500, &plain, 0, T + 9_000, T + 500),
        (T + 100, &cut_over, WINDOW_MS, T, T + 300),
        (T + 500, &cut_over, WINDOW_MS, T, T + 500),
        (T + 500, &plain, WINDOW_MS, u64::MAX, Layout::SNOWMINT.last_ms()),
    ] {
        let record = code(State::Active, end_ms);
        let renewed = renew(&record, cluster, holder, u64::from(window_ms), &at(wall_ms), 44).unwrap();
        assert_eq!(renewed, CodeRecord { end_ms: expected, stamp_ms: wall_ms, nonce: 44, ..record });
    }
}

#[test]
fn only_the_holder_renews_and_releases() {
    // Shows that term, nonce and state must all be the grant's own.
    for (state, term, nonce, is_holder) in [
        (State::Active, 3, 33, true),
        (State::Active, 2, 33, false),
        (State::Active, 3, 34, false),
        (State::Expired, 3, 33, false),
        (State::Fenced, 3, 33, false),
        (State::Free, 3, 33, false),
    ] {
        let record = code(state, T + 500);
        let holder = Holder { term, nonce };
        let renewed = renew(&record, &cluster(), holder, WINDOW_MS.into(), &at(T), 44);
        let released = release(&record, holder, T, &at(T), 44);
        assert_eq!((renewed.is_ok(), released.is_ok()), (is_holder, is_holder), "{state} {term} {nonce}");
        if let Err(refusal) = renewed {
            assert_eq!(refusal, LeaseRefusal::NotHolder { state, term: 3 });
        }
    }
}

#[test]
fn release_lowers_the_end_to_what_was_reserved() {
    // Shows the one way in which an end falls, and that it stays within what was granted whatever a holder says.
    let record = CodeRecord { floor_ms: T + 100, ..code(State::Active, T + 500) };
    let holder = Holder { term: 3, nonce: 33 };
    for (last_reserved_ms, end_ms) in [
        (T + 250, T + 250),
        (T + 100, T + 100),
        (0, T + 100),
        (T + 500, T + 500),
        (T + 501, T + 500),
        (u64::MAX, T + 500),
    ] {
        let released = release(&record, holder, last_reserved_ms, &at(T), 44).unwrap();
        assert_eq!((released.state, released.end_ms, released.term), (State::Free, end_ms, 3));
        assert!(released.is_valid());
    }
}

#[test]
fn a_holder_expires_after_a_whole_ttl_of_silence_that_was_watched() {
    // Shows what a watch counts: only time between two reads in a row that succeeded, at most a third of the TTL
    // between them, from zero again at each new nonce. Reads are `(sent, replied)` on the watcher's own clock.
    enum Seen {
        Same(u64, u64),
        Other(u64, u64),
        Failed,
    }
    use Seen::{Failed, Other, Same};
    let beating = CodeRecord { nonce: 34, ..code(State::Active, T) };
    for (seen, silent_ms) in [
        (vec![], 0),
        (vec![Same(0, 10)], 0),
        (vec![Same(0, 10), Same(300, 310)], 290),
        (vec![Same(0, 10), Same(300, 310), Same(600, 610)], 580),
        (vec![Same(0, 10), Failed, Same(300, 310), Same(600, 610)], 290),
        (vec![Same(0, 10), Same(300, 310), Failed, Same(900, 900), Same(1_000, 1_000)], 390),
        (vec![Same(0, 10), Same(300, 310), Other(500, 510)], 0),
        (vec![Same(0, 10), Other(100, 110), Same(500, 510)], 0),
        // The watcher slept for an hour: it has seen nothing of it.
        (vec![Same(0, 10), Same(3_600_000, 3_600_010)], 500),
        (vec![Same(0, 0), Same(500, 500), Same(1_000, 1_000), Same(1_500, 1_500)], 1_500),
    ] {
        let record = code(State::Active, T);
        let mut watch = Watch::new();
        for seen in &seen {
            match *seen {
                Same(sent, replied) => watch.saw(&record, sent, replied),
                Other(sent, replied) => watch.saw(&beating, sent, replied),
                Failed => watch.missed(),
            }
        }
        if !matches!(seen.last(), Some(Other(..))) {
            assert_eq!(watch.silent_ms(&record), silent_ms);
        }
        let expired = expire(&record, &watch, 0, &at(T), 44);
        assert_eq!(expired.is_ok(), silent_ms >= 1_500);
        match expired {
            Ok(expired) => assert_eq!((expired.state, expired.end_ms, expired.term), (State::Expired, T, 3)),
            Err(refusal) => {
                let silent_ms = watch.silent_ms(&record);
                assert_eq!(refusal, LeaseRefusal::NotSilent { silent_ms, ttl_ms: 1_500 });
            }
        }
    }
    for state in [State::Free, State::Expired, State::Fenced] {
        let not_held = Err(LeaseRefusal::NotHeld { state });
        assert_eq!(expire(&code(state, T), &Watch::new(), 0, &at(T), 44), not_held);
        assert_eq!(expire_alone(&code(state, T), 0, &at(T), 44), not_held);
    }
    let alone = expire_alone(&code(State::Active, T), 60_000, &at(T), 44).unwrap();
    assert_eq!((alone.state, alone.end_ms, alone.not_again_before_ms), (State::Expired, T, T + 60_000));
}

#[test]
fn a_fence_takes_the_code_and_keeps_its_end() {
    // Shows that a fence ends any grant, whatever the state, and never touches the end.
    for state in [State::Free, State::Active, State::Expired, State::Fenced] {
        let fenced = fence(&code(state, T + 500), 60_000, &at(T), 44);
        assert_eq!((fenced.state, fenced.term, fenced.end_ms, fenced.nonce), (State::Fenced, 4, T + 500, 44));
        assert_eq!(fenced.not_again_before_ms, T + 60_000);
        let holder = Holder { term: 3, nonce: 33 };
        assert!(renew(&fenced, &cluster(), holder, WINDOW_MS.into(), &at(T), 45).is_err());
    }
}

#[test]
fn acquire_compares_ticks() {
    // Shows that within a long tick, where the clock is past the floor but a generator cannot mint, a code is not taken;
    // and from the next tick's first millisecond on it is.
    let layout = cluster().layout;
    let epoch_ms = layout.epoch_unix_ms();
    for tick_ms in [10, 256, 10_000] {
        let layout = Layout::new(layout.fields(), epoch_ms, tick_ms * NS_PER_MS).unwrap();
        let cluster = ClusterRecord { layout, ..cluster() };
        let first_ms = epoch_ms + 50_000 * tick_ms;
        for offset_ms in [0, 1, tick_ms / 2, tick_ms - 1] {
            let record = code(State::Free, first_ms + offset_ms);
            let wait_ms = take(&record, &cluster, 0, &at(first_ms + tick_ms - 1)).unwrap_err().wait_ms();
            assert_eq!(wait_ms, Some(1));
            assert!(take(&record, &cluster, 0, &at(first_ms + tick_ms)).is_ok());
        }
    }
}

#[test]
fn free_waits_out_the_quarantine_and_keeps_the_end() {
    // Shows who is freed, and that the quarantine must be past by more than both clocks' errors.
    let fenced = CodeRecord { not_again_before_ms: T, ..code(State::Fenced, T + 500) };
    for (record, now, expected) in [
        (code(State::Expired, T + 500), at(T), Ok(T + 500)),
        (fenced.clone(), at(T + 11), Ok(T + 500)),
        (fenced.clone(), at(T + 10), Err(Some(1))),
        // An unknown error counts as none: a code is not lost for the 49 days of the largest number.
        (fenced.clone(), Now { clock_error_ms: u32::MAX, ..at(T + 6) }, Ok(T + 500)),
        (fenced.clone(), Now { clock_error_ms: u32::MAX, ..at(T + 5) }, Err(Some(1))),
        (code(State::Free, T), at(T), Err(None)),
        (code(State::Active, T), at(T), Err(None)),
    ] {
        let freed = free(&record, &now, 44);
        assert_eq!(freed.as_ref().map(|it| it.end_ms).map_err(LeaseRefusal::wait_ms), expected, "{record:?}");
        assert!(freed.is_err() || freed.is_ok_and(|freed| freed.state == State::Free));
    }
}

#[test]
fn a_recovery_raises_the_generation_above_what_was_forgotten() {
    // Shows that `not_before` only rises, and lies a window ahead at least.
    for (before_ms, wished_ms, expected) in
        [(0, 0, T + 1_000), (0, T + 5_000, T + 5_000), (T + 9_000, T + 5_000, T + 9_000)]
    {
        let before = ClusterRecord { not_before_ms: before_ms, ..cluster() };
        let after = recover(&before, wished_ms, WINDOW_MS, &at(T)).unwrap();
        assert_eq!(after, ClusterRecord { generation: 2, not_before_ms: expected, ..before });
    }
    let last = ClusterRecord { generation: u16::MAX, ..cluster() };
    assert_eq!(recover(&last, 0, WINDOW_MS, &at(T)), Err(LeaseRefusal::GenerationsEnded));
    // It could never be lowered again: a time above the layout's end, as of a slip of units, is refused.
    let last_ms = cluster().layout.last_ms();
    assert!(recover(&cluster(), last_ms - 1, WINDOW_MS, &at(T)).is_ok());
    for not_before_ms in [last_ms, T * 1_000, u64::MAX] {
        let refusal = Err(LeaseRefusal::NotBeforeTooLate { not_before_ms, last_ms });
        assert_eq!(recover(&cluster(), not_before_ms, WINDOW_MS, &at(T)), refusal);
    }
}

#[test]
fn no_recovery_from_a_backup_of_whatever_age_brings_a_generation_back() {
    // Shows, for every order of restoring three backups made between recoveries, that each recovery that is told the
    // highest generation known makes one that never was, and so tickets that never were.
    for order in [[0, 0, 0], [0, 1, 2], [2, 1, 0], [1, 0, 1], [0, 2, 0], [2, 2, 1]] {
        let store = MemoryStore::new();
        init(&store, &cluster()).unwrap();
        let mut backups = vec![store.backup()];
        for _ in 0..2 {
            store::recover(&store, T, WINDOW_MS, &at(T)).unwrap().unwrap();
            backups.push(store.backup());
        }
        let mut known = 3;
        for backup in order {
            store.restore(&backups[backup]);
            let recovered = store::recover_after(&store, known, T, WINDOW_MS, &at(T)).unwrap().unwrap();
            assert_eq!(recovered.generation, known + 1, "{order:?}");
            known = recovered.generation;
        }
    }
}

#[test]
fn the_choice_is_the_highest_end_that_can_mint_now() {
    // Shows which code is chosen, and what the refusal says when none can be: F4, F15 (one bad clock spoils one code).
    let free_at = |end_ms| code(State::Free, end_ms);
    let quarantined = CodeRecord { not_again_before_ms: T + 90, ..code(State::Fenced, T - 50) };
    let freeable = CodeRecord { not_again_before_ms: T - 90, ..code(State::Fenced, T - 50) };
    let active = code(State::Active, T + 500);
    let wait = |active, wait_ms| Choice::Wait(NoneLeft { codes: 2, active, wait_ms, ended_last_ms: None });
    for (one, other, silent_ms, expected) in [
        (free_at(T - 9), free_at(T - 5), 0, Choice::Acquire { code: 1 }),
        (free_at(T - 5), free_at(T - 9), 0, Choice::Acquire { code: 0 }),
        // Poisoned by a clock 8 h fast: the other one is taken.
        (free_at(T + 28_800_000), free_at(0), 0, Choice::Acquire { code: 1 }),
        (free_at(T + 28_800_000), active.clone(), 0, wait(1, Some(28_800_001))),
        (free_at(T + 99), free_at(T + 49), 0, wait(0, Some(50))),
        (active.clone(), active.clone(), 0, wait(2, None)),
        (active.clone(), quarantined.clone(), 0, wait(1, Some(101))),
        (active.clone(), freeable.clone(), 9_999, Choice::Free { code: 1 }),
        (active.clone(), active.clone(), 1_499, wait(2, None)),
        (active.clone(), active.clone(), 1_500, Choice::Expire { code: 0 }),
        (active, free_at(T - 5), 9_999, Choice::Acquire { code: 1 }),
    ] {
        let stored = |record: &CodeRecord| Stored { record: record.clone(), revision: Revision::new(1) };
        let codes = [(0, stored(&one)), (1, stored(&other))];
        let owner = owner();
        let bid = Bid { owner: &owner, window_ms: WINDOW_MS, lead_ms: 0 };
        let chosen = choose(&codes, &cluster(), &bid, &at(T), |_, _| silent_ms, 0, 77);
        assert_eq!(chosen, expected, "{one:?} {other:?}");
    }
}

#[test]
fn a_fleet_that_starts_at_once_spreads() {
    // Shows that equals are drawn from by the nonce, and that after lost races more than the best are.
    let record = |end_ms| Stored { record: code(State::Free, end_ms), revision: Revision::new(1) };
    let equals: Vec<_> = (0..256).map(|code| (code, record(T - 5))).collect();
    let ranked: Vec<_> = (0..256).map(|code| (code, record(T - 5 - u64::from(code)))).collect();
    let owner = owner();
    let bid = Bid { owner: &owner, window_ms: WINDOW_MS, lead_ms: 0 };
    for (codes, tries, expected) in [(&equals, 0, 256), (&ranked, 0, 1), (&ranked, 3, 8), (&ranked, 60, 256)]
    {
        let chosen: std::collections::HashSet<_> = (0..2_560)
            .map(|nonce| match choose(codes, &cluster(), &bid, &at(T), |_, _| 0, tries, nonce) {
                Choice::Acquire { code } => code,
                choice => panic!("{choice:?}"),
            })
            .collect();
        assert_eq!(chosen.len(), expected);
    }
}

#[test]
fn a_wait_is_told_as_people_say_it() {
    // Shows the words for waits from milliseconds to days, rounded up.
    for (wait_ms, words) in [
        (1, "in 1 ms"),
        (9_999, "in 9999 ms"),
        (10_000, "in 10 s"),
        (59_001, "in 1 min 0 s"),
        (86_379, "in 1 min 27 s"),
        (3_600_000, "in 1 h 0 min"),
        (3_599_001, "in 1 h 0 min"),
        (86_279_822, "in 23 h 58 min"),
        (86_379_822, "in 1 d 0 h"),
        (86_400_000, "in 1 d 0 h"),
        (u64::MAX, "in 213503982334 d 15 h"),
    ] {
        let none = NoneLeft { codes: 2, active: 1, wait_ms: Some(wait_ms), ended_last_ms: None };
        assert!(none.to_string().ends_with(words), "{none}");
    }
}

#[test]
fn a_store_that_remembers_nothing_grants_nothing_within_the_reach_of_what_it_may_have_forgotten() {
    // Shows that the first grant of a place whose records were deleted begins above what a worker with this window and
    // lead may have been granted just before, and that a time that is given stands if it is later.
    let (lead_ms, window_ms) = (60_000, 10_000);
    let bid = Bid { owner: &owner(), window_ms, lead_ms };
    let forgotten = acquire(&CodeRecord::UNUSED, &cluster(), &bid, &at(T), 1).unwrap();
    let founded = found(&cluster(), window_ms + lead_ms, &at(T)).unwrap();
    let early = acquire(&CodeRecord::UNUSED, &founded, &Bid { lead_ms: 0, ..bid }, &at(forgotten.end_ms), 2);
    assert!(matches!(early, Err(LeaseRefusal::NotYet { .. })), "{early:?}");
    let grant = acquire(&CodeRecord::UNUSED, &founded, &bid, &at(forgotten.end_ms + 1), 3).unwrap();
    assert!(grant.floor_ms >= forgotten.end_ms);
    let later = ClusterRecord { not_before_ms: T + 1_000_000, ..cluster() };
    assert_eq!(found(&later, 5, &at(T)).unwrap().not_before_ms, T + 1_000_000);
    let last_ms = cluster().last_ms();
    assert_eq!(found(&cluster(), 5, &at(last_ms)), Err(LeaseRefusal::LayoutEnded { last_ms }));
}

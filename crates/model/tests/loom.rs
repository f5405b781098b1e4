//! The shared generator under loom: every order of a few threads' steps that the memory model allows.
#![allow(clippy::unwrap_used, clippy::panic)] // It is all test.

use std::num::NonZeroU32;
use std::sync::OnceLock;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use snowmint_core::{Bounds, CursorCell, Grant, Id, Layout, Policy, Refusal, SharedGenerator};

/// Loom's own atomic as a cursor, with the orderings that `AtomicU64` has in core.
struct LoomCell(AtomicU64);

impl CursorCell for LoomCell {
    fn new(cursor: u64) -> Self {
        Self(AtomicU64::new(cursor))
    }

    fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    fn compare_exchange(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.0.compare_exchange_weak(current, new, Ordering::AcqRel, Ordering::Acquire)
    }

    fn swap(&self, cursor: u64) -> u64 {
        self.0.swap(cursor, Ordering::AcqRel)
    }
}

type Shared = Arc<SharedGenerator<LoomCell>>;

const T: u64 = 1_750_000_000_000;

/// Two IDs a tick, so that ticks fill up.
fn layout() -> Layout {
    static LAYOUT: OnceLock<Layout> = OnceLock::new();
    *LAYOUT.get_or_init(|| {
        "reserved:1 timestamp:60 region:1 worker:1 sequence:1 epoch-ms:0 tick-ns:1000000".parse().unwrap()
    })
}

/// The layout's tick is a Unix millisecond.
fn time_ms(id: Id) -> u64 {
    layout().decode(id).tick
}

fn shared(policy: Policy) -> Shared {
    let grant = Grant::new(layout().node(1, 0).unwrap(), 1, T - 1);
    Arc::new(SharedGenerator::new(layout(), grant, policy).unwrap())
}

fn want(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap()
}

/// Mints at each of these times, up to `count` IDs, under the ceiling that stands then.
fn mint(shared: &Shared, times_ms: &[u64], count: u32, ceiling_ms: impl Fn() -> u64) -> Vec<Id> {
    let mut ids = Vec::new();
    for &now_ms in times_ms {
        let bounds = Bounds { ceiling_ms: ceiling_ms(), ..Bounds::OPEN };
        if let Ok(run) = shared.mint(now_ms, &bounds, want(count)) {
            ids.extend(run.into_iter().inspect(|&id| assert!(time_ms(id) <= bounds.ceiling_ms)));
        }
    }
    assert!(ids.is_sorted_by(|one, other| one < other), "the order fell within a thread");
    ids
}

fn assert_all_differ(of_threads: Vec<Vec<Id>>) -> Vec<Id> {
    let mut ids: Vec<_> = of_threads.into_iter().flatten().collect();
    ids.sort_unstable();
    assert!(ids.is_sorted_by(|one, other| one < other), "an ID twice");
    ids
}

#[test]
fn two_threads_share_ticks_that_advance() {
    // Shows, for every order of two threads whose clocks move on and back: no ID twice, none out of order in a thread.
    loom::model(|| {
        let generator = shared(Policy::CLASSIC);
        let other = Arc::clone(&generator);
        let thread = thread::spawn(move || mint(&other, &[T, T + 1], 1, || u64::MAX));
        let own = mint(&generator, &[T + 1, T], 2, || u64::MAX);
        assert_all_differ(vec![own, thread.join().unwrap()]);
    });
}

#[test]
fn three_threads_fill_a_tick_without_a_gap_or_a_repeat() {
    // Shows that of three threads that want one ID of a tick of two, two get one each, and the third is told why not.
    loom::model(|| {
        let generator = shared(Policy::CLASSIC);
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let generator = Arc::clone(&generator);
                thread::spawn(move || mint(&generator, &[T], 1, || u64::MAX))
            })
            .collect();
        let mut all = vec![mint(&generator, &[T], 1, || u64::MAX)];
        all.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
        assert_eq!(assert_all_differ(all).len(), 2);
        let refusal = generator.mint(T, &Bounds::OPEN, want(1));
        assert_eq!(refusal, Err(Refusal::Exhausted { wait_ms: 1 }));
    });
}

#[test]
fn a_ceiling_that_falls_to_0_is_never_passed() {
    // Shows that a thread that has seen the ceiling fall mints nothing more, while another is on its way.
    loom::model(|| {
        let generator = shared(Policy::CLASSIC);
        let ceiling = Arc::new(AtomicU64::new(T + 1));
        let (other, told) = (Arc::clone(&generator), Arc::clone(&ceiling));
        let thread =
            thread::spawn(move || mint(&other, &[T, T + 1, T + 2], 1, || told.load(Ordering::Acquire)));
        ceiling.store(0, Ordering::Release);
        let own = mint(&generator, &[T + 1], 1, || ceiling.load(Ordering::Acquire));
        assert!(own.is_empty());
        let others = thread.join().unwrap();
        assert!(others.iter().all(|&id| time_ms(id) <= T + 1));
    });
}

#[test]
fn nothing_is_minted_after_stop_and_stop_tells_of_all_that_was() {
    // Shows, for every order of a stop and two mints, one of which begins before it: what stop returns covers all that
    // was or ever will be issued, only one stop is told it, and the generator stays stopped.
    loom::model(|| {
        let generator = shared(Policy::CLASSIC);
        let other = Arc::clone(&generator);
        let thread = thread::spawn(move || mint(&other, &[T, T + 1], 1, || u64::MAX));
        let last_ms = generator.stop().unwrap();
        assert_eq!(generator.mint(T + 2, &Bounds::OPEN, want(1)), Err(Refusal::Stopped));
        let ids = thread.join().unwrap();
        assert!(ids.iter().all(|&id| time_ms(id) <= last_ms), "issued after stop");
        assert_eq!(generator.stop(), None);
        assert_eq!(generator.mint(T + 3, &Bounds::OPEN, want(1)), Err(Refusal::Stopped));
    });
    loom::model(stop_and_mint);
}

/// What `stop` returns covers all that another thread issues, before and after.
fn stop_and_mint() {
    let generator = shared(Policy::CLASSIC);
    let other = Arc::clone(&generator);
    let thread = thread::spawn(move || mint(&other, &[T, T + 1], 1, || u64::MAX));
    let last_ms = generator.stop().unwrap();
    let ids = thread.join().unwrap();
    assert!(ids.iter().all(|&id| time_ms(id) <= last_ms), "issued after stop");
    assert_eq!(generator.stop(), None);
    assert_eq!(generator.mint(T + 2, &Bounds::OPEN, want(1)), Err(Refusal::Stopped));
}

/// An observe never revives a generator that another thread stops.
fn stop_and_observe() {
    let generator = shared(Policy::HYBRID);
    let other = Arc::clone(&generator);
    let thread = thread::spawn(move || other.observe(Id::new((T + 3) << 3 | 1), T, u64::MAX));
    generator.stop().unwrap();
    let _ = thread.join().unwrap();
    assert_eq!(generator.mint(T + 9, &Bounds::OPEN, want(1)), Err(Refusal::Stopped));
}

#[test]
fn what_is_minted_after_an_observe_is_greater() {
    // Shows, for every order of an observe and a mint: no ID twice, the observing thread's next ID is greater than what
    // it observed, and an observe never revives a generator that another thread stopped.
    loom::model(|| {
        let generator = shared(Policy::HYBRID);
        let foreign = Id::new((T + 3) << 3 | 1);
        let other = Arc::clone(&generator);
        let thread = thread::spawn(move || mint(&other, &[T, T + 1], 1, || u64::MAX));
        generator.observe(foreign, T, u64::MAX).unwrap();
        let own = mint(&generator, &[T], 1, || u64::MAX);
        assert!(own.iter().all(|id| *id > foreign) && own.len() == 1);
        assert_all_differ(vec![own, thread.join().unwrap()]);
    });
    loom::model(stop_and_observe);
}

/// What a broken rule does in some order: the message of the first assertion that fails.
#[cfg(snowmint_mutations)]
fn broken(mutation: snowmint_core::mutation::Mutation, run: fn()) -> Option<String> {
    // Loom's threads are all this one, which is the test's own.
    snowmint_core::mutation::set(Some(mutation));
    let result = std::panic::catch_unwind(|| loom::model(run));
    snowmint_core::mutation::set(None);
    let payload = result.err()?;
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()))
}

#[cfg(snowmint_mutations)]
#[test]
fn a_stop_that_is_a_flag_and_one_that_is_undone_are_caught() {
    // Shows that each of the two broken rules of stopping fails in some order of two threads, by the assertion that is
    // about it, and that neither does so where nothing is broken.
    use snowmint_core::mutation::Mutation;
    for (mutation, run, message) in [
        (Mutation::StopAsFlag, stop_and_mint as fn(), "issued after stop"),
        (Mutation::StopUndone, stop_and_observe, "Stopped"),
    ] {
        let broken = broken(mutation, run);
        println!("{}: {broken:?}", mutation.name());
        assert!(broken.is_some_and(|text| text.contains(message)), "{} was not caught", mutation.name());
        loom::model(run);
    }
}

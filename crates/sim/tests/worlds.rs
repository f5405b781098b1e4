//! Worlds with faults, many of them: nothing that must never happen does.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use snowmint_sim::{Scenario, Summary, World, run};

/// Runs `count` seeds on two threads; panics with the command that replays the first that broke a rule.
fn all(count: u64) -> Summary {
    let next = AtomicU64::new(0);
    let total = Mutex::new(Summary::default());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= count {
                        break;
                    }
                    let (summary, violation) = run(Scenario::from_seed(seed));
                    if let Some(violation) = violation {
                        panic!("{violation}\nto see it: cargo xtask sim --seed {seed}");
                    }
                    total.lock().unwrap().add(&summary);
                }
            });
        }
    });
    total.into_inner().unwrap()
}

#[test]
fn two_thousand_worlds_with_faults_mint_a_billion_ids_and_none_twice() {
    // Shows every rule over 2,000 seeds, and that they are not vacuous: each refusal that a world can bring about
    // came about, clones and observes too. SNOWMINT_TEST_LONG: ten times as many.
    let count = if std::env::var_os("SNOWMINT_TEST_LONG").is_some() { 20_000 } else { 2_000 };
    let total = all(count);
    println!("{total}");
    assert_eq!(total.duplicates, 0);
    assert!(total.ids >= 1_000_000_000, "{total}");
    assert!(total.faults > 10 * count && total.grants > 5 * count, "{total}");
    assert!(total.observed > count && total.excused > 0, "{total}");
    for reason in [
        "below-floor",
        "ceiling",
        "clock-rolled-back",
        "clock-uncertain",
        "exhausted",
        "lease-lost",
        "mark",
        "no-grant",
        "stopped",
    ] {
        assert!(total.refusals.contains_key(reason), "no world was ever refused as {reason}: {total}");
    }
}

#[test]
fn one_seed_is_one_run() {
    // Shows that a seed's time line is the same every time, and that keeping one changes nothing.
    for seed in [3, 11, 42] {
        let lines = || {
            let mut world = World::new(Scenario::from_seed(seed));
            world.record();
            world.run();
            (world.take_lines(), world.summary().clone())
        };
        let (one, summary) = lines();
        assert!(one.len() > 100, "seed {seed}");
        assert_eq!((one, summary.clone()), lines(), "seed {seed}");
        assert_eq!(run(Scenario::from_seed(seed)), (summary, None), "seed {seed}");
    }
}

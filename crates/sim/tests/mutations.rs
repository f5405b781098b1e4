//! Every rule that is broken is caught. Only in a build that can break one: `cargo xtask test` makes it.
#![cfg(snowmint_mutations)]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

use snowmint_core::mutation::{self, Mutation};
use snowmint_sim::{Rule, Scenario, Summary, Violation, World};

/// How many seeds a mutation has until it must be caught. Most need a handful; the rarest needs a thousand, and which one
/// changes with every change of the worlds.
const SEEDS_MAX: u64 = 10_000;

/// How many seeds a mutation has in the long form to come to a duplicate.
const DUPLICATE_SEEDS_LONG: u64 = 500;

/// How many it has to come to a duplicate, with every other check left out.
fn duplicate_seeds_max() -> u64 {
    if std::env::var_os("SNOWMINT_TEST_LONG").is_some() { DUPLICATE_SEEDS_LONG } else { 50 }
}

/// The first seed by which a rule is seen to be broken (only `heeded`, if given), with all that was done until then.
fn caught(mutation: Mutation, heeded: Option<Rule>, seeds: u64) -> Option<(u64, Violation, Summary)> {
    mutation::set(Some(mutation));
    let mut total = Summary::default();
    let found = (0..seeds).find_map(|seed| {
        let mut world = World::new(Scenario::from_seed(seed));
        if let Some(rule) = heeded {
            world.heed(rule);
        }
        world.run();
        total.add(world.summary());
        Some((seed, world.violation()?.clone()))
    });
    mutation::set(None);
    found.map(|(seed, violation)| (seed, violation, total))
}

#[test]
fn every_mutation_is_caught_and_the_worlds_are_fine_without() {
    // Shows, for each rule that can be broken, by which seed, after how many events and IDs and by which check it is
    // caught, and whether the worlds also came to a duplicate by it, with every other check left out (50 seeds;
    // SNOWMINT_TEST_LONG: 500).
    let mut missed = Vec::new();
    println!(
        "{:<28} {:<24} {:>5} {:>9} {:>11}  a duplicate by seed",
        "mutation", "caught by", "seed", "events", "IDs"
    );
    for mutation in Mutation::ALL {
        let name = mutation.name();
        let Some((seed, violation, total)) = caught(mutation, None, SEEDS_MAX) else {
            println!("{name:<28} MISSED in {SEEDS_MAX} seeds");
            missed.push(name);
            continue;
        };
        let duplicate = caught(mutation, Some(Rule::Unique), duplicate_seeds_max())
            .map_or_else(|| format!("none of {}", duplicate_seeds_max()), |(seed, ..)| seed.to_string());
        let (rule, events, ids) = (violation.rule.name(), total.events, total.ids);
        println!("{name:<28} {rule:<24} {seed:>5} {events:>9} {ids:>11}  {duplicate}");
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
    for seed in 0..100 {
        let (_, violation) = snowmint_sim::run(Scenario::from_seed(seed));
        assert_eq!(violation, None, "seed {seed}, with no rule broken");
    }
}

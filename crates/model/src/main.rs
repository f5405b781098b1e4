//! Explores, prints what was found, and fails if a promise broke or a case never happened.

use std::process::ExitCode;

use snowmint_model::{Bounds, check};

/// One exploration: its name, its bounds, and how many states it may reach (each counted whenever it is reached), in
/// the short form and in the long one. `None`: all.
type Exploration = (&'static str, Bounds, Option<usize>, Option<usize>);

const PAIR: Bounds = Bounds::PAIR;

/// All that can befall a store at once.
const STORMY: Bounds = Bounds { late: 1, crashes: 1, fences: 1, restores: 1, errors: 1, doubt: true, ..PAIR };

const EXPLORATIONS: &[Exploration] = &[
    ("2 owners, 1 code, two ticks and terms", Bounds { ticks: 2, terms: 2, late: 0, ..PAIR }, None, None),
    ("the same, with late requests and replies", Bounds { ticks: 1, terms: 1, ..PAIR }, None, None),
    ("late ones, and a hand-over", Bounds { ticks: 2, terms: 2, ..PAIR }, Some(3_000_000), None),
    ("late ones, more ticks and terms", PAIR, Some(4_000_000), Some(60_000_000)),
    (
        "a restore",
        Bounds { ticks: 2, terms: 2, late: 0, restores: 1, ..PAIR },
        Some(2_000_000),
        Some(80_000_000),
    ),
    ("all that can befall", STORMY, Some(4_000_000), Some(60_000_000)),
    (
        "a deleted record, reads that are late",
        Bounds { deletions: 1, slow_reads: true, ..PAIR },
        Some(2_000_000),
        Some(20_000_000),
    ),
    (
        "a cut-over",
        Bounds { ticks: 2, terms: 2, late: 0, cutover: true, ..PAIR },
        Some(2_000_000),
        Some(40_000_000),
    ),
    (
        "processes that end and begin",
        Bounds { ends: true, crashes: 1, ..PAIR },
        Some(2_000_000),
        Some(20_000_000),
    ),
    (
        "a lead",
        Bounds { ticks: 2, terms: 2, late: 0, lead: 1, ends: true, ..PAIR },
        Some(2_000_000),
        Some(40_000_000),
    ),
    (
        "a quarantine",
        Bounds { ticks: 3, terms: 2, late: 0, fences: 1, quarantine: 1, ..PAIR },
        Some(2_000_000),
        Some(40_000_000),
    ),
    (
        "peers that tell a wrong clock",
        Bounds { owners: 1, peers: true, crashes: 1, ..PAIR },
        Some(2_000_000),
        Some(40_000_000),
    ),
    ("2 owners, 2 codes", Bounds { codes: 2, fences: 1, ..PAIR }, Some(2_000_000), Some(40_000_000)),
    ("3 owners, 1 code", Bounds { owners: 3, late: 0, ..PAIR }, Some(2_000_000), Some(40_000_000)),
    (
        "3 owners, 2 codes",
        Bounds { owners: 3, codes: 2, crashes: 1, restores: 1, ..PAIR },
        Some(2_000_000),
        Some(40_000_000),
    ),
];

/// Every exploration reaches far more.
const STATES_MIN: usize = 100_000;

fn main() -> ExitCode {
    let mut is_long = false;
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "--long" => is_long = true,
            #[cfg(snowmint_mutations)]
            "--mutations" => return mutations(),
            other => {
                eprintln!("error: {other:?} is no option; there is --long");
                return ExitCode::from(2);
            }
        }
    }
    let mut states = 0;
    let mut seconds = 0.0;
    let mut is_fine = true;
    // What one exploration is too small for, another shows.
    let mut unseen: Vec<&str> = snowmint_model::Sometimes::ALL.iter().map(|(_, name)| *name).collect();
    for (name, bounds, short, long) in EXPLORATIONS {
        let report = check(bounds, if is_long { *long } else { *short });
        println!("{name}: {report}");
        states += report.states;
        seconds += report.took.as_secs_f64();
        is_fine &= report.broken.is_empty();
        // An exploration that ends at once explores nothing, whatever the others show.
        if report.states < STATES_MIN {
            println!("too few: {name} ended after {} states", report.states);
            is_fine = false;
        }
        unseen.retain(|name| !report.seen.iter().any(|(seen, count)| seen == name && *count > 0));
    }
    println!("{states} distinct states in {seconds:.0} s");
    for name in &unseen {
        println!("never happened: {name}");
    }
    if is_fine && unseen.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Breaks each rule that the model is the place for, and says which promise it broke, and when.
#[cfg(snowmint_mutations)]
fn mutations() -> ExitCode {
    let mut is_fine = true;
    for (mutation, bounds) in snowmint_model::caught_here() {
        let report = snowmint_model::check_broken(&bounds, mutation, Some(40_000_000));
        let seconds = report.took.as_secs_f64();
        match report.broken.first() {
            Some((name, way)) => println!(
                "{}: caught after {} states, {} steps deep, {seconds:.1} s: {name}",
                mutation.name(),
                report.states,
                way.len()
            ),
            None => println!("{}: NOT caught in {} states, {seconds:.1} s", mutation.name(), report.states),
        }
        is_fine &= !report.broken.is_empty();
    }
    if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

//! Fleets so small that every state of them is visited in a moment. The large ones are `cargo xtask model`'s.

use snowmint_model::{Bounds, check};

const SMALL: Bounds = Bounds { ticks: 2, terms: 2, late: 0, ..Bounds::PAIR };

#[test]
fn one_owner_keeps_every_promise_in_every_state() {
    // Shows, for one owner that is late, crashes, is fenced, meets a bad disk, has
    // a lead, a quarantine or peers, that all promises hold in all states.
    for bounds in [
        Bounds { owners: 1, ..SMALL },
        Bounds { owners: 1, crashes: 1, ..SMALL },
        Bounds { owners: 1, fences: 1, ..SMALL },
        Bounds { owners: 1, errors: 1, ..SMALL },
        Bounds { owners: 1, cutover: true, ..SMALL },
        Bounds { owners: 1, doubt: true, ..SMALL },
        Bounds { owners: 1, lead: 1, ..SMALL },
        Bounds { owners: 1, fences: 1, quarantine: 1, ..SMALL },
        Bounds { owners: 1, peers: true, ..SMALL },
    ] {
        let report = check(&bounds, Some(200_000));
        assert!(report.broken.is_empty(), "{bounds:?}: {report}");
        assert!(report.states > 1_000, "{bounds:?}: {report}");
    }
}

#[test]
fn two_owners_of_one_code_keep_every_promise() {
    // Shows the same for two owners, as far as a moment goes: with late messages, and with a store that is put back.
    for bounds in [SMALL, Bounds { late: 1, ..SMALL }, Bounds { restores: 1, ..SMALL }] {
        let report = check(&bounds, Some(60_000));
        assert!(report.broken.is_empty(), "{bounds:?}: {report}");
    }
}

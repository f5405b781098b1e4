//! Rules that a test may break, one at a time, to show that the checks can fail.
//!
//! In every ordinary build [`active`] is a constant `false`, so that nothing of a mutation is compiled. Only a build
//! with `RUSTFLAGS="--cfg snowmint_mutations"` can break a rule, and only on a thread that has called `set`.
//!
//! Each mutation is one `if` at the rule that it breaks. Those that break the discipline of a host (who restarts,
//! restores, draws nonces, plans a cut-over) sit in the simulator's model of it.

/// A rule to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// A generator begins at the first tick, whatever the floor of its grant.
    NoFloor,
    /// A generator begins at `>= floor`, not `> floor`.
    FloorInclusive,
    /// An end counts as the ceiling once it was asked for, not once it is confirmed.
    UnconfirmedEnd,
    /// A renewal is swapped in without a look at what it replaces.
    RenewWithoutCompare,
    /// A fixed node begins anew without its durable mark.
    RestartWithoutMark,
    /// A host releases at the last ID that it handed on, not at the last that was reserved.
    ReleaseAtEmitted,
    /// A release that minted nothing lowers the end below the floor.
    ReleaseBelowFloor,
    /// `stop` raises a flag beside the cursor, which a mint that is under way has already passed.
    StopAsFlag,
    /// An observe brings a stopped cursor back to life.
    StopUndone,
    /// The deadline counts from the reply of a renewal, not from its sending.
    DeadlineAfterReply,
    /// A full tick starts again at sequence 0.
    WrapOnExhaustion,
    /// An observed ID is checked after the cursor was moved.
    ObserveCheckedLate,
    /// The ceiling of the held grant is told for any ticket.
    CeilingOfAnyTicket,
    /// A late reply to an abandoned acquire is taken for the reply to the one that stands.
    LateReplyAdopted,
    /// A grant is handed out as often as it is asked for.
    GrantTwice,
    /// A record that is absent is taken for that of a code that nobody ever held.
    MissingIsUnused,
    /// Freeing a code forgets its end.
    FreeResetsEnd,
    /// A process draws one nonce for all its swaps.
    NoncePerProcess,
    /// A store is put back from a backup without a new generation.
    RestoreWithoutGeneration,
    /// A grant takes over the generation that it reads.
    GenerationRelearned,
    /// An acquire remembers an end by one reading of the clock and writes it by another.
    ClockReadTwice,
    /// Ceiling and mark are rounded up to a tick, floor and clock down.
    TicksRoundedUp,
    /// A cut-over opens without looking for ends above its plan.
    CutoverWithoutScan,
    /// A clock that most peers disagree with is believed all the same.
    AgreementIgnored,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 24] = [
        Self::NoFloor,
        Self::FloorInclusive,
        Self::UnconfirmedEnd,
        Self::RenewWithoutCompare,
        Self::RestartWithoutMark,
        Self::ReleaseAtEmitted,
        Self::ReleaseBelowFloor,
        Self::StopAsFlag,
        Self::StopUndone,
        Self::DeadlineAfterReply,
        Self::WrapOnExhaustion,
        Self::ObserveCheckedLate,
        Self::CeilingOfAnyTicket,
        Self::LateReplyAdopted,
        Self::GrantTwice,
        Self::MissingIsUnused,
        Self::FreeResetsEnd,
        Self::NoncePerProcess,
        Self::RestoreWithoutGeneration,
        Self::GenerationRelearned,
        Self::ClockReadTwice,
        Self::TicksRoundedUp,
        Self::CutoverWithoutScan,
        Self::AgreementIgnored,
    ];

    /// The mutation's name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoFloor => "no-floor",
            Self::FloorInclusive => "floor-inclusive",
            Self::UnconfirmedEnd => "unconfirmed-end",
            Self::RenewWithoutCompare => "renew-without-compare",
            Self::RestartWithoutMark => "restart-without-mark",
            Self::ReleaseAtEmitted => "release-at-emitted",
            Self::ReleaseBelowFloor => "release-below-floor",
            Self::StopAsFlag => "stop-as-flag",
            Self::StopUndone => "stop-undone",
            Self::DeadlineAfterReply => "deadline-after-reply",
            Self::WrapOnExhaustion => "wrap-on-exhaustion",
            Self::ObserveCheckedLate => "observe-checked-late",
            Self::CeilingOfAnyTicket => "ceiling-of-any-ticket",
            Self::LateReplyAdopted => "late-reply-adopted",
            Self::GrantTwice => "grant-twice",
            Self::MissingIsUnused => "missing-is-unused",
            Self::FreeResetsEnd => "free-resets-end",
            Self::NoncePerProcess => "nonce-per-process",
            Self::RestoreWithoutGeneration => "restore-without-generation",
            Self::GenerationRelearned => "generation-relearned",
            Self::ClockReadTwice => "clock-read-twice",
            Self::TicksRoundedUp => "ticks-rounded-up",
            Self::CutoverWithoutScan => "cutover-without-scan",
            Self::AgreementIgnored => "agreement-ignored",
        }
    }
}

/// Whether a rule is broken: never.
#[cfg(not(snowmint_mutations))]
#[inline(always)]
#[allow(clippy::inline_always)] // Also without optimisation nothing is to be left of a mutation.
pub const fn active(_mutation: Mutation) -> bool {
    false
}

#[cfg(snowmint_mutations)]
pub use chosen::{active, chosen, set};

#[cfg(snowmint_mutations)]
mod chosen {
    use core::cell::Cell;

    use super::Mutation;

    std::thread_local! {
        static CHOSEN: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// Whether a rule is broken on this thread.
    pub fn active(mutation: Mutation) -> bool {
        chosen() == Some(mutation)
    }

    /// Which rule is broken on this thread.
    pub fn chosen() -> Option<Mutation> {
        CHOSEN.with(Cell::get)
    }

    /// Breaks a rule on this thread, and mends every other. A checker with threads of its own sets it on each, for
    /// example whenever its model is asked for a next state.
    pub fn set(mutation: Option<Mutation>) {
        CHOSEN.with(|chosen| chosen.set(mutation));
    }
}

#[cfg(all(test, not(snowmint_mutations)))]
mod tests {
    use super::*;

    /// Shows that no mutation is in an ordinary build: the compiler itself knows the answer.
    const _: () = {
        let mut all: &[Mutation] = &Mutation::ALL;
        while let [mutation, rest @ ..] = all {
            assert!(!active(*mutation));
            all = rest;
        }
    };

    #[test]
    fn names_differ() {
        // Shows that a name on the command line means one mutation, and that the list is complete.
        let names: std::collections::BTreeSet<_> = Mutation::ALL.iter().map(|it| it.name()).collect();
        assert_eq!(names.len(), Mutation::ALL.len());
        assert_eq!(Mutation::AgreementIgnored as usize + 1, Mutation::ALL.len());
    }
}

//! Every state of a small fleet: the lease protocol under a model checker.
//!
//! The real keepers, protocol and generator are driven, not a description of them. Ordinary load never reaches the
//! dangerous edges of such a protocol; here every order of its steps is an ordinary one: requests and replies are late
//! or lost, processes pause and crash with a request under way, holders expire while they live, clocks read anything.
//!
//! What makes the states few enough to visit:
//!
//! - A wall clock is no state. Each time a keeper reads it, it may show any tick, earlier ones too.
//! - A generator is the set of ticks that it **may** have stamped: at any moment until it is stopped, all that any
//!   ceiling allowed which it was ever told. A pause between its check and its reply is no case of its own.
//! - A boot-time clock moves by thirds of the window, and keepers are compared by what they will do from now on
//!   (`Keeper::settle`).
//! - Nonces and revisions are only ever compared, so that one that nobody remembers is given anew.
//! - Peers are three records that renew together, at any moment or never, with the one true time in them: enough to
//!   outvote a clock. Fleets of four keepers would not end; the simulator has those.
//! - Owners are alike: a state is the multitude of what they are in, not who is in what.
//!
//! ```
//! use snowmint_model::{Bounds, check};
//!
//! let report = check(&Bounds { owners: 1, ticks: 2, terms: 2, late: 0, ..Bounds::PAIR }, None);
//! assert!(report.broken.is_empty() && report.is_exhaustive && report.states > 1_000);
//! ```

mod owner;
mod store;
mod world;

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use snowmint_core::mutation::Mutation;
use stateright::{Checker, HasDiscoveries, Model, Property};

pub use world::{Action, What, World};

/// One tick of the model in milliseconds: a window, so that an end lies one tick ahead of the clock.
pub(crate) const TICK_MS: u64 = snowmint_lease::WINDOW_MS_MIN as u64;

/// What may happen in one exploration, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // Each is a kind of event that is there or not.
pub struct Bounds {
    /// How many processes want a code.
    pub owners: usize,
    /// How many codes there are: 1 or 2.
    pub codes: u32,
    /// Wall clocks show the ticks 1 to this one, in any order.
    pub ticks: u64,
    /// How often a code is granted or fenced.
    pub terms: u32,
    /// How many requests and replies of a process, or of all that crashed, may be late at once.
    pub late: usize,
    /// Crashes of a process.
    pub crashes: u8,
    /// Fences by an operator.
    pub fences: u8,
    /// Backups that are put back, with their recovery.
    pub restores: u8,
    /// Code records that are deleted.
    pub deletions: u8,
    /// Errors after which a store is not to be believed.
    pub errors: u8,
    /// Whether reads are answered late too.
    pub slow_reads: bool,
    /// Whether a clock may be one that is not believed.
    pub doubt: bool,
    /// Whether a process that gives its code back ends, rather than taking another.
    pub ends: bool,
    /// Whether there is a cut-over.
    pub cutover: bool,
    /// How many ticks ahead of its clock a generator may stamp.
    pub lead: u64,
    /// How many ticks a code rests after it expired or was fenced.
    pub quarantine: u64,
    /// Whether three other hosts hold codes, and renew whenever they do, by right clocks, which show tick 1. A clock of
    /// an owner then shows that, or [`WRONG_TICK`].
    pub peers: bool,
}

/// What a wrong clock shows where there are peers: further ahead than the time between two scans.
pub const WRONG_TICK: u64 = 8;

impl Bounds {
    /// Two owners, one code: what every other exploration varies.
    pub const PAIR: Self = Self {
        owners: 2,
        codes: 1,
        ticks: 3,
        terms: 3,
        late: 1,
        crashes: 0,
        fences: 0,
        restores: 0,
        deletions: 0,
        errors: 0,
        slow_reads: false,
        doubt: false,
        ends: false,
        cutover: false,
        lead: 0,
        quarantine: 0,
        peers: false,
    };
}

/// What holds in every state. The numbers are those of GUARANTEES.md's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Always {
    /// No tick of a code may have been stamped by two grants.
    Unique,
    /// An end falls by a clean release only, and never below what may have been stamped.
    EndNeverFalls,
    /// A ceiling is an end that the store has confirmed for that very grant.
    OnlyConfirmedEnds,
    /// A grant is handed out once, and no ticket comes back.
    OneGrantOneGenerator,
    /// A grant of an older generation stamps nothing above the recovery.
    NothingByAnOlderGeneration,
    /// After a definite error of the store the ceiling is 0.
    NothingAfterAnError,
    /// A ceiling stands for less than a window since the swap was *sent* that confirmed it.
    DeadlineFromSending,
    /// Once a cut-over is open, nothing of the old layout lies above its last tick.
    NothingAboveACutover,
    /// Records are valid, and terms never fall.
    ValidRecords,
    /// No code is granted before its quarantine is past, by the clock of whoever takes it.
    QuarantineIsKept,
    /// No end is raised by a wrong clock of whose error three peers told between its keeper's scans.
    NoEndByAnOutvotedClock,
}

/// What must happen in some state, lest the rest be true of nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sometimes {
    /// A code goes from one grant that may have stamped to another.
    HandOver,
    /// A lost reply to an acquire is found in the record.
    LostAcquireIsFound,
    /// A lost reply to a renewal is found in the record.
    LostRenewalIsFound,
    /// A lost reply to a release is found in the record.
    LostReleaseIsFound,
    /// A request lands after its sender gave it up.
    LateRequestLands,
    /// A contender expires a holder and takes the code in one swap.
    ContenderExpires,
    /// A holder expires that has a generator.
    LiveOwnerExpires,
    /// A holder's deadline passes.
    Lapse,
    /// A lapsed grant is found to hold still.
    Resumption,
    /// A holder finds another's nonce.
    Supersession,
    /// A release lowers the end.
    ReleaseLowersTheEnd,
    /// Every code is held.
    NoneLeft,
    /// A code is freed by whoever comes by.
    Gc,
    /// A process crashes with a swap under way.
    CrashInFlight,
    /// A swap lands whose process is gone.
    OrphanLands,
    /// A backup is put back.
    Restore,
    /// A grant of an older generation finds that it is over.
    OldGenerationEnds,
    /// A cut-over finds an end above its plan.
    CutoverIsRaised,
    /// A grant under the layout that was cut over to.
    GrantAfterACutover,
    /// A code is granted that was quarantined.
    GrantAfterAQuarantine,
    /// A burst is stamped ahead of every clock.
    StampedAhead,
    /// A clock is outvoted.
    Outvoted,
    /// One that was outvoted agrees again.
    AgreesAgain,
}

impl Sometimes {
    /// How many there are.
    pub const COUNT: usize = Self::AgreesAgain as usize + 1;

    /// All, with a name each.
    pub const ALL: [(Self, &'static str); Self::COUNT] = [
        (Self::HandOver, "a code is handed over"),
        (Self::LostAcquireIsFound, "a lost reply to an acquire is found in the record"),
        (Self::LostRenewalIsFound, "a lost reply to a renewal is found in the record"),
        (Self::LostReleaseIsFound, "a lost reply to a release is found in the record"),
        (Self::LateRequestLands, "a request lands after it was given up"),
        (Self::ContenderExpires, "a contender expires a holder and takes its code"),
        (Self::LiveOwnerExpires, "a holder expires that mints"),
        (Self::Lapse, "a deadline passes"),
        (Self::Resumption, "a lapsed grant is found to hold still"),
        (Self::Supersession, "a holder finds another's nonce"),
        (Self::ReleaseLowersTheEnd, "a release lowers the end"),
        (Self::NoneLeft, "no code is left"),
        (Self::Gc, "a code is freed by whoever comes by"),
        (Self::CrashInFlight, "a process crashes with a swap under way"),
        (Self::OrphanLands, "a swap lands whose process is gone"),
        (Self::Restore, "a backup is put back"),
        (Self::OldGenerationEnds, "a grant of an older generation ends"),
        (Self::CutoverIsRaised, "a cut-over finds an end above its plan"),
        (Self::GrantAfterACutover, "a grant under the next layout"),
        (Self::GrantAfterAQuarantine, "a code is granted after its quarantine"),
        (Self::StampedAhead, "a burst is stamped ahead of every clock"),
        (Self::Outvoted, "a clock is outvoted"),
        (Self::AgreesAgain, "a clock that was outvoted agrees again"),
    ];

    /// Whether it can happen at all within these bounds.
    const fn is_possible(self, bounds: &Bounds) -> bool {
        match self {
            Self::CrashInFlight | Self::OrphanLands => bounds.crashes > 0 && bounds.late > 0,
            Self::Restore | Self::OldGenerationEnds => bounds.restores > 0,
            Self::CutoverIsRaised => bounds.cutover && bounds.ticks > 1,
            Self::GrantAfterACutover => bounds.cutover,
            Self::GrantAfterAQuarantine => bounds.quarantine > 0 && bounds.terms > 1,
            Self::StampedAhead => bounds.lead > 0,
            Self::Outvoted | Self::AgreesAgain => bounds.peers,
            Self::LateRequestLands => bounds.late > 0,
            Self::NoneLeft => bounds.owners > bounds.codes as usize,
            // It must see the next tick, and then another.
            Self::ContenderExpires => bounds.terms > 1 && bounds.ticks > 2,
            Self::HandOver
            | Self::LiveOwnerExpires
            | Self::Lapse
            | Self::Supersession
            | Self::LostRenewalIsFound
            | Self::LostAcquireIsFound
            | Self::LostReleaseIsFound
            | Self::Resumption
            | Self::ReleaseLowersTheEnd
            | Self::Gc => bounds.terms > 1 && bounds.ticks > 1,
        }
    }
}

/// The names of what holds always, as a counterexample is told by.
const ALWAYS: [&str; 12] = [
    "no tick of a code is stamped by two grants",
    "an end falls only by a release, to what was reserved",
    "nothing above a confirmed end of the own term",
    "one grant, one generator",
    "nothing by an older generation above the recovery",
    "nothing after a definite error of the store",
    "a ceiling stands less than a window from the sending",
    "nothing of the old layout above an open cut-over",
    "records are valid, terms never fall",
    "all that may be stamped lies where no later grant begins",
    "no code is granted before its quarantine is past",
    "no end is raised by a clock that is outvoted",
];

/// The model.
struct Fleet {
    rules: world::Rules,
    #[cfg_attr(not(snowmint_mutations), expect(dead_code, reason = "nothing can be broken"))]
    mutation: Option<Mutation>,
}

impl Model for Fleet {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.rules.first()]
    }

    fn actions(&self, state: &World, actions: &mut Vec<Action>) {
        // The checker's threads are its own.
        #[cfg(snowmint_mutations)]
        snowmint_core::mutation::set(self.mutation);
        // What comes after a broken promise shows nothing more.
        if state.is_unbroken() {
            self.rules.steps(state, actions);
        }
    }

    fn next_state(&self, _state: &World, action: Action) -> Option<World> {
        Some(action.next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        macro_rules! always {
            ($($at:literal $property:ident),+) => {
                vec![$(Property::<Self>::always(ALWAYS[$at], |_, world| world.is_whole(Always::$property))),+]
            };
        }
        let mut properties = always!(
            0 Unique, 1 EndNeverFalls, 2 OnlyConfirmedEnds, 3 OneGrantOneGenerator, 4 NothingByAnOlderGeneration,
            5 NothingAfterAnError, 6 DeadlineFromSending, 7 NothingAboveACutover, 8 ValidRecords
        );
        properties.extend(always!(10 QuarantineIsKept, 11 NoEndByAnOutvotedClock));
        properties.push(Property::<Self>::always(ALWAYS[9], |_, world| world.is_covered()));
        properties
    }

    fn within_boundary(&self, state: &World) -> bool {
        state.is_within(&self.rules.bounds)
    }
}

/// What an exploration found.
#[derive(Clone, Debug)]
pub struct Report {
    /// How many states differ.
    pub states: usize,
    /// The longest way to one.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// Whether every state within the bounds was visited.
    pub is_exhaustive: bool,
    /// What holds always, and did not, with the way there.
    pub broken: Vec<(&'static str, Vec<What>)>,
    /// How often each [`Sometimes`] happened that can.
    pub seen: Vec<(&'static str, u64)>,
}

impl Report {
    /// What should have happened, and did not.
    pub fn unseen(&self) -> Vec<&'static str> {
        self.seen.iter().filter(|(_, count)| *count == 0).map(|(name, _)| *name).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exhaustive = if self.is_exhaustive { "all there are" } else { "not all" };
        let seconds = self.took.as_secs_f64();
        write!(f, "{} distinct states ({exhaustive}), depth {}, {seconds:.1} s", self.states, self.depth)?;
        for (name, way) in &self.broken {
            write!(f, "\nbroken: {name}")?;
            for what in way {
                write!(f, "\n  {what:?}")?;
            }
        }
        for name in self.unseen() {
            write!(f, "\nnever: {name}")?;
        }
        Ok(())
    }
}

/// Visits every state within the bounds, or as many as `states_max`.
pub fn check(bounds: &Bounds, states_max: Option<usize>) -> Report {
    explore(bounds, None, states_max)
}

/// Visits states with one rule broken, until a promise breaks.
#[cfg(snowmint_mutations)]
pub fn check_broken(bounds: &Bounds, mutation: Mutation, states_max: Option<usize>) -> Report {
    explore(bounds, Some(mutation), states_max)
}

/// The rules whose breaking the model is the natural place to catch, each with bounds that reach it.
#[cfg(snowmint_mutations)]
pub fn caught_here() -> Vec<(Mutation, Bounds)> {
    let pair = Bounds { late: 0, ..Bounds::PAIR };
    let late = Bounds::PAIR;
    let restored = Bounds { restores: 1, ..pair };
    vec![
        (Mutation::NoFloor, pair),
        (Mutation::FloorInclusive, pair),
        (Mutation::UnconfirmedEnd, pair),
        (Mutation::RenewWithoutCompare, late),
        (Mutation::ReleaseAtEmitted, pair),
        (Mutation::ReleaseBelowFloor, pair),
        (Mutation::DeadlineAfterReply, pair),
        (Mutation::CeilingOfAnyTicket, pair),
        (Mutation::LateReplyAdopted, late),
        (Mutation::GrantTwice, pair),
        (Mutation::MissingIsUnused, Bounds { deletions: 1, ..pair }),
        (Mutation::FreeResetsEnd, pair),
        (Mutation::NoncePerProcess, late),
        (Mutation::RestoreWithoutGeneration, restored),
        (Mutation::GenerationRelearned, restored),
        (Mutation::ClockReadTwice, pair),
        (Mutation::CutoverWithoutScan, Bounds { cutover: true, ..pair }),
        (Mutation::AgreementIgnored, Bounds { owners: 1, peers: true, ..pair }),
    ]
}

fn explore(bounds: &Bounds, mutation: Option<Mutation>, states_max: Option<usize>) -> Report {
    let started = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let fleet = Fleet { rules: world::Rules::new(*bounds), mutation };
    let mut checker = fleet.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures);
    if let Some(states_max) = states_max {
        // It counts states each time that they are reached.
        checker = checker.target_state_count(states_max);
    }
    let checker = checker.spawn_bfs().join();
    let rules = &checker.model().rules;
    let broken: Vec<_> = checker
        .discoveries()
        .into_iter()
        .map(|(name, path)| (name, path.into_actions().into_iter().map(|action| action.what).collect()))
        .collect();
    let seen = Sometimes::ALL
        .iter()
        .zip(&rules.seen)
        .filter(|((sometimes, _), _)| sometimes.is_possible(bounds))
        .map(|((_, name), count)| (*name, count.load(Ordering::Relaxed)))
        .collect();
    let is_exhaustive =
        broken.is_empty() && states_max.is_none_or(|states_max| checker.state_count() < states_max);
    Report {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        took: started.elapsed(),
        is_exhaustive,
        broken,
        seen,
    }
}

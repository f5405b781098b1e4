//! The worker's side: a state machine that keeps one code, without IO.

#[cfg(feature = "explore")]
mod explore;

use std::collections::BTreeMap;
use std::fmt;

use snowmint_core::mutation::{self, Mutation};
use snowmint_core::{CLOCK_ERROR_MS_MAX_DEFAULT, Grant, Layout, POLICY_MS_MAX};

use crate::agreement::{FRESH_PEERS_MIN, Peers, Scan, Voter};
use crate::protocol::{self, Bid, Choice, Holder, LeaseRefusal, NoneLeft, Watch};
use crate::record::ticket;
use crate::store::check_complete;
use crate::{
    ClusterError, ClusterRecord, CodeRecord, Now, Owner, Revision, State, StoreError, Stored, Subject,
};

#[cfg(feature = "explore")]
pub use explore::{Name, SETTLED_BOOT_MS};

/// The window of an embedded store, where nobody chose another.
pub const EMBEDDED_WINDOW_MS_DEFAULT: u32 = 1_000;

/// The window of a store across a network, where nobody chose another.
pub const FLEET_WINDOW_MS_DEFAULT: u32 = 10_000;

/// The shortest window: below it, renewals could not be told from noise.
pub const WINDOW_MS_MIN: u32 = 30;

/// How many renewals may be without a known outcome. Each takes a successful read in between; more are a store that
/// loses every reply, where the oldest are forgotten, which can only end the grant.
const UNKNOWN_SWAPS_MAX: usize = 16;

/// What an operator chooses about a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeeperConfig {
    /// The layout, which must be the store's.
    pub layout: Layout,
    /// The region, which must be the store's.
    pub region: u32,
    /// The name to hold a code by.
    pub owner: Owner,
    /// How far ahead of the clock a confirmed end reaches, in milliseconds: how long minting goes on without the
    /// store. [`WINDOW_MS_MIN`] to one hour.
    pub window_ms: u32,
    /// How far ahead of the clock the generator may stamp (its policy's lead), in milliseconds.
    pub lead_ms: u32,
    /// The quarantine of a code that this keeper expires, in milliseconds. 0 is safe: ranges are disjoint.
    pub quarantine_ms: u64,
    /// The clock error above which no end is raised: a code is then held, but not taken further. `u32::MAX`: any.
    pub clock_error_ms_max: u32,
    /// Whether the clock is compared with that of other hosts before it takes a code or raises an end: see
    /// [`crate::agreement`]. For stores that have other hosts in them.
    ///
    /// It costs a scan for every third renewal, or for each while fewer than [`FRESH_PEERS_MIN`] peers have a say or the
    /// clock does not keep step; and where as many others hold codes, a code is taken up to five twelfths of a window
    /// later, until they have been heard.
    pub compares_clocks: bool,
}

impl KeeperConfig {
    /// The defaults for an embedded store.
    pub const fn embedded(layout: Layout, region: u32, owner: Owner) -> Self {
        Self {
            layout,
            region,
            owner,
            window_ms: EMBEDDED_WINDOW_MS_DEFAULT,
            lead_ms: 0,
            quarantine_ms: 0,
            clock_error_ms_max: CLOCK_ERROR_MS_MAX_DEFAULT,
            compares_clocks: false,
        }
    }

    /// The defaults for a store across a network.
    pub fn fleet(layout: Layout, region: u32, owner: Owner) -> Self {
        Self {
            window_ms: FLEET_WINDOW_MS_DEFAULT,
            compares_clocks: true,
            ..Self::embedded(layout, region, owner)
        }
    }

    fn check(&self) -> Result<(), KeeperConfigError> {
        ClusterRecord::new(0, self.layout, self.region).map_err(KeeperConfigError::Cluster)?;
        if !(WINDOW_MS_MIN..=POLICY_MS_MAX).contains(&self.window_ms) {
            return Err(KeeperConfigError::Window { window_ms: self.window_ms });
        }
        Ok(())
    }

    const fn renew_ms(&self) -> u64 {
        self.window_ms as u64 / 3
    }

    /// How long a reply is waited for. Together with a retry it leaves room for a second try before the deadline.
    const fn reply_ms(&self) -> u64 {
        self.window_ms as u64 / 3
    }

    const fn retry_ms(&self) -> u64 {
        self.window_ms as u64 / 12
    }

    /// Less than a third of the TTL, so that a [`Watch`] counts all of it.
    const fn poll_ms(&self) -> u64 {
        self.window_ms as u64 / 3
    }

    /// How long peers are waited for before a code is taken: each that lives has renewed by then.
    const fn hearing_ms(&self) -> u64 {
        self.renew_ms() + self.retry_ms()
    }

    const fn voter(&self) -> Voter<'_> {
        Voter { owner: &self.owner, clock_error_ms_max: self.clock_error_ms_max }
    }

    const fn bid(&self) -> Bid<'_> {
        Bid { owner: &self.owner, window_ms: self.window_ms, lead_ms: self.lead_ms }
    }
}

/// A configuration that no keeper can follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeeperConfigError {
    /// Layout or region cannot be leased by.
    Cluster(ClusterError),
    /// The window is out of range.
    Window {
        /// The window in milliseconds.
        window_ms: u32,
    },
}

impl fmt::Display for KeeperConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster(error) => error.fmt(f),
            Self::Window { window_ms } => write!(
                f,
                "a lease window of {window_ms} ms is out of range; give {WINDOW_MS_MIN} to {POLICY_MS_MAX} ms"
            ),
        }
    }
}

impl std::error::Error for KeeperConfigError {}

/// Names one request, so that its reply is known from others that come late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(u64);

/// What a keeper wants of the store: one call of [`crate::Store`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// [`crate::Store::cluster`].
    Cluster,
    /// [`crate::Store::scan`].
    Scan,
    /// [`crate::Store::read`].
    Read {
        /// The code.
        code: u32,
    },
    /// [`crate::Store::swap`].
    Swap {
        /// The code.
        code: u32,
        /// The revision that its record must be at.
        expected: Revision,
        /// The revision that the cluster record must be at.
        cluster: Revision,
        /// What to put in its place.
        record: CodeRecord,
    },
}

/// What the store answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// To [`Request::Cluster`].
    Cluster(Box<Stored<ClusterRecord>>),
    /// To [`Request::Scan`].
    Scan(Vec<(u32, Stored<CodeRecord>)>),
    /// To [`Request::Read`].
    Read(Stored<CodeRecord>),
    /// To [`Request::Swap`]: the new revision.
    Swapped(Revision),
    /// To any.
    Failed(StoreError),
}

/// What happens to a keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Time has passed. To be told at [`Keeper::next_wake_boot_ms`] at the latest; earlier does no harm.
    Time,
    /// A reply came. Replies may be delayed, lost, doubled and out of order.
    Reply {
        /// The request's.
        id: RequestId,
        /// The reply.
        reply: Reply,
    },
    /// The code is to be given back.
    Release {
        /// What stopping the generator of the last grant returned. `None`: there was no generator.
        stopped: Option<Stopped>,
        /// What to do afterwards.
        then: Then,
    },
}

/// That a generator was stopped. It issues nothing afterwards: that is what makes a release safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stopped {
    /// The ticket of its grant.
    pub ticket: u64,
    /// What `stop` returned: the last Unix millisecond that it may have stamped.
    pub last_reserved_ms: u64,
}

/// What to do after a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Then {
    /// Take another code.
    Acquire,
    /// Nothing more.
    End,
}

/// What somebody outside should know: for logs and metrics. Nothing has to be done about any of them but
/// [`Notice::Granted`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// There is a grant: see [`Keeper::take_grant`].
    Granted {
        /// Its ticket.
        ticket: u64,
        /// Its code.
        code: u32,
        /// The last Unix millisecond that it may not stamp.
        floor_ms: u64,
        /// The last one that it may.
        end_ms: u64,
    },
    /// A renewal is confirmed.
    Renewed {
        /// The grant.
        ticket: u64,
        /// The last Unix millisecond that it may stamp.
        end_ms: u64,
    },
    /// A renewal or its reply failed; minting goes on to the confirmed end.
    Unconfirmed {
        /// The grant.
        ticket: u64,
        /// Why.
        error: StoreError,
    },
    /// The deadline is past without a confirmed renewal: the ceiling is 0.
    Lapsed {
        /// The grant.
        ticket: u64,
    },
    /// The store confirms that a lapsed grant still holds, or the clock of one that was outvoted agrees with its peers'
    /// again.
    Resumed {
        /// The grant.
        ticket: u64,
        /// The last Unix millisecond that it may stamp.
        end_ms: u64,
    },
    /// The grant is over. The keeper seeks another by itself.
    Lost {
        /// The grant.
        ticket: u64,
        /// Why.
        loss: Loss,
    },
    /// The code was given back.
    Released {
        /// The grant.
        ticket: u64,
        /// The last Unix millisecond that was stamped with the code.
        end_ms: u64,
    },
    /// The code could not be given back. It will expire.
    Unreleased {
        /// The grant.
        ticket: u64,
    },
    /// There is no code now, or (where the clock is outvoted) no minting with the one there is; asked again.
    Hindered(Hindrance),
    /// These codes' holders show a time that cannot be ours, and they are not most of those that have a say: their clock
    /// is wrong, or, where fewer than [`FRESH_PEERS_MIN`] had one, perhaps ours. Told once, until they are seen to agree.
    OddPeers {
        /// Their codes.
        codes: Vec<u32>,
        /// How many peers had a say.
        peers: usize,
    },
    /// Other codes' records cannot be read, so that clocks are not compared. Told once, until they can.
    Uncompared {
        /// Why.
        error: StoreError,
    },
}

/// Why a grant is over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// The record bears a nonce that is none of the grant's: it expired, was fenced, or was given to somebody else.
    Superseded {
        /// What the code is doing now.
        state: State,
        /// Its term now.
        term: u32,
    },
    /// The store's state forbids to believe in the grant.
    Store(StoreError),
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superseded { state, term } => {
                write!(
                    f,
                    "the code is {state} at term {term}, which is not this grant's; a new grant is taken"
                )
            }
            Self::Store(error) => error.fmt(f),
        }
    }
}

/// Why there is no code yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Hindrance {
    /// None can be used now.
    NoneLeft(NoneLeft),
    /// The protocol refuses.
    Refused(LeaseRefusal),
    /// The clock's error is above the limit, or unknown.
    Clock {
        /// The error bound in milliseconds; `u32::MAX` when it is unknown.
        clock_error_ms: u32,
    },
    /// Most peers show another time: no code is taken, no end raised and nothing minted by this clock until it agrees
    /// with them again.
    Outvoted {
        /// How many peers had a say: [`FRESH_PEERS_MIN`] or more.
        peers: usize,
        /// How many of them disagree.
        odd: usize,
    },
    /// The store fails.
    Store(StoreError),
}

impl fmt::Display for Hindrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoneLeft(none) => none.fmt(f),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Clock { clock_error_ms: u32::MAX } => f.write_str(
                "the clock's error bound is unknown: synchronise the clock; no code is taken by it",
            ),
            Self::Clock { clock_error_ms } => write!(
                f,
                "the clock may be off by {clock_error_ms} ms, above the limit: see to its synchronisation; no code is \
                 taken by it"
            ),
            Self::Outvoted { peers, odd } => write!(
                f,
                "{odd} of the {peers} other hosts that renewed just now show another time than this one's clock: see to \
                 the synchronisation of this host's clock; nothing is minted by it until it agrees"
            ),
            Self::Store(error) => error.fmt(f),
        }
    }
}

/// What a keeper is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It looks for a code.
    Seeking,
    /// It asked for a code, and does not know the outcome yet.
    Acquiring,
    /// It holds a code inside a confirmed window.
    Held,
    /// Its window is over without a confirmed renewal, or its clock is outvoted: the ceiling is 0 until the store
    /// confirms again, and the clock agrees.
    Lapsed,
    /// It gives its code back.
    Releasing,
    /// It was asked to end, and did.
    Ended,
}

impl Phase {
    /// The phase's name, as every face writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Seeking => "seeking",
            Self::Acquiring => "acquiring",
            Self::Held => "held",
            Self::Lapsed => "lapsed",
            Self::Releasing => "releasing",
            Self::Ended => "ended",
        }
    }
}

/// A held grant at one moment. Copied out for threads that mint without asking the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// What the lease port calls the grant.
    pub ticket: u64,
    /// Its code, which is the worker of its node.
    pub code: u32,
    /// Its term.
    pub term: u32,
    /// The last Unix millisecond that it may not stamp.
    pub floor_ms: u64,
    /// The last Unix millisecond that the store has confirmed. Also the durable high-water mark.
    pub end_ms: u64,
    /// From this reading of the boot-time clock on, the ceiling is 0, whatever was confirmed.
    pub deadline_boot_ms: u64,
    /// Whether most peers show another time: the ceiling is 0 meanwhile.
    pub is_outvoted: bool,
}

impl View {
    /// The ceiling at this reading of the boot-time clock: the confirmed end before the deadline, else 0.
    pub const fn ceiling_ms(&self, now_boot_ms: u64) -> u64 {
        if now_boot_ms < self.deadline_boot_ms && !self.is_outvoted { self.end_ms } else { 0 }
    }
}

/// What came of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Output {
    /// What to ask the store now. There is one request at a time; another replaces it.
    pub request: Option<(RequestId, Request)>,
    /// What happened.
    pub notices: Vec<Notice>,
}

/// A swap that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Sent {
    nonce: u128,
    boot_ms: u64,
}

/// A code that was asked for, by one swap with one nonce.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Claim {
    code: u32,
    generation: u16,
    uuid: u128,
    sent: Sent,
}

/// A grant. Its record is what the store has confirmed, not what was wished for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    code: u32,
    uuid: u128,
    generation: u16,
    record: CodeRecord,
    revision: Revision,
    deadline_boot_ms: u64,
    /// Renewals whose outcome is not known.
    unknown: Vec<Sent>,
    is_taken: bool,
    is_lapsed: bool,
}

impl Held {
    const fn ticket(&self) -> u64 {
        ticket(self.generation, self.code, self.record.term)
    }

    const fn holder(&self) -> Holder {
        Holder { term: self.record.term, nonce: self.record.nonce }
    }

    const fn view(&self, is_outvoted: bool) -> View {
        View {
            is_outvoted,
            ticket: self.ticket(),
            code: self.code,
            term: self.record.term,
            floor_ms: self.record.floor_ms,
            end_ms: self.record.end_ms,
            deadline_boot_ms: self.deadline_boot_ms,
        }
    }

    fn remember(&mut self, sent: Sent) {
        if self.unknown.len() == UNKNOWN_SWAPS_MAX {
            self.unknown.remove(0);
        }
        self.unknown.push(sent);
    }

    /// Takes over what a read shows. `false`: it bears none of this grant's nonces.
    fn adopt(&mut self, stored: Stored<CodeRecord>, window_ms: u32) -> bool {
        let record = &stored.record;
        if record.state != State::Active || record.term != self.record.term {
            return false;
        }
        if record.nonce == self.record.nonce {
            self.revision = stored.revision;
            return true;
        }
        match self.unknown.iter().find(|sent| sent.nonce == record.nonce) {
            Some(&sent) => {
                self.confirm(stored, sent.boot_ms, window_ms);
                true
            }
            None => false,
        }
    }

    fn confirm(&mut self, stored: Stored<CodeRecord>, sent_boot_ms: u64, window_ms: u32) {
        self.record = stored.record;
        self.revision = stored.revision;
        self.deadline_boot_ms = self.deadline_boot_ms.max(sent_boot_ms.saturating_add(u64::from(window_ms)));
        self.unknown.clear();
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Releasing {
    held: Held,
    last_reserved_ms: u64,
    then: Then,
    until_boot_ms: u64,
    /// Of the releases that were sent.
    nonces: Vec<u128>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Mode {
    Seeking,
    Acquiring(Claim),
    Held(Held),
    Releasing(Box<Releasing>),
    Ended,
}

/// What is asked next, when the time has come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Next {
    Cluster,
    Scan,
    Take {
        choice: Choice,
        stored: Stored<CodeRecord>,
    },
    Read,
    /// Compare clocks, where that is due; then renew.
    Compare,
    Renew,
    Release,
}

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Asked {
    Cluster,
    Scan,
    Read,
    /// A record, and whether it is this keeper's own claim, renewal or release, by its mode.
    Swap(CodeRecord),
    /// A code was freed or expired for whoever comes first.
    Tidy,
}

/// Keeps one code for one generator: acquires it, renews it, notices when it is lost, gives it back.
///
/// A state machine without IO: whoever owns it tells it events and both clocks' readings, and carries out its one
/// request at a time. [`crate::step`] does that for a store that can be called. It never mints; what it says is the
/// **ceiling**: the last millisecond that may be stamped.
///
/// | the store's answer to a renewal | the grant |
/// |---|---|
/// | confirmed | the ceiling rises; the deadline is the boot-time clock *before* the renewal was sent, plus the window |
/// | none, or unreachable | holds to the confirmed end, until the deadline; the record is read, and its nonce compared |
/// | conflict | the record is read: one of the grant's own nonces, and it goes on from the record; another, and it is over |
/// | the cluster record changed | that is read: another generation, layout or region, and it is over |
/// | any other error | it is over at once |
///
/// Where clocks are compared ([`KeeperConfig::compares_clocks`]) and most peers show another time, the grant is held on
/// without raising its end, and its ceiling is 0 until the clock agrees again.
///
/// A grant whose deadline passes lapses: ceiling 0. It resumes only if the store shows that the record is still its
/// own; it takes nothing from memory.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub struct Keeper {
    config: KeeperConfig,
    mode: Mode,
    next: Next,
    wake_boot_ms: u64,
    asked: Option<(RequestId, u64, Asked)>,
    requests: u64,
    cluster: Option<Stored<ClusterRecord>>,
    watches: BTreeMap<u32, Watch>,
    peers: Peers,
    /// Races lost since the last grant.
    tries: u32,
    /// Asked to end before a claim was decided.
    is_ending: bool,
    hindrance: Option<Hindrance>,
    loss: Option<Loss>,
}

impl Keeper {
    /// A keeper that will look for a code at its first event.
    pub fn new(config: KeeperConfig) -> Result<Self, KeeperConfigError> {
        config.check()?;
        Ok(Self {
            config,
            mode: Mode::Seeking,
            next: Next::Cluster,
            wake_boot_ms: 0,
            asked: None,
            requests: 0,
            cluster: None,
            watches: BTreeMap::new(),
            peers: Peers::new(),
            tries: 0,
            is_ending: false,
            hindrance: None,
            loss: None,
        })
    }

    /// The configuration.
    pub const fn config(&self) -> &KeeperConfig {
        &self.config
    }

    /// The grant, once. `None`: there is none, it was taken before, or its window is over.
    pub fn take_grant(&mut self, now_boot_ms: u64) -> Option<Grant> {
        let is_outvoted = self.peers.is_outvoted();
        let Mode::Held(held) = &mut self.mode else { return None };
        if (held.is_taken && !mutation::active(Mutation::GrantTwice))
            || held.view(is_outvoted).ceiling_ms(now_boot_ms) == 0
        {
            return None;
        }
        let node = self.config.layout.node(self.config.region, held.code).ok()?;
        held.is_taken = true;
        Some(Grant::new(node, held.ticket(), held.record.floor_ms))
    }

    /// The last Unix millisecond that the grant of this ticket may stamp, at this reading of the boot-time clock.
    /// 0: stop. 0 for every other ticket.
    pub fn ceiling_ms(&self, ticket: u64, now_boot_ms: u64) -> u64 {
        let is_own = |view: &View| view.ticket == ticket || mutation::active(Mutation::CeilingOfAnyTicket);
        self.view().filter(is_own).map_or(0, |view| view.ceiling_ms(now_boot_ms))
    }

    /// The held grant, lapsed or not; `None` where there is none, or it is being given back.
    pub fn view(&self) -> Option<View> {
        match &self.mode {
            Mode::Held(held) => Some(held.view(self.peers.is_outvoted())),
            _ => None,
        }
    }

    /// What it is doing at this reading of the boot-time clock.
    pub fn phase(&self, now_boot_ms: u64) -> Phase {
        match &self.mode {
            Mode::Seeking => Phase::Seeking,
            Mode::Acquiring(_) => Phase::Acquiring,
            Mode::Held(held) if now_boot_ms < held.deadline_boot_ms && !self.peers.is_outvoted() => {
                Phase::Held
            }
            Mode::Held(_) => Phase::Lapsed,
            Mode::Releasing(_) => Phase::Releasing,
            Mode::Ended => Phase::Ended,
        }
    }

    /// Why there is no code, or what last went wrong with the store; `None` when all is well.
    pub const fn hindrance(&self) -> Option<&Hindrance> {
        self.hindrance.as_ref()
    }

    /// Why the last grant ended, if it was lost.
    pub const fn loss(&self) -> Option<&Loss> {
        self.loss.as_ref()
    }

    /// The cluster record as last read.
    pub fn cluster(&self) -> Option<&ClusterRecord> {
        self.cluster.as_ref().map(|stored| &stored.record)
    }

    /// When to tell [`Event::Time`] at the latest, by the boot-time clock. `u64::MAX`: never.
    pub fn next_wake_boot_ms(&self) -> u64 {
        let wake_ms = match (&self.mode, &self.asked) {
            (Mode::Ended, _) => return u64::MAX,
            (_, Some((_, sent_boot_ms, _))) => sent_boot_ms.saturating_add(self.config.reply_ms()),
            (_, None) => self.wake_boot_ms,
        };
        match &self.mode {
            Mode::Held(held) if !held.is_lapsed => wake_ms.min(held.deadline_boot_ms),
            _ => wake_ms,
        }
    }

    /// Takes an event in. `now` was read after the event and before the request that is returned is sent; `nonce` is
    /// 128 fresh random bits, never used before.
    pub fn handle(&mut self, event: Event, now: &Now, nonce: u128) -> Output {
        let mut notices = Vec::new();
        self.note_lapse(now, &mut notices);
        match event {
            Event::Time => {
                let reply_ms = self.config.reply_ms();
                let is_lost =
                    |(_, sent_ms, _): &mut (_, u64, _)| now.boot_ms >= sent_ms.saturating_add(reply_ms);
                if let Some((_, _, asked)) = self.asked.take_if(is_lost) {
                    let detail = format!("no reply within {reply_ms} ms");
                    self.on_error(&asked, StoreError::Unreachable { detail }, now, &mut notices);
                }
            }
            Event::Reply { id, reply } => {
                // A reply to anything but the request that stands is too late: its outcome is read from the record.
                let is_adopted = mutation::active(Mutation::LateReplyAdopted)
                    && matches!((&self.mode, &reply), (Mode::Acquiring(_), Reply::Swapped(_)));
                let is_asked = |(asked_id, _, asked): &mut (RequestId, _, Asked)| {
                    *asked_id == id || (is_adopted && matches!(asked, Asked::Swap(_)))
                };
                if let Some((_, sent_boot_ms, asked)) = self.asked.take_if(is_asked) {
                    self.on_reply(asked, sent_boot_ms, reply, now, nonce, &mut notices);
                }
            }
            Event::Release { stopped, then } => self.on_release(stopped, then, now),
        }
        self.note_lapse(now, &mut notices);
        let is_due = now.boot_ms >= self.wake_boot_ms && !matches!(self.mode, Mode::Ended);
        let request = if self.asked.is_none() && is_due { self.ask(now, nonce, &mut notices) } else { None };
        Output { request, notices }
    }

    fn note_lapse(&mut self, now: &Now, notices: &mut Vec<Notice>) {
        if let Mode::Held(held) = &mut self.mode
            && !held.is_lapsed
            && now.boot_ms >= held.deadline_boot_ms
        {
            held.is_lapsed = true;
            notices.push(Notice::Lapsed { ticket: held.ticket() });
        }
    }

    fn soon(&mut self, next: Next, now: &Now) {
        self.next = next;
        self.wake_boot_ms = now.boot_ms;
    }

    fn later(&mut self, next: Next, delay_ms: u64, now: &Now) {
        self.next = next;
        self.wake_boot_ms = now.boot_ms.saturating_add(delay_ms.max(1));
    }

    fn hinder(&mut self, hindrance: Hindrance, notices: &mut Vec<Notice>) {
        if self.hindrance.as_ref() != Some(&hindrance) {
            notices.push(Notice::Hindered(hindrance.clone()));
        }
        self.hindrance = Some(hindrance);
    }

    /// Begins to look for a code, at once or after a pause.
    fn seek(&mut self, delay_ms: u64, now: &Now) {
        if self.is_ending {
            self.mode = Mode::Ended;
            return;
        }
        self.mode = Mode::Seeking;
        if delay_ms == 0 {
            self.soon(Next::Cluster, now);
        } else {
            self.later(Next::Cluster, delay_ms, now);
        }
    }

    fn lose(&mut self, loss: Loss, now: &Now, notices: &mut Vec<Notice>) {
        if let Mode::Held(held) = &self.mode {
            notices.push(Notice::Lost { ticket: held.ticket(), loss: loss.clone() });
        }
        // Somebody else's claim is no reason to wait; a broken store is.
        let delay_ms = match &loss {
            Loss::Superseded { .. } => 0,
            Loss::Store(error) => {
                self.hindrance = Some(Hindrance::Store(error.clone()));
                self.config.poll_ms()
            }
        };
        self.loss = Some(loss);
        self.watches.clear();
        self.seek(delay_ms, now);
    }

    /// Whether a swap may raise an end by this clock.
    const fn clock_is_believed(&self, now: &Now) -> bool {
        now.clock_error_ms <= self.config.clock_error_ms_max
    }

    /// Makes the next request. `None`: there is a reason to wait.
    fn ask(&mut self, now: &Now, nonce: u128, notices: &mut Vec<Notice>) -> Option<(RequestId, Request)> {
        let (asked, request) = match self.next.clone() {
            Next::Cluster if matches!(self.mode, Mode::Seeking) && !self.clock_is_believed(now) => {
                self.hinder(Hindrance::Clock { clock_error_ms: now.clock_error_ms }, notices);
                self.later(Next::Cluster, self.config.poll_ms(), now);
                return None;
            }
            Next::Cluster => (Asked::Cluster, Request::Cluster),
            Next::Scan => (Asked::Scan, Request::Scan),
            Next::Read => (Asked::Read, Request::Read { code: self.own_code()? }),
            Next::Compare if self.must_compare(now) => (Asked::Scan, Request::Scan),
            Next::Take { choice, stored } => self.take(&choice, &stored, now, nonce, notices)?,
            Next::Compare | Next::Renew => self.renew(now, nonce, notices)?,
            Next::Release => self.release(now, nonce, notices)?,
        };
        self.requests += 1;
        let id = RequestId(self.requests);
        self.asked = Some((id, now.boot_ms, asked));
        Some((id, request))
    }

    /// Whether the clock must be compared before it raises an end. A clock that is not believed raises none.
    fn must_compare(&self, now: &Now) -> bool {
        self.config.compares_clocks && self.clock_is_believed(now) && !self.peers.covers(now)
    }

    const fn own_code(&self) -> Option<u32> {
        match &self.mode {
            Mode::Acquiring(claim) => Some(claim.code),
            Mode::Held(held) => Some(held.code),
            Mode::Releasing(releasing) => Some(releasing.held.code),
            Mode::Seeking | Mode::Ended => None,
        }
    }

    fn take(
        &mut self,
        choice: &Choice,
        stored: &Stored<CodeRecord>,
        now: &Now,
        nonce: u128,
        notices: &mut Vec<Notice>,
    ) -> Option<(Asked, Request)> {
        let cluster = self.cluster.clone()?;
        let bid = self.config.bid();
        let acquire = |record: &CodeRecord| protocol::acquire(record, &cluster.record, &bid, now, nonce);
        let (code, record) = match *choice {
            Choice::Acquire { code } => (code, acquire(&stored.record)),
            Choice::Free { code } => (code, protocol::free(&stored.record, now, nonce)),
            Choice::Expire { code } => {
                let watch = self.watches.get(&code).cloned().unwrap_or_default();
                let expired = protocol::expire(&stored.record, &watch, self.config.quarantine_ms, now, nonce);
                // Expire and acquire in one swap, where the protocol allows one after the other: the contender takes
                // just the code whose holder it watched.
                (code, expired.map(|expired| acquire(&expired).unwrap_or(expired)))
            }
            Choice::Wait(_) => return None,
        };
        let record = match record {
            Ok(record) => record,
            Err(refusal) => {
                self.hinder(Hindrance::Refused(refusal), notices);
                self.later(Next::Cluster, self.config.poll_ms(), now);
                return None;
            }
        };
        let asked = if record.state == State::Active {
            self.mode = Mode::Acquiring(Claim {
                code,
                generation: cluster.record.generation,
                uuid: cluster.record.uuid,
                sent: Sent { nonce, boot_ms: now.boot_ms },
            });
            Asked::Swap(record.clone())
        } else {
            Asked::Tidy
        };
        Some((asked, Request::Swap { code, expected: stored.revision, cluster: cluster.revision, record }))
    }

    fn renew(&mut self, now: &Now, nonce: u128, notices: &mut Vec<Notice>) -> Option<(Asked, Request)> {
        let is_raised = self.clock_is_believed(now) && !self.peers.is_outvoted();
        let ahead_ms = if is_raised { self.config.bid().ahead_ms() } else { 0 };
        let cluster = self.cluster.clone()?;
        let Mode::Held(held) = &mut self.mode else { return None };
        let renewed = protocol::renew(&held.record, &cluster.record, held.holder(), ahead_ms, now, nonce);
        let Ok(record) = renewed else {
            let loss = Loss::Superseded { state: held.record.state, term: held.record.term };
            self.lose(loss, now, notices);
            return None;
        };
        held.remember(Sent { nonce, boot_ms: now.boot_ms });
        self.peers.count();
        if mutation::active(Mutation::UnconfirmedEnd) {
            held.record.end_ms = record.end_ms;
        }
        let request = Request::Swap {
            code: held.code,
            expected: held.revision,
            cluster: cluster.revision,
            record: record.clone(),
        };
        Some((Asked::Swap(record), request))
    }

    fn release(&mut self, now: &Now, nonce: u128, notices: &mut Vec<Notice>) -> Option<(Asked, Request)> {
        let cluster = self.cluster.as_ref()?.revision;
        let Mode::Releasing(releasing) = &mut self.mode else { return None };
        let held = &releasing.held;
        let released = protocol::release(&held.record, held.holder(), releasing.last_reserved_ms, now, nonce);
        let Ok(record) = released else {
            self.end_release(false, now, notices);
            return None;
        };
        releasing.nonces.push(nonce);
        let request =
            Request::Swap { code: held.code, expected: held.revision, cluster, record: record.clone() };
        Some((Asked::Swap(record), request))
    }

    fn on_release(&mut self, stopped: Option<Stopped>, then: Then, now: &Now) {
        if then == Then::End {
            self.is_ending = true;
        }
        match std::mem::replace(&mut self.mode, Mode::Ended) {
            Mode::Held(held) => {
                let last_reserved_ms = match stopped {
                    // Nobody ever had the grant, so that nothing was minted.
                    _ if !held.is_taken && mutation::active(Mutation::ReleaseBelowFloor) => 0,
                    _ if !held.is_taken => held.record.floor_ms,
                    Some(stopped) if stopped.ticket == held.ticket() => stopped.last_reserved_ms,
                    // How far the grant was used is not known: all of it, also what is not confirmed yet.
                    _ => u64::MAX,
                };
                // A renewal may be under way: what it did is read from the record.
                self.asked = None;
                self.begin_release(held, last_reserved_ms, then, now);
            }
            Mode::Releasing(mut releasing) => {
                if then == Then::End {
                    releasing.then = then;
                }
                self.mode = Mode::Releasing(releasing);
            }
            // What was asked for is given back as soon as it is known to be held.
            Mode::Acquiring(claim) => self.mode = Mode::Acquiring(claim),
            Mode::Seeking if then == Then::End => self.asked = None,
            Mode::Seeking => self.mode = Mode::Seeking,
            Mode::Ended => {}
        }
    }

    fn begin_release(&mut self, held: Held, last_reserved_ms: u64, then: Then, now: &Now) {
        let until_boot_ms = now.boot_ms.saturating_add(u64::from(protocol::ttl_ms(self.config.window_ms)));
        let next = if held.unknown.is_empty() { Next::Release } else { Next::Read };
        self.mode = Mode::Releasing(Box::new(Releasing {
            held,
            last_reserved_ms,
            then,
            until_boot_ms,
            nonces: Vec::new(),
        }));
        self.soon(next, now);
    }

    fn end_release(&mut self, is_released: bool, now: &Now, notices: &mut Vec<Notice>) {
        let Mode::Releasing(releasing) = std::mem::replace(&mut self.mode, Mode::Ended) else { return };
        let held = &releasing.held;
        let ticket = held.ticket();
        notices.push(if is_released {
            let end_ms = releasing.last_reserved_ms.max(held.record.floor_ms).min(held.record.end_ms);
            Notice::Released { ticket, end_ms }
        } else {
            Notice::Unreleased { ticket }
        });
        if releasing.then == Then::Acquire {
            self.seek(0, now);
        }
    }

    fn on_reply(
        &mut self,
        asked: Asked,
        sent_boot_ms: u64,
        reply: Reply,
        now: &Now,
        nonce: u128,
        notices: &mut Vec<Notice>,
    ) {
        match (asked, reply) {
            (asked, Reply::Failed(error)) => self.on_error(&asked, error, now, notices),
            (Asked::Cluster, Reply::Cluster(stored)) => self.on_cluster(*stored, now, notices),
            (Asked::Scan, Reply::Scan(codes)) => self.on_scan(&codes, sent_boot_ms, now, nonce, notices),
            (Asked::Read, Reply::Read(stored)) => self.on_read(stored, now, notices),
            (Asked::Swap(record), Reply::Swapped(revision)) => {
                self.on_swapped(Stored { record, revision }, sent_boot_ms, now, notices);
            }
            (Asked::Tidy, Reply::Swapped(_)) => self.seek(0, now),
            (asked, _) => {
                let detail = String::from("its reply is to another request");
                self.on_error(&asked, StoreError::Unreachable { detail }, now, notices);
            }
        }
    }

    fn on_cluster(&mut self, stored: Stored<ClusterRecord>, now: &Now, notices: &mut Vec<Notice>) {
        if let Err(error) = self.check_cluster(&stored.record) {
            self.on_definite(error, now, notices);
            return;
        }
        let is_another = self.cluster.as_ref().is_some_and(|before| {
            (before.record.uuid, before.record.generation) != (stored.record.uuid, stored.record.generation)
        });
        if is_another {
            // A store that was put back shows writes of long ago as if they were new.
            self.peers = Peers::new();
        }
        self.cluster = Some(stored);
        match &self.mode {
            Mode::Seeking => self.soon(Next::Scan, now),
            Mode::Acquiring(_) => self.soon(Next::Read, now),
            Mode::Held(_) => self.soon(Next::Compare, now),
            Mode::Releasing(_) => self.soon(Next::Release, now),
            Mode::Ended => {}
        }
    }

    /// Whether the cluster is the configured one, and, for a grant, the one that gave it.
    fn check_cluster(&self, cluster: &ClusterRecord) -> Result<(), StoreError> {
        if cluster.region != self.config.region {
            return Err(StoreError::WrongRegion { stored: cluster.region, configured: self.config.region });
        }
        if cluster.layout != self.config.layout {
            return Err(StoreError::WrongLayout {
                stored: cluster.layout.to_string(),
                configured: self.config.layout.to_string(),
            });
        }
        let held = match &self.mode {
            Mode::Held(held) => held,
            Mode::Releasing(releasing) => &releasing.held,
            _ => return Ok(()),
        };
        if mutation::active(Mutation::GenerationRelearned) {
            return Ok(());
        }
        if (cluster.uuid, cluster.generation) != (held.uuid, held.generation) {
            return Err(StoreError::WrongGeneration { stored: cluster.generation, granted: held.generation });
        }
        Ok(())
    }

    fn on_scan(
        &mut self,
        codes: &[(u32, Stored<CodeRecord>)],
        sent_boot_ms: u64,
        now: &Now,
        nonce: u128,
        notices: &mut Vec<Notice>,
    ) {
        if matches!(self.mode, Mode::Held(_)) {
            self.compare(codes, sent_boot_ms, now, notices);
            self.soon(Next::Renew, now);
            return;
        }
        let Some(cluster) = self.cluster.clone() else { return };
        if let Err(error) = check_complete(codes, &cluster.record) {
            self.on_definite(error, now, notices);
            return;
        }
        for (code, stored) in codes {
            self.watches.entry(*code).or_default().saw(&stored.record, sent_boot_ms, now.boot_ms);
        }
        if !self.clock_is_believed(now) {
            self.hinder(Hindrance::Clock { clock_error_ms: now.clock_error_ms }, notices);
            self.later(Next::Cluster, self.config.poll_ms(), now);
            return;
        }
        if !self.is_heard(codes, sent_boot_ms, now, notices) {
            return;
        }
        let silent_ms =
            |code, record: &CodeRecord| self.watches.get(&code).map_or(0, |watch| watch.silent_ms(record));
        let bid = self.config.bid();
        let choice = protocol::choose(codes, &cluster.record, &bid, now, silent_ms, self.tries, nonce);
        let code = match choice {
            Choice::Acquire { code } | Choice::Free { code } | Choice::Expire { code } => code,
            Choice::Wait(none_left) => {
                let poll_ms = self.config.poll_ms();
                let delay_ms = none_left.wait_ms.map_or(poll_ms, |wait_ms| wait_ms.min(poll_ms));
                self.hinder(Hindrance::NoneLeft(none_left), notices);
                self.later(Next::Cluster, delay_ms, now);
                return;
            }
        };
        if let Some((_, stored)) = codes.iter().find(|(other, _)| *other == code) {
            self.soon(Next::Take { choice, stored: stored.clone() }, now);
        }
    }

    /// Compares clocks, and tells what changed. Whether enough peers had a say.
    fn compare(
        &mut self,
        codes: &[(u32, Stored<CodeRecord>)],
        sent_boot_ms: u64,
        now: &Now,
        notices: &mut Vec<Notice>,
    ) -> bool {
        let was_outvoted = self.peers.is_outvoted();
        let scan = Scan { sent_boot_ms, now: *now, codes };
        let compared = self.peers.compare(&scan, &self.config.voter(), self.config.window_ms);
        if !compared.report.is_empty() {
            notices.push(Notice::OddPeers { codes: compared.report, peers: compared.fresh });
        }
        match (was_outvoted, self.peers.is_outvoted()) {
            (_, true) if compared.is_known => {
                let hindrance = Hindrance::Outvoted { peers: compared.fresh, odd: compared.odd };
                if !was_outvoted {
                    notices.push(Notice::Hindered(hindrance.clone()));
                }
                self.hindrance = Some(hindrance);
            }
            (true, false) => {
                self.hindrance = None;
                if let Mode::Held(held) = &self.mode
                    && !held.is_lapsed
                {
                    notices.push(Notice::Resumed { ticket: held.ticket(), end_ms: held.record.end_ms });
                }
            }
            _ => {}
        }
        compared.is_known
    }

    /// Whether a code may be taken by this clock, as far as peers can tell. Where not, they are heard again soon.
    fn is_heard(
        &mut self,
        codes: &[(u32, Stored<CodeRecord>)],
        sent_boot_ms: u64,
        now: &Now,
        notices: &mut Vec<Notice>,
    ) -> bool {
        if !self.must_compare(now) {
            return true;
        }
        let waited_ms = self.peers.waited_ms(now);
        let is_known = self.compare(codes, sent_boot_ms, now, notices);
        if self.peers.is_outvoted() {
            self.later(Next::Cluster, self.config.poll_ms(), now);
            return false;
        }
        let can_tell = self.config.voter().peers(codes) >= FRESH_PEERS_MIN;
        if is_known || !can_tell || waited_ms >= self.config.hearing_ms() {
            return true;
        }
        self.later(Next::Cluster, self.config.retry_ms() / 2, now);
        false
    }

    fn on_read(&mut self, stored: Stored<CodeRecord>, now: &Now, notices: &mut Vec<Notice>) {
        let window_ms = self.config.window_ms;
        match &mut self.mode {
            Mode::Acquiring(claim) => {
                let is_ours = stored.record.state == State::Active && stored.record.nonce == claim.sent.nonce;
                if is_ours {
                    let sent_boot_ms = claim.sent.boot_ms;
                    self.hold(stored, sent_boot_ms, now, notices);
                } else {
                    self.lose_race(now);
                }
            }
            Mode::Held(held) => {
                let end_before_ms = held.record.end_ms;
                let (state, term) = (stored.record.state, stored.record.term);
                if held.adopt(stored, window_ms) {
                    if held.unknown.is_empty() {
                        self.note_confirmed(end_before_ms, now, notices);
                    }
                    self.soon(Next::Compare, now);
                } else {
                    self.lose(Loss::Superseded { state, term }, now, notices);
                }
            }
            Mode::Releasing(releasing) => {
                let is_free = stored.record.state == State::Free;
                if is_free && releasing.nonces.contains(&stored.record.nonce) {
                    self.end_release(true, now, notices);
                } else if releasing.held.adopt(stored, window_ms) {
                    self.soon(Next::Release, now);
                } else {
                    self.end_release(false, now, notices);
                }
            }
            Mode::Seeking | Mode::Ended => {}
        }
    }

    fn on_swapped(
        &mut self,
        stored: Stored<CodeRecord>,
        sent_boot_ms: u64,
        now: &Now,
        notices: &mut Vec<Notice>,
    ) {
        let window_ms = self.config.window_ms;
        let sent_boot_ms =
            if mutation::active(Mutation::DeadlineAfterReply) { now.boot_ms } else { sent_boot_ms };
        match &mut self.mode {
            Mode::Acquiring(_) => self.hold(stored, sent_boot_ms, now, notices),
            Mode::Held(held) => {
                let end_before_ms = held.record.end_ms;
                held.confirm(stored, sent_boot_ms, window_ms);
                self.note_confirmed(end_before_ms, now, notices);
                self.next = Next::Compare;
                self.wake_boot_ms = sent_boot_ms.saturating_add(self.config.renew_ms());
            }
            Mode::Releasing(_) => self.end_release(true, now, notices),
            Mode::Seeking | Mode::Ended => {}
        }
    }

    fn note_confirmed(&mut self, end_before_ms: u64, now: &Now, notices: &mut Vec<Notice>) {
        let is_outvoted = self.peers.is_outvoted();
        self.hindrance =
            self.hindrance.take().filter(|it| is_outvoted && matches!(it, Hindrance::Outvoted { .. }));
        let Mode::Held(held) = &mut self.mode else { return };
        let (ticket, end_ms) = (held.ticket(), held.record.end_ms);
        if held.is_lapsed && now.boot_ms < held.deadline_boot_ms {
            held.is_lapsed = false;
            notices.push(Notice::Resumed { ticket, end_ms });
        } else if end_ms > end_before_ms {
            notices.push(Notice::Renewed { ticket, end_ms });
        }
    }

    /// A claim is known to be in the record.
    fn hold(&mut self, stored: Stored<CodeRecord>, sent_boot_ms: u64, now: &Now, notices: &mut Vec<Notice>) {
        let Mode::Acquiring(claim) = std::mem::replace(&mut self.mode, Mode::Seeking) else { return };
        let held = Held {
            code: claim.code,
            uuid: claim.uuid,
            generation: claim.generation,
            record: stored.record,
            revision: stored.revision,
            deadline_boot_ms: sent_boot_ms.saturating_add(u64::from(self.config.window_ms)),
            unknown: Vec::new(),
            is_taken: false,
            is_lapsed: false,
        };
        self.tries = 0;
        self.watches.clear();
        self.hindrance = None;
        self.loss = None;
        if self.is_ending {
            let floor_ms = held.record.floor_ms;
            self.begin_release(held, floor_ms, Then::End, now);
            return;
        }
        notices.push(Notice::Granted {
            ticket: held.ticket(),
            code: held.code,
            floor_ms: held.record.floor_ms,
            end_ms: held.record.end_ms,
        });
        self.mode = Mode::Held(held);
        self.next = Next::Compare;
        self.wake_boot_ms = sent_boot_ms.saturating_add(self.config.renew_ms());
    }

    fn lose_race(&mut self, now: &Now) {
        self.tries = self.tries.saturating_add(1);
        // The first few at once; a fleet that fights on gives way.
        let delay_ms = if self.tries <= 4 { 0 } else { self.config.retry_ms() };
        self.seek(delay_ms, now);
    }

    fn on_error(&mut self, asked: &Asked, error: StoreError, now: &Now, notices: &mut Vec<Notice>) {
        match error {
            StoreError::Conflict { .. } => self.on_conflict(asked, now),
            StoreError::ClusterChanged => match self.mode {
                // Nothing was written; a claim is made anew under the new record.
                Mode::Acquiring(_) | Mode::Seeking => self.seek(0, now),
                _ => self.soon(Next::Cluster, now),
            },
            error if error.is_transient() => self.on_transient(asked, error, now, notices),
            error if self.is_of_another(asked, &error) => {
                if self.peers.unread() {
                    notices.push(Notice::Uncompared { error });
                }
                self.soon(Next::Renew, now);
            }
            error => self.on_definite(error, now, notices),
        }
    }

    /// Whether a holder's scan met what is wrong with another code's record. What is wrong with its own, the swap that
    /// follows meets.
    fn is_of_another(&self, asked: &Asked, error: &StoreError) -> bool {
        let Mode::Held(held) = &self.mode else { return false };
        let is_another = match error {
            StoreError::Damaged { subject, .. } | StoreError::Missing { subject } => {
                matches!(subject, Subject::Code(code) if *code != held.code)
            }
            StoreError::WrongVersion { .. } => true,
            _ => false,
        };
        matches!(asked, Asked::Scan) && is_another
    }

    fn on_conflict(&mut self, asked: &Asked, now: &Now) {
        match self.mode {
            Mode::Acquiring(_) => self.lose_race(now),
            Mode::Seeking if matches!(asked, Asked::Tidy) => self.lose_race(now),
            // Somebody else's write, or an own one whose reply was lost: the record tells.
            Mode::Held(_) | Mode::Releasing(_) => self.soon(Next::Read, now),
            Mode::Seeking | Mode::Ended => self.seek(self.config.poll_ms(), now),
        }
    }

    fn on_transient(&mut self, asked: &Asked, error: StoreError, now: &Now, notices: &mut Vec<Notice>) {
        let retry_ms = self.config.retry_ms();
        match &self.mode {
            Mode::Held(held) => {
                notices.push(Notice::Unconfirmed { ticket: held.ticket(), error: error.clone() });
                self.hindrance = Some(Hindrance::Store(error));
                let next = if matches!(asked, Asked::Cluster) { Next::Cluster } else { Next::Read };
                self.later(next, retry_ms, now);
            }
            Mode::Acquiring(claim) => {
                let given_up_ms = claim.sent.boot_ms.saturating_add(u64::from(self.config.window_ms));
                self.hinder(Hindrance::Store(error), notices);
                if now.boot_ms >= given_up_ms {
                    // Its window would be over: whatever comes of it, it is not adopted any more.
                    self.seek(retry_ms, now);
                } else {
                    self.later(Next::Read, retry_ms, now);
                }
            }
            Mode::Releasing(releasing) => {
                if now.boot_ms >= releasing.until_boot_ms {
                    self.end_release(false, now, notices);
                } else {
                    let next = if matches!(asked, Asked::Cluster) { Next::Cluster } else { Next::Read };
                    self.later(next, retry_ms, now);
                }
            }
            Mode::Seeking => {
                for watch in self.watches.values_mut() {
                    watch.missed();
                }
                self.hinder(Hindrance::Store(error), notices);
                self.seek(self.config.poll_ms(), now);
            }
            Mode::Ended => {}
        }
    }

    fn on_definite(&mut self, error: StoreError, now: &Now, notices: &mut Vec<Notice>) {
        match &self.mode {
            Mode::Held(_) => self.lose(Loss::Store(error), now, notices),
            Mode::Releasing(_) => {
                self.hindrance = Some(Hindrance::Store(error));
                self.end_release(false, now, notices);
            }
            Mode::Acquiring(_) | Mode::Seeking => {
                self.watches.clear();
                self.hinder(Hindrance::Store(error), notices);
                self.seek(self.config.poll_ms(), now);
            }
            Mode::Ended => {}
        }
    }
}

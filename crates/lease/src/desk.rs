//! The service's side of leases for runtimes that cannot reach a store: the **desk**.
//!
//! A runtime **calls**: acquire, renew, release. The desk runs the [`crate::protocol`] for it, over any [`Store`], on
//! the service's own clock, and **answers**. Whatever carries calls and answers may lose, delay, double and reorder
//! them.
//!
//! # Nonces
//!
//! A call brings its own nonce, and the record that it leads to bears it. So the record is the desk's whole memory:
//! another desk over the same store, or the same one after a restart, knows a call again by it.
//!
//! | the call is repeated | the desk |
//! |---|---|
//! | acquire, before the first renewal | answers with the same grant, and writes nothing |
//! | acquire, after it | refuses: [`CallError::Spent`] |
//! | renew, release | answers with what the record says, and writes nothing |
//! | any of them, once the code has moved on | refuses: [`LeaseRefusal::NotHolder`] |
//!
//! The nonces of one grant share their high 64 bits ([`is_kin`]), so that the record of a grant that was renewed or
//! released still tells by which call it was acquired. The low 64 are fresh in each call.
//!
//! # What is in memory
//!
//! For how long the desk has seen each holder be silent ([`Watch`]). A desk that restarts begins to watch anew, which
//! can only keep a code from being taken sooner.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use snowmint_core::{CLOCK_ERROR_MS_MAX_DEFAULT, Layout, POLICY_MS_MAX};

use crate::protocol::{self, Bid, Choice, Holder, LeaseRefusal, NoneLeft, Watch};
use crate::record::{ticket, ticket_parts};
use crate::store::scan_complete;
use crate::{ClusterRecord, CodeRecord, Now, Owner, State, Store, StoreError, Stored, WINDOW_MS_MIN};

/// How often a call begins anew because somebody else wrote first, before the caller is told to come again.
const TRIES_MAX: u32 = 8;

/// What a runtime asks of a service that leases.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// A code.
    Acquire(Acquire),
    /// To go on holding it.
    Renew(Renew),
    /// To give it back.
    Release(Release),
}

impl Call {
    /// The nonce, by which the record shows that the call was carried out.
    pub const fn nonce(&self) -> u128 {
        match self {
            Self::Acquire(call) => call.nonce,
            Self::Renew(call) => call.nonce,
            Self::Release(call) => call.nonce,
        }
    }
}

/// Asks for a code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acquire {
    /// The layout that the caller is configured with. `None`: it takes the cluster's.
    pub layout: Option<Layout>,
    /// The region that the caller is configured with. `None`: it takes the cluster's.
    pub region: Option<u32>,
    /// The name to hold the code by.
    pub owner: Owner,
    /// The window in milliseconds: [`WINDOW_MS_MIN`] to what the desk allows.
    pub window_ms: u32,
    /// How far ahead of the clock the generator may stamp, in milliseconds: 0 to [`POLICY_MS_MAX`].
    pub lead_ms: u32,
    /// 128 fresh random bits.
    pub nonce: u128,
}

/// Asks to go on holding a code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Renew {
    /// Which grant.
    pub grant: GrantName,
    /// The window that the code was acquired with.
    pub window_ms: u32,
    /// How far ahead of the clock the generator may stamp, in milliseconds: 0 to [`POLICY_MS_MAX`].
    pub lead_ms: u32,
    /// The nonce of the last call for this grant that was answered.
    pub held: u128,
    /// Kin of `held`; its low 64 bits are fresh, but for a call that is repeated.
    pub nonce: u128,
}

/// Gives a code back. The caller has stopped its generator before.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Release {
    /// Which grant.
    pub grant: GrantName,
    /// The last Unix millisecond that may have been stamped. `u64::MAX`: all that was granted.
    pub last_reserved_ms: u64,
    /// The nonce of the last call for this grant that was answered.
    pub held: u128,
    /// The nonce of a renewal that was not answered: perhaps the record bears it.
    pub perhaps_held: Option<u128>,
    /// Kin of `held`; its low 64 bits are fresh, but for a call that is repeated.
    pub nonce: u128,
}

/// Which grant of which store, and by which layout and region it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GrantName {
    /// The ticket: generation, code and term.
    pub ticket: u64,
    /// The store's uuid.
    pub store: u128,
    /// The layout that it was given by.
    pub layout: Layout,
    /// The region that it was given in.
    pub region: u32,
}

/// What the desk answers to a call that it has carried out, now or before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// The grant.
    pub grant: GrantName,
    /// Its code, which is the worker of its node.
    pub code: u32,
    /// Its term.
    pub term: u32,
    /// The last Unix millisecond that it may not stamp.
    pub floor_ms: u64,
    /// The last Unix millisecond that it may stamp; after a release, the last that may have been stamped.
    pub end_ms: u64,
    /// The call's nonce, which the record bears.
    pub nonce: u128,
    /// The service's wall clock while it answered, in Unix milliseconds.
    pub now_ms: u64,
    /// That clock's error bound in milliseconds; `u32::MAX` when it is unknown.
    pub clock_error_ms: u32,
    /// The call was carried out before, and this is the same answer again.
    pub is_repeated: bool,
}

/// Why a call was not carried out. Both sides have the same enum; a wire in between keeps every field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallError {
    /// The store, or the way to it: layout, region and generation that differ are among these.
    Store(StoreError),
    /// The protocol refuses.
    Refused(LeaseRefusal),
    /// No code can be had now.
    NoneLeft(NoneLeft),
    /// The service's own clock is not to be believed: it grants nothing by it.
    Clock {
        /// Its error bound in milliseconds; `u32::MAX` when it is unknown.
        clock_error_ms: u32,
    },
    /// The nonce of an acquire was used: its grant was renewed or released, is another's, or is over.
    Spent,
    /// The call asks for what is never given. The fault is the caller's configuration.
    Invalid {
        /// What does not fit.
        detail: String,
    },
}

impl From<StoreError> for CallError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<LeaseRefusal> for CallError {
    fn from(refusal: LeaseRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::NoneLeft(none) => none.fmt(f),
            Self::Clock { clock_error_ms: u32::MAX } => f.write_str(
                "the error bound of the service's clock is unknown: synchronise that clock; no code is given by it",
            ),
            Self::Clock { clock_error_ms } => write!(
                f,
                "the service's clock may be off by {clock_error_ms} ms, above its limit: see to its synchronisation; \
                 no code is given by it"
            ),
            Self::Spent => f.write_str("the call's nonce was used before: draw another and ask again"),
            Self::Invalid { detail } => {
                write!(f, "the call asks for what is never given ({detail}): correct the caller's configuration")
            }
        }
    }
}

impl std::error::Error for CallError {}

/// Whether two nonces are of one grant: their high 64 bits are the same.
pub const fn is_kin(one: u128, other: u128) -> bool {
    one >> 64 == other >> 64
}

/// A nonce of the same grant as `nonce`, with the low 64 bits of `fresh`.
pub const fn kin_of(nonce: u128, fresh: u128) -> u128 {
    const LOW: u128 = u64::MAX as u128;
    (nonce & !LOW) | (fresh & LOW)
}

/// What a service's operator chooses about its desk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeskConfig {
    /// The longest window that a caller may ask for, in milliseconds: it is also how long a caller that vanished keeps
    /// its code, times 1.5.
    pub window_ms_max: u32,
    /// The quarantine of a code that the desk expires, in milliseconds. 0 is safe: ranges are disjoint.
    pub quarantine_ms: u64,
    /// The error of the service's clock above which no code is given and no end is raised. `u32::MAX`: any.
    pub clock_error_ms_max: u32,
}

impl Default for DeskConfig {
    fn default() -> Self {
        Self { window_ms_max: 60_000, quarantine_ms: 0, clock_error_ms_max: CLOCK_ERROR_MS_MAX_DEFAULT }
    }
}

/// Carries out calls on a store. Several may share a store, with keepers beside them.
///
/// Threads share a desk: no lock is held while the store is asked.
#[derive(Debug, Default)]
pub struct Desk {
    config: DeskConfig,
    watches: Mutex<BTreeMap<u32, Watch>>,
}

impl Desk {
    /// A desk that has seen nothing yet.
    pub const fn new(config: DeskConfig) -> Self {
        Self { config, watches: Mutex::new(BTreeMap::new()) }
    }

    /// Carries out a call. `clock` reads the service's clocks; `nonce` gives 128 fresh random bits.
    ///
    /// After [`StoreError::Unreachable`] and [`StoreError::Io`] the call may have been carried out: repeated with the
    /// same nonce, it tells.
    pub fn serve(
        &self,
        store: &dyn Store,
        call: &Call,
        clock: &mut dyn FnMut() -> Now,
        nonce: &mut dyn FnMut() -> u128,
    ) -> Result<Answer, CallError> {
        match call {
            Call::Acquire(call) => self.acquire(store, call, clock, nonce),
            Call::Renew(call) => self.renew(store, call, clock),
            Call::Release(call) => release(store, call, clock),
        }
    }

    /// Looks at all codes, so that silent holders are noticed also while nobody acquires. A service MAY do this every
    /// third of the window; without it, those that wait for a code do the watching by asking for one.
    pub fn look(&self, store: &dyn Store, clock: &mut dyn FnMut() -> Now) -> Result<(), StoreError> {
        let cluster = store.cluster()?;
        self.scan(store, &cluster.record, clock).map(|_| ())
    }

    fn acquire(
        &self,
        store: &dyn Store,
        call: &Acquire,
        clock: &mut dyn FnMut() -> Now,
        fresh: &mut dyn FnMut() -> u128,
    ) -> Result<Answer, CallError> {
        self.check_times(call.window_ms, call.lead_ms)?;
        let bid = Bid { owner: &call.owner, window_ms: call.window_ms, lead_ms: call.lead_ms };
        for tries in 0..TRIES_MAX {
            let cluster = store.cluster()?;
            check_cluster(&cluster.record, call.layout, call.region)?;
            let (codes, now) = self.scan(store, &cluster.record, clock)?;
            if let Some((code, record)) = find(&codes, &cluster.record, call)? {
                return Ok(answer(&cluster.record, code, record, &now, true));
            }
            if now.clock_error_ms > self.config.clock_error_ms_max {
                return Err(CallError::Clock { clock_error_ms: now.clock_error_ms });
            }
            let watches = self.watches().clone();
            let silent_ms =
                |code, record: &CodeRecord| watches.get(&code).map_or(0, |watch| watch.silent_ms(record));
            // The first choice is drawn by the call's own nonce: two desks that are told the same call and see the same
            // codes choose the same one, and the slower finds the grant of the quicker.
            let choice = protocol::choose(&codes, &cluster.record, &bid, &now, silent_ms, tries, call.nonce);
            let code = match choice {
                Choice::Acquire { code } | Choice::Free { code } | Choice::Expire { code } => code,
                Choice::Wait(none_left) => return Err(CallError::NoneLeft(none_left)),
            };
            let Some((_, stored)) = codes.iter().find(|(other, _)| *other == code) else { continue };
            let acquire =
                |record: &CodeRecord| protocol::acquire(record, &cluster.record, &bid, &now, call.nonce);
            // One swap, where the protocol allows one step after the other. A record that is tidied only bears a nonce
            // that is not the call's.
            let tidied = match choice {
                Choice::Free { .. } => protocol::free(&stored.record, &now, fresh())?,
                Choice::Expire { .. } => {
                    let watch = watches.get(&code).cloned().unwrap_or_default();
                    protocol::expire(&stored.record, &watch, self.config.quarantine_ms, &now, fresh())?
                }
                _ => stored.record.clone(),
            };
            let record = match acquire(&tidied) {
                Ok(record) => record,
                Err(_) if tidied != stored.record => tidied,
                Err(refusal) => return Err(refusal.into()),
            };
            match store.swap(code, stored.revision, cluster.revision, &record) {
                Ok(_) if record.nonce == call.nonce => {
                    return Ok(answer(&cluster.record, code, &record, &now, false));
                }
                Ok(_) | Err(StoreError::Conflict { .. } | StoreError::ClusterChanged) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(busy())
    }

    fn renew(
        &self,
        store: &dyn Store,
        call: &Renew,
        clock: &mut dyn FnMut() -> Now,
    ) -> Result<Answer, CallError> {
        self.check_times(call.window_ms, call.lead_ms)?;
        check_kin(call.held, call.nonce)?;
        for _ in 0..TRIES_MAX {
            let (cluster, code, term, stored) = read(store, &call.grant)?;
            let now = clock();
            let record = &stored.record;
            let is_done = record.state == State::Active && record.term == term && record.nonce == call.nonce;
            if is_done {
                return Ok(answer(&cluster.record, code, record, &now, true));
            }
            // The holder's deadline and what others wait for are made of the same window.
            if record.nonce == call.held && record.ttl_ms != protocol::ttl_ms(call.window_ms) {
                let detail = format!(
                    "a window of {} ms, and the code was acquired with another: its time to live is {} ms",
                    call.window_ms, record.ttl_ms
                );
                return Err(CallError::Invalid { detail });
            }
            let is_believed = now.clock_error_ms <= self.config.clock_error_ms_max;
            let ahead_ms = if is_believed { u64::from(call.window_ms) + u64::from(call.lead_ms) } else { 0 };
            let holder = Holder { term, nonce: call.held };
            let renewed = protocol::renew(record, &cluster.record, holder, ahead_ms, &now, call.nonce)?;
            match store.swap(code, stored.revision, cluster.revision, &renewed) {
                Ok(_) => return Ok(answer(&cluster.record, code, &renewed, &now, false)),
                Err(StoreError::Conflict { .. } | StoreError::ClusterChanged) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(busy())
    }

    /// All codes, and the clocks after they were read.
    fn scan(
        &self,
        store: &dyn Store,
        cluster: &ClusterRecord,
        clock: &mut dyn FnMut() -> Now,
    ) -> Result<(Codes, Now), StoreError> {
        let sent = clock();
        let scan = scan_complete(store, cluster);
        let now = clock();
        let mut watches = self.watches();
        match &scan {
            Ok(codes) => {
                for (code, stored) in codes {
                    watches.entry(*code).or_default().saw(&stored.record, sent.boot_ms, now.boot_ms);
                }
            }
            Err(_) => watches.values_mut().for_each(Watch::missed),
        }
        Ok((scan?, now))
    }

    fn watches(&self) -> MutexGuard<'_, BTreeMap<u32, Watch>> {
        // Each entry is whole at any time: a panic elsewhere leaves what was seen, which was.
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_times(&self, window_ms: u32, lead_ms: u32) -> Result<(), CallError> {
        let window_ms_max = self.config.window_ms_max.min(POLICY_MS_MAX);
        if !(WINDOW_MS_MIN..=window_ms_max).contains(&window_ms) {
            let detail = format!(
                "a window of {window_ms} ms; this service gives {WINDOW_MS_MIN} to {window_ms_max} ms"
            );
            return Err(CallError::Invalid { detail });
        }
        if lead_ms > POLICY_MS_MAX {
            let detail = format!("a lead of {lead_ms} ms; at most {POLICY_MS_MAX} ms are given");
            return Err(CallError::Invalid { detail });
        }
        Ok(())
    }
}

fn release(store: &dyn Store, call: &Release, clock: &mut dyn FnMut() -> Now) -> Result<Answer, CallError> {
    check_kin(call.held, call.nonce)?;
    check_kin(call.held, call.perhaps_held.unwrap_or(call.held))?;
    for _ in 0..TRIES_MAX {
        let (cluster, code, term, stored) = read(store, &call.grant)?;
        let now = clock();
        let record = &stored.record;
        if record.state == State::Free && record.term == term && record.nonce == call.nonce {
            return Ok(answer(&cluster.record, code, record, &now, true));
        }
        let nonce = call.perhaps_held.filter(|&nonce| nonce == record.nonce).unwrap_or(call.held);
        let holder = Holder { term, nonce };
        let released = protocol::release(record, holder, call.last_reserved_ms, &now, call.nonce)?;
        match store.swap(code, stored.revision, cluster.revision, &released) {
            Ok(_) => return Ok(answer(&cluster.record, code, &released, &now, false)),
            Err(StoreError::Conflict { .. } | StoreError::ClusterChanged) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(busy())
}

/// Every code's record, in the order of their codes.
type Codes = Vec<(u32, Stored<CodeRecord>)>;

type Read = (Stored<ClusterRecord>, u32, u32, Stored<CodeRecord>);

/// The cluster, the code and the term that a grant is of, and the code's record.
fn read(store: &dyn Store, grant: &GrantName) -> Result<Read, CallError> {
    let cluster = store.cluster()?;
    check_cluster(&cluster.record, Some(grant.layout), Some(grant.region))?;
    let (granted, code, term) = ticket_parts(grant.ticket);
    let stored = cluster.record.generation;
    if (cluster.record.uuid, stored) != (grant.store, granted) {
        return Err(StoreError::WrongGeneration { stored, granted }.into());
    }
    if code >= cluster.record.codes() {
        let detail = format!("code {code}, and the region has {}", cluster.record.codes());
        return Err(CallError::Invalid { detail });
    }
    let record = store.read(code)?;
    Ok((cluster, code, term, record))
}

fn check_cluster(
    cluster: &ClusterRecord,
    layout: Option<Layout>,
    region: Option<u32>,
) -> Result<(), StoreError> {
    if let Some(configured) = region.filter(|region| *region != cluster.region) {
        return Err(StoreError::WrongRegion { stored: cluster.region, configured });
    }
    if let Some(configured) = layout.filter(|layout| *layout != cluster.layout) {
        return Err(StoreError::WrongLayout {
            stored: cluster.layout.to_string(),
            configured: configured.to_string(),
        });
    }
    Ok(())
}

fn check_kin(held: u128, nonce: u128) -> Result<(), CallError> {
    if is_kin(held, nonce) {
        return Ok(());
    }
    let detail = String::from("a nonce whose high 64 bits are not those of the grant's");
    Err(CallError::Invalid { detail })
}

/// The grant that a call has led to already, while nothing but that call was done with it.
fn find<'a>(
    codes: &'a [(u32, Stored<CodeRecord>)],
    cluster: &ClusterRecord,
    call: &Acquire,
) -> Result<Option<(u32, &'a CodeRecord)>, CallError> {
    let mut found = None;
    for (code, Stored { record, .. }) in codes {
        if record.term == 0 || !is_kin(record.nonce, call.nonce) {
            continue;
        }
        // A grant that begins below the time of a recovery is one of before, and over.
        let is_same = record.state == State::Active
            && record.nonce == call.nonce
            && record.owner.as_ref() == Some(&call.owner)
            && record.ttl_ms == protocol::ttl_ms(call.window_ms)
            && record.floor_ms >= cluster.not_before_ms;
        if !is_same {
            return Err(CallError::Spent);
        }
        found = found.or(Some((*code, record)));
    }
    Ok(found)
}

fn answer(cluster: &ClusterRecord, code: u32, record: &CodeRecord, now: &Now, is_repeated: bool) -> Answer {
    Answer {
        grant: GrantName {
            ticket: ticket(cluster.generation, code, record.term),
            store: cluster.uuid,
            layout: cluster.layout,
            region: cluster.region,
        },
        code,
        term: record.term,
        floor_ms: record.floor_ms,
        end_ms: record.end_ms,
        nonce: record.nonce,
        now_ms: now.wall_ms,
        clock_error_ms: now.clock_error_ms,
        is_repeated,
    }
}

fn busy() -> CallError {
    let detail = String::from("others wrote first, again and again");
    StoreError::Unreachable { detail }.into()
}

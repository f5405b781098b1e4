//! The side of a runtime that cannot reach a store: a state machine that keeps one code through a service's
//! [`crate::desk`], without IO.
//!
//! It is to a service what [`crate::Keeper`] is to a store, and speaks the same words: [`View`], [`Phase`],
//! [`Notice`], [`Hindrance`], [`Loss`].

use std::fmt;

use snowmint_core::{CLOCK_ERROR_MS_MAX_DEFAULT, Grant, Layout, POLICY_MS_MAX};

use crate::desk::{Acquire, Answer, Call, CallError, GrantName, Release, Renew, kin_of};
use crate::driver::Step;
use crate::protocol::{self, LeaseRefusal};
use crate::record::ticket_parts;
use crate::{
    ClusterError, ClusterRecord, FLEET_WINDOW_MS_DEFAULT, Hindrance, KeeperConfigError, Loss, Notice, Now,
    Owner, Phase, Stopped, StoreError, Then, View, WINDOW_MS_MIN,
};

/// How many calls one step makes at most.
const CALLS_MAX: usize = 32;

/// The way to a service that leases: carries one call there, and its answer back.
///
/// - It MUST answer with what the service answered to this call, or with an error.
/// - Where it does not know whether the call was carried out, the error MUST be [`StoreError::Unreachable`] or
///   [`StoreError::Io`].
/// - It MAY ask again, and ask several instances over one store: a call is carried out once, by its nonce.
/// - It MAY block, and SHOULD give up within a third of the window.
pub trait LeaseService {
    /// Carries a call.
    fn call(&self, call: &Call) -> Result<Answer, CallError>;
}

/// What an operator chooses about a lease by a service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RemoteConfig {
    /// The layout, which must be the service's. `None`: whatever the service's is.
    pub layout: Option<Layout>,
    /// The region, which must be the service's. `None`: whatever the service's is.
    pub region: Option<u32>,
    /// The name to hold a code by.
    pub owner: Owner,
    /// How far ahead of the service's clock a confirmed end reaches, in milliseconds: how long minting goes on without
    /// the service. [`WINDOW_MS_MIN`] to one hour, or to what the service allows.
    pub window_ms: u32,
    /// How far ahead of the clock the generator may stamp (its policy's lead), in milliseconds; at most one hour.
    pub lead_ms: u32,
    /// The error of the own clock above which no code is asked for. `u32::MAX`: any.
    pub clock_error_ms_max: u32,
}

impl RemoteConfig {
    /// The service's layout and region, under this name, with a fleet's window.
    pub const fn new(owner: Owner) -> Self {
        Self {
            layout: None,
            region: None,
            owner,
            window_ms: FLEET_WINDOW_MS_DEFAULT,
            lead_ms: 0,
            clock_error_ms_max: CLOCK_ERROR_MS_MAX_DEFAULT,
        }
    }

    fn check(&self) -> Result<(), KeeperConfigError> {
        if let Some(layout) = self.layout {
            ClusterRecord::new(0, layout, self.region.unwrap_or(0)).map_err(KeeperConfigError::Cluster)?;
        }
        if !(WINDOW_MS_MIN..=POLICY_MS_MAX).contains(&self.window_ms) {
            return Err(KeeperConfigError::Window { window_ms: self.window_ms });
        }
        Ok(())
    }

    const fn third_ms(&self) -> u64 {
        self.window_ms as u64 / 3
    }

    const fn retry_ms(&self) -> u64 {
        self.window_ms as u64 / 12
    }

    const fn until_ms(&self, sent_boot_ms: u64) -> u64 {
        sent_boot_ms.saturating_add(self.window_ms as u64)
    }
}

/// Names one exchange with the service, so that its answer is known from others that come late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(u64);

/// What happens to a remote keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteEvent {
    /// Time has passed. To be told at [`RemoteKeeper::next_wake_boot_ms`] at the latest; earlier does no harm.
    Time,
    /// An answer came. Answers may be delayed, lost, doubled and out of order.
    Answer {
        /// The call's.
        id: CallId,
        /// The answer.
        answer: Box<Result<Answer, CallError>>,
    },
    /// The code is to be given back.
    Release {
        /// What stopping the generator of the last grant returned. `None`: there was no generator.
        stopped: Option<Stopped>,
        /// What to do afterwards.
        then: Then,
    },
}

/// What came of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct RemoteOutput {
    /// What to call now. There is one call at a time; another replaces it.
    pub call: Option<(CallId, Call)>,
    /// What happened.
    pub notices: Vec<Notice>,
}

/// A code that is asked for: every exchange for it bears this nonce, until it is decided or given up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Claim {
    nonce: u128,
    sent_boot_ms: u64,
}

/// A renewal that is not decided: it is repeated as it is until it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Renewal {
    nonce: u128,
    sent_boot_ms: u64,
}

/// A grant, as the service last answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    answer: Answer,
    deadline_boot_ms: u64,
    renewal: Option<Renewal>,
    is_taken: bool,
    is_lapsed: bool,
}

impl Held {
    const fn ticket(&self) -> u64 {
        self.answer.grant.ticket
    }

    const fn view(&self) -> View {
        View {
            ticket: self.answer.grant.ticket,
            code: self.answer.code,
            term: self.answer.term,
            floor_ms: self.answer.floor_ms,
            end_ms: self.answer.end_ms,
            deadline_boot_ms: self.deadline_boot_ms,
            // Its one peer is the service: whoever disagrees with that lapses.
            is_outvoted: false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Releasing {
    held: Held,
    last_reserved_ms: u64,
    /// The low 64 bits are drawn when it is first sent.
    nonce: Option<u128>,
    then: Then,
    until_boot_ms: u64,
    /// How long to wait before another code is asked for.
    pause_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Mode {
    Seeking,
    Acquiring(Claim),
    Held(Box<Held>),
    Releasing(Box<Releasing>),
    Ended,
}

/// An exchange that stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Asked {
    id: CallId,
    sent: Now,
    /// The call's nonce.
    nonce: u128,
}

/// Keeps one code for one generator through a service.
///
/// A state machine without IO: whoever owns it tells it events and both clocks' readings, and carries its one call at
/// a time. [`step`] does that for a service that can be called.
///
/// | the answer to a renewal | the grant |
/// |---|---|
/// | carried out, now or before | the ceiling rises; the deadline is the boot-time clock before the renewal was *first* sent, plus the window |
/// | carried out, and the clocks disagree | the ceiling rises, the deadline stays: the grant lapses until they agree |
/// | none | holds to the confirmed end, until the deadline; the same renewal is sent again |
/// | not the holder | it is over |
/// | any other error | it is over at once |
///
/// One answer is accepted for each nonce. An answer to an exchange that was given up is dropped.
#[derive(Debug)]
#[cfg_attr(feature = "explore", derive(Clone, PartialEq, Eq, Hash))]
pub struct RemoteKeeper {
    config: RemoteConfig,
    mode: Mode,
    wake_boot_ms: u64,
    asked: Option<Asked>,
    calls: u64,
    is_ending: bool,
    hindrance: Option<Hindrance>,
    loss: Option<Loss>,
}

impl RemoteKeeper {
    /// A keeper that will ask for a code at its first event.
    pub fn new(config: RemoteConfig) -> Result<Self, KeeperConfigError> {
        config.check()?;
        Ok(Self {
            config,
            mode: Mode::Seeking,
            wake_boot_ms: 0,
            asked: None,
            calls: 0,
            is_ending: false,
            hindrance: None,
            loss: None,
        })
    }

    /// The configuration.
    pub const fn config(&self) -> &RemoteConfig {
        &self.config
    }

    /// The grant, once. `None`: there is none, it was taken before, or its window is over.
    pub fn take_grant(&mut self, now_boot_ms: u64) -> Option<Grant> {
        let Mode::Held(held) = &mut self.mode else { return None };
        if held.is_taken || held.view().ceiling_ms(now_boot_ms) == 0 {
            return None;
        }
        let GrantName { ticket, layout, region, .. } = held.answer.grant;
        let node = layout.node(region, held.answer.code).ok()?;
        held.is_taken = true;
        Some(Grant::new(node, ticket, held.answer.floor_ms))
    }

    /// The last Unix millisecond that the grant of this ticket may stamp, at this reading of the boot-time clock.
    /// 0: stop. 0 for every other ticket.
    pub fn ceiling_ms(&self, ticket: u64, now_boot_ms: u64) -> u64 {
        self.view().filter(|view| view.ticket == ticket).map_or(0, |view| view.ceiling_ms(now_boot_ms))
    }

    /// The held grant, lapsed or not; `None` where there is none, or it is being given back.
    pub fn view(&self) -> Option<View> {
        match &self.mode {
            Mode::Held(held) => Some(held.view()),
            _ => None,
        }
    }

    /// The layout and region that the held grant was given by.
    pub fn terms(&self) -> Option<(Layout, u32)> {
        match &self.mode {
            Mode::Held(held) => Some((held.answer.grant.layout, held.answer.grant.region)),
            _ => None,
        }
    }

    /// What it is doing at this reading of the boot-time clock.
    pub fn phase(&self, now_boot_ms: u64) -> Phase {
        match &self.mode {
            Mode::Seeking => Phase::Seeking,
            Mode::Acquiring(_) => Phase::Acquiring,
            Mode::Held(held) if now_boot_ms < held.deadline_boot_ms => Phase::Held,
            Mode::Held(_) => Phase::Lapsed,
            Mode::Releasing(_) => Phase::Releasing,
            Mode::Ended => Phase::Ended,
        }
    }

    /// Why there is no code, or what last went wrong; `None` when all is well.
    pub const fn hindrance(&self) -> Option<&Hindrance> {
        self.hindrance.as_ref()
    }

    /// Why the last grant ended, if it was lost.
    pub const fn loss(&self) -> Option<&Loss> {
        self.loss.as_ref()
    }

    /// When to tell [`RemoteEvent::Time`] at the latest, by the boot-time clock. `u64::MAX`: never.
    pub fn next_wake_boot_ms(&self) -> u64 {
        let wake_ms = match (&self.mode, &self.asked) {
            (Mode::Ended, _) => return u64::MAX,
            (_, Some(asked)) => asked.sent.boot_ms.saturating_add(self.config.third_ms()),
            (_, None) => self.wake_boot_ms,
        };
        match &self.mode {
            Mode::Held(held) if !held.is_lapsed => wake_ms.min(held.deadline_boot_ms),
            _ => wake_ms,
        }
    }

    /// Takes an event in. `now` was read after the event and before the call that is returned is sent; `nonce` is 128
    /// fresh random bits, never used before.
    pub fn handle(&mut self, event: RemoteEvent, now: &Now, nonce: u128) -> RemoteOutput {
        let mut notices = Vec::new();
        self.note_lapse(now, &mut notices);
        match event {
            RemoteEvent::Time => {
                let third_ms = self.config.third_ms();
                let is_lost = |asked: &mut Asked| now.boot_ms >= asked.sent.boot_ms.saturating_add(third_ms);
                if let Some(asked) = self.asked.take_if(is_lost) {
                    let detail = format!("no answer within {third_ms} ms");
                    let error = StoreError::Unreachable { detail };
                    self.on_error(&asked, error.into(), now, &mut notices);
                }
            }
            RemoteEvent::Answer { id, answer } => {
                // An answer to anything but the exchange that stands is dropped: the service is asked again.
                if let Some(asked) = self.asked.take_if(|asked| asked.id == id) {
                    match *answer {
                        Ok(answer) => self.on_answer(&asked, &answer, now, &mut notices),
                        Err(error) => self.on_error(&asked, error, now, &mut notices),
                    }
                }
            }
            RemoteEvent::Release { stopped, then } => self.on_release(stopped, then, now),
        }
        self.note_lapse(now, &mut notices);
        let is_due = now.boot_ms >= self.wake_boot_ms && !matches!(self.mode, Mode::Ended);
        let call = if self.asked.is_none() && is_due { self.ask(now, nonce, &mut notices) } else { None };
        RemoteOutput { call, notices }
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

    fn wake_in(&mut self, delay_ms: u64, now: &Now) {
        self.wake_boot_ms = now.boot_ms.saturating_add(delay_ms);
    }

    fn hinder(&mut self, hindrance: Hindrance, notices: &mut Vec<Notice>) {
        if self.hindrance.as_ref() != Some(&hindrance) {
            notices.push(Notice::Hindered(hindrance.clone()));
        }
        self.hindrance = Some(hindrance);
    }

    fn seek(&mut self, delay_ms: u64, now: &Now) {
        self.mode = if self.is_ending { Mode::Ended } else { Mode::Seeking };
        self.wake_in(delay_ms, now);
    }

    fn lose(&mut self, loss: Loss, now: &Now, notices: &mut Vec<Notice>) {
        if let Mode::Held(held) = &self.mode {
            notices.push(Notice::Lost { ticket: held.ticket(), loss: loss.clone() });
        }
        let delay_ms = match &loss {
            Loss::Superseded { .. } => 0,
            Loss::Store(error) => {
                self.hindrance = Some(Hindrance::Store(error.clone()));
                self.config.third_ms()
            }
        };
        self.loss = Some(loss);
        self.seek(delay_ms, now);
    }

    /// Makes the next call. `None`: there is a reason to wait.
    fn ask(&mut self, now: &Now, fresh: u128, notices: &mut Vec<Notice>) -> Option<(CallId, Call)> {
        let RemoteConfig { window_ms, lead_ms, .. } = self.config;
        if matches!(self.mode, Mode::Seeking) {
            if now.clock_error_ms > self.config.clock_error_ms_max {
                self.hinder(Hindrance::Clock { clock_error_ms: now.clock_error_ms }, notices);
                self.wake_in(self.config.third_ms(), now);
                return None;
            }
            self.mode = Mode::Acquiring(Claim { nonce: fresh, sent_boot_ms: now.boot_ms });
        }
        let call = match &mut self.mode {
            Mode::Acquiring(claim) => Call::Acquire(Acquire {
                layout: self.config.layout,
                region: self.config.region,
                owner: self.config.owner.clone(),
                window_ms,
                lead_ms,
                nonce: claim.nonce,
            }),
            Mode::Held(held) => {
                let fresh = Renewal { nonce: kin_of(held.answer.nonce, fresh), sent_boot_ms: now.boot_ms };
                let renewal = *held.renewal.get_or_insert(fresh);
                Call::Renew(Renew {
                    grant: held.answer.grant,
                    window_ms,
                    lead_ms,
                    held: held.answer.nonce,
                    nonce: renewal.nonce,
                })
            }
            Mode::Releasing(releasing) => {
                let held = &releasing.held;
                Call::Release(Release {
                    grant: held.answer.grant,
                    last_reserved_ms: releasing.last_reserved_ms,
                    held: held.answer.nonce,
                    perhaps_held: held.renewal.map(|renewal| renewal.nonce),
                    nonce: *releasing.nonce.get_or_insert_with(|| kin_of(held.answer.nonce, fresh)),
                })
            }
            Mode::Seeking | Mode::Ended => return None,
        };
        self.calls += 1;
        let id = CallId(self.calls);
        self.asked = Some(Asked { id, sent: *now, nonce: call.nonce() });
        Some((id, call))
    }

    fn on_release(&mut self, stopped: Option<Stopped>, then: Then, now: &Now) {
        if then == Then::End {
            self.is_ending = true;
        }
        match std::mem::replace(&mut self.mode, Mode::Ended) {
            Mode::Held(held) => {
                let last_reserved_ms = match stopped {
                    // Nobody ever had the grant, so that nothing was minted.
                    _ if !held.is_taken => held.answer.floor_ms,
                    Some(stopped) if stopped.ticket == held.ticket() => stopped.last_reserved_ms,
                    // How far the grant was used is not known: all of it, also what is not confirmed yet.
                    _ => u64::MAX,
                };
                self.begin_release(*held, last_reserved_ms, then, 0, now);
            }
            Mode::Releasing(mut releasing) => {
                if then == Then::End {
                    releasing.then = then;
                }
                self.mode = Mode::Releasing(releasing);
            }
            // What was asked for is given back as soon as it is known to be held.
            Mode::Acquiring(claim) => self.mode = Mode::Acquiring(claim),
            Mode::Seeking if then == Then::End => {}
            Mode::Seeking => self.mode = Mode::Seeking,
            Mode::Ended => {}
        }
    }

    fn begin_release(&mut self, held: Held, last_reserved_ms: u64, then: Then, pause_ms: u64, now: &Now) {
        // A renewal may be under way: its nonce goes along, and whatever it did is over once the code is free.
        self.asked = None;
        let ttl_ms = u64::from(protocol::ttl_ms(self.config.window_ms));
        self.mode = Mode::Releasing(Box::new(Releasing {
            held,
            last_reserved_ms,
            nonce: None,
            then,
            until_boot_ms: now.boot_ms.saturating_add(ttl_ms),
            pause_ms,
        }));
        self.wake_in(0, now);
    }

    fn end_release(&mut self, released_end_ms: Option<u64>, now: &Now, notices: &mut Vec<Notice>) {
        let Mode::Releasing(releasing) = std::mem::replace(&mut self.mode, Mode::Ended) else { return };
        let ticket = releasing.held.ticket();
        notices.push(match released_end_ms {
            Some(end_ms) => Notice::Released { ticket, end_ms },
            None => Notice::Unreleased { ticket },
        });
        if releasing.then == Then::Acquire {
            self.seek(releasing.pause_ms, now);
        }
    }

    fn on_answer(&mut self, asked: &Asked, answer: &Answer, now: &Now, notices: &mut Vec<Notice>) {
        if let Err(error) = self.check_answer(asked, answer) {
            self.on_error(asked, error.into(), now, notices);
            return;
        }
        let off = disagreement(&asked.sent, now, answer);
        let window_ms = self.config.window_ms;
        match &mut self.mode {
            Mode::Acquiring(claim) => {
                let deadline_boot_ms = claim.sent_boot_ms.saturating_add(u64::from(window_ms));
                self.hold(answer, deadline_boot_ms, off, now, notices);
            }
            Mode::Held(held) => {
                let Some(renewal) = held.renewal.take() else { return };
                let end_before_ms = held.answer.end_ms;
                held.answer = *answer;
                let wake_boot_ms = renewal.sent_boot_ms.saturating_add(self.config.third_ms());
                if let Some(off) = off {
                    // Confirmed, but nothing more is to be minted by this clock: the deadline stays where it is.
                    self.hinder(Hindrance::Refused(off), notices);
                    self.wake_in(self.config.third_ms(), now);
                    return;
                }
                let deadline_boot_ms = self.config.until_ms(renewal.sent_boot_ms);
                held.deadline_boot_ms = held.deadline_boot_ms.max(deadline_boot_ms);
                self.wake_boot_ms = wake_boot_ms;
                self.hindrance = None;
                let (ticket, end_ms) = (held.ticket(), held.answer.end_ms);
                if held.is_lapsed && now.boot_ms < held.deadline_boot_ms {
                    held.is_lapsed = false;
                    notices.push(Notice::Resumed { ticket, end_ms });
                } else if end_ms > end_before_ms {
                    notices.push(Notice::Renewed { ticket, end_ms });
                }
            }
            Mode::Releasing(_) => self.end_release(Some(answer.end_ms), now, notices),
            Mode::Seeking | Mode::Ended => {}
        }
    }

    fn hold(
        &mut self,
        answer: &Answer,
        deadline_boot_ms: u64,
        off: Option<LeaseRefusal>,
        now: &Now,
        notices: &mut Vec<Notice>,
    ) {
        let held =
            Held { answer: *answer, deadline_boot_ms, renewal: None, is_taken: false, is_lapsed: false };
        let floor_ms = answer.floor_ms;
        if self.is_ending {
            self.begin_release(held, floor_ms, Then::End, 0, now);
            return;
        }
        if let Some(off) = off {
            self.hinder(Hindrance::Refused(off), notices);
            let window_ms = u64::from(self.config.window_ms);
            self.begin_release(held, floor_ms, Then::Acquire, window_ms, now);
            return;
        }
        self.hindrance = None;
        self.loss = None;
        notices.push(Notice::Granted {
            ticket: held.ticket(),
            code: answer.code,
            floor_ms,
            end_ms: answer.end_ms,
        });
        // A third after the sending: the window began then.
        let sent_boot_ms = deadline_boot_ms.saturating_sub(u64::from(self.config.window_ms));
        self.wake_boot_ms = sent_boot_ms.saturating_add(self.config.third_ms());
        self.mode = Mode::Held(Box::new(held));
    }

    /// Whether an answer can be to this call.
    fn check_answer(&self, asked: &Asked, answer: &Answer) -> Result<(), StoreError> {
        let wrong = |what: &str| {
            let detail = format!("its answer does not fit the call: {what}");
            Err(StoreError::Unreachable { detail })
        };
        if answer.nonce != asked.nonce {
            return wrong("the nonce");
        }
        let (generation, code, term) = ticket_parts(answer.grant.ticket);
        if (code, term) != (answer.code, answer.term) || generation == 0 || term == 0 {
            return wrong("the ticket");
        }
        if answer.end_ms < answer.floor_ms {
            return wrong("the end lies below the floor");
        }
        let held = match &self.mode {
            Mode::Held(held) => &**held,
            Mode::Releasing(releasing) => &releasing.held,
            _ => return self.check_terms(&answer.grant, answer.code),
        };
        if answer.grant != held.answer.grant || answer.floor_ms != held.answer.floor_ms {
            return wrong("it is of another grant");
        }
        Ok(())
    }

    /// Whether a new grant is by the configured layout and region, and can be minted by.
    fn check_terms(&self, grant: &GrantName, code: u32) -> Result<(), StoreError> {
        let stored = grant.region;
        if let Some(configured) = self.config.region.filter(|region| *region != stored) {
            return Err(StoreError::WrongRegion { stored, configured });
        }
        if let Some(configured) = self.config.layout.filter(|layout| *layout != grant.layout) {
            return Err(StoreError::WrongLayout {
                stored: grant.layout.to_string(),
                configured: configured.to_string(),
            });
        }
        let unfit = |error: &dyn fmt::Display| StoreError::Misconfigured {
            detail: format!("the service's layout and region cannot be minted by: {error}"),
        };
        ClusterRecord::new(0, grant.layout, stored).map_err(|error: ClusterError| unfit(&error))?;
        grant.layout.node(stored, code).map_err(|error| unfit(&error))?;
        Ok(())
    }

    fn on_error(&mut self, asked: &Asked, error: CallError, now: &Now, notices: &mut Vec<Notice>) {
        match (&self.mode, error) {
            (Mode::Acquiring(claim), CallError::Spent) if claim.nonce == asked.nonce => {
                self.seek(self.config.retry_ms(), now);
            }
            (Mode::Acquiring(_), CallError::NoneLeft(none_left)) => {
                let third_ms = self.config.third_ms();
                let delay_ms = none_left.wait_ms.map_or(third_ms, |wait_ms| wait_ms.clamp(1, third_ms));
                self.hinder(Hindrance::NoneLeft(none_left), notices);
                self.seek(delay_ms, now);
            }
            (Mode::Acquiring(_), CallError::Refused(refusal)) => {
                self.hinder(Hindrance::Refused(refusal), notices);
                self.seek(self.config.third_ms(), now);
            }
            (Mode::Held(_), CallError::Refused(LeaseRefusal::NotHolder { state, term })) => {
                self.lose(Loss::Superseded { state, term }, now, notices);
            }
            (Mode::Releasing(_), CallError::Refused(_)) => self.end_release(None, now, notices),
            (_, error) => match as_store_error(error) {
                error if error.is_transient() => self.on_transient(error, now, notices),
                error => self.on_definite(error, now, notices),
            },
        }
    }

    fn on_transient(&mut self, error: StoreError, now: &Now, notices: &mut Vec<Notice>) {
        let retry_ms = self.config.retry_ms();
        match &self.mode {
            Mode::Held(held) => {
                notices.push(Notice::Unconfirmed { ticket: held.ticket(), error: error.clone() });
                self.hindrance = Some(Hindrance::Store(error));
                self.wake_in(retry_ms, now);
            }
            Mode::Acquiring(claim) => {
                let is_given_up = now.boot_ms >= self.config.until_ms(claim.sent_boot_ms);
                self.hinder(Hindrance::Store(error), notices);
                if is_given_up {
                    // Its window would be over: whatever comes of it, it is not accepted any more.
                    self.seek(retry_ms, now);
                } else {
                    self.wake_in(retry_ms, now);
                }
            }
            Mode::Releasing(releasing) => {
                if now.boot_ms >= releasing.until_boot_ms {
                    self.end_release(None, now, notices);
                } else {
                    self.wake_in(retry_ms, now);
                }
            }
            Mode::Seeking | Mode::Ended => {}
        }
    }

    fn on_definite(&mut self, error: StoreError, now: &Now, notices: &mut Vec<Notice>) {
        match &self.mode {
            Mode::Held(_) => self.lose(Loss::Store(error), now, notices),
            Mode::Releasing(_) => {
                self.hindrance = Some(Hindrance::Store(error));
                self.end_release(None, now, notices);
            }
            Mode::Acquiring(_) | Mode::Seeking => {
                self.hinder(Hindrance::Store(error), notices);
                self.seek(self.config.third_ms(), now);
            }
            Mode::Ended => {}
        }
    }
}

/// What an error that is not told apart otherwise means for a holder.
fn as_store_error(error: CallError) -> StoreError {
    match error {
        // Answers of a store that a service never passes on: it asks again by itself.
        CallError::Store(error @ (StoreError::Conflict { .. } | StoreError::ClusterChanged)) => {
            StoreError::Unreachable { detail: error.to_string() }
        }
        CallError::Store(error) => error,
        CallError::Invalid { detail } => StoreError::Misconfigured { detail },
        CallError::Refused(refusal) => StoreError::Misconfigured { detail: refusal.to_string() },
        // The service cannot now, and may be able to soon.
        error @ (CallError::NoneLeft(_) | CallError::Clock { .. } | CallError::Spent) => {
            StoreError::Unreachable { detail: error.to_string() }
        }
    }
}

/// Whether the service's clock can have read what it says while the call was under way: between my two readings,
/// widened by both error bounds. An unknown bound widens it without end.
fn disagreement(sent: &Now, replied: &Now, answer: &Answer) -> Option<LeaseRefusal> {
    let own_error_ms = sent.clock_error_ms.max(replied.clock_error_ms);
    if own_error_ms == u32::MAX || answer.clock_error_ms == u32::MAX {
        return None;
    }
    let errors_ms = u64::from(own_error_ms) + u64::from(answer.clock_error_ms);
    // Readings that are taken in whole milliseconds, on both sides.
    let errors_ms = errors_ms.saturating_add(1);
    let from_ms = sent.wall_ms.min(replied.wall_ms).saturating_sub(errors_ms);
    let to_ms = sent.wall_ms.max(replied.wall_ms).saturating_add(errors_ms);
    let service_ms = answer.now_ms;
    let off_ms = from_ms.saturating_sub(service_ms).max(service_ms.saturating_sub(to_ms));
    (off_ms > 0).then_some(LeaseRefusal::ClockDisagrees { own_ms: replied.wall_ms, service_ms, off_ms })
}

/// Tells a remote keeper `event`, and carries its calls until it makes none for now.
///
/// `clock` is read once for each event; `nonce` gives 128 fresh random bits a call. Blocks only as the service does.
pub fn step(
    keeper: &mut RemoteKeeper,
    event: RemoteEvent,
    service: &dyn LeaseService,
    clock: &mut dyn FnMut() -> Now,
    nonce: &mut dyn FnMut() -> u128,
) -> Step {
    let mut notices = Vec::new();
    let mut event = event;
    for _ in 0..CALLS_MAX {
        let output = keeper.handle(event, &clock(), nonce());
        notices.extend(output.notices);
        let Some((id, call)) = output.call else { break };
        event = RemoteEvent::Answer { id, answer: Box::new(service.call(&call)) };
    }
    Step { next_wake_boot_ms: keeper.next_wake_boot_ms(), notices }
}

//! A worker: one lease, and one instance of the component for each grant of it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use snowmint_core::{
    Grant, Id, Layout, LeaseError, MarkError, MintError, ObserveError, Policy, Ports, Refusal, Run,
    StartError, Wait,
};
use snowmint_lease::exchange::is_worth_another_code;
use snowmint_lease::regions::Clash;
use snowmint_lease::{
    Event, Hindrance, Keeper, KeeperConfig, KeeperConfigError, LeaseService, Loss, Notice, Now, Phase,
    RemoteConfig, RemoteEvent, RemoteKeeper, Step, Stopped, Store, Then, View,
};

use crate::clock::Clock;
use crate::counters::Counters;
use crate::engine::{Engine, EngineError, Instance, InstanceError};

/// How long a pause is when nobody can say how long to wait.
const UNKNOWN_PAUSE: Duration = Duration::from_millis(1);

/// What an operator chooses about a worker.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// The lease, with layout, region and owner.
    pub lease: KeeperConfig,
    /// The generator's policy. Its lead is the lease's too.
    pub policy: Policy,
    /// How long [`Worker::start`] waits for a code where none can be had at once.
    pub acquire_wait_max: Duration,
}

/// Told of each notice of the keeper, on the keeper's thread; for logs and metrics. MUST NOT block.
pub type Observer = Box<dyn FnMut(&Notice) + Send>;

/// Holds a worker code and mints for it: a keeper in the background, and one instance of the component for each
/// grant. All of it through `&self`: threads share a worker.
///
/// A lost lease is a refusal, and the keeper takes another by itself; the next mint after that is by a new instance
/// on the new grant. Dropping a worker stops it, see [`Worker::stop`].
pub struct Worker {
    engine: Engine,
    clock: Arc<dyn Clock>,
    layout: Layout,
    policy: Policy,
    shared: Arc<Shared>,
    minting: Mutex<Minting>,
    keeper: Mutex<Option<(Sender<KeeperEvent>, JoinHandle<()>)>>,
    /// A forked copy shares the grant without knowing it.
    process: u32,
    window_ms: u32,
}

/// The instance that mints, and the ticket of its grant.
struct Minting {
    instance: Option<Instance>,
    ticket: u64,
    /// Whether the instance knows of the greatest ID that the worker observed.
    has_observed: bool,
    /// Why there is no instance, where there is none.
    absence: Absence,
    counters: Counters,
}

/// Why there is no instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Absence {
    /// The worker was stopped.
    Stopped,
    /// Its engine failed: nothing more comes out of it.
    Failed,
    /// A grant is awaited: the first, or another one after the code was given back.
    Awaited,
}

impl Minting {
    /// The error of a call that finds no instance.
    fn absence<E>(&self, stopped: E, awaited: E) -> InstanceError<E> {
        match self.absence {
            Absence::Stopped => InstanceError::Core(stopped),
            Absence::Awaited => InstanceError::Core(awaited),
            Absence::Failed => {
                let what = "the component's instance failed before; stop this worker and start another";
                InstanceError::Engine(EngineError::contract(what))
            }
        }
    }
}

/// What the keeper's thread tells the others. No lock is held over IO.
#[derive(Default)]
struct Shared {
    kept: Mutex<Kept>,
    changed: Condvar,
    /// What the instance's clock last read (Unix milliseconds), so that a pause ends exactly where its refusal says.
    last_now_ms: AtomicU64,
    /// The greatest ID that was observed: runs that were taken before hold lower ones.
    observed: AtomicU64,
}

#[derive(Default)]
struct Kept {
    view: Option<View>,
    grant: Option<Grant>,
    phase: Option<Phase>,
    hindrance: Option<Hindrance>,
    loss: Option<Loss>,
    /// Another store would make the same IDs.
    clash: Option<Clash>,
    /// The keeper's thread is over.
    is_over: bool,
    released: Option<bool>,
}

impl Kept {
    fn view_unless_clashing(&self) -> Option<View> {
        if self.clash.is_some() { None } else { self.view }
    }
}

impl Shared {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        // A panic while the lock was held leaves what was last told, which stands.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The ports of one instance.
struct WorkerPorts {
    clock: Arc<dyn Clock>,
    shared: Arc<Shared>,
    grant: Option<Grant>,
    floor_ms: u64,
    ticket: u64,
}

impl WorkerPorts {
    fn new(clock: Arc<dyn Clock>, shared: Arc<Shared>, grant: Grant) -> Self {
        Self { clock, shared, floor_ms: grant.floor_ms(), ticket: grant.ticket(), grant: Some(grant) }
    }
}

impl Ports for WorkerPorts {
    fn now_ms(&mut self) -> u64 {
        let now_ms = self.clock.now_ms();
        self.shared.last_now_ms.store(now_ms, Ordering::Relaxed);
        now_ms
    }

    fn error_bound_ms(&mut self) -> u32 {
        self.clock.error_bound_ms()
    }

    fn take(&mut self) -> Result<Grant, LeaseError> {
        self.grant.take().ok_or(LeaseError::AlreadyTaken)
    }

    fn ceiling_ms(&mut self, ticket: u64) -> u64 {
        let view = self.shared.kept().view_unless_clashing();
        let boot_ms = self.clock.boot_ms();
        view.filter(|view| view.ticket == ticket).map_or(0, |view| view.ceiling_ms(boot_ms))
    }

    /// A lease's floor is all that a former life can have reserved.
    fn recover(&mut self, ticket: u64) -> Result<Option<u64>, MarkError> {
        if ticket == self.ticket { Ok(Some(self.floor_ms)) } else { Err(MarkError::UnknownTicket) }
    }

    /// What the store has confirmed is durable, and it is renewed in the background.
    fn reserve(&mut self, ticket: u64, _until_ms: u64) -> u64 {
        let view = self.shared.kept().view;
        view.filter(|view| view.ticket == ticket).map_or(0, |view| view.end_ms)
    }
}

impl Worker {
    /// Takes a code from `store` and starts an instance on its grant.
    pub fn start(
        engine: &Engine,
        store: Box<dyn Store + Send>,
        clock: Arc<dyn Clock>,
        config: WorkerConfig,
        observer: Observer,
    ) -> Result<Self, WorkerError> {
        let acquire_wait_max = config.acquire_wait_max;
        Self::spawn(engine, store, clock, config, observer)?.once_granted(acquire_wait_max)
    }

    /// As [`Worker::start`], by a service that has a store, for a process that cannot reach one: codes are leased, kept
    /// and given back over the network, and the service's clock is compared with this one
    /// ([`snowmint_lease::RemoteKeeper`]). The layout and region of `config` MUST be the service's.
    pub fn start_remote(
        engine: &Engine,
        service: Box<dyn LeaseService + Send>,
        clock: Arc<dyn Clock>,
        config: WorkerConfig,
        observer: Observer,
    ) -> Result<Self, WorkerError> {
        let acquire_wait_max = config.acquire_wait_max;
        let WorkerConfig { lease, policy, .. } = config;
        let (layout, window_ms) = (lease.layout, lease.window_ms);
        let lease = RemoteConfig {
            layout: Some(layout),
            region: Some(lease.region),
            owner: lease.owner,
            window_ms,
            lead_ms: policy.lead_ms,
            clock_error_ms_max: lease.clock_error_ms_max,
        };
        let keeper = RemoteKeeper::new(lease).map_err(WorkerError::Config)?;
        let keeping = Keeping::Service(Box::new(keeper), service);
        Self::spawn_keeping(engine, keeping, clock, (layout, policy, window_ms), observer)?
            .once_granted(acquire_wait_max)
    }

    /// As [`Worker::start`], without waiting for a code: until there is one, minting is refused
    /// ([`Refusal::LeaseLost`]), and [`Worker::standing`] says why.
    pub fn spawn(
        engine: &Engine,
        store: Box<dyn Store + Send>,
        clock: Arc<dyn Clock>,
        config: WorkerConfig,
        observer: Observer,
    ) -> Result<Self, WorkerError> {
        let WorkerConfig { lease, policy, .. } = config;
        let layout = lease.layout;
        let lease = KeeperConfig { lead_ms: policy.lead_ms, ..lease };
        let window_ms = lease.window_ms;
        let keeper = Keeper::new(lease).map_err(WorkerError::Config)?;
        let keeping = Keeping::Store(Box::new(keeper), store);
        Self::spawn_keeping(engine, keeping, clock, (layout, policy, window_ms), observer)
    }

    fn spawn_keeping(
        engine: &Engine,
        keeping: Keeping,
        clock: Arc<dyn Clock>,
        (layout, policy, window_ms): (Layout, Policy, u32),
        observer: Observer,
    ) -> Result<Self, WorkerError> {
        let shared = Arc::new(Shared::default());
        let (events, received) = channel();
        let thread = KeeperThread {
            keeping,
            clock: Arc::clone(&clock),
            shared: Arc::clone(&shared),
            events: received,
            observer,
        };
        let thread = std::thread::Builder::new()
            .name("snowmint-keeper".into())
            .spawn(move || thread.run())
            .map_err(WorkerError::Thread)?;
        Ok(Self {
            engine: engine.clone(),
            clock,
            layout,
            policy,
            shared,
            minting: Mutex::new(Minting {
                instance: None,
                ticket: 0,
                has_observed: false,
                absence: Absence::Awaited,
                counters: Counters::default(),
            }),
            keeper: Mutex::new(Some((events, thread))),
            process: std::process::id(),
            window_ms,
        })
    }

    /// The worker with an instance on its first grant, which is waited for.
    fn once_granted(self, wait_max: Duration) -> Result<Self, WorkerError> {
        let grant = self.first_grant(wait_max)?;
        self.instantiate(&mut self.minting(), grant)?;
        Ok(self)
    }

    /// Waits for the first grant. Gives up at once where no wait within the limit can help.
    fn first_grant(&self, wait_max: Duration) -> Result<Grant, WorkerError> {
        let deadline = Instant::now() + wait_max;
        let mut kept = self.shared.kept();
        loop {
            if let Some(grant) = kept.grant.take() {
                return Ok(grant);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let is_hopeless = match &kept.hindrance {
                Some(Hindrance::Store(error)) => !error.is_transient(),
                // One that is held may be had before, if its holder gives it back or is watched to be gone.
                Some(Hindrance::NoneLeft(none)) => {
                    let is_past = |wait_ms| Duration::from_millis(wait_ms) > left;
                    none.ended_last_ms.is_some() || none.active == 0 && none.wait_ms.is_some_and(is_past)
                }
                // Nobody will vouch for the clock within a moment.
                Some(Hindrance::Clock { clock_error_ms }) => *clock_error_ms == u32::MAX,
                // Nor set it right.
                Some(Hindrance::Outvoted { .. }) => true,
                Some(Hindrance::Refused(_)) | None => false,
            };
            if is_hopeless || left.is_zero() || kept.is_over {
                return Err(match kept.hindrance.clone() {
                    Some(hindrance) => WorkerError::NoGrant(hindrance),
                    None => WorkerError::Slow,
                });
            }
            let waited = self.shared.changed.wait_timeout(kept, left);
            kept = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn minting(&self) -> MutexGuard<'_, Minting> {
        // A panic within an instance leaves an instance that refuses or mints as before: its cursor is its own.
        self.minting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn instantiate(&self, minting: &mut Minting, grant: Grant) -> Result<(), InstanceError<StartError>> {
        let ticket = grant.ticket();
        let ports = WorkerPorts::new(Arc::clone(&self.clock), Arc::clone(&self.shared), grant);
        minting.ticket = ticket;
        // A start that fails has spent its grant: the worker is of no further use.
        minting.instance = None;
        minting.has_observed = false;
        minting.absence = Absence::Failed;
        minting.instance = Some(self.engine.start(&self.layout, &self.policy, Box::new(ports))?);
        Ok(())
    }

    /// Mints a run of up to `max` IDs of one tick.
    ///
    /// A refusal is waited out where the policy's longest wait allows it, without a lock held. Where the code's IDs lie so
    /// far ahead of the clock that another code is worth more ([`is_worth_another_code`]), it is given back for one.
    pub fn mint(&self, max: u32) -> Result<Run, WorkerError> {
        let mut give_up_at = None;
        loop {
            let error = match self.mint_once(max) {
                Ok(run) => return Ok(run),
                Err(error) => error,
            };
            let now = Instant::now();
            let wait_max = Duration::from_millis(u64::from(self.policy.wait_ms_max));
            let left = give_up_at.get_or_insert(now + wait_max).saturating_duration_since(now);
            match (error.pause(left), error.refusal()) {
                (Some(pause), Some(refusal)) => self.pause(refusal, pause),
                _ => return Err(self.not_waited_out(error)),
            }
        }
    }

    /// Waits without a lock held: where the refusal says until when, exactly until then.
    fn pause(&self, refusal: Refusal, pause: Duration) {
        match refusal.wait() {
            Wait::Ms(wait_ms) => {
                let until_ms = self.shared.last_now_ms.load(Ordering::Relaxed).saturating_add(wait_ms);
                self.clock.pause(until_ms, pause);
            }
            Wait::Unknown | Wait::Never => std::thread::sleep(pause),
        }
    }

    /// As [`Worker::mint`], without waiting: the refusal says how long it would be.
    pub fn try_mint(&self, max: u32) -> Result<Run, WorkerError> {
        self.mint_once(max).map_err(|error| self.not_waited_out(error))
    }

    /// Whether it can mint now: by minting an ID that nobody gets, since no other answer is as true. It is counted neither
    /// among IDs and their bursts nor among refusals.
    pub fn probe(&self) -> Result<(), WorkerError> {
        self.check_process()?;
        let result = {
            let mut minting = self.minting();
            let result = self.mint_locked(&mut minting, 1);
            minting.counters.asked(result.as_ref().err().and_then(WorkerError::refusal));
            result
        };
        result.map(drop).map_err(|error| self.not_waited_out(error))
    }

    /// Takes note of a refusal that is not waited out.
    fn not_waited_out(&self, error: WorkerError) -> WorkerError {
        if let Some(refusal) = error.refusal()
            && is_worth_another_code(refusal, self.window_ms)
        {
            self.exchange(refusal);
        }
        error
    }

    fn mint_once(&self, max: u32) -> Result<Run, WorkerError> {
        self.check_process()?;
        let mut minting = self.minting();
        let result = self.mint_locked(&mut minting, max);
        match &result {
            Ok(run) => minting.counters.minted(&self.layout, run),
            Err(error) => {
                if let Some(refusal) = error.refusal() {
                    minting.counters.refused(refusal);
                }
            }
        }
        result
    }

    fn mint_locked(&self, minting: &mut Minting, max: u32) -> Result<Run, WorkerError> {
        let refused = MintError::Refused;
        self.observe_again(minting)?;
        let result = match &mut minting.instance {
            Some(instance) => instance.mint(max),
            None => Err(minting.absence(refused(Refusal::Stopped), refused(Refusal::LeaseLost))),
        };
        let is_over = match &result {
            Err(InstanceError::Core(MintError::Refused(Refusal::LeaseLost))) => true,
            Err(InstanceError::Engine(_)) => {
                // Whatever state it is in, nothing more comes out of it.
                minting.instance = None;
                minting.absence = Absence::Failed;
                false
            }
            _ => false,
        };
        // Taken out first: the new instance's ports take the same lock.
        let grant = if is_over { self.shared.kept().grant.take() } else { None };
        if let Some(grant) = grant {
            // A new grant is a new instance; the old one's ticket has no ceiling any more.
            self.instantiate(minting, grant)?;
            self.observe_again(minting)?;
            if let Some(instance) = &mut minting.instance {
                return Ok(instance.mint(max)?);
            }
        }
        Ok(result?)
    }

    /// A new instance knows nothing of what the worker observed before it: it is told first, and until it follows nothing
    /// is minted.
    fn observe_again(&self, minting: &mut Minting) -> Result<(), WorkerError> {
        let observed = self.observed();
        if minting.has_observed || observed == Id::new(0) {
            return Ok(());
        }
        let Some(instance) = &mut minting.instance else { return Ok(()) };
        let refusal = match instance.observe(observed) {
            Ok(()) => {
                minting.has_observed = true;
                return Ok(());
            }
            Err(InstanceError::Core(ObserveError::AboveCeiling { ceiling_ms: 0 })) => Refusal::LeaseLost,
            Err(InstanceError::Core(
                error @ (ObserveError::TooFarAhead { .. } | ObserveError::AboveCeiling { .. }),
            )) => {
                // What somebody else has stamped, and the clock is not past.
                let floor_ms = self.layout.time_of(observed).unix_ms();
                let wait_ms = match error {
                    ObserveError::TooFarAhead { wait_ms } => wait_ms,
                    _ => floor_ms.saturating_sub(self.clock.now_ms()).max(1),
                };
                Refusal::BelowFloor { floor_ms, wait_ms }
            }
            Err(error) => return Err(error.into()),
        };
        Err(WorkerError::Mint(InstanceError::Core(MintError::Refused(refusal))))
    }

    /// Stops the instance and gives its code back for another one, unless somebody else did meanwhile.
    fn exchange(&self, refusal: Refusal) {
        let mut minting = self.minting();
        let is_same = |instance: &mut Instance| matches!(instance.mint(1), Err(InstanceError::Core(MintError::Refused(now))) if now.reason() == refusal.reason());
        // Asked once more under the lock: the clock may be right again, or the instance another.
        let Some(mut instance) = minting.instance.take_if(is_same) else { return };
        minting.absence = Absence::Awaited;
        let last_ms = instance.stop().unwrap_or_default();
        // Without a word from the instance nothing is given back below the confirmed end.
        let stopped = last_ms.map(|last_reserved_ms| Stopped { ticket: minting.ticket, last_reserved_ms });
        let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((events, _)) = &*keeper {
            // The thread may have ended by itself; then nothing comes of it, and the worker goes on refusing.
            let _ = events.send(KeeperEvent::Release { stopped, then: Then::Acquire });
        }
    }

    fn check_process(&self) -> Result<(), WorkerError> {
        if std::process::id() == self.process { Ok(()) } else { Err(WorkerError::Forked) }
    }

    /// Makes every later ID of this worker greater than `id`. See [`snowmint_core::Generator::observe`].
    ///
    /// An ID that is only a little ahead of the clock is waited for, within the policy's longest wait. Handles
    /// ([`crate::Ids`]) drop what they hold of runs that were taken before.
    pub fn observe(&self, id: Id) -> Result<(), WorkerError> {
        let wait_max = Duration::from_millis(u64::from(self.policy.wait_ms_max));
        match self.try_observe(id) {
            Err(error) => match error.pause(wait_max) {
                Some(pause) => {
                    let until_ms = self.shared.last_now_ms.load(Ordering::Relaxed);
                    let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
                    self.clock.pause(until_ms.saturating_add(pause_ms), pause);
                    self.try_observe(id)
                }
                None => Err(error),
            },
            result => result,
        }
    }

    /// As [`Worker::observe`], without waiting.
    pub fn try_observe(&self, id: Id) -> Result<(), WorkerError> {
        self.check_process()?;
        let mut minting = self.minting();
        let awaited = ObserveError::AboveCeiling { ceiling_ms: 0 };
        match &mut minting.instance {
            Some(instance) => instance.observe(id)?,
            None => return Err(minting.absence(ObserveError::Stopped, awaited).into()),
        }
        // Under the lock: an instance that is made after this is told of it.
        self.shared.observed.fetch_max(id.get(), Ordering::AcqRel);
        Ok(())
    }

    /// Says that another store would make the same IDs, or (`None`) that none does: until then the ceiling is 0. The code is
    /// kept meanwhile.
    pub fn set_clash(&self, clash: Option<Clash>) {
        self.shared.kept().clash = clash;
    }

    /// What the keeper is doing, and since when it is hindered: for readiness and messages.
    pub fn standing(&self) -> Standing {
        let kept = self.shared.kept();
        Standing {
            phase: kept.phase.unwrap_or(Phase::Seeking),
            view: kept.view,
            hindrance: kept.hindrance.clone(),
            loss: kept.loss.clone(),
            clash: kept.clash.clone(),
        }
    }

    /// The last Unix millisecond that its grant may stamp now; `None` where it has none, or cannot prove it.
    pub fn ceiling_ms(&self) -> Option<u64> {
        let view = self.shared.kept().view?;
        let ceiling_ms = view.ceiling_ms(self.clock.boot_ms());
        (ceiling_ms > 0).then_some(ceiling_ms)
    }

    /// What it has done so far.
    pub fn counters(&self) -> Counters {
        self.minting().counters.clone()
    }

    /// The layout minted by.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The policy followed.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The greatest ID that was observed; 0 if none was.
    pub(crate) fn observed(&self) -> Id {
        Id::new(self.shared.observed.load(Ordering::Acquire))
    }

    /// The clock that IDs are stamped by.
    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Stops minting for good and gives the code back: at once, and with nothing wasted above what was reserved.
    ///
    /// `Ok(false)`: the store did not confirm it. Nothing is lost: the code expires by itself.
    pub fn stop(&self) -> Result<bool, EngineError> {
        if std::process::id() != self.process {
            // The grant is the other process's, and so is the keeper.
            return Ok(false);
        }
        let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((events, thread)) = keeper else { return Ok(self.shared.kept().released == Some(true)) };
        let (stopped, failed) = {
            let mut minting = self.minting();
            let ticket = minting.ticket;
            minting.absence = Absence::Stopped;
            // A new grant that no instance was made for: nothing is reserved above its floor.
            let unused = self.shared.kept().grant.take();
            let unused =
                unused.map(|grant| Stopped { ticket: grant.ticket(), last_reserved_ms: grant.floor_ms() });
            match minting.instance.take().map(|mut instance| instance.stop()) {
                Some(Ok(last_ms)) => {
                    let stopped = last_ms.map(|last_reserved_ms| Stopped { ticket, last_reserved_ms });
                    (unused.or(stopped), None)
                }
                // Without a word from the instance nothing can be given back below the confirmed end.
                Some(Err(error)) => (unused, Some(error)),
                None => (unused, None),
            }
        };
        // The thread may have ended by itself; then there is nobody to tell, and nothing to wait for.
        let _ = events.send(KeeperEvent::Release { stopped, then: Then::End });
        let _ = thread.join();
        match failed {
            Some(error) => Err(error),
            None => Ok(self.shared.kept().released == Some(true)),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Nobody is left to be told of a failure; the code expires by itself then.
        let _ = self.stop();
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("standing", &self.standing()).finish_non_exhaustive()
    }
}

/// What a worker's keeper is doing.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The phase.
    pub phase: Phase,
    /// The held grant.
    pub view: Option<View>,
    /// Why there is no code, or what last went wrong with the store.
    pub hindrance: Option<Hindrance>,
    /// Why the last grant ended, if it was lost.
    pub loss: Option<Loss>,
    /// That another store would make the same IDs: nothing is minted until that is set right.
    pub clash: Option<Clash>,
}

/// A keeper, and where its leases are from. Both kinds follow one protocol, and tell the same of it.
enum Keeping {
    /// A store that this process can reach.
    Store(Box<Keeper>, Box<dyn Store + Send>),
    /// A service that has one.
    Service(Box<RemoteKeeper>, Box<dyn LeaseService + Send>),
}

impl Keeping {
    fn step(&mut self, event: KeeperEvent, now: &mut dyn FnMut() -> Now) -> Step {
        match self {
            Self::Store(keeper, store) => {
                let event = match event {
                    KeeperEvent::Time => Event::Time,
                    KeeperEvent::Release { stopped, then } => Event::Release { stopped, then },
                };
                snowmint_lease::step(keeper, event, &**store, now, &mut fresh_nonce)
            }
            Self::Service(keeper, service) => {
                let event = match event {
                    KeeperEvent::Time => RemoteEvent::Time,
                    KeeperEvent::Release { stopped, then } => RemoteEvent::Release { stopped, then },
                };
                snowmint_lease::remote::step(keeper, event, &**service, now, &mut fresh_nonce)
            }
        }
    }

    fn publish(&self, kept: &mut Kept, boot_ms: u64) {
        (kept.view, kept.phase, kept.hindrance, kept.loss) = match self {
            Self::Store(keeper, _) => (
                keeper.view(),
                Some(keeper.phase(boot_ms)),
                keeper.hindrance().cloned(),
                keeper.loss().cloned(),
            ),
            Self::Service(keeper, _) => (
                keeper.view(),
                Some(keeper.phase(boot_ms)),
                keeper.hindrance().cloned(),
                keeper.loss().cloned(),
            ),
        };
    }

    fn take_grant(&mut self, boot_ms: u64) -> Option<Grant> {
        match self {
            Self::Store(keeper, _) => keeper.take_grant(boot_ms),
            Self::Service(keeper, _) => keeper.take_grant(boot_ms),
        }
    }
}

/// What a keeper of either kind is told.
#[derive(Clone, Copy)]
enum KeeperEvent {
    /// Time has passed.
    Time,
    /// The code is to be given back; see [`Event::Release`].
    Release { stopped: Option<Stopped>, then: Then },
}

/// The keeper's thread: sleeps until the keeper wants to be woken, and tells the others what it has.
struct KeeperThread {
    keeping: Keeping,
    clock: Arc<dyn Clock>,
    shared: Arc<Shared>,
    events: Receiver<KeeperEvent>,
    observer: Observer,
}

impl KeeperThread {
    fn run(mut self) {
        // Also if this thread panics: nobody is to wait for it.
        let _over = Over(Arc::clone(&self.shared));
        let mut event = KeeperEvent::Time;
        loop {
            let clock = Arc::clone(&self.clock);
            let mut now = || Now {
                boot_ms: clock.boot_ms(),
                wall_ms: clock.now_ms(),
                clock_error_ms: clock.error_bound_ms(),
            };
            let step = self.keeping.step(event, &mut now);
            self.publish(&step.notices);
            if step.next_wake_boot_ms == u64::MAX {
                break;
            }
            let sleep_ms = step.next_wake_boot_ms.saturating_sub(self.clock.boot_ms());
            event = match self.events.recv_timeout(Duration::from_millis(sleep_ms)) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => KeeperEvent::Time,
                // The worker is gone without a word, as after a failed start: give back what there is.
                Err(RecvTimeoutError::Disconnected) => {
                    KeeperEvent::Release { stopped: None, then: Then::End }
                }
            };
        }
    }

    fn publish(&mut self, notices: &[Notice]) {
        let boot_ms = self.clock.boot_ms();
        let mut kept = self.shared.kept();
        self.keeping.publish(&mut kept, boot_ms);
        if let Some(grant) = self.keeping.take_grant(boot_ms) {
            kept.grant = Some(grant);
        }
        for notice in notices {
            match notice {
                Notice::Released { .. } => kept.released = Some(true),
                Notice::Unreleased { .. } => kept.released = Some(false),
                _ => {}
            }
        }
        drop(kept);
        self.shared.changed.notify_all();
        for notice in notices {
            // What an observer does is its own; the lease is kept all the same.
            let observer = AssertUnwindSafe(|| (self.observer)(notice));
            let _ = catch_unwind(observer);
        }
    }
}

/// Tells the others that the keeper's thread is over, however it ends.
struct Over(Arc<Shared>);

impl Drop for Over {
    fn drop(&mut self) {
        let mut kept = self.0.kept();
        kept.is_over = true;
        // Nothing is renewed any more; what was confirmed is still ours until the deadline.
        drop(kept);
        self.0.changed.notify_all();
    }
}

/// 128 fresh random bits from the operating system: the nonce of one swap of a lease.
pub fn fresh_nonce() -> u128 {
    let mut bytes = [0; 16];
    // The source fails only on systems that this host does not run on; a repeated nonce must not come of it.
    if getrandom::fill(&mut bytes).is_err() {
        std::process::abort();
    }
    u128::from_le_bytes(bytes)
}

/// Why a worker did not start or did not mint.
#[derive(Debug)]
pub enum WorkerError {
    /// The lease's configuration is at fault.
    Config(KeeperConfigError),
    /// The keeper's thread cannot be started.
    Thread(std::io::Error),
    /// There is no code to mint with.
    NoGrant(Hindrance),
    /// The store did not answer in time.
    Slow,
    /// The instance did not start.
    Start(InstanceError<StartError>),
    /// The instance did not mint.
    Mint(InstanceError<MintError>),
    /// The instance did not observe.
    Observe(InstanceError<ObserveError>),
    /// The process was forked: this copy has no right to the grant.
    Forked,
}

impl WorkerError {
    /// The refusal, if it is one.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Mint(InstanceError::Core(MintError::Refused(refusal))) => Some(*refusal),
            _ => None,
        }
    }

    /// Whether waiting helps, and how long.
    pub fn wait(&self) -> Wait {
        match self {
            Self::Mint(InstanceError::Core(MintError::Refused(refusal))) => refusal.wait(),
            Self::Observe(InstanceError::Core(ObserveError::TooFarAhead { wait_ms })) => Wait::Ms(*wait_ms),
            Self::Observe(InstanceError::Core(ObserveError::AboveCeiling { .. })) | Self::Slow => {
                Wait::Unknown
            }
            _ => Wait::Never,
        }
    }

    /// How long to pause before asking again, for whoever has `left` to spend on it. `None`: it is not worth it.
    pub fn pause(&self, left: Duration) -> Option<Duration> {
        // Rounded up: what is left of a millisecond is enough for a clock that is about to tick.
        let budget_ms = u64::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        match (self.refusal(), self.wait()) {
            (Some(refusal), _) if !refusal.is_worth_waiting(budget_ms) => None,
            (_, Wait::Ms(wait_ms)) if self.refusal().is_some() || wait_ms <= budget_ms => {
                Some(Duration::from_millis(wait_ms))
            }
            (_, Wait::Unknown) if budget_ms > 0 => Some(UNKNOWN_PAUSE.min(left)),
            _ => None,
        }
    }
}

impl fmt::Display for WorkerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Thread(error) => write!(f, "the keeper's thread cannot be started: {error}"),
            Self::NoGrant(hindrance) => hindrance.fmt(f),
            Self::Slow => f.write_str("the lease store did not answer in time; see to its disk or its network"),
            Self::Start(error) => error.fmt(f),
            Self::Mint(error) => error.fmt(f),
            Self::Observe(error) => error.fmt(f),
            Self::Forked => f.write_str(
                "this process is a fork of the one that holds the lease; start a worker of its own in each process",
            ),
        }
    }
}

impl std::error::Error for WorkerError {}

impl From<InstanceError<StartError>> for WorkerError {
    fn from(error: InstanceError<StartError>) -> Self {
        Self::Start(error)
    }
}

impl From<InstanceError<MintError>> for WorkerError {
    fn from(error: InstanceError<MintError>) -> Self {
        Self::Mint(error)
    }
}

impl From<InstanceError<ObserveError>> for WorkerError {
    fn from(error: InstanceError<ObserveError>) -> Self {
        Self::Observe(error)
    }
}

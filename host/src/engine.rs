//! The engine: the component, compiled once, and instances of it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use snowmint_core::{Id, Layout, MintError, Node, ObserveError, Policy, Ports, Run, StartError};
use wasmtime::component::{Component, HasSelf, Linker};
use wasmtime::{Cache, CacheConfig, Config, OptLevel, Store};

use crate::bindings::{Snowmint, SnowmintPre};
use crate::translate;

/// The component that this host serves, built by `cargo xtask component`.
const COMPONENT: &[u8] = include_bytes!(env!("SNOWMINT_COMPONENT"));

/// The component compiled for this machine. One is enough for a process; a clone is the same engine.
#[derive(Clone)]
pub struct Engine {
    engine: wasmtime::Engine,
    pre: Arc<SnowmintPre<Box<dyn Ports + Send>>>,
}

impl Engine {
    /// Compiles the component.
    ///
    /// `cache_dir` keeps the compiled code between processes (`None`: compile anew). A cache that cannot be used is no
    /// error: the component is compiled instead.
    pub fn new(cache_dir: Option<PathBuf>) -> Result<Self, EngineError> {
        let mut config = Config::new();
        config.cranelift_opt_level(OptLevel::Speed);
        // One guest, called by one thread at a time: no asynchronous tasks to keep account of.
        config.concurrency_support(false);
        config.cache(cache_dir.and_then(|directory| {
            let mut cache = CacheConfig::new();
            cache.with_directory(directory);
            Cache::new(cache).ok()
        }));
        let engine = wasmtime::Engine::new(&config).map_err(EngineError::engine)?;
        let component = Component::new(&engine, COMPONENT).map_err(EngineError::engine)?;
        let mut linker = Linker::new(&engine);
        Snowmint::add_to_linker::<_, HasSelf<_>>(&mut linker, |ports| ports).map_err(EngineError::engine)?;
        let pre = linker.instantiate_pre(&component).map_err(EngineError::engine)?;
        let pre = Arc::new(SnowmintPre::new(pre).map_err(EngineError::engine)?);
        Ok(Self { engine, pre })
    }

    /// A new instance of the component on `ports`, not yet started.
    pub fn instantiate(&self, ports: Box<dyn Ports + Send>) -> Result<Instance, EngineError> {
        let mut store = Store::new(&self.engine, ports);
        let snowmint = self.pre.instantiate(&mut store).map_err(EngineError::engine)?;
        Ok(Instance { store, snowmint })
    }

    /// A new instance that was started: `ports` give it its one grant.
    pub fn start(
        &self,
        layout: &Layout,
        policy: &Policy,
        ports: Box<dyn Ports + Send>,
    ) -> Result<Instance, InstanceError<StartError>> {
        let mut instance = self.instantiate(ports)?;
        instance.start(layout, policy)?;
        Ok(instance)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

/// One instance of the component: one generator in a memory of its own.
pub struct Instance {
    store: Store<Box<dyn Ports + Send>>,
    snowmint: Snowmint,
}

impl Instance {
    /// See [`snowmint_core::Minter::start`]. Once a grant was taken, a second call is refused.
    pub fn start(&mut self, layout: &Layout, policy: &Policy) -> Result<(), InstanceError<StartError>> {
        let config = translate::to_config(layout, policy);
        let generator = self.snowmint.snowmint_id_generator();
        let result = generator.call_start(&mut self.store, &config).map_err(EngineError::trap)?;
        result.map_err(translate::start_error)
    }

    /// Mints one ID, by the component's `next`.
    pub fn next_id(&mut self) -> Result<Id, InstanceError<MintError>> {
        let generator = self.snowmint.snowmint_id_generator();
        let result = generator.call_next(&mut self.store).map_err(EngineError::trap)?;
        result.map(Id::new).map_err(translate::mint_error)
    }

    /// Mints a run of up to `max` IDs of one tick.
    pub fn mint(&mut self, max: u32) -> Result<Run, InstanceError<MintError>> {
        let generator = self.snowmint.snowmint_id_generator();
        let result = generator.call_mint(&mut self.store, max).map_err(EngineError::trap)?;
        translate::run(&result.map_err(translate::mint_error)?)
    }

    /// Mints up to `count` IDs as a list, by the component's `batch`.
    pub fn batch(&mut self, count: u32) -> Result<Vec<u64>, InstanceError<MintError>> {
        let generator = self.snowmint.snowmint_id_generator();
        let result = generator.call_batch(&mut self.store, count).map_err(EngineError::trap)?;
        result.map_err(translate::mint_error)
    }

    /// See [`snowmint_core::Generator::observe`].
    pub fn observe(&mut self, id: Id) -> Result<(), InstanceError<ObserveError>> {
        let generator = self.snowmint.snowmint_id_generator();
        let result = generator.call_observe(&mut self.store, id.get()).map_err(EngineError::trap)?;
        result.map_err(translate::observe_error)
    }

    /// See [`snowmint_core::Generator::stop`].
    pub fn stop(&mut self) -> Result<Option<u64>, EngineError> {
        self.snowmint.snowmint_id_generator().call_stop(&mut self.store).map_err(EngineError::trap)
    }

    /// What the generator is at; `None` if it was never started.
    pub fn status(&mut self) -> Result<Option<Status>, EngineError> {
        let generator = self.snowmint.snowmint_id_generator();
        let status = generator.call_status(&mut self.store).map_err(EngineError::trap)?;
        Ok(status.map(|status| Status {
            node: Node::new(status.node.region, status.node.worker),
            ticket: status.ticket,
            last_reserved_ms: status.last_reserved_ms,
            suspects: status.suspects,
        }))
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance").finish_non_exhaustive()
    }
}

/// What a generator in an instance is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The node that it mints for.
    pub node: Node,
    /// Its grant's ticket.
    pub ticket: u64,
    /// The last Unix millisecond that it may have stamped; `None` once it is stopped.
    pub last_reserved_ms: Option<u64>,
    /// See [`snowmint_core::Generator::suspects`].
    pub suspects: u64,
}

/// Why an instance did not do what it was asked.
#[derive(Debug)]
pub enum InstanceError<E> {
    /// What core says, carried through the component unchanged.
    Core(E),
    /// The instance was not started, or was started before. The caller's fault.
    Lifecycle(Lifecycle),
    /// More than this many were asked for in one list. The caller's fault.
    CountAbove(u32),
    /// The engine or the component failed. The instance is of no further use.
    Engine(EngineError),
}

/// A call that came too early or too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// `start` has not succeeded.
    NotStarted,
    /// `start` took a grant before.
    AlreadyStarted,
}

impl<E: fmt::Display> fmt::Display for InstanceError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Core(error) => error.fmt(f),
            Self::Lifecycle(Lifecycle::NotStarted) => {
                f.write_str("the instance was not started; start it first")
            }
            Self::Lifecycle(Lifecycle::AlreadyStarted) => {
                f.write_str("the instance took its grant before; a new grant needs a new instance")
            }
            Self::CountAbove(max) => {
                write!(f, "too many IDs for one list; ask for {max} or fewer, or for runs")
            }
            Self::Engine(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for InstanceError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Engine(error) => error.source(),
            _ => None,
        }
    }
}

impl<E> From<EngineError> for InstanceError<E> {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

/// The engine failed, or the component broke its contract. The fault is Snowmint's or the machine's, never the
/// caller's.
#[derive(Debug)]
pub struct EngineError {
    what: &'static str,
    source: Option<wasmtime::Error>,
}

impl EngineError {
    pub(crate) fn contract(what: &'static str) -> Self {
        Self { what, source: None }
    }

    fn engine(source: wasmtime::Error) -> Self {
        Self { what: "the WebAssembly engine cannot run the component on this machine", source: Some(source) }
    }

    fn trap(source: wasmtime::Error) -> Self {
        Self {
            what: "the component trapped, which it promises never to do; please report it",
            source: Some(source),
        }
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{}: {source:#}", self.what),
            None => f.write_str(self.what),
        }
    }
}

impl std::error::Error for EngineError {}

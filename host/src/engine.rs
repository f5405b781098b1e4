//! The engine: the component, compiled once, and instances of it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use snowmint_core::{
    FieldError, Id, Layout, LayoutError, MintError, Node, ObserveError, Policy, Ports, Run, StartError,
    TextForm, TickError, TickIds, UnixTime,
};
use wasmtime::component::{Component, HasSelf, Linker};
use wasmtime::{Cache, CacheConfig, Config, OptLevel, Store};

use crate::bindings::{Snowmint, SnowmintPre};
use crate::translate;

/// The component that this host serves, built by `cargo xtask component`.
const COMPONENT: &[u8] = include_bytes!(env!("SNOWMINT_COMPONENT"));

/// How much of a text the component is given: it looks at no more, so that a line of any length costs nothing.
const TEXT_BYTES_MAX: usize = 32;

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

    /// Takes an ID apart by the component's codec, which needs no start. See [`Layout::values`].
    pub fn decode(&mut self, layout: &Layout, id: Id) -> Result<Reading, InstanceError<CodecError>> {
        let codec = self.snowmint.snowmint_id_codec();
        let layout = translate::to_layout(layout);
        let result = codec.call_decode(&mut self.store, &layout, id.get()).map_err(EngineError::trap)?;
        result.map(translate::reading).map_err(translate::codec_error)
    }

    /// Puts an ID together from a value for each field. See [`Layout::compose_values`].
    pub fn compose(&mut self, layout: &Layout, values: &[u64]) -> Result<Id, InstanceError<CodecError>> {
        let codec = self.snowmint.snowmint_id_codec();
        let layout = translate::to_layout(layout);
        let result = codec.call_compose(&mut self.store, &layout, values).map_err(EngineError::trap)?;
        result.map(Id::new).map_err(translate::codec_error)
    }

    /// The IDs of the tick that a time lies in. See [`Layout::ids_at`].
    pub fn ids_at(&mut self, layout: &Layout, time: UnixTime) -> Result<TickIds, InstanceError<CodecError>> {
        let codec = self.snowmint.snowmint_id_codec();
        let (layout, time) = (translate::to_layout(layout), translate::to_instant(time));
        let result = codec.call_ids_at(&mut self.store, &layout, time).map_err(EngineError::trap)?;
        result.map(translate::tick_ids).map_err(translate::codec_error)
    }

    /// Writes an ID. See [`TextForm::write`].
    pub fn write(&mut self, id: Id, form: TextForm) -> Result<String, EngineError> {
        let codec = self.snowmint.snowmint_id_codec();
        codec.call_write(&mut self.store, id.get(), translate::to_form(form)).map_err(EngineError::trap)
    }

    /// Reads an ID. See [`TextForm::parse`].
    pub fn parse(&mut self, text: &[u8], form: TextForm) -> Result<Id, InstanceError<TextError>> {
        let codec = self.snowmint.snowmint_id_codec();
        let text = text.get(..TEXT_BYTES_MAX).unwrap_or(text);
        let result =
            codec.call_parse(&mut self.store, text, translate::to_form(form)).map_err(EngineError::trap)?;
        result.map(Id::new).map_err(translate::text_error)
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

/// What an ID holds by a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// When the ID's tick begins.
    pub time: UnixTime,
    /// The value of each field, in the layout's order.
    pub values: Vec<u64>,
    /// Whether a bit is set that the layout keeps at 0.
    pub reserved_set: bool,
}

/// What is wrong with what the codec was given. The fault is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecError {
    /// The layout is none.
    Layout(LayoutError),
    /// There is not one value for each field.
    ValueCount {
        /// How many values there are.
        given: u64,
        /// How many fields there are.
        fields: u64,
    },
    /// A value does not fit its field.
    Value(FieldError),
    /// The layout has no tick for the time. Exact to the millisecond.
    Time(TickError),
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layout(error) => error.fmt(f),
            Self::ValueCount { given, fields } => {
                write!(f, "{given} values for a layout of {fields} fields; give one for each")
            }
            Self::Value(error) => error.fmt(f),
            Self::Time(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CodecError {}

/// A text that is no ID of the form: [`snowmint_core::ParseError`] as far as it crosses the boundary. The fault is that
/// of whoever wrote or carried the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextError {
    /// Where, in bytes from the text's start.
    pub at: usize,
    /// What is wrong there.
    pub fault: TextFault,
}

/// What is wrong with a text: the first fault from the left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFault {
    /// There is nothing.
    Empty,
    /// The text begins with a sign.
    Sign,
    /// A byte that is no digit of the form.
    Digit,
    /// More digits than the form has.
    TooLong,
    /// Fewer digits than a form of fixed width has.
    TooShort,
    /// The number needs 65 bits or more.
    Overflow,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.fault {
            TextFault::Empty => "the text is empty; give an ID",
            TextFault::Sign => "the text begins with a sign; IDs are unsigned: remove it",
            TextFault::Digit => "what stands there is no digit of this form: remove it",
            TextFault::TooLong => "the text is longer than an ID is in this form",
            TextFault::TooShort => "the text is shorter than an ID is in this form: find what was lost",
            TextFault::Overflow => "the number does not fit 64 bits: it is not an ID",
        };
        write!(f, "at byte {}: {what}", self.at)
    }
}

impl std::error::Error for TextError {}

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

#[cfg(test)]
mod tests {
    use snowmint_core::{Grant, LeaseError, MarkError};
    use wasmtime::ResourceLimiter;

    use super::*;
    use crate::bindings::exports::snowmint::id::{codec, generator};

    /// Ports at which time stands still.
    struct Still(u64);

    impl Ports for Still {
        fn now_ms(&mut self) -> u64 {
            self.0 += 1;
            self.0
        }

        fn error_bound_ms(&mut self) -> u32 {
            0
        }

        fn take(&mut self) -> Result<Grant, LeaseError> {
            Ok(Grant::new(Node::new(1, 2), 7, 0))
        }

        fn ceiling_ms(&mut self, _ticket: u64) -> u64 {
            u64::MAX
        }

        fn recover(&mut self, _ticket: u64) -> Result<Option<u64>, MarkError> {
            Ok(None)
        }

        fn reserve(&mut self, _ticket: u64, until_ms: u64) -> u64 {
            until_ms
        }
    }

    /// What a store holds here: ports, and how far the component's memory grew.
    struct Watched {
        ports: Box<dyn Ports + Send>,
        memory_bytes: usize,
        memory_bytes_max: usize,
    }

    impl ResourceLimiter for Watched {
        fn memory_growing(
            &mut self,
            _current: usize,
            desired: usize,
            _maximum: Option<usize>,
        ) -> wasmtime::Result<bool> {
            let allowed = desired <= self.memory_bytes_max;
            if allowed {
                self.memory_bytes = desired;
            }
            Ok(allowed)
        }

        fn table_growing(
            &mut self,
            _current: usize,
            _desired: usize,
            _maximum: Option<usize>,
        ) -> wasmtime::Result<bool> {
            Ok(true)
        }
    }

    fn watched(memory_bytes_max: usize) -> (Store<Watched>, Snowmint) {
        let mut config = Config::new();
        config.concurrency_support(false);
        let engine = wasmtime::Engine::new(&config).unwrap();
        let component = Component::new(&engine, COMPONENT).unwrap();
        let mut linker = Linker::<Watched>::new(&engine);
        Snowmint::add_to_linker::<_, HasSelf<_>>(&mut linker, |watched| &mut watched.ports).unwrap();
        let ports = Box::new(Still(1_750_000_000_000));
        let mut store = Store::new(&engine, Watched { ports, memory_bytes: 0, memory_bytes_max });
        store.limiter(|watched| watched);
        let snowmint = Snowmint::instantiate(&mut store, &component, &linker).unwrap();
        (store, snowmint)
    }

    /// 100,000 calls that pass lists and texts in both directions leave the component's memory as large as it was after
    /// the first; its allocator forgets nothing between calls.
    #[test]
    fn memory_stays_flat() {
        let (mut store, snowmint) = watched(usize::MAX);
        let config = translate::to_config(&Layout::SNOWMINT, &Policy::CLASSIC);
        snowmint.snowmint_id_generator().call_start(&mut store, &config).unwrap().unwrap();
        let mut flat = None;
        for nth in 0..25_000_u64 {
            let ids = snowmint.snowmint_id_generator().call_batch(&mut store, 300).unwrap().unwrap();
            assert_eq!(ids.len(), 300);
            let codec = snowmint.snowmint_id_codec();
            let reading = codec.call_decode(&mut store, &config.layout, ids[0]).unwrap().unwrap();
            let composed = codec.call_compose(&mut store, &config.layout, &reading.values).unwrap();
            assert_eq!(composed.unwrap(), ids[0]);
            let text = codec.call_write(&mut store, nth, codec::Form::Base36).unwrap();
            // Long texts, too; nothing past their 14th byte is looked at.
            let long = text.repeat(200);
            let refused =
                codec.call_parse(&mut store, long.as_bytes(), codec::Form::Base36).unwrap().unwrap_err();
            assert_eq!((refused.at, refused.fault), (13, codec::Fault::TooLong));
            assert_eq!(*flat.get_or_insert(store.data().memory_bytes), store.data().memory_bytes);
        }
    }

    /// Lists of any length are answered by a refusal, as long as the memory that the embedder allows can hold them; and
    /// when no more memory is to be had, whatever is short is answered all the same.
    #[test]
    fn hostile_lists_do_not_trap() {
        let (mut store, snowmint) = watched(32 << 20);
        let codec = snowmint.snowmint_id_codec();
        let field = generator::Field { role: generator::Role::Worker, bits: 255 };
        let long =
            generator::Layout { fields: vec![field; 1_000_000], epoch_unix_ms: u64::MAX, tick_ns: u64::MAX };
        let refused = codec.call_decode(&mut store, &long, u64::MAX).unwrap().unwrap_err();
        assert_eq!((refused.problem, refused.value, refused.max), (codec::Problem::FieldCount, 1_000_000, 8));
        let wide = generator::Layout { fields: vec![field; 8], ..long };
        let refused = codec.call_decode(&mut store, &wide, 0).unwrap().unwrap_err();
        assert_eq!((refused.problem, refused.value), (codec::Problem::FieldBits, 255));
        let config = translate::to_config(&Layout::SNOWMINT, &Policy::CLASSIC);
        let values = vec![u64::MAX; 1_000_000];
        let refused = codec.call_compose(&mut store, &config.layout, &values).unwrap().unwrap_err();
        assert_eq!((refused.problem, refused.value, refused.max), (codec::Problem::ValueCount, 1_000_000, 5));
        let text = vec![b'1'; 10_000_000];
        let refused = codec.call_parse(&mut store, &text, codec::Form::Decimal).unwrap().unwrap_err();
        assert_eq!((refused.at, refused.fault), (20, codec::Fault::TooLong));
        let far = codec::Instant { unix_ms: u64::MAX, ns: u32::MAX };
        let refused = codec.call_ids_at(&mut store, &config.layout, far).unwrap().unwrap_err();
        assert_eq!(refused.problem, codec::Problem::AfterEnd);

        // No memory but what there is from the start: `batch` says how many it can give, and the codec answers.
        let (mut store, snowmint) = watched(usize::MAX);
        store.data_mut().memory_bytes_max = store.data().memory_bytes;
        let generator = snowmint.snowmint_id_generator();
        generator.call_start(&mut store, &config).unwrap().unwrap();
        let refused = generator.call_batch(&mut store, 65_536).unwrap();
        assert!(matches!(refused, Err(generator::MintError::CountAbove(32_768))), "{refused:?}");
        assert_eq!(generator.call_batch(&mut store, 64).unwrap().unwrap().len(), 64);
        let reading =
            snowmint.snowmint_id_codec().call_decode(&mut store, &config.layout, 1).unwrap().unwrap();
        assert_eq!(reading.values, [0, 0, 0, 0, 1]);
    }
}

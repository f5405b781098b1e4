//! The WebAssembly component: carries `snowmint-core` to any runtime that has the component model.
//!
//! It translates and decides nothing. Each export turns its arguments into core's types, calls core once, and turns
//! the answer back; each import is one method of core's [`Ports`]. The contract is in `/wit`.
//!
//! It imports exactly three interfaces and never traps: no path leads to a panic, and lists are reserved before
//! anything is minted for them.

#![no_std]
// What `export!` makes is public to the linker; no crate depends on this one.
#![allow(unreachable_pub)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

extern crate alloc;

mod arena;
mod bindings;
mod translate;

use core::cell::RefCell;

use alloc::string::String;
use alloc::vec::Vec;
use bindings::exports::snowmint::id::{codec, generator as wit};
use bindings::snowmint::id::{clock, high_water_mark, lease};
use snowmint_core::{
    DECIMAL_BYTES_MAX, FIELDS_MAX, Grant, Id, Layout, LeaseError, MarkError, Minter, Node, Ports, StartError,
};

/// The most IDs that `batch` returns at once: half a megabyte of list.
const BATCH_COUNT_MAX: u32 = 65_536;

/// What the instance is at.
#[allow(clippy::large_enum_variant)] // There is one, in place.
enum State {
    /// `start` may be called.
    Idle,
    /// A grant was taken, but no generator came of it. The grant is spent.
    Spent,
    /// Minting, or stopped.
    Started(Minter<Imports>),
}

/// The one generator of this instance.
static INSTANCE: Instance = Instance(RefCell::new(State::Idle));

struct Instance(RefCell<State>);

// SAFETY: the guest is built for WebAssembly without threads: one thread at a time enters an instance.
unsafe impl Sync for Instance {}

/// The component's imports as core's ports.
struct Imports;

impl Ports for Imports {
    fn now_ms(&mut self) -> u64 {
        clock::now_ms()
    }

    fn error_bound_ms(&mut self) -> u32 {
        clock::error_bound_ms()
    }

    fn take(&mut self) -> Result<Grant, LeaseError> {
        let grant = lease::take().map_err(translate::lease_error)?;
        Ok(Grant::new(Node::new(grant.node.region, grant.node.worker), grant.ticket, grant.floor_ms))
    }

    fn ceiling_ms(&mut self, ticket: u64) -> u64 {
        lease::ceiling_ms(ticket)
    }

    fn recover(&mut self, ticket: u64) -> Result<Option<u64>, MarkError> {
        high_water_mark::recover(ticket).map_err(translate::mark_error)
    }

    fn reserve(&mut self, ticket: u64, until_ms: u64) -> u64 {
        high_water_mark::reserve(ticket, until_ms)
    }
}

/// The component's exports.
struct Exports;

/// Runs `call` on the instance's generator; `absent` where there is none. A call from within an import, which the
/// component model forbids, finds none either.
fn with_minter<T>(absent: T, call: impl FnOnce(&mut Minter<Imports>) -> T) -> T {
    let Ok(mut state) = INSTANCE.0.try_borrow_mut() else { return absent };
    match &mut *state {
        State::Started(minter) => call(minter),
        State::Idle | State::Spent => absent,
    }
}

impl wit::Guest for Exports {
    fn start(config: wit::Config) -> Result<(), wit::StartError> {
        let layout = translate::layout(&config.layout, Layout::new)
            .map_err(|error| wit::StartError::Config(translate::to_layout_error(error)))?;
        let policy = translate::policy(&config.policy);
        let Ok(mut state) = INSTANCE.0.try_borrow_mut() else {
            return Err(wit::StartError::AlreadyStarted);
        };
        if !matches!(*state, State::Idle) {
            return Err(wit::StartError::AlreadyStarted);
        }
        match Minter::start(layout, policy, Imports) {
            Ok(minter) => {
                *state = State::Started(minter);
                Ok(())
            }
            Err(error) => {
                if translate::has_spent_grant(&error) {
                    *state = State::Spent;
                }
                Err(translate::to_start_error(error))
            }
        }
    }

    fn next() -> Result<u64, wit::MintError> {
        with_minter(Err(wit::MintError::NotStarted), |minter| match minter.mint(1) {
            Ok(run) => Ok(run.first().get()),
            Err(error) => Err(translate::to_mint_error(error)),
        })
    }

    fn mint(max: u32) -> Result<wit::Run, wit::MintError> {
        with_minter(Err(wit::MintError::NotStarted), |minter| match minter.mint(max) {
            Ok(run) => Ok(wit::Run { first: run.first().get(), stride: run.stride(), count: run.count() }),
            Err(error) => Err(translate::to_mint_error(error)),
        })
    }

    fn batch(count: u32) -> Result<Vec<u64>, wit::MintError> {
        if count > BATCH_COUNT_MAX {
            return Err(wit::MintError::CountAbove(BATCH_COUNT_MAX));
        }
        with_minter(Err(wit::MintError::NotStarted), |minter| {
            // Reserved before minting: a memory that cannot grow costs no IDs, and is no trap.
            let mut ids = Vec::new();
            if ids.try_reserve_exact(count as usize).is_err() {
                return Err(wit::MintError::CountAbove(count / 2));
            }
            let run = minter.mint(count).map_err(translate::to_mint_error)?;
            ids.extend(run.into_iter().map(Id::get));
            Ok(ids)
        })
    }

    fn observe(id: u64) -> Result<(), wit::ObserveError> {
        with_minter(Err(wit::ObserveError::NotStarted), |minter| {
            minter.observe(Id::new(id)).map_err(translate::to_observe_error)
        })
    }

    fn stop() -> Option<u64> {
        with_minter(None, Minter::stop)
    }

    fn status() -> Option<wit::GeneratorStatus> {
        with_minter(None, |minter| {
            let generator = minter.generator();
            let node = generator.node();
            Some(wit::GeneratorStatus {
                node: lease::Node { region: node.region(), worker: node.worker() },
                ticket: generator.ticket(),
                last_reserved_ms: generator.last_reserved_ms(),
                suspects: generator.suspects(),
            })
        })
    }
}

/// The layout to read by.
fn reader(layout: &wit::Layout) -> Result<Layout, codec::CodecError> {
    translate::layout(layout, Layout::for_decoding).map_err(translate::to_codec_error)
}

impl codec::Guest for Exports {
    fn decode(layout: wit::Layout, id: u64) -> Result<codec::Reading, codec::CodecError> {
        let layout = reader(&layout)?;
        let id = Id::new(id);
        let mut values = Vec::new();
        // So few bytes the arena always has; see there.
        if values.try_reserve_exact(FIELDS_MAX).is_ok() {
            values.extend(layout.values(id).map(|(_, value)| value));
        }
        Ok(codec::Reading {
            time: translate::to_instant(layout.time_of(id)),
            values,
            reserved_set: layout.decode(id).reserved,
        })
    }

    fn compose(layout: wit::Layout, values: Vec<u64>) -> Result<u64, codec::CodecError> {
        let layout = reader(&layout)?;
        let count = layout.fields().len();
        if values.len() != count {
            let given = values.len() as u64;
            return Err(translate::problem(codec::Problem::ValueCount, given, count as u64));
        }
        let mut values = values.iter();
        // There is a value for each field.
        let id = layout.compose_values(|_| values.next().copied().unwrap_or_default());
        id.map(Id::get).map_err(translate::to_value_error)
    }

    fn ids_at(layout: wit::Layout, time: codec::Instant) -> Result<codec::TickIds, codec::CodecError> {
        let layout = reader(&layout)?;
        let ids = layout.ids_at(translate::time(time)).map_err(translate::to_time_error)?;
        Ok(codec::TickIds {
            first: ids.first.get(),
            last: ids.last.get(),
            is_range: ids.is_range,
            start: translate::to_instant(ids.start),
        })
    }

    fn write(id: u64, form: codec::Form) -> String {
        let text = translate::form(form).write(Id::new(id));
        let mut written = Vec::new();
        if written.try_reserve_exact(DECIMAL_BYTES_MAX).is_ok() {
            written.extend_from_slice(text.as_bytes());
        }
        // SAFETY: digits of every form are ASCII. A second look at each byte would cost a fiftieth of the component.
        unsafe { String::from_utf8_unchecked(written) }
    }

    fn parse(text: Vec<u8>, form: codec::Form) -> Result<u64, codec::ParseError> {
        translate::form(form).parse(&text).map(Id::get).map_err(translate::to_parse_error)
    }
}

bindings::export!(Exports with_types_in bindings);

#[cfg(target_arch = "wasm32")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}

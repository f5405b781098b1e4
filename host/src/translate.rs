//! One function for each type that crosses into the component or out of it: a match, and nothing decided in it. Here
//! too is the other side of the imports, which hands each call on to core's ports.

use std::num::NonZeroU32;

use snowmint_core::{
    ConfigError, FieldError, Grant, Id, Layout, LayoutError, LeaseError, MarkError, MintError, ObserveError,
    Policy, PolicyError, PolicyLength, Ports, Refusal, Role, Run, StartError, TextForm, TickError, TickIds,
    UnixTime,
};

use crate::bindings::exports::snowmint::id::{codec, generator as wit};
use crate::bindings::snowmint::id::{clock, high_water_mark, lease};
use crate::engine::{CodecError, EngineError, InstanceError, Lifecycle, Reading, TextError, TextFault};

type BoxedPorts = Box<dyn Ports + Send>;

impl clock::Host for BoxedPorts {
    fn now_ms(&mut self) -> u64 {
        (**self).now_ms()
    }

    fn error_bound_ms(&mut self) -> u32 {
        (**self).error_bound_ms()
    }
}

impl lease::Host for BoxedPorts {
    fn take(&mut self) -> Result<lease::Grant, lease::LeaseError> {
        (**self).take().map(|grant| to_grant(&grant)).map_err(to_lease_error)
    }

    fn ceiling_ms(&mut self, ticket: u64) -> u64 {
        (**self).ceiling_ms(ticket)
    }
}

impl high_water_mark::Host for BoxedPorts {
    fn recover(&mut self, ticket: u64) -> Result<Option<u64>, high_water_mark::MarkError> {
        (**self).recover(ticket).map_err(to_mark_error)
    }

    fn reserve(&mut self, ticket: u64, until_ms: u64) -> u64 {
        (**self).reserve(ticket, until_ms)
    }
}

fn to_grant(grant: &Grant) -> lease::Grant {
    let node = grant.node();
    lease::Grant {
        node: lease::Node { region: node.region(), worker: node.worker() },
        ticket: grant.ticket(),
        floor_ms: grant.floor_ms(),
    }
}

fn to_lease_error(error: LeaseError) -> lease::LeaseError {
    match error {
        LeaseError::AlreadyTaken => lease::LeaseError::AlreadyTaken,
        LeaseError::NoCodeLeft { wait_ms } => lease::LeaseError::NoCodeLeft(wait_ms),
        LeaseError::Unavailable => lease::LeaseError::Unavailable,
    }
}

fn to_mark_error(error: MarkError) -> high_water_mark::MarkError {
    match error {
        MarkError::Missing => high_water_mark::MarkError::Missing,
        MarkError::Damaged => high_water_mark::MarkError::Damaged,
        MarkError::Unavailable => high_water_mark::MarkError::Unavailable,
        MarkError::UnknownTicket => high_water_mark::MarkError::UnknownTicket,
    }
}

pub(crate) fn to_layout(layout: &Layout) -> wit::Layout {
    let fields = layout.fields().iter().map(|field| wit::Field {
        role: to_role(field.role()),
        // A field has 63 bits or fewer.
        bits: u8::try_from(field.bits()).unwrap_or(u8::MAX),
    });
    wit::Layout { fields: fields.collect(), epoch_unix_ms: layout.epoch_unix_ms(), tick_ns: layout.tick_ns() }
}

pub(crate) fn to_config(layout: &Layout, policy: &Policy) -> wit::Config {
    wit::Config {
        layout: to_layout(layout),
        policy: wit::Policy {
            lead_ms: policy.lead_ms,
            wait_ms_max: policy.wait_ms_max,
            clock_error_ms_max: policy.clock_error_ms_max,
            mark_window_ms: policy.mark_window_ms,
            observe_ahead_ms_max: policy.observe_ahead_ms_max,
            spread: policy.spread,
        },
    }
}

fn to_role(role: Role) -> wit::Role {
    match role {
        Role::Reserved => wit::Role::Reserved,
        Role::Shard => wit::Role::Shard,
        Role::Timestamp => wit::Role::Timestamp,
        Role::Region => wit::Role::Region,
        Role::Worker => wit::Role::Worker,
        Role::Sequence => wit::Role::Sequence,
        Role::Other => wit::Role::Other,
    }
}

fn role(role: wit::Role) -> Role {
    match role {
        wit::Role::Reserved => Role::Reserved,
        wit::Role::Shard => Role::Shard,
        wit::Role::Timestamp => Role::Timestamp,
        wit::Role::Region => Role::Region,
        wit::Role::Worker => Role::Worker,
        wit::Role::Sequence => Role::Sequence,
        wit::Role::Other => Role::Other,
    }
}

pub(crate) fn start_error(error: wit::StartError) -> InstanceError<StartError> {
    InstanceError::Core(match error {
        wit::StartError::AlreadyStarted => return InstanceError::Lifecycle(Lifecycle::AlreadyStarted),
        wit::StartError::Config(error) => StartError::Config(config_error(error)),
        wit::StartError::Lease(error) => StartError::Lease(match error {
            lease::LeaseError::AlreadyTaken => LeaseError::AlreadyTaken,
            lease::LeaseError::NoCodeLeft(wait_ms) => LeaseError::NoCodeLeft { wait_ms },
            lease::LeaseError::Unavailable => LeaseError::Unavailable,
        }),
        wit::StartError::Mark(error) => StartError::Mark(match error {
            high_water_mark::MarkError::Missing => MarkError::Missing,
            high_water_mark::MarkError::Damaged => MarkError::Damaged,
            high_water_mark::MarkError::Unavailable => MarkError::Unavailable,
            high_water_mark::MarkError::UnknownTicket => MarkError::UnknownTicket,
        }),
    })
}

fn config_error(error: wit::ConfigError) -> ConfigError {
    match error {
        wit::ConfigError::FieldCount(count) => LayoutError::FieldCount { count: count as usize }.into(),
        wit::ConfigError::FieldBits(wit::FieldWidth { role: of, bits }) => {
            LayoutError::FieldBits { role: role(of), bits }.into()
        }
        wit::ConfigError::Bits(bits) => LayoutError::Bits { bits }.into(),
        wit::ConfigError::RoleTwice(of) => LayoutError::RoleTwice { role: role(of) }.into(),
        wit::ConfigError::RoleMissing(of) => LayoutError::RoleMissing { role: role(of) }.into(),
        wit::ConfigError::RoleNotMinted(of) => LayoutError::RoleNotMinted { role: role(of) }.into(),
        wit::ConfigError::TickZero => LayoutError::TickZero.into(),
        wit::ConfigError::TickNotWholeMs(tick_ns) => LayoutError::TickNotWholeMs { tick_ns }.into(),
        wit::ConfigError::EndsTooLate => LayoutError::EndsTooLate.into(),
        wit::ConfigError::Node(wit::FieldValue { role: of, value, max }) => {
            FieldError { role: role(of), value, max }.into()
        }
        wit::ConfigError::PolicyRange(wit::PolicyRange { length, value_ms, min_ms }) => {
            let length = match length {
                wit::PolicyLength::Lead => PolicyLength::Lead,
                wit::PolicyLength::Wait => PolicyLength::Wait,
                wit::PolicyLength::MarkWindow => PolicyLength::MarkWindow,
            };
            PolicyError::OutOfRange { length, value_ms, min_ms }.into()
        }
        wit::ConfigError::PolicyObserve(wit::PolicyObserve { ahead_ms, lead_ms }) => {
            PolicyError::ObserveAhead { ahead_ms, lead_ms }.into()
        }
        wit::ConfigError::PolicySpread => PolicyError::Spread.into(),
    }
}

pub(crate) fn mint_error(error: wit::MintError) -> InstanceError<MintError> {
    InstanceError::Core(match error {
        wit::MintError::NotStarted => return InstanceError::Lifecycle(Lifecycle::NotStarted),
        wit::MintError::CountAbove(max) => return InstanceError::CountAbove(max),
        wit::MintError::ZeroCount => MintError::ZeroCount,
        wit::MintError::Refused(refusal) => MintError::Refused(match refusal {
            wit::Refusal::Stopped => Refusal::Stopped,
            wit::Refusal::LayoutEnded(last_ms) => Refusal::LayoutEnded { last_ms },
            wit::Refusal::LeaseLost => Refusal::LeaseLost,
            wit::Refusal::BelowFloor(wit::BelowFloor { floor_ms, wait_ms }) => {
                Refusal::BelowFloor { floor_ms, wait_ms }
            }
            wit::Refusal::Ceiling(ceiling_ms) => Refusal::Ceiling { ceiling_ms },
            wit::Refusal::Mark(mark_ms) => Refusal::Mark { mark_ms },
            wit::Refusal::ClockUncertain(wit::ClockUncertain { error_bound_ms, error_ms_max }) => {
                Refusal::ClockUncertain { error_bound_ms, error_ms_max }
            }
            wit::Refusal::ClockRolledBack(wit::ClockRolledBack { by_ms, wait_ms }) => {
                Refusal::ClockRolledBack { by_ms, wait_ms }
            }
            wit::Refusal::Exhausted(wait_ms) => Refusal::Exhausted { wait_ms },
        }),
    })
}

pub(crate) fn run(run: &wit::Run) -> Result<Run, InstanceError<MintError>> {
    NonZeroU32::new(run.count).and_then(|count| Run::new(Id::new(run.first), run.stride, count)).ok_or_else(
        || EngineError::contract("the component returned a run that is none; please report it").into(),
    )
}

pub(crate) fn observe_error(error: wit::ObserveError) -> InstanceError<ObserveError> {
    InstanceError::Core(match error {
        wit::ObserveError::NotStarted => return InstanceError::Lifecycle(Lifecycle::NotStarted),
        wit::ObserveError::Stopped => ObserveError::Stopped,
        wit::ObserveError::LayoutUnordered => ObserveError::LayoutUnordered,
        wit::ObserveError::NotOfLayout => ObserveError::NotOfLayout,
        wit::ObserveError::NotIssued => ObserveError::NotIssued,
        wit::ObserveError::AboveCeiling(ceiling_ms) => ObserveError::AboveCeiling { ceiling_ms },
        wit::ObserveError::TooFarAhead(wait_ms) => ObserveError::TooFarAhead { wait_ms },
    })
}

fn time(instant: codec::Instant) -> UnixTime {
    UnixTime::from_unix_ns(UnixTime::from_unix_ms(instant.unix_ms).unix_ns() + u128::from(instant.ns))
}

pub(crate) fn to_instant(time: UnixTime) -> codec::Instant {
    let unix_ms = time.unix_ms();
    let ns = time.unix_ns().saturating_sub(UnixTime::from_unix_ms(unix_ms).unix_ns());
    codec::Instant { unix_ms, ns: u32::try_from(ns).unwrap_or(u32::MAX) }
}

pub(crate) fn reading(reading: codec::Reading) -> Reading {
    Reading { time: time(reading.time), values: reading.values, reserved_set: reading.reserved_set }
}

pub(crate) fn tick_ids(ids: codec::TickIds) -> TickIds {
    TickIds {
        first: Id::new(ids.first),
        last: Id::new(ids.last),
        is_range: ids.is_range,
        start: time(ids.start),
    }
}

pub(crate) fn codec_error(error: codec::CodecError) -> InstanceError<CodecError> {
    let codec::CodecError { problem, role: of, value, max } = error;
    let of = role(of);
    let bits = u32::try_from(value).unwrap_or(u32::MAX);
    let count = usize::try_from(value).unwrap_or(usize::MAX);
    let layout = |error| CodecError::Layout(error);
    InstanceError::Core(match problem {
        codec::Problem::FieldCount => layout(LayoutError::FieldCount { count }),
        codec::Problem::FieldBits => layout(LayoutError::FieldBits { role: of, bits }),
        codec::Problem::Bits => layout(LayoutError::Bits { bits }),
        codec::Problem::RoleTwice => layout(LayoutError::RoleTwice { role: of }),
        codec::Problem::RoleMissing => layout(LayoutError::RoleMissing { role: of }),
        codec::Problem::TickZero => layout(LayoutError::TickZero),
        codec::Problem::ValueCount => CodecError::ValueCount { given: value, fields: max },
        codec::Problem::Value => CodecError::Value(FieldError { role: of, value, max }),
        codec::Problem::BeforeEpoch => {
            CodecError::Time(TickError::BeforeEpoch { epoch: UnixTime::from_unix_ms(value) })
        }
        codec::Problem::AfterEnd => {
            CodecError::Time(TickError::AfterEnd { last: UnixTime::from_unix_ms(value) })
        }
    })
}

pub(crate) fn to_form(form: TextForm) -> codec::Form {
    match form {
        TextForm::Decimal => codec::Form::Decimal,
        TextForm::Hex => codec::Form::Hex,
        TextForm::Base32 => codec::Form::Base32,
        TextForm::Base36 => codec::Form::Base36,
        TextForm::Base62 => codec::Form::Base62,
    }
}

pub(crate) fn text_error(error: codec::ParseError) -> InstanceError<TextError> {
    let fault = match error.fault {
        codec::Fault::Empty => TextFault::Empty,
        codec::Fault::Sign => TextFault::Sign,
        codec::Fault::Digit => TextFault::Digit,
        codec::Fault::TooLong => TextFault::TooLong,
        codec::Fault::TooShort => TextFault::TooShort,
        codec::Fault::Overflow => TextFault::Overflow,
    };
    InstanceError::Core(TextError { at: error.at as usize, fault })
}

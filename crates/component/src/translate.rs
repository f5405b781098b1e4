//! One function for each type that crosses: a match, and nothing decided in it.

use snowmint_core::{
    ConfigError, Field, FieldError, LayoutError, LeaseError, MarkError, MintError, ObserveError, ParseError,
    ParseErrorKind, Policy, PolicyError, PolicyLength, Refusal, Role, TextForm, TickError, UnixTime,
};

use crate::bindings::snowmint::id::{high_water_mark, lease};
use crate::{Layout, StartError, codec, wit};

/// A layout, as core's constructors for minting and for decoding take it.
pub(crate) fn layout(
    layout: &wit::Layout,
    make: fn(&[Field], u64, u64) -> Result<Layout, LayoutError>,
) -> Result<Layout, LayoutError> {
    let mut fields = [Field::new(Role::Reserved, 0); snowmint_core::FIELDS_MAX];
    let count = layout.fields.len();
    let Some(list) = fields.get_mut(..count) else { return Err(LayoutError::FieldCount { count }) };
    for (field, given) in list.iter_mut().zip(&layout.fields) {
        *field = Field::new(role(given.role), given.bits);
    }
    make(list, layout.epoch_unix_ms, layout.tick_ns)
}

pub(crate) fn policy(policy: &wit::Policy) -> Policy {
    Policy {
        lead_ms: policy.lead_ms,
        wait_ms_max: policy.wait_ms_max,
        clock_error_ms_max: policy.clock_error_ms_max,
        mark_window_ms: policy.mark_window_ms,
        observe_ahead_ms_max: policy.observe_ahead_ms_max,
        spread: policy.spread,
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

pub(crate) fn lease_error(error: lease::LeaseError) -> LeaseError {
    match error {
        lease::LeaseError::AlreadyTaken => LeaseError::AlreadyTaken,
        lease::LeaseError::NoCodeLeft(wait_ms) => LeaseError::NoCodeLeft { wait_ms },
        lease::LeaseError::Unavailable => LeaseError::Unavailable,
    }
}

pub(crate) fn mark_error(error: high_water_mark::MarkError) -> MarkError {
    match error {
        high_water_mark::MarkError::Missing => MarkError::Missing,
        high_water_mark::MarkError::Damaged => MarkError::Damaged,
        high_water_mark::MarkError::Unavailable => MarkError::Unavailable,
        high_water_mark::MarkError::UnknownTicket => MarkError::UnknownTicket,
    }
}

/// Whether a failed start has used up the grant: all but those that failed before or in taking it.
pub(crate) fn has_spent_grant(error: &StartError) -> bool {
    match error {
        StartError::Config(ConfigError::Field(_)) | StartError::Mark(_) => true,
        StartError::Config(_) | StartError::Lease(_) => false,
    }
}

pub(crate) fn to_start_error(error: StartError) -> wit::StartError {
    match error {
        StartError::Config(error) => wit::StartError::Config(match error {
            ConfigError::Layout(error) => to_layout_error(error),
            ConfigError::Field(FieldError { role, value, max }) => {
                wit::ConfigError::Node(wit::FieldValue { role: to_role(role), value, max })
            }
            ConfigError::Policy(error) => to_policy_error(error),
        }),
        StartError::Lease(error) => wit::StartError::Lease(match error {
            LeaseError::AlreadyTaken => lease::LeaseError::AlreadyTaken,
            LeaseError::NoCodeLeft { wait_ms } => lease::LeaseError::NoCodeLeft(wait_ms),
            LeaseError::Unavailable => lease::LeaseError::Unavailable,
        }),
        StartError::Mark(error) => wit::StartError::Mark(match error {
            MarkError::Missing => high_water_mark::MarkError::Missing,
            MarkError::Damaged => high_water_mark::MarkError::Damaged,
            MarkError::Unavailable => high_water_mark::MarkError::Unavailable,
            MarkError::UnknownTicket => high_water_mark::MarkError::UnknownTicket,
        }),
    }
}

pub(crate) fn to_layout_error(error: LayoutError) -> wit::ConfigError {
    match error {
        LayoutError::FieldCount { count } => {
            wit::ConfigError::FieldCount(u32::try_from(count).unwrap_or(u32::MAX))
        }
        LayoutError::FieldBits { role, bits } => {
            wit::ConfigError::FieldBits(wit::FieldWidth { role: to_role(role), bits })
        }
        LayoutError::Bits { bits } => wit::ConfigError::Bits(bits),
        LayoutError::RoleTwice { role } => wit::ConfigError::RoleTwice(to_role(role)),
        LayoutError::RoleMissing { role } => wit::ConfigError::RoleMissing(to_role(role)),
        LayoutError::RoleNotMinted { role } => wit::ConfigError::RoleNotMinted(to_role(role)),
        LayoutError::TickZero => wit::ConfigError::TickZero,
        LayoutError::TickNotWholeMs { tick_ns } => wit::ConfigError::TickNotWholeMs(tick_ns),
        LayoutError::EndsTooLate => wit::ConfigError::EndsTooLate,
    }
}

fn to_policy_error(error: PolicyError) -> wit::ConfigError {
    match error {
        PolicyError::OutOfRange { length, value_ms, min_ms } => {
            let length = match length {
                PolicyLength::Lead => wit::PolicyLength::Lead,
                PolicyLength::Wait => wit::PolicyLength::Wait,
                PolicyLength::MarkWindow => wit::PolicyLength::MarkWindow,
            };
            wit::ConfigError::PolicyRange(wit::PolicyRange { length, value_ms, min_ms })
        }
        PolicyError::ObserveAhead { ahead_ms, lead_ms } => {
            wit::ConfigError::PolicyObserve(wit::PolicyObserve { ahead_ms, lead_ms })
        }
        PolicyError::Spread => wit::ConfigError::PolicySpread,
    }
}

pub(crate) fn to_mint_error(error: MintError) -> wit::MintError {
    match error {
        MintError::ZeroCount => wit::MintError::ZeroCount,
        MintError::Refused(refusal) => wit::MintError::Refused(match refusal {
            Refusal::Stopped => wit::Refusal::Stopped,
            Refusal::LayoutEnded { last_ms } => wit::Refusal::LayoutEnded(last_ms),
            Refusal::LeaseLost => wit::Refusal::LeaseLost,
            Refusal::BelowFloor { floor_ms, wait_ms } => {
                wit::Refusal::BelowFloor(wit::BelowFloor { floor_ms, wait_ms })
            }
            Refusal::Ceiling { ceiling_ms } => wit::Refusal::Ceiling(ceiling_ms),
            Refusal::Mark { mark_ms } => wit::Refusal::Mark(mark_ms),
            Refusal::ClockUncertain { error_bound_ms, error_ms_max } => {
                wit::Refusal::ClockUncertain(wit::ClockUncertain { error_bound_ms, error_ms_max })
            }
            Refusal::ClockRolledBack { by_ms, wait_ms } => {
                wit::Refusal::ClockRolledBack(wit::ClockRolledBack { by_ms, wait_ms })
            }
            Refusal::Exhausted { wait_ms } => wit::Refusal::Exhausted(wait_ms),
        }),
    }
}

pub(crate) fn to_observe_error(error: ObserveError) -> wit::ObserveError {
    match error {
        ObserveError::Stopped => wit::ObserveError::Stopped,
        ObserveError::LayoutUnordered => wit::ObserveError::LayoutUnordered,
        ObserveError::NotOfLayout => wit::ObserveError::NotOfLayout,
        ObserveError::NotIssued => wit::ObserveError::NotIssued,
        ObserveError::AboveCeiling { ceiling_ms } => wit::ObserveError::AboveCeiling(ceiling_ms),
        ObserveError::TooFarAhead { wait_ms } => wit::ObserveError::TooFarAhead(wait_ms),
    }
}

pub(crate) fn time(instant: codec::Instant) -> UnixTime {
    let ns_per_ms = u128::from(snowmint_core::NS_PER_MS);
    UnixTime::from_unix_ns(u128::from(instant.unix_ms) * ns_per_ms + u128::from(instant.ns))
}

pub(crate) fn to_instant(time: UnixTime) -> codec::Instant {
    let unix_ms = time.unix_ms();
    let ns = time.unix_ns().wrapping_sub(UnixTime::from_unix_ms(unix_ms).unix_ns());
    // Where the millisecond saturates, what is past it says nothing.
    codec::Instant { unix_ms, ns: u32::try_from(ns).unwrap_or(0) }
}

/// A problem that is about no field.
pub(crate) fn problem(problem: codec::Problem, value: u64, max: u64) -> codec::CodecError {
    codec::CodecError { problem, role: wit::Role::Reserved, value, max }
}

fn problem_of(problem: codec::Problem, role: Role, value: u64, max: u64) -> codec::CodecError {
    codec::CodecError { problem, role: to_role(role), value, max }
}

pub(crate) fn to_codec_error(error: LayoutError) -> codec::CodecError {
    use codec::Problem;
    match error {
        LayoutError::FieldCount { count } => {
            problem(Problem::FieldCount, count as u64, snowmint_core::FIELDS_MAX as u64)
        }
        LayoutError::FieldBits { role, bits } => problem_of(Problem::FieldBits, role, bits.into(), 0),
        LayoutError::Bits { bits } => problem(Problem::Bits, bits.into(), 0),
        LayoutError::RoleTwice { role } => problem_of(Problem::RoleTwice, role, 0, 0),
        // The other two are refused to those who would mint by the layout, and nobody here does.
        LayoutError::RoleMissing { role } | LayoutError::RoleNotMinted { role } => {
            problem_of(Problem::RoleMissing, role, 0, 0)
        }
        LayoutError::TickZero | LayoutError::TickNotWholeMs { .. } | LayoutError::EndsTooLate => {
            problem(Problem::TickZero, 0, 0)
        }
    }
}

pub(crate) fn to_value_error(FieldError { role, value, max }: FieldError) -> codec::CodecError {
    problem_of(codec::Problem::Value, role, value, max)
}

pub(crate) fn to_time_error(error: TickError) -> codec::CodecError {
    match error {
        TickError::BeforeEpoch { epoch } => problem(codec::Problem::BeforeEpoch, epoch.unix_ms(), 0),
        TickError::AfterEnd { last } => problem(codec::Problem::AfterEnd, last.unix_ms(), 0),
    }
}

pub(crate) fn form(form: codec::Form) -> TextForm {
    match form {
        codec::Form::Decimal => TextForm::Decimal,
        codec::Form::Hex => TextForm::Hex,
        codec::Form::Base32 => TextForm::Base32,
        codec::Form::Base36 => TextForm::Base36,
        codec::Form::Base62 => TextForm::Base62,
    }
}

pub(crate) fn to_parse_error(error: ParseError) -> codec::ParseError {
    let fault = match error.kind {
        ParseErrorKind::Empty => codec::Fault::Empty,
        ParseErrorKind::Sign => codec::Fault::Sign,
        ParseErrorKind::TooLong { .. } => codec::Fault::TooLong,
        ParseErrorKind::TooShort { .. } => codec::Fault::TooShort,
        ParseErrorKind::Overflow => codec::Fault::Overflow,
        // Core may come to tell more kinds apart; each is a byte that is no digit.
        _ => codec::Fault::Digit,
    };
    // A fault lies at most one byte past a form's width.
    codec::ParseError { at: u32::try_from(error.at).unwrap_or(u32::MAX), fault }
}

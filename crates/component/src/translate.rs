//! One function for each type that crosses: a match, and nothing decided in it.

use snowmint_core::{
    ConfigError, Field, FieldError, LayoutError, LeaseError, MarkError, MintError, ObserveError, Policy,
    PolicyError, PolicyLength, Refusal, Role,
};

use crate::bindings::snowmint::id::{high_water_mark, lease};
use crate::{Layout, StartError, wit};

pub(crate) fn layout(layout: &wit::Layout) -> Result<Layout, LayoutError> {
    let mut fields = [Field::new(Role::Reserved, 0); snowmint_core::FIELDS_MAX];
    let count = layout.fields.len();
    let Some(list) = fields.get_mut(..count) else { return Err(LayoutError::FieldCount { count }) };
    for (field, given) in list.iter_mut().zip(&layout.fields) {
        *field = Field::new(role(given.role), given.bits);
    }
    Layout::new(list, layout.epoch_unix_ms, layout.tick_ns)
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

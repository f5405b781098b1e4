//! What an operator chooses about a generator.

use core::fmt;

use crate::layout::SPREAD_SEQUENCE_BITS_MIN;
use crate::{Layout, LayoutError};

/// The clock error above which minting is refused, where nobody chose another limit.
pub const CLOCK_ERROR_MS_MAX_DEFAULT: u32 = 10;

/// The same where only the kernel vouches for the clock. Its bound grows by half a millisecond a second until its
/// daemon's next update, and the slowest common daemon (systemd-timesyncd) lets 2,048 s pass: 1,024 ms, and some more
/// for the network.
pub const KERNEL_CLOCK_ERROR_MS_MAX_DEFAULT: u32 = 1_250;

/// How long a refusal is waited out, where nobody chose another limit; also the promised p99.
pub const WAIT_MS_MAX_DEFAULT: u32 = 5;

/// How far ahead a durable high-water mark is asked for, where nobody chose another window.
pub const MARK_WINDOW_MS_DEFAULT: u32 = 1_000;

/// The lead of the hybrid preset.
pub const HYBRID_LEAD_MS: u32 = 1_000;

/// The longest lead, wait or window: one hour. Longer ones are a slip of units, not a policy.
pub const POLICY_MS_MAX: u32 = 3_600_000;

/// The choices that are an operator's to make. Lengths are milliseconds of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How far ahead of the wall clock an ID may be stamped. 0 is the classic rule: never ahead. Above 0 the
    /// generator is a hybrid logical clock: a clock that steps back by no more than this is ridden out, and a burst
    /// may borrow ticks. 0 to [`POLICY_MS_MAX`].
    pub lead_ms: u32,
    /// How long a refusal is worth waiting out. The core never waits: [`crate::Refusal::is_worth_waiting`] tells its
    /// host. 0 to [`POLICY_MS_MAX`].
    pub wait_ms_max: u32,
    /// The largest error bound of the clock under which IDs are minted. `u32::MAX` accepts any clock, also one whose
    /// bound is unknown.
    pub clock_error_ms_max: u32,
    /// How far ahead of the clock the durable mark is asked for; a next one is asked for when less than half of it
    /// is left. 1 to [`POLICY_MS_MAX`].
    pub mark_window_ms: u32,
    /// How far ahead of the wall clock an observed ID may lie. Less than the lead, so that one client cannot use up
    /// everybody's; 0 when the lead is 0.
    pub observe_ahead_ms_max: u32,
    /// Start each fresh tick at a sequence that varies over 64 values, so that `id % n` is even at low load. Costs
    /// up to 63 IDs of a tick. Only where the sequence is the lowest field and has 12 bits or more.
    pub spread: bool,
}

impl Policy {
    /// The classic rule: never ahead of the wall clock.
    pub const CLASSIC: Self = Self {
        lead_ms: 0,
        wait_ms_max: WAIT_MS_MAX_DEFAULT,
        clock_error_ms_max: CLOCK_ERROR_MS_MAX_DEFAULT,
        mark_window_ms: MARK_WINDOW_MS_DEFAULT,
        observe_ahead_ms_max: 0,
        spread: false,
    };

    /// A hybrid logical clock with a lead of [`HYBRID_LEAD_MS`], half of which observed IDs may use.
    pub const HYBRID: Self =
        Self { lead_ms: HYBRID_LEAD_MS, observe_ahead_ms_max: HYBRID_LEAD_MS / 2, ..Self::CLASSIC };

    /// The policy of a layout where nobody chose another: [`Policy::HYBRID`] for [`Layout::HYBRID`], which is made for
    /// it, and [`Policy::CLASSIC`] for every other.
    pub fn of_layout(layout: &Layout) -> Self {
        if *layout == Layout::HYBRID { Self::HYBRID } else { Self::CLASSIC }
    }

    /// The same policy with another lead, and with observed IDs allowed to use half of it.
    #[must_use]
    pub const fn with_lead_ms(self, lead_ms: u32) -> Self {
        Self { lead_ms, observe_ahead_ms_max: lead_ms / 2, ..self }
    }

    /// Checks the policy for a generator of `layout`.
    pub fn check(&self, layout: &Layout) -> Result<(), PolicyError> {
        for (length, value_ms, min_ms) in [
            (PolicyLength::Lead, self.lead_ms, 0),
            (PolicyLength::Wait, self.wait_ms_max, 0),
            (PolicyLength::MarkWindow, self.mark_window_ms, 1),
        ] {
            if !(min_ms..=POLICY_MS_MAX).contains(&value_ms) {
                return Err(PolicyError::OutOfRange { length, value_ms, min_ms });
            }
        }
        if self.observe_ahead_ms_max > 0 && self.observe_ahead_ms_max >= self.lead_ms {
            return Err(PolicyError::ObserveAhead {
                ahead_ms: self.observe_ahead_ms_max,
                lead_ms: self.lead_ms,
            });
        }
        if self.spread && !layout.can_spread() {
            return Err(PolicyError::Spread);
        }
        Ok(())
    }

    /// Until when (Unix milliseconds) a durable mark is to be asked for now, if it is time to ask: when less than
    /// half of the window is left below `mark_ms`, the mark that is durable.
    pub fn mark_to_ask(&self, now_ms: u64, mark_ms: u64) -> Option<u64> {
        let reach_ms = now_ms.saturating_add(u64::from(self.lead_ms));
        let window_ms = u64::from(self.mark_window_ms);
        let is_low = mark_ms < reach_ms.saturating_add(window_ms / 2);
        is_low.then(|| reach_ms.saturating_add(window_ms))
    }
}

/// One of the policy's lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyLength {
    /// [`Policy::lead_ms`].
    Lead,
    /// [`Policy::wait_ms_max`].
    Wait,
    /// [`Policy::mark_window_ms`].
    MarkWindow,
}

impl PolicyLength {
    /// The length in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lead => "lead",
            Self::Wait => "longest wait",
            Self::MarkWindow => "mark window",
        }
    }
}

/// A policy that no generator can follow. The fault is the configuration's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyError {
    /// A length is out of range.
    OutOfRange {
        /// Which.
        length: PolicyLength,
        /// Its value in milliseconds.
        value_ms: u32,
        /// The smallest that is accepted.
        min_ms: u32,
    },
    /// Observed IDs may lie as far ahead as the lead, or further.
    ObserveAhead {
        /// How far ahead they may lie.
        ahead_ms: u32,
        /// The lead.
        lead_ms: u32,
    },
    /// The layout does not offer `spread`.
    Spread,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OutOfRange { length, value_ms, min_ms } => write!(
                f,
                "a {} of {value_ms} ms is out of range; give {min_ms} to {POLICY_MS_MAX} ms",
                length.name()
            ),
            Self::ObserveAhead { ahead_ms, lead_ms } => write!(
                f,
                "observed IDs may lie {ahead_ms} ms ahead, which must be less than the lead of {lead_ms} ms (0 when \
                 the lead is 0)"
            ),
            Self::Spread => write!(
                f,
                "spread needs a layout whose sequence is the lowest field and has {SPREAD_SEQUENCE_BITS_MIN} bits or \
                 more"
            ),
        }
    }
}

impl core::error::Error for PolicyError {}

/// Why a generator cannot be made. The fault is the configuration's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// The layout cannot be minted by.
    Layout(LayoutError),
    /// The node does not fit the layout.
    Field(crate::FieldError),
    /// The policy is out of range.
    Policy(PolicyError),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layout(error) => error.fmt(f),
            Self::Field(error) => error.fmt(f),
            Self::Policy(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ConfigError {}

impl From<LayoutError> for ConfigError {
    fn from(error: LayoutError) -> Self {
        Self::Layout(error)
    }
}

impl From<crate::FieldError> for ConfigError {
    fn from(error: crate::FieldError) -> Self {
        Self::Field(error)
    }
}

impl From<PolicyError> for ConfigError {
    fn from(error: PolicyError) -> Self {
        Self::Policy(error)
    }
}

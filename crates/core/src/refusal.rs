//! Why no ID is minted: one ordered enum for every face and runtime.

use core::fmt;

/// Why a generator did not mint. Data for the caller to branch on; no refusal is sticky but [`Refusal::Stopped`].
///
/// The variants are in the order in which they are tried: where several bounds bind at once, every face names the
/// same one. Milliseconds are Unix milliseconds, waits are lengths.
///
/// | refusal | whose | waiting helps |
/// |---|---|---|
/// | `Stopped` | the caller's: it asked to stop | no: take a new grant |
/// | `LayoutEnded` | the layout's (or a clock far in the future) | no: cut over to a new layout |
/// | `LeaseLost` | the lease's: ownership cannot be proven | until the lease is confirmed again, if it is; else take a new grant |
/// | `BelowFloor` | the clock's, or a predecessor's that ran ahead | until the clock is past the floor |
/// | `Ceiling` | the lease's: the renewal is late | until a renewal is confirmed |
/// | `Mark` | the mark's: the disk is late | until a mark is durable |
/// | `ClockUncertain` | the clock's | until the clock is in step again |
/// | `ClockRolledBack` | the clock's | until the clock is where it was |
/// | `Exhausted` | nobody's: the tick is full | until the next tick |
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// The generator was stopped. It stays so.
    Stopped,
    /// What would be minted next lies beyond the layout's last tick.
    LayoutEnded {
        /// The last millisecond that may be stamped.
        last_ms: u64,
    },
    /// The lease's ceiling is 0: the grant is over, or cannot be shown to hold.
    LeaseLost,
    /// The clock is not yet past the floor above which this grant begins; or, with a floor before it, past the
    /// layout's epoch.
    BelowFloor {
        /// The last millisecond that somebody else may have stamped; the layout's epoch if that is later.
        floor_ms: u64,
        /// Milliseconds until the clock is past it.
        wait_ms: u64,
    },
    /// What would be minted next lies above the confirmed ceiling of the lease.
    Ceiling {
        /// The last millisecond that may be stamped.
        ceiling_ms: u64,
    },
    /// What would be minted next lies above the durable high-water mark.
    Mark {
        /// The last millisecond that is durable.
        mark_ms: u64,
    },
    /// The clock's error bound is above the policy's limit.
    ClockUncertain {
        /// The error bound; `u32::MAX` when it is unknown.
        error_bound_ms: u32,
        /// The policy's limit.
        error_ms_max: u32,
    },
    /// The clock is behind what was already minted, by more than the policy's lead allows for.
    ClockRolledBack {
        /// How far behind, past the lead.
        by_ms: u64,
        /// Milliseconds until minting can go on: `by_ms`, and a tick more if the last tick is full.
        wait_ms: u64,
    },
    /// Every ID of the tick, and of the lead's, has been minted.
    Exhausted {
        /// Milliseconds until the next tick.
        wait_ms: u64,
    },
}

/// Whether waiting can end a refusal, and how long it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Waiting does not help.
    Never,
    /// Waiting may help, but nobody can say when: for a renewal, a sync, or a clock that is set right.
    Unknown,
    /// Waiting this many milliseconds of the wall clock helps.
    Ms(u64),
}

impl Refusal {
    /// Whether waiting helps, and how long.
    pub const fn wait(self) -> Wait {
        match self {
            Self::Stopped | Self::LayoutEnded { .. } => Wait::Never,
            Self::LeaseLost | Self::Ceiling { .. } | Self::Mark { .. } | Self::ClockUncertain { .. } => {
                Wait::Unknown
            }
            Self::BelowFloor { wait_ms, .. }
            | Self::ClockRolledBack { wait_ms, .. }
            | Self::Exhausted { wait_ms } => Wait::Ms(wait_ms),
        }
    }

    /// Whether a caller with `budget_ms` to spend should wait and ask again. A clock that stepped back by exactly
    /// the budget is waited out although a full last tick asks for one tick more.
    ///
    /// With nobody knowing how long, the answer is yes while there is a budget: a bounded wait asks again, and gives
    /// up when the budget is spent.
    pub const fn is_worth_waiting(self, budget_ms: u64) -> bool {
        match self {
            Self::ClockRolledBack { by_ms, .. } => by_ms <= budget_ms && budget_ms > 0,
            _ => match self.wait() {
                Wait::Never => false,
                Wait::Unknown => budget_ms > 0,
                Wait::Ms(wait_ms) => wait_ms <= budget_ms,
            },
        }
    }

    /// The refusal's name as every face writes it, in metrics and problem documents too.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::LayoutEnded { .. } => "layout-ended",
            Self::LeaseLost => "lease-lost",
            Self::BelowFloor { .. } => "below-floor",
            Self::Ceiling { .. } => "ceiling",
            Self::Mark { .. } => "mark",
            Self::ClockUncertain { .. } => "clock-uncertain",
            Self::ClockRolledBack { .. } => "clock-rolled-back",
            Self::Exhausted { .. } => "exhausted",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Stopped => f.write_str("the generator was stopped; a new grant makes a new one"),
            Self::LayoutEnded { last_ms } => write!(
                f,
                "the layout ended at {last_ms} (Unix ms): cut over to a new layout, or set the clock right if it is \
                 in the future"
            ),
            Self::LeaseLost => f.write_str(
                "the lease is lost: ownership of the worker code cannot be proven; take a new grant",
            ),
            Self::BelowFloor { floor_ms, wait_ms } => write!(
                f,
                "the clock is not yet past the floor {floor_ms} (Unix ms), up to which IDs may exist (or nothing can, \
                 before the epoch): {wait_ms} ms to wait, or set the clock right"
            ),
            Self::Ceiling { ceiling_ms } => write!(
                f,
                "the lease reaches to {ceiling_ms} (Unix ms) and its renewal is not confirmed: see to the lease store"
            ),
            Self::Mark { mark_ms } => write!(
                f,
                "the high-water mark reaches to {mark_ms} (Unix ms) and the next is not durable: see to the disk"
            ),
            Self::ClockUncertain { error_bound_ms: u32::MAX, error_ms_max } => write!(
                f,
                "the clock's error bound is unknown, and the limit is {error_ms_max} ms: synchronise the clock"
            ),
            Self::ClockUncertain { error_bound_ms, error_ms_max } => write!(
                f,
                "the clock may be off by {error_bound_ms} ms, and the limit is {error_ms_max} ms: see to the clock's \
                 synchronisation"
            ),
            Self::ClockRolledBack { by_ms, wait_ms } => write!(
                f,
                "the clock was set back, {by_ms} ms behind what was minted: {wait_ms} ms to wait, or set the clock \
                 right"
            ),
            Self::Exhausted { wait_ms } => {
                write!(f, "every ID of this tick is minted: {wait_ms} ms to the next tick")
            }
        }
    }
}

impl core::error::Error for Refusal {}

//! When a worker is better off with another code.

use snowmint_core::{Refusal, Wait};

use crate::keeper::FLEET_WINDOW_MS_DEFAULT;
use crate::protocol::ttl_ms;

/// The shortest wait that is worth another code, whatever the window, in milliseconds: the TTL of a lease with a fleet's
/// window. A clock that is slewed or stepped by a few seconds is back before.
pub const EXCHANGE_WAIT_MS_MIN: u32 = ttl_ms(FLEET_WINDOW_MS_DEFAULT);

/// Whether a generator that refuses should be stopped and its code given back for another one
/// ([`crate::Then::Acquire`]): its IDs lie further ahead of the clock than the TTL of a lease with this window, and than
/// [`EXCHANGE_WAIT_MS_MIN`].
///
/// A shorter step of the clock is refused until it is over: another code would mint below IDs that were just handed
/// out, and a fleet would change hands at every slip. A longer one would cost more than a crash does, after which the
/// code is had again within one TTL. Nothing is lost by either: the code is given back with the end that it reached,
/// and whoever's clock is past it can take it.
///
/// ```
/// use snowmint_core::Refusal;
/// use snowmint_lease::exchange::is_worth_another_code;
///
/// let back = |by_ms| Refusal::ClockRolledBack { by_ms, wait_ms: by_ms };
/// assert!(!is_worth_another_code(back(15_000), 10_000));
/// assert!(is_worth_another_code(back(15_001), 10_000));
/// assert!(!is_worth_another_code(back(2_000), 1_000));
/// assert!(!is_worth_another_code(Refusal::LeaseLost, 10_000)); // The keeper takes another by itself.
/// ```
pub const fn is_worth_another_code(refusal: Refusal, window_ms: u32) -> bool {
    match (refusal, refusal.wait()) {
        (Refusal::BelowFloor { .. } | Refusal::ClockRolledBack { .. }, Wait::Ms(wait_ms)) => {
            wait_ms > ttl_ms(window_ms) as u64 && wait_ms > EXCHANGE_WAIT_MS_MIN as u64
        }
        _ => false,
    }
}

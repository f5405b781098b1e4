//! What the kernel says of its wall clock's error.
//!
//! ```
//! # #[cfg(target_os = "linux")]
//! # {
//! let state = snowmint_kernel_clock::read()?;
//! println!("synchronised: {}, error at most {} us", state.is_synchronised, state.error_us_max);
//! # }
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A crate of its own, because it is one system call that no safe library offers to read (rustix and nix have none,
//! clock-steering only writes it): so the host stays without unsafe code. Nothing is ever set by it.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(target_os = "linux")]
use std::mem::MaybeUninit;

/// What `adjtimex` tells of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelClock {
    /// Whether some daemon keeps the clock, as it told the kernel: `STA_UNSYNC` is clear, and the clock's state is
    /// no `TIME_ERROR`.
    pub is_synchronised: bool,
    /// `maxerror`, in microseconds: what the daemon set at its last update, and 500 more for each second since. At
    /// 16 seconds the kernel itself calls the clock unsynchronised.
    pub error_us_max: u64,
}

/// Asks the kernel; needs no privilege. The error is the kernel's, or a sandbox's that forbids the call.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub fn read() -> std::io::Result<KernelClock> {
    let mut timex = MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: `timex` is a plain C structure for which all zeros is a value; with `modes` 0 the call sets nothing in
    // the kernel, and writes only within the structure that it is given.
    let (state, timex) = unsafe { (libc::adjtimex(timex.as_mut_ptr()), timex.assume_init()) };
    if state < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(interpret(state, timex.status, timex.maxerror))
}

/// Reads what the call returned.
#[cfg(target_os = "linux")]
fn interpret(state: i32, status: i32, maxerror: libc::c_long) -> KernelClock {
    let is_synchronised = state != libc::TIME_ERROR && status & libc::STA_UNSYNC == 0;
    match u64::try_from(maxerror) {
        Ok(error_us_max) => KernelClock { is_synchronised, error_us_max },
        // The kernel holds none below 0; if one came, it would bound nothing.
        Err(_) => KernelClock { is_synchronised: false, error_us_max: u64::MAX },
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// The real call: whatever this machine's clock is like, the kernel's rules hold.
    #[test]
    fn the_kernel_answers_without_privilege() {
        let state = read().unwrap();
        assert!(state.error_us_max <= 16_000_000, "{state:?}");
        // NTP_PHASE_LIMIT: at 16 s the kernel gives up.
        assert!(!state.is_synchronised || state.error_us_max < 16_000_000, "{state:?}");
    }

    #[test]
    fn what_the_call_returns_is_read_so() {
        for (state, status, maxerror, is_synchronised, error_us_max) in [
            (libc::TIME_OK, libc::STA_NANO, 1_500, true, 1_500),
            (libc::TIME_INS, libc::STA_PLL, 0, true, 0),
            (libc::TIME_OK, libc::STA_UNSYNC, 1_500, false, 1_500),
            (libc::TIME_ERROR, libc::STA_NANO, 1_500, false, 1_500),
            (libc::TIME_ERROR, libc::STA_UNSYNC | libc::STA_NANO, 16_000_000, false, 16_000_000),
            (libc::TIME_OK, 0, -1, false, u64::MAX),
        ] {
            let expected = KernelClock { is_synchronised, error_us_max };
            assert_eq!(interpret(state, status, maxerror), expected, "{state} {status} {maxerror}");
        }
    }
}

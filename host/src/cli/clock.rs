//! Who vouches for the wall clock that a command mints by.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use snowmint::{ChosenSource, Clock, ClockNotice, ClockSource, WatchedClock};

use super::{CliError, tell};

/// How long a source may take for its first answer: longer than a chronyc that hangs is waited for.
const FIRST_WAIT_MAX: Duration = Duration::from_secs(5);

/// The same where no bound is asked for.
const UNASKED_WAIT_MAX: Duration = Duration::from_millis(100);

/// What vouches for the wall clock, and for how much.
#[derive(Args, Debug)]
pub(super) struct ClockArgs {
    /// What vouches for the wall clock: `kernel`, `chrony`, `clockbound`, `auto` for the best of them that does, or
    /// `assume:MS` for an error bound that you answer for.
    #[arg(id = "clock", long, value_name = "SOURCE", default_value = "auto", env = "SNOWMINT_CLOCK")]
    source: ClockSource,

    /// Refuse when the clock's error bound is above this, or unknown, in milliseconds [default: in a fleet 10, or 1250
    /// where the kernel vouches; on one machine any bound will do].
    #[arg(
        id = "clock_error_ms_max",
        long = "clock-error-ms-max",
        value_name = "MS",
        env = "SNOWMINT_CLOCK_ERROR_MS_MAX"
    )]
    error_ms_max: Option<u32>,
}

impl ClockArgs {
    /// Starts to watch the clock, and waits for the first word of its source. Refuses nothing yet; see [`check`].
    pub(super) fn start(&self, is_fleet: bool) -> Result<Arc<WatchedClock>, CliError> {
        self.start_telling(is_fleet, tell, |notice, is_enforced| {
            // A bound that nobody asked for is reported by the records that it is written to.
            if is_enforced || matches!(notice, ClockNotice::Stepped { .. }) {
                tell(&notice.to_string());
            }
        })
    }

    /// The same: `say` is told who vouches for the clock, and `observe` of what befalls it, and whether a limit is put to
    /// its error.
    pub(super) fn start_telling(
        &self,
        is_fleet: bool,
        say: impl Fn(&str),
        observe: impl Fn(&ClockNotice, bool) + Send + 'static,
    ) -> Result<Arc<WatchedClock>, CliError> {
        let chosen = self.source.choose();
        // On one machine nobody's clock is compared with another's, so the bound matters only on request.
        let by_default = if is_fleet { chosen.source.error_ms_max_default() } else { u32::MAX };
        let error_ms_max = self.error_ms_max.unwrap_or(by_default);
        let is_enforced = error_ms_max != u32::MAX;
        let described = describe(&chosen);
        let observer = move |notice: &ClockNotice| observe(notice, is_enforced);
        let clock = WatchedClock::start(chosen.source, error_ms_max, Box::new(observer))
            .map_err(|error| CliError::Failed(format!("the clock's thread cannot be started: {error}")))?;
        clock.wait(if is_enforced { FIRST_WAIT_MAX } else { UNASKED_WAIT_MAX });
        let bound_ms = clock.error_bound_ms();
        if is_enforced && bound_ms <= error_ms_max {
            say(&format!("{described}: it may be off by {bound_ms} ms, and the limit is {error_ms_max} ms"));
        }
        Ok(Arc::new(clock))
    }
}

/// The source, why it and no other, and what its bound is made of.
fn describe(chosen: &ChosenSource) -> String {
    let mut text = format!("the clock is vouched for by {}", chosen.source.name());
    let mut notes: Vec<_> =
        chosen.passed_over.iter().map(|(name, error)| format!("{name}: {error}")).collect();
    notes.extend(chosen.source.remark().map(str::to_owned));
    if !notes.is_empty() {
        text.push_str(&format!(" ({})", notes.join("; ")));
    }
    text
}

/// Refuses a clock that is not vouched for up to its limit, naming the source and the way out.
pub(super) fn check(clock: &WatchedClock) -> Result<(), CliError> {
    if clock.error_bound_ms() > clock.error_ms_max() {
        // A step a moment ago is no fault of the source's until it was asked again.
        clock.wait(FIRST_WAIT_MAX);
    }
    clock.refusal().map_or(Ok(()), |why| Err(CliError::Failed(why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a fleet a limit is put to each source, its own where the flag names none; on one machine only on request.
    #[test]
    fn a_fleet_puts_a_limit_to_each_source() {
        for (source, flag, is_fleet, error_ms_max, is_refused) in [
            (ClockSource::Assume(10), None, true, 10, false),
            (ClockSource::Assume(11), None, true, 10, true),
            (ClockSource::Assume(11), Some(11), true, 11, false),
            (ClockSource::Assume(11), None, false, u32::MAX, false),
            (ClockSource::Assume(11), Some(10), false, 10, true),
        ] {
            let context = format!("{source:?} {flag:?} {is_fleet}");
            let clock = ClockArgs { source, error_ms_max: flag }.start(is_fleet).unwrap();
            assert_eq!(clock.error_ms_max(), error_ms_max, "{context}");
            let refused = check(&clock);
            assert_eq!(refused.is_err(), is_refused, "{context}");
            if let Err(CliError::Failed(text)) = refused {
                assert!(
                    text.contains("`assume`") && text.contains("--clock-error-ms-max"),
                    "{context}: {text}"
                );
            }
        }
        let limit_ms = |source| ClockArgs { source, error_ms_max: None }.start(true).unwrap().error_ms_max();
        assert_eq!(limit_ms(ClockSource::Kernel), 1_250);
        assert_eq!(limit_ms(ClockSource::ClockBound), 10);
    }
}

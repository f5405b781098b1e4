//! What a source's word is worth as time passes, and what a step of the wall clock does to it. Without IO: clocks and
//! samples are arguments.

use super::Reading;
use super::source::{DRIFT_PPM_MAX, Sample, SourceError, StepAwareness};

/// How old a sample may be; an older one is worth nothing.
const AGE_NS_MAX: u64 = 30_000_000_000;

/// A change of the wall clock against the boot-time clock beyond this is a step. Both are slewed alike, so all that is
/// to be allowed for is how exactly the two can be read together.
const STEP_NS_MIN: u64 = 5_000_000;

/// For a machine whose two clocks are not slewed alike, as in some sandboxes: their drift counts for so long at most.
const STEP_DRIFT_NS_MAX: u64 = 60_000_000_000;

/// How exactly a step's size is known.
const STEP_ERROR_NS: u64 = 1_000_000;

/// By so much later a measurement is another one. The time that chrony tells of the same one moves by what it slews.
const MEASURED_AGAIN_NS_MIN: u64 = 500_000_000;

/// How long a daemon that does not tell when it measures is taken to know nothing of a step: chrony's longest interval
/// between measurements by default, 2^10 s.
const UNAWARE_NS: u64 = 1_024_000_000_000;

/// What is known of the wall clock.
#[derive(Debug, Default)]
pub(super) struct Watch {
    last: Option<Reading>,
    known: Option<Known>,
    doubt: Option<Doubt>,
    /// Whether the source was asked since the start, or the last step.
    was_asked: bool,
    steps: u64,
    last_step_ns: i64,
}

/// What the source vouched for when it was asked.
#[derive(Clone, Copy, Debug)]
struct Known {
    asked_boot_ns: u64,
    error_ns: u64,
    drift_ppm: u32,
}

/// The wall clock was stepped, perhaps without its daemon's knowledge: then its error is the daemon's bound and the
/// step together.
// Each length says its unit.
#[allow(clippy::struct_field_names)]
#[derive(Clone, Copy, Debug)]
struct Doubt {
    by_ns: u64,
    since_boot_ns: u64,
    /// The first measurement that the source told after the step; it may have been made before.
    measured_ns: Option<u64>,
}

impl Watch {
    /// Compares both clocks with what they read before. A step ends what was known: the source is to be asked again.
    /// Returns it in nanoseconds, below 0 for a clock that was set back.
    pub(super) fn look(&mut self, now: Reading) -> Option<i64> {
        let last = self.last.replace(now)?;
        let (wall, boot) = (difference(now.wall_ns, last.wall_ns), difference(now.boot_ns, last.boot_ns));
        let by = wall - boot;
        let apart_ns = now.boot_ns.abs_diff(last.boot_ns).min(STEP_DRIFT_NS_MAX);
        let drifted_ns = drift_ns(apart_ns, DRIFT_PPM_MAX);
        if by.unsigned_abs() <= u128::from(STEP_NS_MIN + drifted_ns) {
            return None;
        }
        let by_ns = i64::try_from(by).unwrap_or(if by < 0 { i64::MIN } else { i64::MAX });
        self.steps += 1;
        self.last_step_ns = by_ns;
        self.known = None;
        self.was_asked = false;
        let before_ns = self.doubt.map_or(0, |doubt| doubt.by_ns);
        self.doubt = Some(Doubt {
            // One step may undo another, but whether the daemon has seen the first is not known.
            by_ns: before_ns.saturating_add(by_ns.unsigned_abs()).saturating_add(STEP_ERROR_NS),
            since_boot_ns: now.boot_ns,
            measured_ns: None,
        });
        Some(by_ns)
    }

    /// Takes what the source said when it was asked at `asked_boot_ns`. Not for an answer that a step fell into.
    pub(super) fn sampled(&mut self, asked_boot_ns: u64, result: &Result<Sample, SourceError>) {
        self.was_asked = true;
        match result {
            Ok(sample) => {
                self.dispel(asked_boot_ns, sample.steps);
                let doubt_ns = self.doubt.map_or(0, |doubt| doubt.by_ns);
                let error_ns = sample.error_ns.saturating_add(doubt_ns);
                self.known = Some(Known { asked_boot_ns, error_ns, drift_ppm: sample.drift_ppm });
            }
            Err(SourceError::Unsynchronised(_)) => self.known = None,
            // What it said before holds all the same, and ages.
            Err(SourceError::Absent(_) | SourceError::Failed(_)) => {}
        }
    }

    /// Ends the doubt if the source has measured since.
    fn dispel(&mut self, boot_ns: u64, steps: StepAwareness) {
        let Some(doubt) = &mut self.doubt else { return };
        let is_over = match (steps, doubt.measured_ns) {
            (StepAwareness::Aware, _) => true,
            (StepAwareness::Measured(ns), None) => {
                doubt.measured_ns = Some(ns);
                false
            }
            (StepAwareness::Measured(ns), Some(first_ns)) => {
                ns >= first_ns.saturating_add(MEASURED_AGAIN_NS_MIN)
            }
            (StepAwareness::Unaware, _) => boot_ns.saturating_sub(doubt.since_boot_ns) >= UNAWARE_NS,
        };
        if is_over {
            self.doubt = None;
        }
    }

    /// The largest error of the wall clock in milliseconds, rounded up; `u32::MAX` when unknown.
    pub(super) fn bound_ms(&self, boot_ns: u64) -> u32 {
        let Some(Known { asked_boot_ns, error_ns, drift_ppm }) = self.known else { return u32::MAX };
        // Another thread may have asked a moment after this one read its clock.
        let age_ns = boot_ns.saturating_sub(asked_boot_ns);
        if age_ns > AGE_NS_MAX {
            return u32::MAX;
        }
        let bound_ms = error_ns.saturating_add(drift_ns(age_ns, drift_ppm)).div_ceil(1_000_000);
        u32::try_from(bound_ms).unwrap_or(u32::MAX)
    }

    /// How many steps were seen.
    pub(super) const fn steps(&self) -> u64 {
        self.steps
    }

    /// The size of the last step, in nanoseconds; 0 if there was none.
    pub(super) const fn last_step_ns(&self) -> i64 {
        self.last_step_ns
    }

    /// Whether the source was asked since the start, or the last step. Until then an unknown bound says nothing against
    /// the source.
    pub(super) const fn was_asked(&self) -> bool {
        self.was_asked
    }
}

fn difference(after_ns: u64, before_ns: u64) -> i128 {
    i128::from(after_ns) - i128::from(before_ns)
}

/// By how much a clock may have drifted in a minute or less. Rounded up.
fn drift_ns(length_ns: u64, ppm: u32) -> u64 {
    length_ns.saturating_mul(u64::from(ppm)).div_ceil(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const S: u64 = 1_000 * MS;
    const UNKNOWN: u32 = u32::MAX;

    /// What happens to a watch, at a time in milliseconds since the first moment.
    #[derive(Debug)]
    enum Event {
        /// Both clocks are read; the wall clock is so many milliseconds ahead of where it would be.
        Look(i64),
        /// The same, and that must be a step of so many milliseconds.
        Step(i64, i64),
        /// The source vouches for so many microseconds.
        Says(u64, StepAwareness),
        /// The source vouches for so many milliseconds, however much time passes.
        Stands(u64),
        Unsynchronised,
        Failed,
        /// The bound must be so many milliseconds.
        Bound(u32),
    }

    #[track_caller]
    fn check(name: &str, events: &[(u64, Event)]) {
        let mut watch = Watch::default();
        let mut steps = 0;
        for (at_ms, event) in events {
            let boot_ns = 100 * S + at_ms * MS;
            let look = |watch: &mut Watch, ahead_ms: i64| {
                let wall_ns = (1_000_000 * S + boot_ns).checked_add_signed(ahead_ms * 1_000_000).unwrap();
                watch.look(Reading { boot_ns, wall_ns })
            };
            let context = format!("{name}: at {at_ms}: {event:?}: {watch:?}");
            match event {
                Event::Look(ahead_ms) => assert_eq!(look(&mut watch, *ahead_ms), None, "{context}"),
                Event::Step(ahead_ms, by_ms) => {
                    steps += 1;
                    assert_eq!(look(&mut watch, *ahead_ms), Some(by_ms * 1_000_000), "{context}");
                    assert_eq!(watch.last_step_ns(), by_ms * 1_000_000, "{context}");
                    assert!(!watch.was_asked(), "{context}");
                }
                Event::Says(us, steps) => {
                    let error_ns = us * 1_000;
                    watch.sampled(boot_ns, &Ok(Sample { error_ns, drift_ppm: DRIFT_PPM_MAX, steps: *steps }));
                }
                Event::Stands(ms) => {
                    let error_ns = ms * MS;
                    let steps = StepAwareness::Aware;
                    watch.sampled(boot_ns, &Ok(Sample { error_ns, drift_ppm: 0, steps }));
                }
                Event::Unsynchronised => {
                    watch.sampled(boot_ns, &Err(SourceError::Unsynchronised(String::new())));
                }
                Event::Failed => watch.sampled(boot_ns, &Err(SourceError::Failed(String::new()))),
                Event::Bound(ms) => assert_eq!(watch.bound_ms(boot_ns), *ms, "{context}"),
            }
            assert_eq!(watch.steps(), steps, "{context}");
        }
    }

    #[test]
    fn a_bound_ages_until_it_is_worth_nothing() {
        use Event::*;
        use StepAwareness::Aware;
        check("nothing is known at first", &[(0, Bound(UNKNOWN)), (1, Look(0)), (2, Bound(UNKNOWN))]);
        check(
            "it is rounded up, and grows by 500 ppm",
            &[
                (0, Says(0, Aware)),
                (0, Bound(0)),
                (1, Bound(1)),
                (2_000, Bound(1)),
                (2_001, Bound(2)),
                (30_000, Bound(15)),
                (30_001, Bound(UNKNOWN)),
            ],
        );
        check(
            "a new sample takes its place",
            &[
                (0, Says(900, Aware)),
                (4_000, Bound(3)),
                (4_000, Says(100, Aware)),
                (4_000, Bound(1)),
                // Asked before, by a thread that reads the clock later.
                (3_999, Bound(1)),
            ],
        );
        check(
            "a source that cannot be asked lets it age, one that says no ends it",
            &[
                (0, Says(900, Aware)),
                (100, Failed),
                (200, Bound(1)),
                (20_000, Failed),
                (20_000, Bound(11)),
                (20_001, Unsynchronised),
                (20_002, Bound(UNKNOWN)),
                (20_003, Says(900, Aware)),
                (20_003, Bound(1)),
            ],
        );
        check("a word that stands", &[(0, Stands(3)), (30_000, Bound(3)), (30_001, Bound(UNKNOWN))]);
        check(
            "more than can be written is unknown",
            &[(0, Says(u64::MAX / 1_000, Aware)), (0, Bound(UNKNOWN))],
        );
    }

    #[test]
    fn a_step_is_seen_and_a_drift_is_none() {
        use Event::*;
        check(
            "up to 5 ms",
            &[(0, Look(0)), (1, Look(5)), (2, Look(0)), (3, Step(6, 6)), (4, Look(6)), (5, Step(0, -6))],
        );
        check("and 500 ppm", &[(0, Look(0)), (10_000, Look(10)), (20_000, Step(21, 11))]);
        check("of a minute at most", &[(0, Look(0)), (36_000_000, Look(35)), (72_000_000, Step(71, 36))]);
        check(
            "F15: eight hours",
            &[(0, Look(0)), (1, Step(28_800_000, 28_800_000)), (2, Step(0, -28_800_000))],
        );
    }

    #[test]
    fn a_step_ends_what_was_known_and_is_added_until_the_source_has_measured_again() {
        use Event::*;
        use StepAwareness::{Aware, Measured, Unaware};
        check(
            "a source that knows",
            &[
                (0, Look(0)),
                (0, Says(900, Aware)),
                (1, Step(2_000, 2_000)),
                (1, Bound(UNKNOWN)),
                (2, Failed),
                (2, Bound(UNKNOWN)),
                (3, Says(900, Aware)),
                (3, Bound(1)),
            ],
        );
        check(
            "a source that tells when it measured",
            &[
                (0, Look(0)),
                (0, Says(900, Measured(7_000 * MS))),
                (1, Step(-2_000, -2_000)),
                // It was told after the step, but may have been measured before.
                (2, Says(900, Measured(7_900 * MS))),
                (2, Bound(2_002)),
                (3, Says(900, Measured(7_901 * MS))),
                (3, Bound(2_002)),
                (4, Step(0, 2_000)),
                (4, Says(900, Measured(8_500 * MS))),
                (4, Bound(4_003)),
                (5, Says(900, Measured(9_000 * MS))),
                (5, Bound(1)),
            ],
        );
        check(
            "a source that does not",
            &[
                (0, Look(0)),
                (1, Step(20, 20)),
                (1, Says(900, Unaware)),
                (1, Bound(22)),
                (1_024_000, Says(900, Unaware)),
                (1_024_000, Bound(22)),
                (1_024_001, Says(900, Unaware)),
                (1_024_001, Bound(1)),
            ],
        );
    }
}

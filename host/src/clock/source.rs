//! Who vouches for the wall clock.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use snowmint_core::{CLOCK_ERROR_MS_MAX_DEFAULT, KERNEL_CLOCK_ERROR_MS_MAX_DEFAULT};

use super::{Chrony, ClockBound, Kernel};

/// Something on this machine that bounds the wall clock's error.
///
/// It is asked on a thread of its own. [`Source::sample`] MAY take its time and MAY hang: what it said last grows older
/// meanwhile, until it is worth nothing.
pub trait Source: Send {
    /// Its name, as in `--clock NAME`.
    fn name(&self) -> &'static str;

    /// Asks it. MUST be an error unless it vouches for the clock now.
    fn sample(&mut self) -> Result<Sample, SourceError>;

    /// How often to ask it.
    fn interval(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// The largest bound in milliseconds that is accepted of it where nobody chose another.
    fn error_ms_max_default(&self) -> u32 {
        CLOCK_ERROR_MS_MAX_DEFAULT
    }

    /// Why a bound of this source is what it is, where that needs a word.
    fn remark(&self) -> Option<&'static str> {
        None
    }

    /// What an operator can do when it does not vouch, or for too little.
    fn way_out(&self) -> &'static str;
}

/// How fast a clock that nobody corrects may drift, in parts per million: what Linux lets any daemon slew it by
/// (`MAXFREQ` in the kernel's `timex.h`, by which the kernel ages its own bound). RFC 5905 counts on 15.
pub const DRIFT_PPM_MAX: u32 = 500;

/// What a source vouches for, at the moment that it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The largest error of the wall clock, in nanoseconds.
    pub error_ns: u64,
    /// How fast that error may grow until it is asked again, in parts per million; [`DRIFT_PPM_MAX`] for a clock that
    /// somebody may slew, 0 for a word that stands.
    pub drift_ppm: u32,
    /// What the source knows of steps that somebody else made.
    pub steps: StepAwareness,
}

/// What a source's bound is worth after the wall clock was stepped: a daemon that has not measured since vouches for a
/// clock that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepAwareness {
    /// Its bound holds after any step.
    Aware,
    /// It knows of a step once it measures again. When it last did, in nanoseconds of a clock of its own.
    Measured(u64),
    /// It knows of a step once it measures again, and does not tell when that is.
    Unaware,
}

/// Why a source does not vouch for the clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceError {
    /// It is not on this machine, or is not running.
    Absent(String),
    /// It is there and says that the clock is not in step.
    Unsynchronised(String),
    /// It cannot be asked, or its answer not be understood. What it said before still stands for a while.
    Failed(String),
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(what) | Self::Unsynchronised(what) | Self::Failed(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for SourceError {}

/// An operator who answers for the clock.
#[derive(Clone, Copy, Debug)]
pub struct Assumed {
    error_ms: u32,
}

impl Assumed {
    /// An error of at most so many milliseconds.
    pub const fn new(error_ms: u32) -> Self {
        Self { error_ms }
    }
}

impl Source for Assumed {
    fn name(&self) -> &'static str {
        "assume"
    }

    fn sample(&mut self) -> Result<Sample, SourceError> {
        // Whoever answers for the clock answers for its steps.
        Ok(Sample {
            error_ns: u64::from(self.error_ms) * 1_000_000,
            drift_ppm: 0,
            steps: StepAwareness::Aware,
        })
    }

    fn way_out(&self) -> &'static str {
        "assume less, or raise `--clock-error-ms-max`"
    }
}

/// What an operator chose to vouch for the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockSource {
    /// The first of `clockbound`, `chrony` and `kernel` that vouches for the clock at the start.
    Auto,
    /// The kernel, see [`Kernel`].
    Kernel,
    /// The daemon of chrony, see [`Chrony`].
    Chrony,
    /// The daemon of `ClockBound`, see [`ClockBound`].
    ClockBound,
    /// The operator: an error of at most so many milliseconds.
    Assume(u32),
}

/// A source, and how it came to be chosen.
pub struct ChosenSource {
    /// The source.
    pub source: Box<dyn Source>,
    /// What was wrong with each that comes before it.
    pub passed_over: Vec<(&'static str, SourceError)>,
}

impl fmt::Debug for ChosenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, passed_over } = self;
        f.debug_struct("ChosenSource")
            .field("source", &source.name())
            .field("passed_over", passed_over)
            .finish()
    }
}

impl ClockSource {
    /// The source of this choice, at the place where its daemon is by default.
    ///
    /// `auto` asks each. Where none vouches it is the first that is there, which may come to: the kernel at the latest.
    pub fn choose(self) -> ChosenSource {
        let one = |source: Box<dyn Source>| ChosenSource { source, passed_over: Vec::new() };
        match self {
            Self::Auto => {
                first_of(vec![Box::new(ClockBound::default()), Box::new(Chrony::default()), Box::new(Kernel)])
            }
            Self::Kernel => one(Box::new(Kernel)),
            Self::Chrony => one(Box::<Chrony>::default()),
            Self::ClockBound => one(Box::<ClockBound>::default()),
            Self::Assume(error_ms) => one(Box::new(Assumed::new(error_ms))),
        }
    }
}

/// The first that vouches; else the first that is there; else the last.
fn first_of(sources: Vec<Box<dyn Source>>) -> ChosenSource {
    let mut passed_over = Vec::new();
    let mut there: Option<(usize, Box<dyn Source>)> = None;
    for mut source in sources {
        match source.sample() {
            Ok(_) => return ChosenSource { source, passed_over },
            Err(error) => {
                let is_better = match &there {
                    Some((at, _)) => {
                        matches!(passed_over.get(*at), Some((_, SourceError::Absent(_))))
                    }
                    None => true,
                };
                let at = passed_over.len();
                passed_over.push((source.name(), error));
                if is_better {
                    there = Some((at, source));
                }
            }
        }
    }
    match there {
        Some((at, source)) => {
            passed_over.remove(at);
            ChosenSource { source, passed_over }
        }
        None => ChosenSource { source: Box::new(Kernel), passed_over },
    }
}

impl FromStr for ClockSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None => match text {
                "auto" => Ok(Self::Auto),
                "kernel" => Ok(Self::Kernel),
                "chrony" => Ok(Self::Chrony),
                "clockbound" => Ok(Self::ClockBound),
                _ => Err(CHOICES.into()),
            },
            Some(("assume", ms)) => match ms.parse() {
                Ok(u32::MAX) => Err(format!("{ms} ms is no bound; give {} or less", u32::MAX - 1)),
                Ok(ms) => Ok(Self::Assume(ms)),
                Err(error) => Err(format!("`{ms}` is no whole number of milliseconds: {error}")),
            },
            Some(_) => Err(CHOICES.into()),
        }
    }
}

const CHOICES: &str = "give `auto`, `kernel`, `chrony`, `clockbound` or `assume:MS`";

/// The kernel's default limit, beside the source that needs it.
pub(super) const KERNEL_ERROR_MS_MAX: u32 = KERNEL_CLOCK_ERROR_MS_MAX_DEFAULT;

#[cfg(test)]
mod tests {
    use super::*;

    type Answer = Result<Sample, SourceError>;

    struct Fixed(&'static str, Answer);

    impl Source for Fixed {
        fn name(&self) -> &'static str {
            self.0
        }

        fn sample(&mut self) -> Result<Sample, SourceError> {
            self.1.clone()
        }

        fn way_out(&self) -> &'static str {
            "none"
        }
    }

    /// `auto` takes the first that vouches, else the first that is there, and tells what was wrong with the others.
    #[test]
    fn the_first_that_vouches_is_chosen() {
        let well = || Ok(Sample { error_ns: 1, drift_ppm: 0, steps: StepAwareness::Aware });
        let absent = || Err(SourceError::Absent("absent".into()));
        let unsure = || Err(SourceError::Unsynchronised("unsure".into()));
        let failed = || Err(SourceError::Failed("failed".into()));
        let rows: &[([Answer; 3], &str, &[&str])] = &[
            ([well(), well(), well()], "a", &[]),
            ([absent(), well(), well()], "b", &["a"]),
            ([unsure(), failed(), well()], "c", &["a", "b"]),
            ([unsure(), absent(), unsure()], "a", &["b", "c"]),
            ([absent(), unsure(), unsure()], "b", &["a", "c"]),
            ([absent(), failed(), unsure()], "b", &["a", "c"]),
            ([absent(), absent(), unsure()], "c", &["a", "b"]),
            ([absent(), absent(), absent()], "c", &["a", "b"]),
        ];
        for (samples, chosen, passed_over) in rows {
            let sources = ["a", "b", "c"].into_iter().zip(samples.clone());
            let boxed = |(name, sample)| Box::new(Fixed(name, sample)) as Box<dyn Source>;
            let choice = first_of(sources.map(boxed).collect());
            assert_eq!(choice.source.name(), *chosen, "{samples:?}");
            let names: Vec<_> = choice.passed_over.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, *passed_over, "{samples:?}");
        }
    }

    #[test]
    fn a_choice_is_read_or_refused() {
        let rows: &[(&str, Result<ClockSource, &str>)] = &[
            ("auto", Ok(ClockSource::Auto)),
            ("kernel", Ok(ClockSource::Kernel)),
            ("chrony", Ok(ClockSource::Chrony)),
            ("clockbound", Ok(ClockSource::ClockBound)),
            ("assume:0", Ok(ClockSource::Assume(0))),
            ("assume:4294967294", Ok(ClockSource::Assume(u32::MAX - 1))),
            ("assume:4294967295", Err("no bound")),
            ("assume:-1", Err("whole number")),
            ("assume:", Err("whole number")),
            ("assume", Err("assume:MS")),
            ("chrony:x", Err("assume:MS")),
            ("", Err("assume:MS")),
            ("Kernel", Err("assume:MS")),
        ];
        for (text, expected) in rows {
            match (text.parse::<ClockSource>(), expected) {
                (Ok(read), Ok(expected)) => assert_eq!(read, *expected, "{text}"),
                (Err(error), Err(told)) => assert!(error.contains(told), "{text}: {error}"),
                (read, _) => panic!("{text}: {read:?}"),
            }
        }
    }
}

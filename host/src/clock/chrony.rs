//! chrony's word for the clock.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::source::{DRIFT_PPM_MAX, Sample, Source, SourceError, StepAwareness};

/// How long chronyc may take. Its own patience with a silent daemon is some seconds.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(3);

/// More than this is no answer of chronyc's.
const ANSWER_BYTES_MAX: u64 = 4_096;

/// The reference of a daemon that serves its own clock (`local`), 127.127.1.1.
const OWN_CLOCK: &str = "7F7F0101";

/// The daemon of chrony, asked by `chronyc -c -n tracking`.
///
/// The command, not the daemon's socket: its numbers are chrony's documented interface, while the protocol beneath it
/// is versioned for chronyc alone, and the library that speaks it is under another licence than ours. It needs no
/// privilege and costs a few milliseconds of a process every four seconds.
///
/// The bound is |system time| + root dispersion + root delay / 2, which is chrony's own formula.
#[derive(Clone, Debug)]
pub struct Chrony {
    program: String,
    arguments: Vec<String>,
}

impl Default for Chrony {
    /// `chronyc` on the PATH, and the daemon where chronyc looks for it.
    fn default() -> Self {
        Self::new("chronyc", [])
    }
}

impl Chrony {
    /// Another chronyc, or more arguments for it, such as `-h HOST` and `-p PORT`.
    pub fn new<const N: usize>(program: &str, arguments: [&str; N]) -> Self {
        Self { program: program.to_owned(), arguments: arguments.map(str::to_owned).to_vec() }
    }

    fn ask(&self) -> Result<String, SourceError> {
        let failed = |error| SourceError::Failed(format!("`{}` cannot be run: {error}", self.program));
        // `-n`: no name is looked up, which could take long.
        let spawned = Command::new(&self.program)
            .args(&self.arguments)
            .args(["-c", "-n", "tracking"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = match spawned {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(SourceError::Absent(format!(
                    "chrony is not installed: there is no `{}`",
                    self.program
                )));
            }
            result => Answering(result.map_err(failed)?),
        };
        let end = Instant::now() + ANSWER_WAIT_MAX;
        let mut pause = Duration::from_millis(1);
        let status = loop {
            if let Some(status) = child.0.try_wait().map_err(failed)? {
                break status;
            }
            if Instant::now() >= end {
                return Err(SourceError::Failed(format!(
                    "`{}` gave no answer within {} s",
                    self.program,
                    ANSWER_WAIT_MAX.as_secs()
                )));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        };
        let mut answer = String::new();
        if let Some(out) = child.0.stdout.take() {
            // What an answer holds fits the pipe, so it lies there whole.
            out.take(ANSWER_BYTES_MAX)
                .read_to_string(&mut answer)
                .map_err(|error| SourceError::Failed(format!("chronyc's answer cannot be read: {error}")))?;
        }
        if status.success() {
            return Ok(answer);
        }
        let answer = answer.trim();
        if answer.starts_with("506 ") {
            return Err(SourceError::Absent(
                "chrony's daemon is not running, or does not let itself be asked".into(),
            ));
        }
        Err(SourceError::Failed(format!("chronyc failed ({status}): {}", answer.escape_debug())))
    }
}

/// A chronyc that is ended and waited for, whatever happens.
struct Answering(Child);

impl Drop for Answering {
    fn drop(&mut self) {
        // Of a child that has ended already neither does anything.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Source for Chrony {
    fn name(&self) -> &'static str {
        "chrony"
    }

    fn sample(&mut self) -> Result<Sample, SourceError> {
        read(&self.ask()?)
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(4)
    }

    fn way_out(&self) -> &'static str {
        "install and start chrony, see what `chronyc tracking` and `chronyc sources` say, or answer for the clock \
         yourself with `--clock assume:MS`"
    }
}

/// Reads the line of `chronyc -c tracking`: reference, its address, stratum, reference time, system time, last offset,
/// root mean square of offsets, frequency, residual frequency, skew, root delay, root dispersion, update interval,
/// leap status.
fn read(answer: &str) -> Result<Sample, SourceError> {
    let unread =
        || SourceError::Failed(format!("chronyc's answer is not understood: {}", answer.escape_debug()));
    let fields: Vec<_> = answer.trim_end().split(',').collect();
    let [reference, _, _, measured, system, _, _, _, _, _, delay, dispersion, _, leap] = fields[..] else {
        return Err(unread());
    };
    match leap {
        "Normal" | "Insert second" | "Delete second" => {}
        "Not synchronised" => {
            let what = "chrony says that the clock is not synchronised";
            return Err(SourceError::Unsynchronised(what.into()));
        }
        _ => return Err(unread()),
    }
    if reference == OWN_CLOCK {
        let what = "chrony's reference is this machine's own clock (`local`), which bounds no error";
        return Err(SourceError::Unsynchronised(what.into()));
    }
    let number = |text: &str| text.parse::<f64>().ok().filter(|it| it.is_finite()).ok_or_else(unread);
    let not_negative = |text| number(text).and_then(|it| if it >= 0.0 { Ok(it) } else { Err(unread()) });
    let error_s = number(system)?.abs() + not_negative(dispersion)? + not_negative(delay)? / 2.0;
    let measured_ns = ceil_ns(not_negative(measured)?);
    Ok(Sample {
        error_ns: ceil_ns(error_s),
        drift_ppm: DRIFT_PPM_MAX,
        steps: StepAwareness::Measured(measured_ns),
    })
}

/// Seconds, not negative, as nanoseconds; more than 584 years as that.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn ceil_ns(seconds: f64) -> u64 {
    // The conversion saturates.
    (seconds * 1e9).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As chrony 4.3 wrote it.
    const LINE: &str = "7F000001,127.0.0.1,6,1796082060.801019249,-0.000009963,-0.000004281,0.000002828,-0.002,\
                        -0.066,3.009,0.000021209,0.000008639,1.0,Normal\n";

    #[test]
    fn the_bound_is_chronys_own_formula() {
        let sample = read(LINE).unwrap();
        // 9,963 + 8,639 + 21,209 / 2, rounded up.
        assert!((29_207..=29_208).contains(&sample.error_ns), "{sample:?}");
        let StepAwareness::Measured(measured_ns) = sample.steps else { panic!("{sample:?}") };
        // To a microsecond, which is all that is asked of it.
        assert_eq!(measured_ns / 1_000, 1_796_082_060_801_019);
    }

    #[test]
    fn what_is_no_bound_is_no_sample() {
        let rows: &[(&str, &str, &str)] = &[
            ("Normal", "Insert second", "ok"),
            ("Normal", "Not synchronised", "unsynchronised"),
            ("Normal", "Nonsense", "failed"),
            ("7F000001", OWN_CLOCK, "unsynchronised"),
            ("0.000008639", "-0.1", "failed"),
            ("0.000008639", "NaN", "failed"),
            ("0.000008639", "inf", "failed"),
            ("0.000021209", "-0.1", "failed"),
            ("-0.000009963", "", "failed"),
            (",1.0,", ",", "failed"),
            ("Normal", "Normal,Normal", "failed"),
            (LINE, "", "failed"),
        ];
        for (from, to, expected) in rows {
            let told = match read(&LINE.replacen(from, to, 1)) {
                Ok(_) => "ok",
                Err(SourceError::Absent(_)) => "absent",
                Err(SourceError::Unsynchronised(_)) => "unsynchronised",
                Err(SourceError::Failed(_)) => "failed",
            };
            assert_eq!(told, *expected, "{from} -> {to}");
        }
        assert_eq!(read(&LINE.replacen("0.000008639", "1e300", 1)).unwrap().error_ns, u64::MAX);
    }

    /// A chronyc that is not there, that says nothing, or too much, is an error, and no process stays behind.
    #[test]
    fn a_chronyc_that_does_not_answer_is_an_error() {
        let absent = Chrony::new("no-such-chronyc", []).sample();
        assert!(
            matches!(&absent, Err(SourceError::Absent(what)) if what.contains("not installed")),
            "{absent:?}"
        );
        let failing = Chrony::new("sh", ["-c", "exit 3"]).sample();
        assert!(matches!(&failing, Err(SourceError::Failed(what)) if what.contains('3')), "{failing:?}");
        let start = Instant::now();
        let hanging = Chrony::new("sh", ["-c", "exec sleep 600"]).sample();
        assert!(matches!(&hanging, Err(SourceError::Failed(what)) if what.contains("3 s")), "{hanging:?}");
        // A writer that fills its pipe and waits for a reader hangs as well, and is ended.
        let talking = Chrony::new("sh", ["-c", "exec yes"]).sample();
        assert!(matches!(talking, Err(SourceError::Failed(_))), "{talking:?}");
        assert!(start.elapsed() < Duration::from_mins(1));
    }
}

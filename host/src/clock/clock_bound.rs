//! `ClockBound`'s word for the clock.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::ClockId;

use super::source::{DRIFT_PPM_MAX, Sample, Source, SourceError, StepAwareness};
use super::{nanos, since};

/// Where its daemon, since 2.0, keeps what it tells.
const DEFAULT_PATH: &str = "/var/run/clockbound/shm0";

/// The layout that is read here: version 2, which the daemons of 2.0 and later write.
const VERSION: u16 = 2;

/// The first eight bytes, as two numbers of this machine's byte order.
const MAGIC: [u32; 2] = [0x414D_5A4E, 0x4342_0200];

/// How long the layout is.
const BYTES: usize = 80;

/// How often a file that is being written is read again.
const READS_MAX: usize = 100;

/// A drift of 100 % is a damaged file.
const DRIFT_PPB_END: u32 = 1_000_000_000;

/// The daemon of AWS `ClockBound`: the bound in the file that it shares, aged by the daemon's own figure for drift.
///
/// The file is read, never mapped: a page of a file that was cut short would end this process. The layout is published
/// (aws/clock-bound, docs/PROTOCOL.md, version 2).
#[derive(Clone, Debug)]
pub struct ClockBound {
    path: PathBuf,
}

impl Default for ClockBound {
    /// The daemon's default place.
    fn default() -> Self {
        Self::new(DEFAULT_PATH)
    }
}

impl ClockBound {
    /// A daemon that keeps its file elsewhere.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }
}

impl Source for ClockBound {
    fn name(&self) -> &'static str {
        "clockbound"
    }

    fn sample(&mut self) -> Result<Sample, SourceError> {
        let segment = snapshot(&self.path)?;
        // Read after the file: what it says is then no younger than it seems.
        segment.sample_at(nanos(since(ClockId::Monotonic)))
    }

    fn way_out(&self) -> &'static str {
        "install and start ClockBound (clock-bound-d) with chrony, choose `--clock chrony`, or answer for the clock \
         yourself with `--clock assume:MS`"
    }
}

/// What the file holds, of one update.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// By the monotonic clock, in nanoseconds.
    as_of_ns: u64,
    void_after_ns: u64,
    bound_ns: i64,
    drift_ppb: u32,
    status: i32,
}

/// Reads the file until one update is had whole: the generation is even, and the same before and after.
fn snapshot(path: &Path) -> Result<Segment, SourceError> {
    for _ in 0..READS_MAX {
        let first = contents(path)?;
        let second = contents(path)?;
        // A 16-bit counter comes round only after 65,536 updates.
        if generation(&first) == generation(&second) && generation(&first).is_multiple_of(2) {
            return parse(&first);
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    Err(SourceError::Failed(
        "ClockBound's file is being written all the time; its daemon may have died at it".into(),
    ))
}

fn contents(path: &Path) -> Result<[u8; BYTES], SourceError> {
    let mut bytes = [0; BYTES];
    match File::open(path).and_then(|mut file| file.read_exact(&mut bytes)) {
        Ok(()) => Ok(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(SourceError::Absent(format!(
            "ClockBound's daemon is not running here: there is no {}",
            path.display()
        ))),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            Err(SourceError::Failed(format!("{} is too short for ClockBound's file", path.display())))
        }
        Err(error) => Err(SourceError::Failed(format!("{} cannot be read: {error}", path.display()))),
    }
}

/// `N` bytes of the file, from `at`.
fn bytes<const N: usize>(all: &[u8; BYTES], at: usize) -> [u8; N] {
    // The layout's own offsets: each lies within.
    all.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

fn generation(all: &[u8; BYTES]) -> u16 {
    u16::from_ne_bytes(bytes(all, 14))
}

fn parse(all: &[u8; BYTES]) -> Result<Segment, SourceError> {
    let magic = [u32::from_ne_bytes(bytes(all, 0)), u32::from_ne_bytes(bytes(all, 4))];
    if magic != MAGIC {
        return Err(SourceError::Failed("what lies at the place of ClockBound's file is not one".into()));
    }
    let version = u16::from_ne_bytes(bytes(all, 12));
    if version == 0 || generation(all) == 0 {
        return Err(SourceError::Unsynchronised("ClockBound's daemon has not told of the clock yet".into()));
    }
    if version != VERSION {
        return Err(SourceError::Failed(format!(
            "ClockBound's file is of version {version}, and only {VERSION} is known; choose `--clock chrony`"
        )));
    }
    let damaged = |what| SourceError::Failed(format!("ClockBound's file is damaged: {what}"));
    let time_ns = |at| {
        let seconds = u64::try_from(i64::from_ne_bytes(bytes(all, at))).ok()?;
        let rest =
            u32::try_from(i64::from_ne_bytes(bytes(all, at + 8))).ok().filter(|ns| *ns < 1_000_000_000)?;
        seconds.checked_mul(1_000_000_000)?.checked_add(u64::from(rest))
    };
    let segment = Segment {
        as_of_ns: time_ns(16).ok_or_else(|| damaged("its time is none"))?,
        void_after_ns: time_ns(32).ok_or_else(|| damaged("its last time is none"))?,
        bound_ns: i64::from_ne_bytes(bytes(all, 48)),
        drift_ppb: u32::from_ne_bytes(bytes(all, 64)),
        status: i32::from_ne_bytes(bytes(all, 68)),
    };
    let size = u32::from_ne_bytes(bytes(all, 8));
    if usize::try_from(size).map_or(true, |size| size < BYTES) {
        return Err(damaged("it calls itself shorter than it is"));
    }
    if segment.drift_ppb >= DRIFT_PPB_END {
        return Err(damaged("its drift is out of range"));
    }
    Ok(segment)
}

impl Segment {
    /// What is worth of it at a moment of the monotonic clock.
    fn sample_at(&self, mono_ns: u64) -> Result<Sample, SourceError> {
        let unsure = |what: &str| Err(SourceError::Unsynchronised(what.into()));
        match self.status {
            // Synchronised, or running free after it was, with a bound that grows.
            1 | 2 => {}
            3 => {
                return unsure(
                    "ClockBound says that the clock was disrupted, as by a move of this virtual machine",
                );
            }
            _ => return unsure("ClockBound says that the clock is not synchronised"),
        }
        if mono_ns >= self.void_after_ns {
            return unsure("ClockBound's daemon has not told of the clock for long; it may have died");
        }
        let Ok(bound_ns) = u64::try_from(self.bound_ns) else {
            return Err(SourceError::Failed("ClockBound's file is damaged: its bound is negative".into()));
        };
        // The daemon's clock is the coarse one, up to a timer tick behind: never far ahead of ours.
        let Some(age_ns) = mono_ns.checked_sub(self.as_of_ns) else {
            return Err(SourceError::Failed(
                "ClockBound's file is of a time to come: of another boot".into(),
            ));
        };
        let drift_ns = (u128::from(age_ns) * u128::from(self.drift_ppb)).div_ceil(1_000_000_000);
        let error_ns = bound_ns.saturating_add(u64::try_from(drift_ns).unwrap_or(u64::MAX));
        Ok(Sample { error_ns, drift_ppm: DRIFT_PPM_MAX, steps: StepAwareness::Unaware })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Segment = Segment {
        as_of_ns: 10_000_000_000,
        void_after_ns: 1_010_000_000_000,
        bound_ns: 200_000,
        drift_ppb: 50_000,
        status: 1,
    };

    #[test]
    fn a_bound_ages_by_the_daemons_drift_and_ends() {
        let rows: &[(Segment, u64, Result<u64, &str>)] = &[
            (GOOD, 10_000_000_000, Ok(200_000)),
            // 2 s at 50 ppm.
            (GOOD, 12_000_000_000, Ok(300_000)),
            (GOOD, 12_000_000_001, Ok(300_001)),
            (Segment { status: 2, ..GOOD }, 12_000_000_000, Ok(300_000)),
            (GOOD, 9_999_999_999, Err("another boot")),
            (GOOD, 1_010_000_000_000, Err("died")),
            (Segment { status: 0, ..GOOD }, 12_000_000_000, Err("not synchronised")),
            (Segment { status: 3, ..GOOD }, 12_000_000_000, Err("disrupted")),
            (Segment { status: -7, ..GOOD }, 12_000_000_000, Err("not synchronised")),
            (Segment { bound_ns: -1, ..GOOD }, 12_000_000_000, Err("negative")),
            (Segment { bound_ns: i64::MAX, ..GOOD }, 12_000_000_000, Ok(i64::MAX as u64 + 100_000)),
        ];
        for (segment, mono_ns, expected) in rows {
            match (segment.sample_at(*mono_ns), expected) {
                (Ok(sample), Ok(error_ns)) => assert_eq!(sample.error_ns, *error_ns, "{segment:?} {mono_ns}"),
                (Err(error), Err(told)) => assert!(error.to_string().contains(told), "{segment:?}: {error}"),
                (sample, _) => panic!("{segment:?} {mono_ns}: {sample:?}"),
            }
        }
    }
}

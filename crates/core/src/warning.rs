//! What a reader should be told about an ID besides its fields.

use core::fmt;

use crate::{Caution, HYBRID_LEAD_MS, Id, Layout, Role, Scheme, Status, UnixTime};

/// The most warnings that one ID can have.
const WARNINGS_MAX: usize = 8;

/// Below this (2^56) too many sound IDs look rounded to say so: one in two near 2^53, one in sixteen here.
const ROUNDED_MIN_BITS: u32 = 56;

/// Something about an ID that its reader should know, and what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// The number is one that JavaScript writes, or a floating-point number holds: above 2^53 few are.
    PossiblyRounded {
        /// The smallest ID that would have been rounded to it.
        low: Id,
        /// The largest.
        high: Id,
    },
    /// The ID's time is later than now, by more than generators run ahead.
    InFuture {
        /// By how many milliseconds.
        by_ms: u64,
    },
    /// The ID's time is earlier than the scheme.
    BeforeBirth {
        /// From when on IDs of the scheme can exist, in Unix milliseconds.
        born_ms: u64,
    },
    /// Bits are set that the layout keeps at 0: it did not make the ID.
    ReservedSet,
    /// The scheme's timestamp field has run out: what it makes now is wrong.
    SchemeEnded {
        /// When its last tick began.
        last: UnixTime,
    },
    /// The scheme is known from its IDs only.
    Observed,
    /// What is special to the scheme.
    Special(Caution),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PossiblyRounded { low, high } => write!(
                f,
                "the ID may have been rounded on its way, as JavaScript and JSON readers round numbers above 2^53: \
                 the true one then lies from {low} to {high}; fetch it again as a string"
            ),
            Self::InFuture { by_ms } => write!(
                f,
                "the ID's time is {by_ms} ms in the future: the layout is not the one that made it, or a clock is \
                 wrong; check both"
            ),
            Self::BeforeBirth { born_ms } => write!(
                f,
                "the ID's time is before {}, when the scheme was first used: it is probably another's; compare the \
                 other candidates",
                UnixTime::from_unix_ms(*born_ms)
            ),
            Self::ReservedSet => f.write_str(
                "bits are set that the layout keeps at 0: the layout did not make this ID; try another",
            ),
            Self::SchemeEnded { last } => write!(
                f,
                "the scheme ended on {last}: IDs that it made since then are wrong or negative; take their time from \
                 elsewhere"
            ),
            Self::Observed => f.write_str(
                "the scheme is known from its IDs only, and its maker promises nothing: take the time as likely, not \
                 as proven",
            ),
            Self::Special(caution) => caution.fmt(f),
        }
    }
}

/// The warnings about one ID, the weightiest first. An iterator that owns them.
#[derive(Clone, Debug)]
pub struct Warnings {
    list: [Option<Warning>; WARNINGS_MAX],
    at: usize,
}

impl Warnings {
    const NONE: Self = Self { list: [None; WARNINGS_MAX], at: 0 };

    fn add(&mut self, warning: Option<Warning>) {
        if let Some(warning) = warning
            && let Some(place) = self.list.iter_mut().find(|place| place.is_none())
        {
            *place = Some(warning);
        }
    }
}

impl Iterator for Warnings {
    type Item = Warning;

    fn next(&mut self) -> Option<Warning> {
        let warning = *self.list.get(self.at)?;
        self.at += 1;
        warning
    }
}

impl Layout {
    /// What to tell the reader of an ID by this layout at `now_ms` (Unix milliseconds).
    ///
    /// ```
    /// use snowmint_core::{Id, Layout, Warning};
    ///
    /// let now_ms = 1_800_000_000_000;
    /// let mut warnings = Layout::SNOWMINT.warnings(Id::new(1 << 63), now_ms);
    /// assert_eq!(warnings.next(), Some(Warning::ReservedSet));
    /// assert_eq!(warnings.next(), None);
    /// ```
    pub fn warnings(&self, id: Id, now_ms: u64) -> Warnings {
        let mut warnings = Warnings::NONE;
        warnings.add(self.decode(id).reserved.then_some(Warning::ReservedSet));
        let by_ms = self.time_of(id).unix_ms().saturating_sub(now_ms);
        warnings.add((by_ms > u64::from(HYBRID_LEAD_MS)).then_some(Warning::InFuture { by_ms }));
        warnings.add(written_by_javascript(id).or_else(|| self.held_by_double(id)));
        warnings
    }

    /// Whether an ID is exactly a floating-point number where the layout makes few such: the low bits are all 0, but
    /// not because a sequence began.
    fn held_by_double(&self, id: Id) -> Option<Warning> {
        let rounding = Rounding::of(id)?;
        let lowest = self.fields().last()?;
        let suspicious = match lowest.role() {
            Role::Sequence => self.decode(id).sequence != 0,
            // Schemes that end in bits of their own may well keep the last ones at 0.
            role => role == Role::Worker,
        };
        (suspicious && rounding.nearest == id.get()).then(|| rounding.warning())
    }
}

impl Scheme {
    /// What to tell the reader of an ID by this scheme at `now_ms` (Unix milliseconds).
    pub fn warnings(&self, id: Id, now_ms: u64) -> Warnings {
        let mut warnings = self.layout.warnings(id, now_ms);
        let is_early = self.layout.time_of(id) < UnixTime::from_unix_ms(self.born_ms);
        warnings.add(is_early.then_some(Warning::BeforeBirth { born_ms: self.born_ms }));
        let last = self.ends();
        warnings.add((last.unix_ms() < now_ms).then_some(Warning::SchemeEnded { last }));
        warnings.add(self.caution.map(Warning::Special));
        warnings.add((self.status == Status::Observed).then_some(Warning::Observed));
        warnings
    }
}

/// [`Warning::PossiblyRounded`], where an ID above 2^56 is just the number that JavaScript writes for every ID near it:
/// among IDs that were not rounded, one in 16 is (from 2^56 on) to one in 2,048 (from 2^63 on).
///
/// ```
/// use snowmint_core::{Id, Warning, written_by_javascript};
///
/// let low = Id::new(1_205_161_015_177_961_344);
/// let high = Id::new(1_205_161_015_177_961_600);
/// let warning = written_by_javascript(Id::new(1_205_161_015_177_961_500));
/// assert_eq!(warning, Some(Warning::PossiblyRounded { low, high }));
/// assert_eq!(written_by_javascript(Id::new(1_205_161_015_177_961_473)), None);
/// ```
pub fn written_by_javascript(id: Id) -> Option<Warning> {
    let rounding = Rounding::of(id)?;
    rounding.is_shortest(id.get()).then(|| rounding.warning())
}

/// What a double of IEEE 754 makes of an ID of 2^56 or more.
struct Rounding {
    /// The value of the nearest double.
    nearest: u64,
    /// Half the distance to its neighbours.
    half: u64,
    /// Whether numbers exactly half-way round to it: ties go to even.
    takes_ties: bool,
}

impl Rounding {
    fn of(id: Id) -> Option<Self> {
        let bits = id.get();
        let top = bits.checked_ilog2().filter(|top| *top >= ROUNDED_MIN_BITS)?;
        // 53 bits are kept, so the lowest `shift` are lost.
        let shift = top - 52;
        let half = 1 << (shift - 1);
        let kept = bits >> shift;
        let lost = bits - (kept << shift);
        let is_odd = kept & 1 == 1;
        let up = lost > half || (lost == half && is_odd);
        let nearest = (kept + u64::from(up)).checked_mul(1 << shift)?;
        Some(Self { nearest, half, takes_ties: (nearest >> shift) & 1 == 0 })
    }

    /// Whether a number is the one with the fewest digits that reads back as the same double, as ECMAScript's
    /// `Number::toString` demands: the roundest multiple of a power of ten within reach.
    fn is_shortest(&self, number: u64) -> bool {
        let mut unit: u64 = 1;
        let mut next = Some(10);
        while let Some(higher) = next.filter(|higher| number.is_multiple_of(*higher)) {
            unit = higher;
            next = unit.checked_mul(10);
        }
        // A multiple of a higher power would be one of the next, too.
        next.and_then(|next| self.multiple_within_reach(next)).is_none()
            && self.multiple_within_reach(unit) == Some(number)
    }

    fn multiple_within_reach(&self, unit: u64) -> Option<u64> {
        let below = self.nearest - self.nearest % unit;
        let is_nearer = self.nearest - below < unit - unit / 2;
        let multiple = if is_nearer { below } else { below.checked_add(unit)? };
        let off = multiple.abs_diff(self.nearest);
        (off < self.half || (off == self.half && self.takes_ties)).then_some(multiple)
    }

    fn warning(&self) -> Warning {
        Warning::PossiblyRounded {
            low: Id::new(self.nearest - self.half),
            high: Id::new(self.nearest.saturating_add(self.half)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::ToString;
    use std::vec::Vec;

    use super::*;

    /// 2026-12-01, when these tests read IDs.
    const NOW_MS: u64 = 1_796_083_200_000;

    fn is_rounded(warning: Warning) -> bool {
        matches!(warning, Warning::PossiblyRounded { .. })
    }

    /// F8: what JavaScript makes of an ID is recognised, and the true ID lies in the range that is named.
    #[test]
    fn f8_rounded_by_javascript() {
        let check = |written: u64, truth: u64| match written_by_javascript(Id::new(written)) {
            Some(Warning::PossiblyRounded { low, high }) => {
                assert!(low <= Id::new(truth) && Id::new(truth) <= high, "{written}");
            }
            other => panic!("{written}: {other:?}"),
        };
        check(1_205_161_015_177_961_500, 1_205_161_015_177_961_473);
        check(1_593_572_310_593_806_300, 1_593_572_310_593_806_338);
        check(175_928_847_299_117_060, 175_928_847_299_117_063);
        check(3_870_172_288_071_432_700, 3_870_172_288_071_432_645);
        check(7_206_382_937_372_134_000, 7_206_382_937_372_134_662);
        check(18_446_744_073_709_550_000, 18_446_744_073_709_549_568);
        check(10_000_000_000_000_000_000, 9_999_999_999_999_999_999);
    }

    /// F8, the other way that numbers are rounded: the exact value of the double, where the layout makes few such.
    #[test]
    fn f8_rounded_by_a_double() {
        let check = |name: &str, id: u64, expected: bool| {
            let scheme = Scheme::named(name).unwrap();
            assert_eq!(scheme.warnings(Id::new(id), NOW_MS).any(is_rounded), expected, "{id}");
        };
        check("sonyflake_v1", 314_948_827_708_654_592, true);
        check("sonyflake_v1", 314_948_827_708_654_619, false);
        check("twitter", 1_205_161_015_177_961_728, true);
        // A sequence that has just begun is 0, and that is no sign of anything.
        check("twitter", 643_211_948_184_596_480, false);
        check("linkedin", 6_685_980_502_161_199_104, false);
    }

    /// The sign is rare among sound IDs: about one in as many as share a double.
    #[test]
    fn f8_false_alarms_are_rare() {
        let mut state = 7_u64;
        let mut alarms = 0;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let id = Id::new((state >> 4) | (1 << 60));
            alarms += u32::from(written_by_javascript(id).is_some());
        }
        assert!((40..130).contains(&alarms), "{alarms}: about 20,000 / 256 are expected");
    }

    /// Agrees with the standard library, whose shortest form of a double is the one that JavaScript writes.
    #[test]
    fn shortest_as_std() {
        let mut state = 11_u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bits = (state | 1 << 63) >> (state % 8);
            if let Some(rounding) = Rounding::of(Id::new(bits)) {
                #[allow(clippy::cast_precision_loss)] // The loss is what is tested.
                let written = format!("{}", bits as f64);
                let is_written = |number: u64| number.to_string() == written;
                // That number and no other within reach, its neighbours and the given one among them.
                let written: Option<u64> = written.parse().ok();
                for number in [Some(bits), Some(rounding.nearest), written].into_iter().flatten() {
                    for number in [number - 1, number, number.saturating_add(1), number / 10 * 10] {
                        assert_eq!(rounding.is_shortest(number), is_written(number), "{bits}: {number}");
                    }
                }
            }
        }
    }

    #[test]
    fn by_scheme() {
        let check = |name: &str, id: u64, messages: &[&str]| {
            let said: Vec<_> = Scheme::named(name)
                .unwrap()
                .warnings(Id::new(id), NOW_MS)
                .map(|warning| warning.to_string())
                .collect();
            assert_eq!(said.len(), messages.len(), "{name}: {said:?}");
            for (said, message) in said.iter().zip(messages) {
                assert!(said.contains(message), "{name}: {said}\n  should say: {message}");
            }
        };
        check("twitter", 1_205_161_015_177_961_473, &[]);
        check("twitter", 1_205_161_015_177_961_500, &["may have been rounded"]);
        check("twitter", u64::MAX, &["keeps at 0", "in the future"]);
        check("pgedge_1.0", 136_169_504_773_242_881, &["two readings"]);
        check("pgedge_current", 136_169_504_773_242_881, &["two readings"]);
        check("baidu_uid", 1 << 40, &["before 2017-01-01T00:00:00Z", "ended on 2024-11-20T13:24:15Z"]);
        check("mysql_uuid_short", 1_700_000_000 << 24, &["server started"]);
        check("shardingsphere", 1_193_044_992_000_001, &["time zone"]);
        check("cockroach_unique_rowid", 148_656_994_422_095_873, &["flips bits"]);
        check("tiktok", 7_206_382_937_372_134_662, &["known from its IDs"]);
        check("leaf", 1 << 22, &["before 2017"]);
    }
}

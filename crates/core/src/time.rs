//! Times of IDs: exact for any tick, written and read without an allocator, and the IDs of a time.

use core::fmt;

use crate::{Id, Layout, NS_PER_MS};

const NS_PER_S: u64 = 1_000_000_000;
const S_PER_DAY: u64 = 86_400;

/// The most bytes that a [`TimeText`] has: a sign, 23 digits of year, `-12-31T23:59:59`, a point, 9 digits, `Z`.
const TIME_BYTES_MAX: usize = 50;

/// The fraction's digits of a nanosecond.
const NS_DIGITS: u32 = 9;

/// A time at or after 1970-01-01T00:00:00Z, exact to the nanosecond. Leap seconds do not exist, as in Unix time.
///
/// Holds every time of every layout: 63 bits of ticks of any length fit.
///
/// ```
/// use snowmint_core::UnixTime;
///
/// let time = UnixTime::parse(b"2019-12-12T17:22:31.484+01:00")?;
/// assert_eq!(time.unix_ms(), 1_576_167_751_484);
/// assert_eq!(time.to_string(), "2019-12-12T16:22:31.484Z");
/// # Ok::<(), snowmint_core::TimeError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime {
    ns: u128,
}

impl UnixTime {
    /// The time of a count of nanoseconds since 1970.
    pub const fn from_unix_ns(ns: u128) -> Self {
        Self { ns }
    }

    /// The time of a Unix millisecond.
    pub const fn from_unix_ms(unix_ms: u64) -> Self {
        Self { ns: unix_ms as u128 * NS_PER_MS as u128 }
    }

    /// Nanoseconds since 1970.
    pub const fn unix_ns(self) -> u128 {
        self.ns
    }

    /// The Unix millisecond that the time lies in; saturates where 64 bits cannot hold it.
    pub const fn unix_ms(self) -> u64 {
        match divided(self.ns, NS_PER_MS) {
            Some(ms) => ms,
            None => u64::MAX,
        }
    }

    /// Reads a time: RFC 3339 (`2019-12-12T16:22:31.484Z`, any offset), a date alone (its midnight, UTC), or a
    /// count of Unix milliseconds. Years past 9999 have a sign, as this crate writes them: `+010000-01-01`.
    pub fn parse(text: &[u8]) -> Result<Self, TimeError> {
        Reader { text, at: 0 }.time()
    }

    /// The time in UTC with `digits` digits of fraction (at most 9, rounded down), such as
    /// `2019-12-12T16:22:31.484Z`. A year past 9999 takes a sign and at least six digits, such as `+010000`, so that
    /// no reader cuts it (ISO 8601's expanded form).
    pub fn text(self, digits: u32) -> TimeText {
        let mut text = TimeText { bytes: [0; TIME_BYTES_MAX], len: 0 };
        let (secs, ns) = div_rem(self.ns, NS_PER_S);
        let (day, second) = div_rem(secs, S_PER_DAY);
        let date = Date::of_day(day);
        if date.year > 9_999 {
            text.push(b'+');
            text.push_number(date.year, if date.year > 999_999 { decimal_width(date.year) } else { 6 });
        } else {
            text.push_number(date.year, 4);
        }
        text.push(b'-');
        text.push_number(date.month.into(), 2);
        text.push(b'-');
        text.push_number(date.day.into(), 2);
        for (mark, part) in [(b'T', second / 3_600), (b':', second / 60 % 60), (b':', second % 60)] {
            text.push(mark);
            text.push_number(part.into(), 2);
        }
        let digits = digits.min(NS_DIGITS);
        if digits > 0 {
            text.push(b'.');
            let cut = u64::from(10_u32.pow(NS_DIGITS - digits));
            text.push_number((ns / cut).into(), digits);
        }
        text.push(b'Z');
        text
    }

    /// The fewest digits of fraction that show the time exactly.
    pub fn digits(self) -> u32 {
        #[allow(clippy::cast_possible_truncation)] // Less than a second of nanoseconds.
        fraction_digits((self.ns % u128::from(NS_PER_S)) as u64)
    }
}

/// In UTC, exact, with no more digits of fraction than that takes.
impl fmt::Display for UnixTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text(self.digits()))
    }
}

/// `number / by`, rounded down; `None` where 64 bits cannot hold it.
///
/// Nanoseconds since 1970 fit 64 bits until 2554, so the first line is the one that runs. What the machine's own
/// division of 128 bits would add to the component is more than all the rest of this module.
#[allow(clippy::cast_possible_truncation)] // Checked in the line before, or less than `by`.
pub(crate) const fn divided(number: u128, by: u64) -> Option<u64> {
    if number <= u64::MAX as u128 {
        return (number as u64).checked_div(by);
    }
    // As on paper, one bit at a time: the quotient fits 64 bits exactly if the high half is less than the divisor.
    let mut rest = number >> 64;
    if rest >= by as u128 {
        return None;
    }
    let low = number as u64;
    let mut quotient: u64 = 0;
    let mut bit = u64::BITS;
    while bit > 0 {
        bit -= 1;
        rest = (rest << 1) | ((low >> bit) & 1) as u128;
        quotient <<= 1;
        if rest >= by as u128 {
            rest -= by as u128;
            quotient |= 1;
        }
    }
    Some(quotient)
}

/// Quotient and remainder, by a division of 64 bits wherever that will do: these are what writing a time costs.
const fn div_rem(number: u128, by: u64) -> (u128, u64) {
    #[allow(clippy::cast_possible_truncation)] // Checked in the line before, or less than `by`.
    if number <= u64::MAX as u128 {
        ((number as u64 / by) as u128, number as u64 % by)
    } else {
        (number / by as u128, (number % by as u128) as u64)
    }
}

/// The digits of fraction of a number of nanoseconds: 0 for whole seconds, 3 for whole milliseconds, and so on.
const fn fraction_digits(ns: u64) -> u32 {
    let mut rest = ns % NS_PER_S;
    if rest == 0 {
        return 0;
    }
    let mut digits = NS_DIGITS;
    while rest.is_multiple_of(10) {
        rest /= 10;
        digits -= 1;
    }
    digits
}

fn decimal_width(number: u128) -> u32 {
    number.checked_ilog10().unwrap_or(0) + 1
}

/// The text of a time, kept in place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TimeText {
    bytes: [u8; TIME_BYTES_MAX],
    len: u8,
}

impl TimeText {
    /// The text.
    pub fn as_str(&self) -> &str {
        // ASCII by construction, so neither step can fail.
        let bytes = self.bytes.get(..usize::from(self.len)).unwrap_or_default();
        core::str::from_utf8(bytes).unwrap_or_default()
    }

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(usize::from(self.len)) {
            *place = byte;
            self.len += 1;
        }
    }

    /// The lowest `width` decimal digits of a number.
    fn push_number(&mut self, number: u128, width: u32) {
        let start = usize::from(self.len);
        for _ in 0..width {
            self.push(b'0');
        }
        let places = self.bytes.get_mut(start..usize::from(self.len)).unwrap_or_default();
        let mut rest = number;
        for place in places.iter_mut().rev() {
            let (tens, digit) = div_rem(rest, 10);
            #[allow(clippy::cast_possible_truncation)] // One digit.
            {
                *place = b'0' + digit as u8;
            }
            rest = tens;
        }
    }
}

impl core::ops::Deref for TimeText {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for TimeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for TimeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// A date of the proleptic Gregorian calendar, from 1970 on.
struct Date {
    year: u128,
    month: u8,
    day: u8,
}

/// Days from 0000-03-01 to 1970-01-01.
const DAYS_TO_1970: u64 = 719_468;
/// Days of the calendar's cycle of 400 years.
const DAYS_PER_ERA: u64 = 146_097;

impl Date {
    /// The date of a day counted from 1970-01-01. Years begin in March, so that the leap day is a year's last: see
    /// Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
    #[allow(clippy::cast_possible_truncation)] // Days of an era fit, and so do months and days.
    fn of_day(day: u128) -> Self {
        let day = day + u128::from(DAYS_TO_1970);
        let (era, day_of_era) = div_rem(day, DAYS_PER_ERA);
        let day_of_era = day_of_era as u32;
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u8;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 } as u8;
        let year = era * 400 + u128::from(year_of_era) + u128::from(month <= 2);
        Self { year, month, day }
    }

    /// The day counted from 1970-01-01, negative before; the inverse of [`Date::of_day`] (`days_from_civil`, there).
    fn to_day(&self) -> i128 {
        // A date read from text has at most 12 digits of year, so nothing here comes near 127 bits.
        #[allow(clippy::cast_possible_wrap)]
        let year = self.year as i128 - i128::from(self.month <= 2);
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let month_from_march = (i128::from(self.month) + 9) % 12;
        let day_of_year = (153 * month_from_march + 2) / 5 + i128::from(self.day) - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        era * i128::from(DAYS_PER_ERA) + day_of_era - i128::from(DAYS_TO_1970)
    }

    fn days_in_month(&self) -> u8 {
        let leap =
            self.year.is_multiple_of(4) && (!self.year.is_multiple_of(100) || self.year.is_multiple_of(400));
        match self.month {
            2 => 28 + u8::from(leap),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }
}

/// Reads a time from the left.
struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

/// The most digits of year that are read: as many as a [`UnixTime`] of 64 bits of seconds has.
const YEAR_DIGITS_MAX: usize = 12;

impl Reader<'_> {
    fn time(mut self) -> Result<UnixTime, TimeError> {
        if self.text.is_empty() {
            return Err(self.error(TimeErrorKind::Empty));
        }
        let digits = self.text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == self.text.len() {
            return self.unix_ms();
        }
        let date = self.date(digits)?;
        let seconds_to_midnight = date.to_day() * i128::from(S_PER_DAY);
        if self.at == self.text.len() {
            return since_1970(seconds_to_midnight, 0);
        }
        if !matches!(self.peek(), Some(b'T' | b't' | b' ')) {
            return Err(self.expected("`T` and a time of day, or the end"));
        }
        self.at += 1;
        let hour = self.pair("hour", 0, 23)?;
        self.expect(b':', "`:`")?;
        let minute = self.pair("minute", 0, 59)?;
        self.expect(b':', "`:`")?;
        let start_of_second = self.at;
        let second = self.pair("second", 0, 60)?;
        if second == 60 {
            self.at = start_of_second;
            return Err(self.error(TimeErrorKind::LeapSecond));
        }
        let nanos = self.fraction()?;
        let offset_s = self.offset()?;
        if self.at < self.text.len() {
            return Err(self.expected("the end"));
        }
        let time_of_day = i128::from(u32::from(hour) * 3_600 + u32::from(minute) * 60 + u32::from(second));
        since_1970(seconds_to_midnight + time_of_day - i128::from(offset_s), nanos)
    }

    fn unix_ms(&mut self) -> Result<UnixTime, TimeError> {
        let mut unix_ms: u64 = 0;
        while let Some(digit) = self.digit() {
            let next = unix_ms.checked_mul(10).and_then(|ms| ms.checked_add(digit.into()));
            unix_ms = next.ok_or(TimeError { at: self.at - 1, kind: TimeErrorKind::TooLate })?;
        }
        Ok(UnixTime::from_unix_ms(unix_ms))
    }

    fn date(&mut self, digits: usize) -> Result<Date, TimeError> {
        let year = match self.peek() {
            Some(b'-') => return Err(self.error(TimeErrorKind::Before1970)),
            Some(b'+') => {
                self.at += 1;
                let start = self.at;
                let mut year: u128 = 0;
                while let Some(digit) = self.digit() {
                    if self.at - start > YEAR_DIGITS_MAX {
                        return Err(TimeError { at: self.at - 1, kind: TimeErrorKind::TooLate });
                    }
                    year = year * 10 + u128::from(digit);
                }
                if self.at - start < 4 {
                    return Err(self.expected("a year of four digits or more"));
                }
                year
            }
            _ if digits == 4 => {
                let century = self.pair("year", 0, 99)?;
                u128::from(century) * 100 + u128::from(self.pair("year", 0, 99)?)
            }
            _ => {
                self.at = digits.min(4);
                return Err(
                    self.expected("a time such as 2019-12-12T16:22:31.484Z, 2019-12-12 or Unix milliseconds")
                );
            }
        };
        self.expect(b'-', "`-`")?;
        let month = self.pair("month", 1, 12)?;
        self.expect(b'-', "`-`")?;
        let start_of_day = self.at;
        let mut date = Date { year, month, day: 1 };
        date.day = self.pair("day", 1, 31)?;
        let max = date.days_in_month();
        if date.day > max {
            self.at = start_of_day;
            return Err(self.error(TimeErrorKind::OutOfRange { part: "day", min: 1, max }));
        }
        Ok(date)
    }

    /// The fraction of a second in nanoseconds.
    fn fraction(&mut self) -> Result<u32, TimeError> {
        if self.peek() != Some(b'.') {
            return Ok(0);
        }
        self.at += 1;
        let mut nanos = 0;
        let mut unit = 100_000_000;
        let start = self.at;
        while let Some(digit) = self.digit() {
            if self.at - start > NS_DIGITS as usize {
                self.at -= 1;
                return Err(self.error(TimeErrorKind::FractionTooFine));
            }
            nanos += u32::from(digit) * unit;
            unit /= 10;
        }
        if self.at == start {
            return Err(self.expected("a digit"));
        }
        Ok(nanos)
    }

    /// Seconds ahead of UTC.
    fn offset(&mut self) -> Result<i32, TimeError> {
        let sign = match self.peek() {
            Some(b'Z' | b'z') => {
                self.at += 1;
                return Ok(0);
            }
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Err(self.expected("`Z` or an offset such as +01:00")),
        };
        self.at += 1;
        let hours = self.pair("offset's hour", 0, 23)?;
        self.expect(b':', "`:`")?;
        let minutes = self.pair("offset's minute", 0, 59)?;
        Ok(sign * (i32::from(hours) * 3_600 + i32::from(minutes) * 60))
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn digit(&mut self) -> Option<u8> {
        let digit = self.peek()?.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        self.at += 1;
        Some(digit)
    }

    fn pair(&mut self, part: &'static str, min: u8, max: u8) -> Result<u8, TimeError> {
        let start = self.at;
        let (Some(tens), Some(ones)) = (self.digit(), self.digit()) else {
            return Err(self.expected("two digits"));
        };
        let value = tens * 10 + ones;
        if !(min..=max).contains(&value) {
            return Err(TimeError { at: start, kind: TimeErrorKind::OutOfRange { part, min, max } });
        }
        Ok(value)
    }

    fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), TimeError> {
        if self.peek() != Some(byte) {
            return Err(self.expected(what));
        }
        self.at += 1;
        Ok(())
    }

    fn expected(&self, what: &'static str) -> TimeError {
        self.error(TimeErrorKind::Expected { what })
    }

    fn error(&self, kind: TimeErrorKind) -> TimeError {
        TimeError { at: self.at, kind }
    }
}

fn since_1970(secs: i128, nanos: u32) -> Result<UnixTime, TimeError> {
    let secs = u128::try_from(secs).map_err(|_| TimeError { at: 0, kind: TimeErrorKind::Before1970 })?;
    Ok(UnixTime::from_unix_ns(secs * u128::from(NS_PER_S) + u128::from(nanos)))
}

/// A text that is not a time. The fault is the writer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeError {
    /// Where, in bytes from the text's start.
    pub at: usize,
    /// What is wrong there.
    pub kind: TimeErrorKind,
}

/// What is wrong with a text that should be a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeErrorKind {
    /// There is nothing.
    Empty,
    /// Something else should stand there.
    Expected {
        /// What.
        what: &'static str,
    },
    /// A part of the date or time of day is out of range.
    OutOfRange {
        /// Which.
        part: &'static str,
        /// Its least value.
        min: u8,
        /// Its greatest value.
        max: u8,
    },
    /// A second 60, which Unix time does not have.
    LeapSecond,
    /// More digits of fraction than nanoseconds have.
    FractionTooFine,
    /// Before 1970, where no ID can lie.
    Before1970,
    /// Further in the future than is read.
    TooLate,
}

impl fmt::Display for TimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at;
        match self.kind {
            TimeErrorKind::Empty => f.write_str(
                "the time is empty; give one such as 2019-12-12T16:22:31.484Z, 2019-12-12 or Unix milliseconds",
            ),
            TimeErrorKind::Expected { what } => write!(f, "at byte {at} of the time, write {what}"),
            TimeErrorKind::OutOfRange { part, min, max } => {
                write!(f, "the {part} at byte {at} of the time is out of range; give {min} to {max}")
            }
            TimeErrorKind::LeapSecond => f.write_str("Unix time has no second 60; write 59"),
            TimeErrorKind::FractionTooFine => f.write_str("times are exact to nanoseconds; keep 9 digits of fraction"),
            TimeErrorKind::Before1970 => f.write_str("the time lies before 1970, where no ID lies; give a later one"),
            TimeErrorKind::TooLate => f.write_str("the time is too far in the future; give an earlier one"),
        }
    }
}

impl core::error::Error for TimeError {}

/// The IDs of one tick.
///
/// ```
/// use snowmint_core::{Id, Layout, UnixTime};
///
/// let layout = Layout::SNOWMINT;
/// let ids = layout.ids_at(UnixTime::parse(b"2026-01-01T00:00:00Z")?)?;
/// assert_eq!(ids.first, Id::new(132_271_570_944_000_000));
/// assert!(ids.is_range); // WHERE id BETWEEN first AND last
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickIds {
    /// The smallest ID that the tick can have.
    pub first: Id,
    /// The largest.
    pub last: Id,
    /// Whether everything from `first` to `last` is of this tick, so that a range query finds its rows. False where
    /// something that differs between IDs, such as a shard or a worker, stands above the timestamp: between the two
    /// then lie IDs of every other time, and rows must be sought per value of what stands above.
    pub is_range: bool,
    /// When the tick begins.
    pub start: UnixTime,
}

/// A time that the layout has no tick for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TickError {
    /// Before tick 0.
    BeforeEpoch {
        /// Tick 0.
        epoch: UnixTime,
    },
    /// After the last tick.
    AfterEnd {
        /// When the last tick begins.
        last: UnixTime,
    },
}

impl fmt::Display for TickError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BeforeEpoch { epoch } => {
                write!(f, "the time lies before the layout's epoch {epoch}; give that or a later one")
            }
            Self::AfterEnd { last } => {
                write!(f, "the time lies after the layout's last tick {last}; give that or an earlier one")
            }
        }
    }
}

impl core::error::Error for TickError {}

impl Layout {
    /// When a tick begins, exactly.
    pub const fn time_of_tick(&self, tick: u64) -> UnixTime {
        // 2^64 ms and 2^64 ticks of 2^64 ns: no layout's sum reaches 2^128, as a timestamp has 63 bits at most.
        UnixTime {
            ns: self.epoch_unix_ms() as u128 * NS_PER_MS as u128 + tick as u128 * self.tick_ns() as u128,
        }
    }

    /// When the tick of an ID begins, exactly: the ID was made then or, by a tick, later.
    pub const fn time_of(&self, id: Id) -> UnixTime {
        self.time_of_tick(self.timestamp.get(id.get()))
    }

    /// As many digits of fraction as every time of the layout needs: 0 for ticks of a second, 3 for milliseconds.
    pub const fn time_digits(&self) -> u32 {
        let tick = fraction_digits(self.tick_ns());
        let epoch = fraction_digits(self.epoch_unix_ms() % 1_000 * NS_PER_MS);
        if tick > epoch { tick } else { epoch }
    }

    /// The time of an ID as text, to the layout's own precision.
    pub fn time_text(&self, id: Id) -> TimeText {
        self.time_of(id).text(self.time_digits())
    }

    /// The tick that a time lies in.
    pub fn tick_at(&self, time: UnixTime) -> Result<u64, TickError> {
        let epoch = UnixTime::from_unix_ms(self.epoch_unix_ms());
        let since = time.ns.checked_sub(epoch.ns).ok_or(TickError::BeforeEpoch { epoch })?;
        match divided(since, self.tick_ns()) {
            Some(tick) if tick <= self.last_tick() => Ok(tick),
            _ => Err(TickError::AfterEnd { last: self.time_of_tick(self.last_tick()) }),
        }
    }

    /// The smallest and the largest ID of the tick that a time lies in.
    pub fn ids_at(&self, time: UnixTime) -> Result<TickIds, TickError> {
        let tick = self.tick_at(time)?;
        let first = self.timestamp.put(tick);
        let variable = self.variable_mask();
        Ok(TickIds {
            first: Id::new(first),
            last: Id::new(first | variable),
            is_range: self.is_time_first(),
            start: self.time_of_tick(tick),
        })
    }

    /// Whether IDs sort by time: nothing that differs between IDs of one tick stands above the timestamp.
    pub fn is_time_first(&self) -> bool {
        self.variable_above_timestamp().is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use proptest::prelude::*;

    use super::*;
    use crate::{Field, Role};

    const fn layout(role_above: Role, tick_ns: u64, epoch_unix_ms: u64) -> Layout {
        let fields =
            [Field::new(role_above, 1), Field::new(Role::Timestamp, 41), Field::new(Role::Sequence, 22)];
        match Layout::for_decoding(&fields, epoch_unix_ms, tick_ns) {
            Ok(layout) => layout,
            Err(_) => panic!("valid"),
        }
    }

    #[test]
    fn texts() {
        let check = |ns: u128, digits: u32, text: &str| {
            assert_eq!(UnixTime::from_unix_ns(ns).text(digits).as_str(), text);
        };
        check(0, 0, "1970-01-01T00:00:00Z");
        check(1_576_167_751_484_000_000, 3, "2019-12-12T16:22:31.484Z");
        check(1_576_167_751_484_000_000, 0, "2019-12-12T16:22:31Z");
        check(951_782_400_000_000_000, 0, "2000-02-29T00:00:00Z");
        check(999_999_999, 9, "1970-01-01T00:00:00.999999999Z");
        check(999_999_999, 12, "1970-01-01T00:00:00.999999999Z");
        check(253_402_300_799 * 1_000_000_000, 0, "9999-12-31T23:59:59Z");
        check(253_402_300_800 * 1_000_000_000, 0, "+010000-01-01T00:00:00Z");
        check(31_556_889_832_780_800 * 1_000_000_000, 0, "+1000000000-01-01T00:00:00Z");
        let last = UnixTime::from_unix_ns(u128::MAX).text(9);
        assert!(last.starts_with("+10783118943836478995992-") && last.ends_with(".768211455Z"), "{last}");
        assert!(last.len() <= TIME_BYTES_MAX);
        assert_eq!(UnixTime::from_unix_ms(1_500).to_string(), "1970-01-01T00:00:01.5Z");
    }

    proptest! {
        /// Division one bit at a time is division.
        #[test]
        fn division(number in any::<u128>(), shift in 0_u32..128, by in 1_u64.., by_shift in 0_u32..64) {
            let (number, by) = (number >> shift, (by >> by_shift).max(1));
            prop_assert_eq!(divided(number, by), u64::try_from(number / u128::from(by)).ok());
        }
    }

    /// Everything that may be written, and each fault at its place.
    #[test]
    fn parsing() {
        let good = |text: &str, ns: u128| {
            assert_eq!(UnixTime::parse(text.as_bytes()), Ok(UnixTime { ns }), "{text}");
        };
        good("0", 0);
        good("1576167751484", 1_576_167_751_484_000_000);
        good("2019-12-12", 1_576_108_800_000_000_000);
        good("2019-12-12T16:22:31Z", 1_576_167_751_000_000_000);
        good("2019-12-12t16:22:31.484z", 1_576_167_751_484_000_000);
        good("2019-12-12 16:22:31.484000001Z", 1_576_167_751_484_000_001);
        good("2019-12-12T17:22:31+01:00", 1_576_167_751_000_000_000);
        good("2019-12-12T10:52:31-05:30", 1_576_167_751_000_000_000);
        good("1970-01-01T00:00:00-00:01", 60_000_000_000);
        good("2000-02-29", 951_782_400_000_000_000);
        good("+010000-01-01T00:00:00Z", 253_402_300_800_000_000_000);
        good("+2019-12-12", 1_576_108_800_000_000_000);
        good("18446744073709551615", 18_446_744_073_709_551_615_000_000);

        let bad = |text: &[u8], at: usize, message: &str| {
            let error = UnixTime::parse(text).unwrap_err();
            assert_eq!(error.at, at, "{error}");
            assert!(error.to_string().contains(message), "{error}\n  should say: {message}");
        };
        bad(b"", 0, "empty");
        bad(b"18446744073709551616", 19, "too far");
        bad(b"-5", 0, "before 1970");
        bad(b"1969-12-31", 0, "before 1970");
        bad(b"1970-01-01T00:00:00+00:01", 0, "before 1970");
        bad(b"yesterday", 0, "2019-12-12T");
        bad(b"20191-01-01", 4, "2019-12-12T");
        bad(b"2019-13-01", 5, "1 to 12");
        bad(b"2019-00-01", 5, "1 to 12");
        bad(b"2019-02-29", 8, "1 to 28");
        bad(b"2100-02-29", 8, "1 to 28");
        bad(b"2019-04-31", 8, "1 to 30");
        bad(b"2019-1-1", 6, "two digits");
        bad(b"2019-12-12T", 11, "two digits");
        bad(b"2019-12-12X", 10, "`T`");
        bad(b"2019-12-12T24:00:00Z", 11, "0 to 23");
        bad(b"2019-12-12T16:22", 16, "`:`");
        bad(b"2019-12-12T16:22:31", 19, "`Z` or an offset");
        bad(b"2016-12-31T23:59:60Z", 17, "write 59");
        bad(b"2019-12-12T16:22:31.Z", 20, "a digit");
        bad(b"2019-12-12T16:22:31.1234567890Z", 29, "9 digits");
        bad(b"2019-12-12T16:22:31Z ", 20, "the end");
        bad(b"2019-12-12T16:22:31+0100", 22, "`:`");
        bad(b"+1234567890123-01-01", 13, "too far");
        bad("２０１９".as_bytes(), 0, "2019-12-12T");
        bad(b"2019-12-12T16:22:31\xff", 19, "offset");
    }

    /// The precision is the layout's: as many digits as its ticks and its epoch have.
    #[test]
    fn precision() {
        let check = |tick_ns: u64, epoch_unix_ms: u64, digits: u32| {
            assert_eq!(layout(Role::Reserved, tick_ns, epoch_unix_ms).time_digits(), digits);
        };
        check(1_000_000_000, 0, 0);
        check(60_000_000_000, 0, 0);
        check(1_000_000_000, 1_288_834_974_657, 3);
        check(10_000_000, 0, 2);
        check(256_000_000, 0, 3);
        check(1_000_000, 0, 3);
        check(1_000, 0, 6);
        check(1, 0, 9);
    }

    /// F18: the smallest and the largest ID of a time's tick are of that tick, and their neighbours are not; where
    /// something stands above the time, a range query is said not to work.
    #[test]
    fn f18_ids_of_a_date() {
        let time = UnixTime::parse(b"2026-03-01T12:00:00.005Z").unwrap();
        let check = |layout: Layout, is_range: bool| {
            let ids = layout.ids_at(time).unwrap();
            assert_eq!(ids.is_range, is_range, "{layout}");
            let tick = layout.tick_at(time).unwrap();
            for id in [ids.first, ids.last] {
                assert_eq!(layout.decode(id).tick, tick);
                assert!(!layout.decode(id).reserved);
            }
            if is_range {
                assert_eq!(layout.decode(Id::new(ids.first.get() - 1)).tick, tick - 1);
                assert_eq!(layout.decode(Id::new(ids.last.get() + 1)).tick, tick + 1);
            }
            assert!(ids.start <= time && time < layout.time_of_tick(tick + 1));
        };
        for (_, preset) in Layout::PRESETS {
            check(preset, preset != Layout::SHARDED);
        }
        check(layout(Role::Reserved, 60_000_000_000, 0), true);
        check(layout(Role::Reserved, 1_000_000, 5), true);
        check(layout(Role::Worker, 1_000_000, 5), false);
        check(layout(Role::Other, 1_000_000, 5), false);
    }

    #[test]
    fn times_outside_the_layout() {
        let layout = Layout::SNOWMINT;
        let check = |text: &str, message: &str| {
            let error = layout.ids_at(UnixTime::parse(text.as_bytes()).unwrap()).unwrap_err();
            assert!(error.to_string().contains(message), "{error}");
        };
        check("2024-12-31T23:59:59.999Z", "before the layout's epoch 2025-01-01T00:00:00Z");
        check("2094-09-07T15:47:35.552Z", "last tick 2094-09-07T15:47:35.551Z");
        assert!(layout.ids_at(UnixTime::parse(b"2094-09-07T15:47:35.551Z").unwrap()).is_ok());
    }

    proptest! {
        /// Reading undoes writing, to the nanosecond, as far as years of 12 digits go.
        #[test]
        fn parse_undoes_text(secs in any::<u64>(), shift in 0_u32..64, nanos in 0_u32..1_000_000_000) {
            let ns = u128::from(secs >> shift) * 1_000_000_000 + u128::from(nanos);
            let time = UnixTime::from_unix_ns(ns);
            prop_assert_eq!(UnixTime::parse(time.text(9).as_bytes()), Ok(time));
            prop_assert_eq!(UnixTime::parse(time.to_string().as_bytes()), Ok(time));
        }

        /// Hostile text is an error at a place within it, never a panic.
        #[test]
        fn hostile_times(text in "[-+0-9TZ:. ]{0,40}", cut in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut text = text.into_bytes();
            if !text.is_empty() {
                let at = cut.index(text.len());
                text[at] = byte;
            }
            if let Err(error) = UnixTime::parse(&text) {
                prop_assert!(error.at <= text.len());
            }
        }

        /// The tick of a tick's own time is that tick, for any length of tick.
        #[test]
        fn tick_at_undoes_time_of_tick(tick in 0_u64..1 << 41, tick_ns in 1..u64::MAX, epoch in any::<u64>()) {
            let layout = layout(Role::Reserved, tick_ns, epoch);
            let start = layout.time_of_tick(tick);
            prop_assert_eq!(layout.tick_at(start), Ok(tick));
            let last = UnixTime::from_unix_ns(start.unix_ns() + u128::from(tick_ns) - 1);
            prop_assert_eq!(layout.tick_at(last), Ok(tick));
        }
    }
}

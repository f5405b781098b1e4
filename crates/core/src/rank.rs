//! Which scheme made an unknown ID: candidates with reasons, and an honest "cannot tell".

use core::fmt;

use crate::catalogue::Habit;
use crate::{Field, ForeignForm, Id, POLICY_MS_MAX, ParseError, Role, Scheme, Status, TextForm, UnixTime};

/// How many candidates a ranking names.
pub const CANDIDATES_MAX: usize = 5;

/// Costs are counted in sixteenths of a bit.
const BIT: u32 = 16;

/// What a time before the scheme's first publication, but not before its epoch, costs.
const BEFORE_BIRTH_COST: u32 = 12 * BIT;

/// What a form costs that is not the scheme's own.
const STRANGE_FORM_COST: u32 = 6 * BIT;

/// A candidate is [`Verdict::Likely`] if it saves so many bits …
const LIKELY_SAVED_BITS: i32 = 12;

/// … and is so far ahead of the next.
const LIKELY_LEAD: u32 = 3 * BIT;

/// The fewest bytes of a text in a scheme's own form: in fewer, every scheme's IDs ended within weeks of its epoch.
const FOREIGN_BYTES_MIN: usize = 9;

/// With nothing that costs less than this many bits above a bare number, a ranking is [`Verdict::Implausible`].
const IMPLAUSIBLE_EXCESS_BITS: i32 = 4;

/// Candidates for an unknown ID, the best first.
///
/// # How it is judged
///
/// By the length of the shortest description. A bare 64-bit number takes 64 bits to write down. One that a scheme made
/// takes fewer: name the scheme, then say each field as briefly as its makers' habits allow. The scheme that explains
/// the ID in the fewest bits ranks first, and what it saves against 64 is how much the ID is unlike a random number:
/// of random numbers, about one in 2^n or fewer saves n bits.
///
/// | part | bits |
/// |---|---|
/// | the scheme | its weight: 2 for the commonest, 9 for rare ones |
/// | timestamp | log2 of the ticks from the scheme's birth to now; a time after now, or before the epoch, excludes it; one between epoch and birth costs 12 more |
/// | reserved | 0; a bit that is set excludes it |
/// | sequence, region, worker | 1 + 2 log2(value + 1), at most 1 + the field's width: small values are commoner |
/// | fields that their makers fill evenly (random bits, shards, worker codes of large fleets) | their width |
/// | a form of text that is not the scheme's own | 6 |
///
/// Logarithms are in sixteenths of a bit, straight between powers of two: integers only, the same on every machine.
///
/// ```
/// use snowmint_core::{Id, Ranking, Verdict};
///
/// let now_ms = 1_796_083_200_000;
/// let ranking = Ranking::of(Id::new(175_928_847_299_117_063), now_ms);
/// assert_eq!(ranking.candidates().next().unwrap().scheme.name, "discord");
/// // Others read it nearly as well, and that is said.
/// assert_eq!(ranking.verdict(), Verdict::Ambiguous);
/// assert_eq!(Ranking::of(Id::new(u64::MAX), now_ms).verdict(), Verdict::Implausible);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ranking {
    list: [Option<Candidate>; CANDIDATES_MAX],
}

/// What a ranking amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The first candidate explains the ID far better than chance, and than the next one.
    Likely,
    /// Several candidates explain it about as well, or none much better than chance: it cannot be told.
    Ambiguous,
    /// No known scheme made it.
    Implausible,
}

impl Verdict {
    /// The verdict's name on every face.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Likely => "likely",
            Self::Ambiguous => "ambiguous",
            Self::Implausible => "implausible",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Likely => "likely made by the first candidate",
            Self::Ambiguous => {
                "it cannot be told which scheme made the ID: compare the candidates' times with what you know of it, \
                 then name the layout"
            }
            Self::Implausible => {
                "no known scheme is likely to have made this number: it may be random, a plain counter, or damaged"
            }
        })
    }
}

/// A scheme that may have made the ID.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// The scheme.
    pub scheme: &'static Scheme,
    /// The ID, which depends on the form where text was ranked.
    pub id: Id,
    /// The form in which the text was read.
    pub form: Form,
    cost: u32,
    now_ms: u64,
}

/// A form of text of either kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// One of our own.
    Own(TextForm),
    /// One of a public scheme's.
    Foreign(ForeignForm),
}

impl Form {
    /// The form's name on every face.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own(form) => form.name(),
            Self::Foreign(form) => form.name(),
        }
    }

    /// Reads an ID.
    pub fn parse(self, text: &[u8]) -> Result<Id, ParseError> {
        match self {
            Self::Own(form) => form.parse(text),
            Self::Foreign(form) => form.parse(text),
        }
    }
}

impl Candidate {
    /// The ID's time by this scheme.
    pub fn time(&self) -> UnixTime {
        self.scheme.layout.time_of(self.id)
    }

    /// How many bits shorter the ID is to describe by this scheme than as a bare number, rounded down; negative where
    /// it is longer.
    pub fn saved_bits(&self) -> i32 {
        (crate::ID_BITS * BIT).cast_signed().wrapping_sub_unsigned(self.cost).div_euclid(BIT.cast_signed())
    }

    /// What speaks for the candidate, and against it: first its weight, then field by field. Their costs add up to
    /// the candidate's (but for the form's).
    pub fn reasons(&self) -> impl Iterator<Item = Reason> {
        reasons(self.scheme, self.id, self.now_ms).flatten()
    }

    /// What to tell the reader: see [`Scheme::warnings`].
    pub fn warnings(&self) -> crate::Warnings {
        self.scheme.warnings(self.id, self.now_ms)
    }
}

/// One reason for a candidate's rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// What is reasoned from.
    pub kind: ReasonKind,
    /// What it costs, in sixteenths of a bit.
    pub cost_sixteenths: u32,
}

/// What a reason is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasonKind {
    /// How common the scheme's IDs are.
    Weight,
    /// The time lies between the scheme's birth and now.
    Time {
        /// The time.
        time: UnixTime,
    },
    /// The time lies after the scheme's epoch, but before its first publication.
    EarlyTime {
        /// The time.
        time: UnixTime,
    },
    /// The reserved bits are 0.
    ReservedZero {
        /// How many.
        bits: u32,
    },
    /// The field holds a small value, as it usually does.
    Small {
        /// The field.
        field: Field,
        /// Its value.
        value: u64,
    },
    /// The field's value says nothing.
    Silent {
        /// The field.
        field: Field,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ReasonKind::Weight => {
                write!(f, "one ID in {} is taken to be of this scheme", 1_u64 << (self.cost_sixteenths / BIT))
            }
            ReasonKind::Time { time } => {
                write!(f, "its time {time} lies between the scheme's first use and now")
            }
            ReasonKind::EarlyTime { time } => {
                write!(f, "its time {time} lies after the scheme's epoch, but before its first use")
            }
            ReasonKind::ReservedZero { bits } => {
                write!(f, "{bits} reserved {} 0", if bits == 1 { "bit is" } else { "bits are" })
            }
            ReasonKind::Small { field, value } => write!(f, "{} {value} is a small value", field.name()),
            ReasonKind::Silent { field } => write!(f, "any {} is as likely as another", field.name()),
        }
    }
}

impl Ranking {
    /// Ranks a number at `now_ms` (Unix milliseconds).
    pub fn of(id: Id, now_ms: u64) -> Self {
        let mut ranking = Self { list: [None; CANDIDATES_MAX] };
        for candidate in Scheme::all().iter().filter_map(|scheme| scheme.candidate(id, now_ms)) {
            ranking.insert(candidate);
        }
        ranking
    }

    /// Ranks a text at `now_ms` (Unix milliseconds). Digits alone, or after a sign, are a decimal number; anything else
    /// is read in each scheme's own form and in every form of ours. The error is that of the form that went furthest.
    ///
    /// Words are numbers in some schemes' forms. One that is short, or that no scheme explains, and has the width of none
    /// of our forms, is no ID.
    pub fn of_text(text: &[u8], now_ms: u64) -> Result<Self, ParseError> {
        let decimal = TextForm::Decimal.parse(text);
        let unsigned = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
        if decimal.is_ok() || unsigned.iter().all(u8::is_ascii_digit) {
            return decimal.map(|id| Self::of(id, now_ms));
        }
        let mut ranking = Self { list: [None; CANDIDATES_MAX] };
        let mut furthest = decimal.err();
        let mut is_read = false;
        for scheme in Scheme::all() {
            let readings = scheme.readings(text, now_ms, &mut |error| match error {
                Some(error) if furthest.is_none_or(|furthest| error.at > furthest.at) => {
                    furthest = Some(error);
                }
                Some(_) => {}
                None => is_read = true,
            });
            if let Some((Some(cost), id, form)) = readings {
                ranking.insert(Candidate { scheme, id, form, cost, now_ms });
            }
        }
        let is_short = text.len() < FOREIGN_BYTES_MIN;
        let is_number = || TextForm::ALL.into_iter().any(|form| form.parse(text).is_ok());
        match furthest {
            Some(error) if !is_read => Err(error),
            Some(_) if !is_number() && (is_short || ranking.verdict() == Verdict::Implausible) => {
                decimal.map(|id| Self::of(id, now_ms))
            }
            _ => Ok(ranking),
        }
    }

    /// The candidates, the best first: at most [`CANDIDATES_MAX`].
    pub fn candidates(&self) -> impl Iterator<Item = &Candidate> {
        self.list.iter().flatten()
    }

    /// Whether the first candidate can be told from the others and from chance.
    pub fn verdict(&self) -> Verdict {
        let mut candidates = self.candidates();
        let Some(first) = candidates.next() else { return Verdict::Implausible };
        if first.saved_bits() < -IMPLAUSIBLE_EXCESS_BITS {
            return Verdict::Implausible;
        }
        let leads = candidates.next().is_none_or(|second| second.cost - first.cost >= LIKELY_LEAD);
        if leads && first.saved_bits() >= LIKELY_SAVED_BITS { Verdict::Likely } else { Verdict::Ambiguous }
    }

    /// Puts a candidate in its place; the worst falls out at the end. Equals keep the catalogue's order.
    fn insert(&mut self, candidate: Candidate) {
        let mut carried = candidate;
        for place in &mut self.list {
            match place {
                Some(held) if held.cost <= carried.cost => {}
                Some(held) => core::mem::swap(held, &mut carried),
                None => {
                    *place = Some(carried);
                    return;
                }
            }
        }
    }
}

impl Scheme {
    /// A number as this scheme would have made it, at `now_ms` (Unix milliseconds): what a [`Ranking`] compares. `None`
    /// where the scheme cannot have made it.
    ///
    /// ```
    /// use snowmint_core::{Id, Scheme};
    ///
    /// let (id, now_ms) = (Id::new(175_928_847_299_117_063), 1_796_083_200_000);
    /// let by = |name, id| Scheme::named(name).unwrap().candidate(id, now_ms);
    /// assert!(by("discord", id).unwrap().saved_bits() > by("twitter", id).unwrap().saved_bits());
    /// assert!(by("twitter", Id::new(u64::MAX)).is_none());
    /// ```
    pub fn candidate(&'static self, id: Id, now_ms: u64) -> Option<Candidate> {
        let form = Form::Own(TextForm::Decimal);
        cost(self, id, now_ms).map(|cost| Candidate { scheme: self, id, form, cost, now_ms })
    }

    /// Reads a text as an ID of this scheme, at `now_ms` (Unix milliseconds). Digits alone are a decimal number; anything
    /// else is read in the scheme's own form and in every form of ours, and the most plausible reading is given. The
    /// error is that of the form that went furthest.
    ///
    /// ```
    /// use snowmint_core::{Form, ForeignForm, Id, Scheme};
    ///
    /// let tsid = Scheme::named("tsid").unwrap();
    /// let read = tsid.parse(b"0J4AEXRN106Z0", 1_796_083_200_000);
    /// assert_eq!(read, Ok((Id::new(653_390_205_760_314_336), Form::Foreign(ForeignForm::Base32))));
    /// ```
    pub fn parse(&self, text: &[u8], now_ms: u64) -> Result<(Id, Form), ParseError> {
        let decimal = TextForm::Decimal.parse(text);
        let mut furthest = match decimal {
            Ok(id) => return Ok((id, Form::Own(TextForm::Decimal))),
            Err(error) => error,
        };
        if text.iter().all(u8::is_ascii_digit) {
            return Err(furthest);
        }
        let reading = self.readings(text, now_ms, &mut |error| {
            if let Some(error) = error.filter(|error| error.at > furthest.at) {
                furthest = error;
            }
        });
        reading.map(|(_, id, form)| (id, form)).ok_or(furthest)
    }

    /// The cheapest reading of a text in the scheme's own form and ours, with its cost; one that the scheme excludes
    /// only where there is no other. `tell` hears of each form: its error, or that it read the text.
    fn readings(
        &self,
        text: &[u8],
        now_ms: u64,
        tell: &mut dyn FnMut(Option<ParseError>),
    ) -> Option<(Option<u32>, Id, Form)> {
        let own = self.form.map(|form| (Form::Foreign(form), 0));
        let strange = if self.status == Status::Own { BIT } else { STRANGE_FORM_COST };
        let ours = TextForm::ALL.into_iter().map(|form| (Form::Own(form), strange));
        let mut best: Option<(Option<u32>, Id, Form)> = None;
        for (form, form_cost) in own.into_iter().chain(ours) {
            match form.parse(text) {
                Ok(id) => {
                    tell(None);
                    let cost = cost(self, id, now_ms).map(|cost| cost + form_cost);
                    let is_better = best.is_none_or(|(least, ..)| match (cost, least) {
                        (Some(cost), Some(least)) => cost < least,
                        (cost, least) => cost.is_some() && least.is_none(),
                    });
                    if is_better {
                        best = Some((cost, id, form));
                    }
                }
                Err(error) => tell(Some(error)),
            }
        }
        best
    }
}

/// What an ID costs by a scheme, in sixteenths of a bit; `None` where it cannot be of it.
fn cost(scheme: &Scheme, id: Id, now_ms: u64) -> Option<u32> {
    reasons(scheme, id, now_ms).try_fold(0, |sum, reason| Some(sum + reason?.cost_sixteenths))
}

/// The reasons for a scheme; `None` among them where something excludes it.
fn reasons(scheme: &Scheme, id: Id, now_ms: u64) -> impl Iterator<Item = Option<Reason>> {
    let weight = Reason { kind: ReasonKind::Weight, cost_sixteenths: u32::from(scheme.weight_bits) * BIT };
    let fields = scheme.layout.values(id).map(move |(field, value)| {
        let (kind, cost_sixteenths) = match field.role() {
            Role::Reserved => (value == 0).then_some((ReasonKind::ReservedZero { bits: field.bits() }, 0))?,
            Role::Timestamp => time_reason(scheme, id, now_ms)?,
            _ => field_reason(scheme, field, value)?,
        };
        Some(Reason { kind, cost_sixteenths })
    });
    core::iter::once(Some(weight)).chain(fields)
}

fn time_reason(scheme: &Scheme, id: Id, now_ms: u64) -> Option<(ReasonKind, u32)> {
    let time = scheme.layout.time_of(id);
    let born = UnixTime::from_unix_ms(scheme.born_ms);
    // A generator may run ahead by its lead, and clocks differ.
    let latest = UnixTime::from_unix_ms(now_ms.saturating_add(u64::from(POLICY_MS_MAX)));
    if time > latest {
        return None;
    }
    let window_ns = latest.unix_ns().saturating_sub(born.unix_ns());
    let ticks = crate::time::divided(window_ns, scheme.layout.tick_ns()).unwrap_or(u64::MAX);
    let cost = log2_sixteenths(ticks.saturating_add(1));
    if time >= born {
        return Some((ReasonKind::Time { time }, cost));
    }
    // A scheme that counts from 1970 has no epoch of its own near which a trial ID would lie.
    (scheme.layout.epoch_unix_ms() > 0).then_some((ReasonKind::EarlyTime { time }, cost + BEFORE_BIRTH_COST))
}

fn field_reason(scheme: &Scheme, field: Field, value: u64) -> Option<(ReasonKind, u32)> {
    let even = field.bits() * BIT;
    let (rank, is_capped) = match scheme.habit_of(&field) {
        Habit::Even => return Some((ReasonKind::Silent { field }, even)),
        Habit::Small => (value, true),
        Habit::FromOne => (value.checked_sub(1)?, true),
        Habit::FewFromOne => (value.checked_sub(1)?, false),
    };
    let small = BIT + 2 * log2_sixteenths(rank.saturating_add(1));
    if is_capped && small >= BIT + even {
        return Some((ReasonKind::Silent { field }, BIT + even));
    }
    Some((ReasonKind::Small { field, value }, small))
}

/// log2 of a number in sixteenths, exact at powers of two and straight between them; 0 of 0.
fn log2_sixteenths(number: u64) -> u32 {
    let whole = number.checked_ilog2().unwrap_or(0);
    let mantissa = (u128::from(number) * u128::from(BIT)) >> whole;
    whole * BIT + u32::try_from(mantissa).unwrap_or(BIT).saturating_sub(BIT)
}

#[cfg(test)]
mod tests {
    use std::string::ToString;
    use std::vec::Vec;

    use super::*;

    const NOW_MS: u64 = 1_796_083_200_000;

    #[test]
    fn logarithms() {
        let check =
            |number: u64, sixteenths: u32| assert_eq!(log2_sixteenths(number), sixteenths, "{number}");
        check(0, 0);
        check(1, 0);
        check(2, 16);
        check(3, 24);
        check(4, 32);
        check(4_096, 192);
        check(u64::MAX, 64 * 16 - 1);
    }

    /// Weights are those of a code: they add up to one ID at most, so saved bits mean what they say.
    #[test]
    fn weights_add_up() {
        let sum: u32 = Scheme::all().iter().map(|scheme| 1_u32 << (16 - u32::from(scheme.weight_bits))).sum();
        assert!(sum <= 1 << 16, "{sum}");
    }

    /// Random numbers are not guessed at: over many, none is called likely.
    #[test]
    fn random_numbers_are_not_guessed() {
        let mut state = 1_u64;
        let mut implausible = 0;
        for seed in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // The high half of a linear congruential step is the random one.
            let id = Id::new((state >> 32) | (state.wrapping_mul(0x9e37_79b9_7f4a_7c15) & !0xffff_ffff));
            let ranking = Ranking::of(id, NOW_MS);
            assert_ne!(ranking.verdict(), Verdict::Likely, "step {seed}: {id}");
            implausible += u32::from(ranking.verdict() == Verdict::Implausible);
        }
        assert!(implausible > 5_000, "{implausible} of 20,000");
    }

    /// A ranking is the best of the schemes' own candidates: whoever asks a scheme alone is told the same.
    #[test]
    fn rankings_are_of_candidates() {
        let mut state = 3_u64;
        for _ in 0..2_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let id = Id::new(state >> (state % 24));
            let mut costs: Vec<u32> =
                Scheme::all().iter().filter_map(|scheme| Some(scheme.candidate(id, NOW_MS)?.cost)).collect();
            costs.sort_unstable();
            costs.truncate(CANDIDATES_MAX);
            let ranked: Vec<u32> = Ranking::of(id, NOW_MS).candidates().map(|it| it.cost).collect();
            assert_eq!(ranked, costs, "{id}");
        }
    }

    /// What is no ID is not taken for one, although some scheme's form has digits for it.
    #[test]
    fn words_and_signs_are_refused() {
        let check = |text: &str, at: usize| {
            let error = Ranking::of_text(text.as_bytes(), NOW_MS).unwrap_err();
            assert_eq!(error.at, at, "{text}: {error}");
        };
        check("hello", 0);
        check("-5", 0);
        check("+1205161015177961473", 0);
        check("1205161015177961473x", 19);
        check("36893488147419103232", 19);
        assert!(Ranking::of_text(b"C3xkq1-Mx8F", NOW_MS).is_ok(), "Instagram's");
    }

    /// The reasons are said in words, and their costs are the candidate's.
    #[test]
    fn reasons_add_up() {
        let ranking = Ranking::of(Id::new(1_205_161_015_177_961_473), NOW_MS);
        let first = ranking.candidates().next().unwrap();
        let said: Vec<_> = first.reasons().map(|reason| reason.to_string()).collect();
        assert_eq!(
            said,
            [
                "one ID in 4 is taken to be of this scheme",
                "1 reserved bit is 0",
                "its time 2019-12-12T16:22:31.484Z lies between the scheme's first use and now",
                "any datacenter is as likely as another",
                "any worker is as likely as another",
                "sequence 1 is a small value",
            ]
        );
        assert_eq!(first.reasons().map(|reason| reason.cost_sixteenths).sum::<u32>(), first.cost);
    }

    /// Our own IDs are recognised, and the clearer the more idle the worker.
    #[test]
    fn own_ids() {
        let layout = crate::Layout::SNOWMINT;
        let check = |region: u32, worker: u32, sequence: u64, verdict: Verdict| {
            let tick = NOW_MS - 1_000 - layout.epoch_unix_ms();
            let id = layout.compose(tick, layout.node(region, worker).unwrap(), sequence).unwrap();
            let ranking = Ranking::of(id, NOW_MS);
            assert_eq!(ranking.candidates().next().unwrap().scheme.name, "snowmint");
            assert_eq!(ranking.verdict(), verdict, "{id}");
        };
        check(0, 0, 0, Verdict::Likely);
        check(0, 1, 7, Verdict::Likely);
        check(3, 200, 3_000, Verdict::Ambiguous);
    }

    /// Candidates come in order, and no scheme twice.
    #[test]
    fn order() {
        for bits in [0, 1, 1 << 57, 1 << 60, u64::MAX >> 1, 1_205_161_015_177_961_473] {
            let ranking = Ranking::of(Id::new(bits), NOW_MS);
            let candidates: Vec<_> = ranking.candidates().collect();
            assert!(candidates.is_sorted_by_key(|candidate| candidate.cost));
            for (at, candidate) in candidates.iter().enumerate() {
                assert!(candidates.iter().skip(at + 1).all(|other| other.scheme != candidate.scheme));
            }
        }
    }

    /// Text in a scheme's own form leads to it; text that nobody writes has the error of the best attempt.
    #[test]
    fn text() {
        let check = |text: &str, name: &str, form: &str| {
            let ranking = Ranking::of_text(text.as_bytes(), NOW_MS).unwrap();
            let found = ranking.candidates().position(|candidate| candidate.scheme.name == name);
            assert!(found.is_some_and(|at| at < 3), "{text}: {found:?}");
            let candidate = ranking.candidates().find(|candidate| candidate.scheme.name == name).unwrap();
            assert_eq!(candidate.form.name(), form);
        };
        check("DEr_fXvuw6D", "instagram", "shortcode");
        check("3lbd2ebt3wk2r", "atproto_tid", "sortable32");
        check("0J4AEXRN106Z0", "tsid", "base32");
        check("51E57AC91E83C801", "telegram_msg_id", "upper-hex");
        check("1R1eJVI0R6X", "twitter", "base62");
        let error = Ranking::of_text("3lbd2ebt3wk\u{202e}".as_bytes(), NOW_MS).unwrap_err();
        assert_eq!(error.at, 11, "{error}");
        assert!(Ranking::of_text(b"", NOW_MS).is_err());
        assert!(Ranking::of_text(b"99999999999999999999", NOW_MS).is_err());
    }
}

//! One ID at length, the IDs of a time, and how far two IDs lie apart.

use std::fmt::Write as _;

use serde::Serialize;
use snowmint_core::{
    Candidate, Form, Id, Layout, NS_PER_MS, Ranking, Role, Scheme, TextForm, UnixTime, Verdict, Warning,
    WideId,
};
use wasm_bindgen::prelude::wasm_bindgen;

use crate::facts::{FieldFacts, Moment, Reader, answer, field_facts, find_layout, rust_number, tick_text};
use crate::value::{Digits, json};

const MS_PER_S: u64 = 1_000;

/// A text that was read as an ID.
pub(crate) enum Reading {
    /// 64 bits, by a layout that was named.
    Named { id: Id, form: Form, layout: Layout, scheme: Option<&'static Scheme> },
    /// 64 bits, by whatever explains them best.
    Ranked { ranking: Ranking, id: Id },
    /// Wider than 64 bits.
    Wide(WideId),
}

impl Reading {
    /// Reads a text at `now_ms`; blanks around it are the caller's to take off.
    pub(crate) fn of(reader: &Reader, text: &[u8], now_ms: u64) -> Result<Self, String> {
        match reader {
            Reader::Auto => {
                let is_digits = text.iter().all(u8::is_ascii_digit);
                if !is_digits && let Some(wide) = WideId::parse(text) {
                    return Ok(Self::Wide(wide));
                }
                let ranking = Ranking::of_text(text, now_ms).map_err(|error| error.to_string())?;
                let id = match ranking.candidates().next() {
                    Some(first) => first.id,
                    None => number(text)?.0,
                };
                Ok(Self::Ranked { ranking, id })
            }
            Reader::Scheme(scheme) => {
                let (id, form) = scheme.parse(text, now_ms).map_err(|error| error.to_string())?;
                Ok(Self::Named { id, form, layout: scheme.layout, scheme: Some(scheme) })
            }
            Reader::Layout(layout) => {
                let (id, form) = number(text)?;
                Ok(Self::Named { id, form: Form::Own(form), layout: *layout, scheme: None })
            }
        }
    }

    /// The ID's bits; `None` for a wide one.
    pub(crate) const fn id(&self) -> Option<Id> {
        match self {
            Self::Named { id, .. } | Self::Ranked { id, .. } => Some(*id),
            Self::Wide(_) => None,
        }
    }

    pub(crate) fn verdict(&self) -> Option<Verdict> {
        match self {
            Self::Ranked { ranking, .. } => Some(ranking.verdict()),
            _ => None,
        }
    }

    fn first(&self) -> Option<&Candidate> {
        match self {
            Self::Ranked { ranking, .. } if ranking.verdict() != Verdict::Implausible => {
                ranking.candidates().next()
            }
            _ => None,
        }
    }

    pub(crate) fn scheme(&self) -> Option<&'static Scheme> {
        match self {
            Self::Named { scheme, .. } => *scheme,
            _ => self.first().map(|first| first.scheme),
        }
    }

    pub(crate) fn layout(&self) -> Option<&Layout> {
        match self {
            Self::Named { layout, .. } => Some(layout),
            _ => self.first().map(|first| &first.scheme.layout),
        }
    }

    fn form(&self) -> Option<Form> {
        match self {
            Self::Named { form, .. } => Some(*form),
            Self::Ranked { ranking, .. } => ranking.candidates().next().map(|first| first.form),
            Self::Wide(_) => None,
        }
    }

    /// The name of the scheme or kind.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Wide(wide) => wide.kind.name(),
            Self::Named { scheme: None, .. } => "custom",
            _ => self.scheme().map_or("implausible", |scheme| scheme.name),
        }
    }

    /// The ID's time, and how many digits of fraction it has.
    pub(crate) fn time(&self) -> Option<(UnixTime, u32)> {
        if let Self::Wide(wide) = self {
            return wide.time.map(|time| (time, wide.time_digits));
        }
        let layout = self.layout()?;
        Some((layout.time_of(self.id()?), layout.time_digits()))
    }

    pub(crate) fn warnings(&self, now_ms: u64) -> Vec<Warning> {
        let Some(id) = self.id() else { return Vec::new() };
        match (self.scheme(), self.layout()) {
            (Some(scheme), _) => scheme.warnings(id, now_ms).collect(),
            (None, Some(layout)) => layout.warnings(id, now_ms).collect(),
            (None, None) => snowmint_core::written_by_javascript(id).into_iter().collect(),
        }
    }
}

/// Reads a text in the one form of ours that reads it; digits alone are decimal.
fn number(text: &[u8]) -> Result<(Id, TextForm), String> {
    let mut readings = TextForm::ALL.into_iter().filter_map(|form| Some((form.parse(text).ok()?, form)));
    let Some((id, form)) = readings.next() else {
        return TextForm::Decimal
            .parse(text)
            .map(|id| (id, TextForm::Decimal))
            .map_err(|error| error.to_string());
    };
    match readings.find(|(other, _)| *other != id) {
        Some((_, other)) if form != TextForm::Decimal => Err(format!(
            "the text is one ID in {} and another in {}; give it in decimal",
            form.name(),
            other.name()
        )),
        _ => Ok((id, form)),
    }
}

#[derive(Serialize)]
struct Report<'a> {
    /// `id` or `wide`.
    kind: &'static str,
    text: &'a str,
    id: Option<Digits>,
    name: &'static str,
    title: &'static str,
    /// How the scheme is known, and from where.
    status: Option<&'static str>,
    source: Option<&'static str>,
    form: Option<&'static str>,
    verdict: Option<Named>,
    layout: Option<String>,
    time: Option<TimeFacts>,
    fields: Vec<FieldValue>,
    warnings: Vec<String>,
    forms: Vec<Named>,
    candidates: Vec<CandidateFacts>,
    copies: Vec<Named>,
    ranges: Vec<Named>,
    /// Why there are no ranges.
    no_ranges: Option<&'static str>,
}

#[derive(Serialize)]
struct Named {
    name: &'static str,
    text: String,
}

#[derive(Serialize)]
struct TimeFacts {
    #[serde(flatten)]
    moment: Moment,
    tick: Option<Digits>,
    tick_length: Option<String>,
    epoch: Option<Moment>,
    arithmetic: Vec<String>,
}

#[derive(Serialize)]
struct FieldValue {
    #[serde(flatten)]
    facts: FieldFacts,
    value: Digits,
    binary: String,
    meaning: String,
    expression: String,
}

#[derive(Serialize)]
struct CandidateFacts {
    name: &'static str,
    title: &'static str,
    id: Digits,
    form: &'static str,
    time: Moment,
    saved_bits: Option<i32>,
    reasons: Vec<ReasonText>,
    /// Why the scheme cannot have made it; `None` where it can.
    excluded: Option<String>,
}

#[derive(Serialize)]
struct ReasonText {
    text: String,
    bits: String,
}

/// What one ID holds, at length. `reader` is `auto`, a scheme's name, or a layout's canonical text.
#[wasm_bindgen]
pub fn decode(text: &str, reader: &str, now_ms: u64) -> String {
    let text = text.trim();
    let result = Reader::named(reader)
        .and_then(|reader| Reading::of(&reader, text.as_bytes(), now_ms))
        .map(|reading| report(text, &reading, now_ms));
    answer(result)
}

fn report<'a>(text: &'a str, reading: &Reading, now_ms: u64) -> Report<'a> {
    let id = reading.id();
    let scheme = reading.scheme();
    let mut report = Report {
        kind: if id.is_some() { "id" } else { "wide" },
        text,
        id: id.map(|id| Digits(id.get())),
        name: reading.name(),
        title: title(reading),
        status: scheme.map(|scheme| scheme.status.name()),
        source: scheme.map(|scheme| scheme.source),
        form: reading.form().map(Form::name),
        verdict: reading.verdict().map(|verdict| Named { name: verdict.name(), text: verdict.to_string() }),
        layout: reading.layout().map(ToString::to_string),
        time: time_facts(reading),
        fields: Vec::new(),
        warnings: reading.warnings(now_ms).iter().map(ToString::to_string).collect(),
        forms: Vec::new(),
        candidates: Vec::new(),
        copies: Vec::new(),
        ranges: Vec::new(),
        no_ranges: None,
    };
    let Some(id) = id else { return report };
    report.forms = forms(id, scheme);
    report.candidates = candidates(reading, id, now_ms);
    if let Some(layout) = reading.layout() {
        report.fields = field_values(layout, id);
        report.copies = copies(reading, id, layout, now_ms);
        if layout.is_time_first() {
            report.ranges = ranges(layout, layout.time_of(id));
        } else {
            report.no_ranges = Some(
                "something that differs between IDs stands above the timestamp, so IDs of every other time lie \
                 between two of one time: seek per value of the fields above it",
            );
        }
    }
    report
}

fn title(reading: &Reading) -> &'static str {
    match reading {
        Reading::Wide(wide) => match wide.kind.name() {
            "uuidv1" => "UUID version 1, 128 bits",
            "uuidv4" => "UUID version 4, random, 128 bits",
            "uuidv6" => "UUID version 6, 128 bits",
            "uuidv7" => "UUID version 7, 128 bits",
            "ulid" => "ULID, 128 bits",
            "objectid" => "MongoDB ObjectId, 96 bits",
            "ksuid" => "KSUID, 160 bits",
            "xid" => "Xid, 96 bits",
            _ => "UUID, 128 bits",
        },
        Reading::Named { scheme: None, .. } => "the layout of the address",
        _ => reading.scheme().map_or("no scheme that is known", |scheme| scheme.title),
    }
}

fn time_facts(reading: &Reading) -> Option<TimeFacts> {
    let (time, digits) = reading.time()?;
    let moment = Moment::of(time, digits);
    let (Some(layout), Some(id)) = (reading.layout(), reading.id()) else {
        return Some(TimeFacts {
            moment,
            tick: None,
            tick_length: None,
            epoch: None,
            arithmetic: Vec::new(),
        });
    };
    let tick = layout.decode(id).tick;
    let epoch = UnixTime::from_unix_ms(layout.epoch_unix_ms());
    let place = field_facts(layout).into_iter().find(|facts| facts.role == Role::Timestamp.name());
    let expression = place.map(|facts| expression(&facts)).unwrap_or_default();
    let tick_ns = layout.tick_ns();
    let is_ms = tick_ns.is_multiple_of(NS_PER_MS);
    // Exact in the unit that is whole: milliseconds, or nanoseconds for finer ticks.
    let (unit, per_tick) = if is_ms { ("ms", tick_ns / NS_PER_MS) } else { ("ns", tick_ns) };
    let since = u128::from(tick) * u128::from(per_tick);
    let epoch_in_unit = u128::from(layout.epoch_unix_ms()) * if is_ms { 1 } else { u128::from(NS_PER_MS) };
    let mut arithmetic = vec![format!("{expression} = {tick}")];
    if per_tick != 1 {
        arithmetic.push(format!("{tick} × {per_tick} {unit} = {since} {unit}"));
    }
    arithmetic.push(format!("{since} + {epoch_in_unit} = {} {unit} since 1970", since + epoch_in_unit));
    arithmetic.push(format!("= {}", moment.utc));
    Some(TimeFacts {
        tick: Some(Digits(tick)),
        tick_length: Some(tick_text(tick_ns)),
        epoch: Some(Moment::of(epoch, epoch.digits())),
        arithmetic,
        moment,
    })
}

/// How a field is taken out of an ID.
fn expression(facts: &FieldFacts) -> String {
    match facts.low {
        0 => format!("id & {}", facts.max.0),
        low if facts.high == 63 => format!("id >> {low}"),
        low => format!("(id >> {low}) & {}", facts.max.0),
    }
}

fn field_values(layout: &Layout, id: Id) -> Vec<FieldValue> {
    let values = layout.values(id).zip(field_facts(layout)).map(|((field, value), facts)| {
        let meaning = match field.role() {
            Role::Timestamp => layout.time_text(id).as_str().to_owned(),
            Role::Reserved if value == 0 => String::from("kept at 0"),
            Role::Reserved => String::from("set, although the layout keeps it at 0"),
            Role::Shard => format!("key range {value} of {}", u128::from(field.value_max()) + 1),
            Role::Sequence => format!("ID {} of its tick", u128::from(value) + 1),
            Role::Region | Role::Worker => format!("0 to {}", field.value_max()),
            Role::Other => String::from("known to the maker only"),
        };
        let bits = field.bits() as usize;
        FieldValue {
            expression: expression(&facts),
            binary: format!("{value:0bits$b}"),
            facts,
            value: Digits(value),
            meaning,
        }
    });
    values.collect()
}

fn forms(id: Id, scheme: Option<&Scheme>) -> Vec<Named> {
    let mut forms: Vec<Named> = TextForm::ALL
        .into_iter()
        .map(|form| Named { name: form.name(), text: form.write(id).as_str().to_owned() })
        .collect();
    if let Some(form) = scheme.and_then(|scheme| scheme.form)
        && let Some(text) = form.write(id)
    {
        forms.push(Named { name: form.name(), text: text.as_str().to_owned() });
    }
    if id.get() > i64::MAX as u64 {
        forms.push(Named { name: "signed", text: id.get().cast_signed().to_string() });
    }
    forms
}

/// Every scheme of the catalogue: first those that the ranking names, then others that can have made it, then those that
/// cannot, with the reason.
fn candidates(reading: &Reading, id: Id, now_ms: u64) -> Vec<CandidateFacts> {
    let ranked: Vec<Candidate> = match reading {
        Reading::Ranked { ranking, .. } => ranking.candidates().copied().collect(),
        _ => Vec::new(),
    };
    let others =
        || Scheme::all().iter().filter(|scheme| !ranked.iter().any(|it| it.scheme.name == scheme.name));
    let mut possible: Vec<Candidate> = others().filter_map(|scheme| scheme.candidate(id, now_ms)).collect();
    possible.sort_by_key(|candidate| -candidate.saved_bits());
    let all = ranked.iter().chain(&possible).map(candidate_facts);
    let excluded = others().filter(|scheme| scheme.candidate(id, now_ms).is_none());
    all.chain(excluded.map(|scheme| excluded_facts(scheme, id, now_ms))).collect()
}

fn candidate_facts(candidate: &Candidate) -> CandidateFacts {
    let scheme = candidate.scheme;
    let reasons = candidate.reasons().map(|reason| ReasonText {
        text: reason.to_string(),
        bits: format!("{}.{}", reason.cost_sixteenths / 16, reason.cost_sixteenths % 16 * 10 / 16),
    });
    CandidateFacts {
        name: scheme.name,
        title: scheme.title,
        id: Digits(candidate.id.get()),
        form: candidate.form.name(),
        time: Moment::of(candidate.time(), scheme.layout.time_digits()),
        saved_bits: Some(candidate.saved_bits()),
        reasons: reasons.collect(),
        excluded: None,
    }
}

fn excluded_facts(scheme: &'static Scheme, id: Id, now_ms: u64) -> CandidateFacts {
    let time = scheme.layout.time_of(id);
    let excluded = if scheme.layout.decode(id).reserved {
        "bits are set that it keeps at 0"
    } else if time > UnixTime::from_unix_ms(now_ms) {
        "the time would lie in the future"
    } else if time < UnixTime::from_unix_ms(scheme.born_ms) {
        "the time would lie before its first use"
    } else {
        "a field holds a value that its makers never use"
    };
    CandidateFacts {
        name: scheme.name,
        title: scheme.title,
        id: Digits(id.get()),
        form: TextForm::Decimal.name(),
        time: Moment::of(time, scheme.layout.time_digits()),
        saved_bits: None,
        reasons: Vec::new(),
        excluded: Some(excluded.to_owned()),
    }
}

/// The ID as JSON and as Rust, to paste.
fn copies(reading: &Reading, id: Id, layout: &Layout, now_ms: u64) -> Vec<Named> {
    #[derive(Serialize)]
    struct Copy<'a> {
        id: Digits,
        layout: &'a str,
        time: &'a str,
        unix_ms: Digits,
        fields: Vec<CopyField>,
        warnings: Vec<String>,
    }
    #[derive(Serialize)]
    struct CopyField {
        name: String,
        value: Digits,
    }
    let time = layout.time_text(id);
    let fields = layout
        .values(id)
        .map(|(field, value)| CopyField { name: field.name().to_owned(), value: Digits(value) });
    let copy = Copy {
        id: Digits(id.get()),
        layout: reading.name(),
        time: time.as_str(),
        unix_ms: Digits(layout.time_of(id).unix_ms()),
        fields: fields.collect(),
        warnings: reading.warnings(now_ms).iter().map(ToString::to_string).collect(),
    };
    let number = rust_number(id.get());
    let by = match reading.scheme() {
        Some(scheme) => format!("Scheme::named({:?}).expect(\"known\").layout", scheme.name),
        None => format!("{:?}.parse::<Layout>()?", layout.to_string()),
    };
    let mut rust = String::from(match reading.scheme() {
        Some(_) => "use snowmint_core::{Id, Scheme};\n\n",
        None => "use snowmint_core::{Id, Layout};\n\n",
    });
    let _ = write!(rust, "let id = Id::new({number});\nlet layout = {by};\n");
    let _ = writeln!(rust, "assert_eq!(layout.time_text(id).as_str(), {:?});", time.as_str());
    vec![
        Named { name: "JSON", text: serde_json::to_string_pretty(&copy).unwrap_or_default() },
        Named { name: "Rust", text: rust },
    ]
}

/// Conditions for a query: the tick itself, then the second, hour and day around it.
fn ranges(layout: &Layout, time: UnixTime) -> Vec<Named> {
    let epoch = UnixTime::from_unix_ms(layout.epoch_unix_ms());
    let last = layout.time_of_tick(layout.last_tick());
    let between = |from: UnixTime, to: UnixTime| {
        let (from, to) = (from.max(epoch), to.min(last));
        let (from, to) = (layout.ids_at(from).ok()?, layout.ids_at(to).ok()?);
        Some(format!("id BETWEEN {} AND {}", from.first, to.last))
    };
    let around = |length_ms: u64| {
        let begin_ms = time.unix_ms() - time.unix_ms() % length_ms;
        let end_ns = (u128::from(begin_ms) + u128::from(length_ms)) * u128::from(NS_PER_MS);
        between(UnixTime::from_unix_ms(begin_ms), UnixTime::from_unix_ns(end_ns - 1))
    };
    [
        ("this tick", between(time, time)),
        ("this second", around(MS_PER_S)),
        ("this hour", around(3_600 * MS_PER_S)),
        ("this day", around(86_400 * MS_PER_S)),
    ]
    .into_iter()
    .filter_map(|(name, text)| Some(Named { name, text: text? }))
    .collect()
}

/// The smallest and the largest ID of a time: RFC 3339, a date, or Unix milliseconds.
#[wasm_bindgen]
pub fn at(time: &str, layout: &str) -> String {
    #[derive(Serialize)]
    struct At {
        time: Moment,
        first: Digits,
        last: Digits,
        sql: Option<String>,
        since: Option<String>,
    }
    answer((|| {
        let layout = find_layout(layout)?;
        let time = UnixTime::parse(time.trim().as_bytes()).map_err(|error| error.to_string())?;
        let ids = layout.ids_at(time).map_err(|error| error.to_string())?;
        Ok(At {
            time: Moment::of(ids.start, layout.time_digits()),
            first: Digits(ids.first.get()),
            last: Digits(ids.last.get()),
            sql: ids.is_range.then(|| format!("id BETWEEN {} AND {}", ids.first, ids.last)),
            since: ids.is_range.then(|| format!("id >= {}", ids.first)),
        })
    })())
}

/// How far two IDs lie apart, each by its own scheme.
#[wasm_bindgen]
pub fn difference(one: &str, other: &str, reader: &str, now_ms: u64) -> String {
    #[derive(Serialize)]
    struct Difference {
        /// The text of the older one; `None` where both have one time.
        older: Option<String>,
        span: String,
        /// The numbers' difference, where both are 64 bits.
        apart: Option<Digits>,
        ticks: Option<Digits>,
    }
    answer((|| {
        let reader = Reader::named(reader)?;
        let read = |text: &str| Reading::of(&reader, text.trim().as_bytes(), now_ms);
        let (a, b) = (read(one)?, read(other)?);
        let no_time = || String::from("one of the two carries no time that can be told");
        let ((a_time, a_digits), (b_time, b_digits)) =
            (a.time().ok_or_else(no_time)?, b.time().ok_or_else(no_time)?);
        let older = match a_time.cmp(&b_time) {
            std::cmp::Ordering::Less => Some(one.trim().to_owned()),
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => Some(other.trim().to_owned()),
        };
        let apart = a.id().zip(b.id()).map(|(a, b)| Digits(a.get().abs_diff(b.get())));
        let ticks = match (a.layout(), b.layout(), a.id(), b.id()) {
            (Some(one), Some(other), Some(a), Some(b)) if one == other => {
                Some(Digits(one.decode(a).tick.abs_diff(other.decode(b).tick)))
            }
            _ => None,
        };
        let span = span(a_time.unix_ns().abs_diff(b_time.unix_ns()), a_digits.max(b_digits));
        Ok(Difference { older, span, apart, ticks })
    })())
}

/// A length of time to so many digits of a second.
fn span(ns: u128, digits: u32) -> String {
    let secs = ns / 1_000_000_000;
    let mut text = String::new();
    for (count, unit) in [(secs / 86_400, "d"), (secs / 3_600 % 24, "h"), (secs / 60 % 60, "min")] {
        if count > 0 {
            let _ = write!(text, "{count} {unit} ");
        }
    }
    let _ = write!(text, "{}", secs % 60);
    if digits > 0 {
        let width = digits as usize;
        let cut = 10_u128.pow(9_u32.saturating_sub(digits));
        let _ = write!(text, ".{:0width$}", ns % 1_000_000_000 / cut);
    }
    text + " s"
}

/// An ID with one bit changed, counted from 0 at the lowest.
#[wasm_bindgen]
pub fn flip(id: u64, bit: u32) -> u64 {
    id ^ 1_u64.checked_shl(bit).unwrap_or(0)
}

/// The catalogue: name, title, layout's canonical text.
#[wasm_bindgen]
pub fn schemes() -> String {
    #[derive(Serialize)]
    struct Entry {
        name: &'static str,
        title: &'static str,
        status: &'static str,
        layout: String,
        born: Moment,
        mints: bool,
    }
    let entries: Vec<Entry> = Scheme::all()
        .iter()
        .map(|scheme| Entry {
            name: scheme.name,
            title: scheme.title,
            status: scheme.status.name(),
            layout: scheme.layout.to_string(),
            born: Moment::of_ms(scheme.born_ms),
            mints: scheme.layout.check_mints().is_ok(),
        })
        .collect();
    json(&entries)
}

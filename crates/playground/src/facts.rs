//! Facts about layouts and times, for the views that read.

use serde::Serialize;
use snowmint_core::{Layout, NS_PER_MS, Role, Scheme, UnixTime};

use crate::value::{Digits, json};

/// An answer that says what was wrong.
#[derive(Serialize)]
pub(crate) struct Fault {
    pub(crate) error: String,
}

/// JSON of an answer, or of what was wrong.
pub(crate) fn answer<T: Serialize>(result: Result<T, String>) -> String {
    match result {
        Ok(value) => json(&value),
        Err(error) => json(&Fault { error }),
    }
}

/// What IDs are read by.
#[derive(Clone, Copy)]
#[allow(clippy::large_enum_variant)] // One for each call.
pub(crate) enum Reader {
    /// Whatever explains an ID best.
    Auto,
    Scheme(&'static Scheme),
    Layout(Layout),
}

impl Reader {
    /// `auto`, a scheme's name, or a layout's canonical text.
    pub(crate) fn named(name: &str) -> Result<Self, String> {
        if name.is_empty() || name == "auto" {
            return Ok(Self::Auto);
        }
        if let Some(scheme) = Scheme::named(name) {
            return Ok(Self::Scheme(scheme));
        }
        name.parse()
            .map(Self::Layout)
            .map_err(|error| format!("the address names no layout that is known: {error}"))
    }
}

/// A layout by a scheme's name or by its canonical text.
pub(crate) fn find_layout(name: &str) -> Result<Layout, String> {
    match Scheme::named(name) {
        Some(scheme) => Ok(scheme.layout),
        None => name.parse().map_err(|error: snowmint_core::LayoutTextError| error.to_string()),
    }
}

/// A tick in the largest unit that writes it whole.
pub(crate) fn tick_text(tick_ns: u64) -> String {
    let units = [(60_000 * NS_PER_MS, "min"), (1_000 * NS_PER_MS, "s"), (NS_PER_MS, "ms"), (1_000, "µs")];
    let unit = units.into_iter().find(|(ns, _)| tick_ns.is_multiple_of(*ns));
    let (ns, name) = unit.unwrap_or((1, "ns"));
    format!("{} {name}", tick_ns / ns)
}

/// A number in Rust's manner: `1_735_689_600_000`.
pub(crate) fn rust_number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text
}

/// A role as a variant of Rust's enum.
pub(crate) const fn rust_role(role: Role) -> &'static str {
    match role {
        Role::Reserved => "Reserved",
        Role::Shard => "Shard",
        Role::Timestamp => "Timestamp",
        Role::Region => "Region",
        Role::Worker => "Worker",
        Role::Sequence => "Sequence",
        Role::Other => "Other",
    }
}

/// A field with its place.
#[derive(Serialize)]
pub(crate) struct FieldFacts {
    pub(crate) name: String,
    pub(crate) role: &'static str,
    pub(crate) bits: u32,
    /// Its highest bit, counted from 0 at the lowest of the ID.
    pub(crate) high: u32,
    pub(crate) low: u32,
    pub(crate) max: Digits,
}

pub(crate) fn field_facts(layout: &Layout) -> Vec<FieldFacts> {
    let mut above = snowmint_core::ID_BITS;
    let fields = layout.fields().iter().map(|field| {
        let high = above - 1;
        above -= field.bits();
        FieldFacts {
            name: field.name().to_owned(),
            role: field.role().name(),
            bits: field.bits(),
            high,
            low: above,
            max: Digits(field.value_max()),
        }
    });
    fields.collect()
}

/// A time for the page: exact text, and milliseconds for its calendar.
#[derive(Serialize)]
pub(crate) struct Moment {
    pub(crate) utc: String,
    pub(crate) unix_ms: Digits,
}

impl Moment {
    pub(crate) fn of(time: UnixTime, digits: u32) -> Self {
        Self { utc: time.text(digits).as_str().to_owned(), unix_ms: Digits(time.unix_ms()) }
    }

    pub(crate) fn of_ms(unix_ms: u64) -> Self {
        Self::of(UnixTime::from_unix_ms(unix_ms), 3)
    }
}

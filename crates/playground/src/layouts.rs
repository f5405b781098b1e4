//! What a layout holds, what a change of it would do, and how it is written for others.

use std::fmt::Write as _;

use serde::Serialize;
use snowmint_core::{
    CutoverPlan, Field, FormatHistory, Id, Layout, MS_PER_YEAR, Margin, NS_PER_MS, Need, Requirements,
    RequirementsError, Role, UnixTime,
};
use wasm_bindgen::prelude::wasm_bindgen;

use crate::facts::{FieldFacts, Moment, answer, field_facts, find_layout, rust_number, rust_role, tick_text};
use crate::value::Digits;

/// The first number that JavaScript cannot tell from its neighbour.
const DOUBLE_END: u64 = 1 << 53;

#[derive(Serialize)]
struct LayoutReport {
    text: String,
    fields: Vec<FieldFacts>,
    epoch: Moment,
    tick: String,
    years: String,
    ends: Moment,
    has_ended: bool,
    regions: Digits,
    workers_per_region: Digits,
    ids_per_tick: Digits,
    ids_per_second: Option<String>,
    /// Why nobody can mint by it; `None` where a generator can.
    not_minted: Option<String>,
    facts: Vec<Fact>,
    passes: bool,
    margins: Vec<MarginFacts>,
    exports: Vec<Export>,
}

/// Something to know, good or not.
#[derive(Serialize)]
struct Fact {
    name: &'static str,
    is_good: bool,
    text: String,
}

#[derive(Serialize)]
struct MarginFacts {
    need: &'static str,
    role: &'static str,
    passes: bool,
    text: String,
    spare: Option<String>,
    fix: Option<Fix>,
}

/// The cheapest way to meet a requirement.
#[derive(Serialize)]
struct Fix {
    text: String,
    /// The layout after it; `None` where only asking for less helps.
    layout: Option<String>,
}

#[derive(Serialize)]
struct Export {
    name: &'static str,
    text: String,
}

/// What can be said of a layout, given by a scheme's name or its canonical text, and of what is asked of it.
#[wasm_bindgen]
pub fn layout(name: &str, years: u32, regions: u32, workers: u32, burst: u32, now_ms: u64) -> String {
    let needs = Requirements { years, regions, workers_per_region: workers, burst_per_ms: burst };
    answer(find_layout(name).map(|layout| report(&layout, &needs, now_ms)))
}

fn report(layout: &Layout, needs: &Requirements, now_ms: u64) -> LayoutReport {
    let ends = layout.time_of_tick(layout.last_tick());
    let check = needs.check(layout);
    let per_second = (u128::from(layout.ids_per_tick()) * 1_000 * u128::from(NS_PER_MS))
        .checked_div(u128::from(layout.tick_ns()));
    LayoutReport {
        text: layout.to_string(),
        fields: field_facts(layout),
        epoch: Moment::of_ms(layout.epoch_unix_ms()),
        tick: tick_text(layout.tick_ns()),
        years: years(layout),
        has_ended: ends.unix_ms() < now_ms,
        ends: Moment::of(ends, layout.time_digits()),
        regions: Digits(layout.regions()),
        workers_per_region: Digits(layout.workers_per_region()),
        ids_per_tick: Digits(layout.ids_per_tick()),
        ids_per_second: per_second.map(|count| count.to_string()),
        not_minted: layout.check_mints().err().map(|error| error.to_string()),
        facts: facts(layout),
        passes: check.passes(),
        margins: check.margins().iter().map(|margin| margin_facts(margin, layout, needs)).collect(),
        exports: vec![
            Export { name: "TOML", text: toml(layout) },
            Export { name: "Rust", text: rust(layout) },
            Export { name: "Mermaid", text: mermaid(layout) },
        ],
    }
}

/// Years from the epoch to the end, to the nearest tenth.
fn years(layout: &Layout) -> String {
    let lifetime_ms = u128::from(layout.last_tick()) * u128::from(layout.tick_ns()) / u128::from(NS_PER_MS);
    let tenths = (lifetime_ms * 10 + u128::from(MS_PER_YEAR) / 2) / u128::from(MS_PER_YEAR);
    format!("{}.{}", tenths / 10, tenths % 10)
}

fn facts(layout: &Layout) -> Vec<Fact> {
    let places = field_facts(layout);
    let time_low =
        places.iter().find(|place| place.role == Role::Timestamp.name()).map_or(0, |place| place.low);
    let is_positive = places.first().is_some_and(|place| place.role == Role::Reserved.name());
    let order = if layout.is_time_first() {
        let below: Vec<&str> =
            places.iter().filter(|place| place.low < time_low).map(|place| place.name.as_str()).collect();
        format!("by time, then {}", if below.is_empty() { "nothing".to_owned() } else { below.join(", ") })
    } else {
        let first = places.iter().find(|place| place.role != Role::Reserved.name());
        let name = first.map_or("other", |place| place.name.as_str());
        format!("by {name} first, by time only within one {name}: no range query finds the rows of a time")
    };
    // The first tick whose IDs JavaScript's numbers cannot all hold.
    let unsafe_tick = DOUBLE_END >> time_low.min(63);
    let javascript = if !layout.is_time_first() {
        String::from("numbers above 2^53 occur at once: send IDs as strings")
    } else if unsafe_tick > layout.last_tick() {
        String::from("every ID is below 2^53: JavaScript's numbers hold them exactly")
    } else {
        let from = layout.time_of_tick(unsafe_tick);
        format!("IDs exceed 2^53 from {} on: send them as strings", from.text(0))
    };
    vec![
        Fact { name: "Sort order", is_good: layout.is_time_first(), text: order },
        Fact {
            name: "In JavaScript",
            is_good: layout.is_time_first() && unsafe_tick > layout.last_tick(),
            text: javascript,
        },
        Fact {
            name: "In signed columns",
            is_good: is_positive,
            text: String::from(if is_positive {
                "the top bit stays 0: every ID is a positive BIGINT"
            } else {
                "the top bit is used: signed columns show the highest IDs as negative, and sort them first"
            }),
        },
    ]
}

fn margin_facts(margin: &Margin, layout: &Layout, needs: &Requirements) -> MarginFacts {
    let passes = margin.passes();
    let spare = (u128::from(margin.holds) * 100).checked_div(u128::from(margin.asked));
    MarginFacts {
        need: margin.need.name(),
        role: margin.need.role().name(),
        passes,
        text: margin.to_string(),
        spare: spare.filter(|_| passes).map(|percent| format!("{} % to spare", percent - 100)),
        fix: (!passes).then(|| fix(margin.need, layout, needs)),
    }
}

/// The cheapest way to meet a need: bits for its field, from the field that has most to spare and still meets its own;
/// else what has to be given up.
fn fix(need: Need, layout: &Layout, needs: &Requirements) -> Fix {
    let meets = |layout: &Layout, need: Need| {
        needs.check(layout).margins().iter().any(|margin| margin.need == need && margin.passes())
    };
    let mut best: Option<(u128, Fix)> = None;
    for bits in 1..=16_u32 {
        for donor in layout.fields() {
            if donor.role() == need.role() || donor.bits() < bits {
                continue;
            }
            let Some(moved) = with_moved(layout, donor, need.role(), bits) else { continue };
            // A reserved top bit keeps IDs positive; only what is reserved beyond it is free.
            let keeps_sign = moved.fields().first().map(|field| field.role() == Role::Reserved)
                == layout.fields().first().map(|field| field.role() == Role::Reserved);
            let before = needs.check(layout);
            let loses = before.margins().iter().any(|margin| margin.passes() && !meets(&moved, margin.need));
            if !keeps_sign || loses || moved.check_mints().is_err() || !meets(&moved, need) {
                continue;
            }
            let left = spare_of(donor.role(), &moved, needs);
            if best.as_ref().is_none_or(|(most, _)| left > *most) {
                let plural = if bits == 1 { "bit" } else { "bits" };
                let text = format!(
                    "give {} {bits} {plural} of {}, which has them to spare",
                    need.role().name(),
                    donor.name()
                );
                best = Some((left, Fix { text, layout: Some(moved.to_string()) }));
            }
        }
        if let Some((_, fix)) = best {
            return fix;
        }
    }
    let text = match needs.derive(layout.epoch_unix_ms()) {
        Ok(derived) => {
            return Fix {
                text: String::from("derive a layout from the requirements: one holds them all"),
                layout: Some(derived.layout.to_string()),
            };
        }
        Err(RequirementsError::Over(shortfall)) => match shortfall.ways().next() {
            Some(way) => format!("no field has a bit to give: make do with {way}"),
            None => String::from("no field has a bit to give: lower several requirements"),
        },
        Err(error) => error.to_string(),
    };
    Fix { text, layout: None }
}

/// How much more a field holds than is asked of it, in per cent; fields that nothing is asked of are free to give.
fn spare_of(role: Role, layout: &Layout, needs: &Requirements) -> u128 {
    let check = needs.check(layout);
    let margin = check.margins().iter().find(|margin| margin.need.role() == role);
    margin.map_or(u128::MAX, |margin| u128::from(margin.holds) * 100 / u128::from(margin.asked.max(1)))
}

/// The layout with bits moved from one field to the field of a role, which is added where it is missing.
fn with_moved(layout: &Layout, donor: &Field, to: Role, bits: u32) -> Option<Layout> {
    let mut fields: Vec<Field> = Vec::new();
    let mut is_given = false;
    let mut is_taken = false;
    for field in layout.fields() {
        let mut width = field.bits();
        if field == donor && !is_taken {
            width -= bits;
            is_taken = true;
        } else if field.role() == to && !is_given {
            width += bits;
            is_given = true;
        }
        if width > 0 {
            fields.push(Field::named(field.role(), u8::try_from(width).ok()?, field.name()).ok()?);
        }
    }
    if !is_given {
        // Where it belongs in our own layouts: the region before the worker, both before the sequence.
        let after = fields.iter().position(|field| field.role() == Role::Timestamp)? + 1;
        let place = match to {
            Role::Worker => {
                fields.iter().position(|field| field.role() == Role::Region).map_or(after, |at| at + 1)
            }
            _ => after,
        };
        fields.insert(place, Field::new(to, u8::try_from(bits).ok()?));
    }
    Layout::for_decoding(&fields, layout.epoch_unix_ms(), layout.tick_ns()).ok()
}

/// A layout for what is needed, from an epoch in Unix milliseconds; or why there is none, and what could give.
#[wasm_bindgen]
pub fn derive(years: u32, regions: u32, workers: u32, burst: u32, epoch_unix_ms: u64) -> String {
    #[derive(Serialize)]
    struct Derived {
        layout: String,
        spare_bits: u32,
    }
    let needs = Requirements { years, regions, workers_per_region: workers, burst_per_ms: burst };
    let derived = needs.derive(epoch_unix_ms).map_err(|error| error.to_string());
    answer(
        derived.map(|derived| Derived { layout: derived.layout.to_string(), spare_bits: derived.spare_bits }),
    )
}

/// What changing a layout would do to IDs that exist, and the plan to do it right.
#[wasm_bindgen]
pub fn change(old: &str, new: &str, cutover: &str, now_ms: u64) -> String {
    #[derive(Serialize)]
    struct Change {
        is_same: bool,
        /// An ID that the old layout makes now, read by both.
        example: Option<Example>,
        plan: Option<Plan>,
        /// Why no plan can be promised.
        no_plan: Option<String>,
    }
    answer((|| {
        let (old, new) = (find_layout(old)?, find_layout(new)?);
        let time = UnixTime::parse(cutover.trim().as_bytes()).map_err(|error| error.to_string())?;
        let plan = CutoverPlan::new(&old, &new, time.unix_ms(), now_ms);
        Ok(Change {
            is_same: old == new,
            example: example(&old, &new, now_ms),
            no_plan: plan.as_ref().err().map(ToString::to_string),
            plan: plan.ok().and_then(|plan| plan_facts(&old, &plan)),
        })
    })())
}

#[derive(Serialize)]
struct Example {
    id: Digits,
    old: Vec<(String, String)>,
    new: Vec<(String, String)>,
}

fn example(old: &Layout, new: &Layout, now_ms: u64) -> Option<Example> {
    let ids = old.ids_at(UnixTime::from_unix_ms(now_ms)).ok()?;
    // Something in every field, so that what moves is seen.
    let variable = ids.last.get() - ids.first.get();
    let id = Id::new(ids.first.get() | (variable & 0x0005_a5a5_a5a5_a5a5));
    let read = |layout: &Layout| {
        let values = layout.values(id).map(|(field, value)| match field.role() {
            Role::Timestamp => (field.name().to_owned(), layout.time_text(id).as_str().to_owned()),
            _ => (field.name().to_owned(), value.to_string()),
        });
        values.collect()
    };
    Some(Example { id: Digits(id.get()), old: read(old), new: read(new) })
}

#[derive(Serialize)]
struct Plan {
    old_last: Moment,
    old_last_id: Digits,
    new_first: Moment,
    new_first_id: Digits,
    /// A file that reads IDs of both.
    history: String,
}

fn plan_facts(old: &Layout, plan: &CutoverPlan) -> Option<Plan> {
    let history = FormatHistory::new(*old).after(plan).ok()?;
    Some(Plan {
        old_last: Moment::of_ms(plan.old_last_ms()),
        old_last_id: Digits(plan.old_last_id().get()),
        new_first: Moment::of_ms(plan.new_first_ms()),
        new_first_id: Digits(plan.new_first_id().get()),
        history: format!("# Reads IDs of every layout so far.\nhistory = \"{history}\"\n"),
    })
}

/// Whether a field bears another name than its role's.
fn has_name(field: &Field) -> bool {
    field.name() != field.role().name()
}

/// The layout as a file that the command's `--layout` reads. Names are `a-z`, `0-9` and `_`: nothing to quote.
fn toml(layout: &Layout) -> String {
    let mut text =
        format!("epoch_unix_ms = {}\ntick_ns = {}\nfields = [\n", layout.epoch_unix_ms(), layout.tick_ns());
    for field in layout.fields() {
        let name = if has_name(field) { format!(", name = \"{}\"", field.name()) } else { String::new() };
        let _ =
            writeln!(text, "    {{ role = \"{}\", bits = {}{name} }},", field.role().name(), field.bits());
    }
    text + "]\n"
}

fn rust(layout: &Layout) -> String {
    let mut fields = String::new();
    for field in layout.fields() {
        let (role, bits) = (rust_role(field.role()), field.bits());
        let _ = if has_name(field) {
            writeln!(fields, "    Field::named(Role::{role}, {bits}, \"{}\")?,", field.name())
        } else {
            writeln!(fields, "    Field::new(Role::{role}, {bits}),")
        };
    }
    let constructor = if layout.check_mints().is_ok() { "new" } else { "for_decoding" };
    let epoch = UnixTime::from_unix_ms(layout.epoch_unix_ms());
    format!(
        "use snowmint_core::{{Field, Layout, Role}};\n\nlet fields = [\n{fields}];\n\
         let epoch_unix_ms = {}; // {epoch}\nlet tick_ns = {}; // {}\n\
         let layout = Layout::{constructor}(&fields, epoch_unix_ms, tick_ns)?;\n",
        rust_number(layout.epoch_unix_ms()),
        rust_number(layout.tick_ns()),
        tick_text(layout.tick_ns())
    )
}

/// A packet diagram of Mermaid, which counts bits from the left.
fn mermaid(layout: &Layout) -> String {
    let mut text = String::from("packet-beta\n");
    for place in field_facts(layout) {
        let (from, to) = (63 - place.high, 63 - place.low);
        let span = if from == to { from.to_string() } else { format!("{from}-{to}") };
        let _ = writeln!(text, "{span}: \"{}\"", place.name);
    }
    text
}

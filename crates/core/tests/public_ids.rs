//! The catalogue against the public record: every scheme field by field, every published ID to the millisecond
//! (F17: a decoder's epoch was wrong by months).
//!
//! `data/layouts.json` and `data/ids.json` were collected from the schemes' own documentation and code, and from
//! published pairs of ID and time; each row names its source.

// Helpers of tests, which clippy does not take for tests.
#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::Value;
use snowmint_core::{Id, Layout, Ranking, Scheme, TextForm, UnixTime, Verdict, Warning};

fn layouts() -> Value {
    serde_json::from_str(include_str!("data/layouts.json")).unwrap()
}

fn ids() -> Vec<Value> {
    serde_json::from_str(include_str!("data/ids.json")).unwrap()
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_else(|| panic!("{key} of {row}"))
}

fn id(row: &Value) -> Id {
    TextForm::Decimal.parse(text(row, "id").as_bytes()).unwrap()
}

/// Nothing is missing from the catalogue, nothing is in it without a record, and every fact is the record's.
#[test]
fn f17_every_scheme_is_as_recorded() {
    let record = layouts();
    let record = record.as_object().unwrap();
    assert_eq!(record.len(), 37);
    for (name, row) in record {
        let scheme = Scheme::named(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(scheme.layout.epoch_unix_ms(), row["epoch_unix_ms"].as_u64().unwrap(), "{name}");
        assert_eq!(scheme.layout.tick_ns(), row["unit_ns"].as_u64().unwrap(), "{name}");
        assert_eq!(scheme.source, text(row, "source"), "{name}");
        let fields: Vec<(&str, u64)> =
            scheme.layout.fields().iter().map(|field| (field.name(), field.bits().into())).collect();
        let recorded: Vec<(&str, u64)> = row["fields_msb_first"]
            .as_array()
            .unwrap()
            .iter()
            .map(|field| (field[0].as_str().unwrap(), field[1].as_u64().unwrap()))
            .collect();
        assert_eq!(fields, recorded, "{name}");
    }
    for scheme in Scheme::all() {
        let is_preset = Layout::preset(scheme.name).is_some_and(|preset| preset == scheme.layout);
        assert!(is_preset || record.contains_key(scheme.name), "{} is not on record", scheme.name);
    }
}

/// Every published ID has the time that its own source gives, the fields that it gives, and the text.
#[test]
fn f17_every_published_id_is_read_to_the_millisecond() {
    let rows = ids();
    assert_eq!(rows.len(), 24);
    for row in &rows {
        let scheme = Scheme::named(text(row, "scheme")).unwrap();
        let id = id(row);

        let expected = UnixTime::parse(text(row, "expect_utc").as_bytes()).unwrap();
        let tolerance_ms = row["tolerance_ms"].as_u64().unwrap();
        let off_ms = scheme.layout.time_of(id).unix_ms().abs_diff(expected.unix_ms());
        assert!(off_ms <= tolerance_ms, "{row}: off by {off_ms} ms");

        for (name, value) in row["fields"].as_object().unwrap() {
            let read = scheme.layout.values(id).find(|(field, _)| field.name() == name);
            assert_eq!(read.map(|(_, value)| value.to_string()).as_deref(), value.as_str(), "{row}: {name}");
        }
        assert_eq!(scheme.layout.values(id).count(), row["fields"].as_object().unwrap().len());

        if let Some(published) = row["text"].as_str() {
            let form = scheme.form.unwrap_or_else(|| panic!("{row}: no form"));
            assert_eq!(form.parse(published.as_bytes()), Ok(id), "{row}");
            assert_eq!(scheme.text(id).as_str(), published, "{row}");
        }
    }
}

/// F18 over every scheme: each published ID lies within the IDs of its own time, and where the scheme says that a
/// range query works, the neighbouring ticks lie outside.
#[test]
fn f18_every_published_id_lies_in_its_range() {
    for row in &ids() {
        let layout = &Scheme::named(text(row, "scheme")).unwrap().layout;
        let id = id(row);
        let ids = layout.ids_at(layout.time_of(id)).unwrap();
        assert!(ids.first <= id && id <= ids.last, "{row}");
        if ids.is_range {
            assert!(layout.time_of(Id::new(ids.last.get() + 1)) > layout.time_of(id), "{row}");
            assert!(layout.time_of(Id::new(ids.first.get() - 1)) < layout.time_of(id), "{row}");
        }
    }
    for (name, is_range) in
        [("seata", false), ("mysql_uuid_short", false), ("sharded", false), ("twitter", true)]
    {
        assert_eq!(Scheme::named(name).unwrap().layout.is_time_first(), is_range, "{name}");
    }
}

/// `CockroachDB` makes `(time << 15) ^ node`. For nodes below 2^15 that is the plain field, and decoding undoes it;
/// a greater node flips bits of the time, which the scheme's caution says.
#[test]
fn cockroach_xors_the_node() {
    let scheme = Scheme::named("cockroach_unique_rowid").unwrap();
    let check = |time: u64, node: u64, read_time: u64, read_node: u64| {
        let parts = scheme.layout.decode(Id::new((time << 15) ^ node));
        assert_eq!((parts.tick, parts.worker), (read_time, read_node));
    };
    check(4_536_651_441_104, 1, 4_536_651_441_104, 1);
    check(4_536_651_441_104, 32_767, 4_536_651_441_104, 32_767);
    check(4_536_651_441_104, 32_768, 4_536_651_441_105, 0);
    assert!(scheme.caution.is_some());
}

/// The scheme of every published ID is among the first three candidates, read as a number and as its own text; and
/// where others explain it about as well, the ranking says that it cannot tell.
#[test]
fn every_published_id_ranks_among_the_first_three() {
    // Days on which the catalogue must hold. Later ones need its weights looked at again: the longer a scheme exists,
    // the more numbers it explains.
    for now in ["2026-12-01", "2027-03-01"] {
        let now_ms = UnixTime::parse(now.as_bytes()).unwrap().unix_ms();
        for row in &ids() {
            let name = text(row, "scheme");
            for written in [row["id"].as_str(), row["text"].as_str()].into_iter().flatten() {
                let ranking = Ranking::of_text(written.as_bytes(), now_ms).unwrap();
                let found = ranking.candidates().position(|candidate| candidate.scheme.name == name);
                let named: Vec<_> = ranking
                    .candidates()
                    .map(|candidate| (candidate.scheme.name, candidate.saved_bits()))
                    .collect();
                assert!(found.is_some_and(|at| at < 3), "{now} {name} {written}: {named:?}");
                assert_ne!(ranking.verdict(), Verdict::Implausible, "{now} {name} {written}: {named:?}");
                assert!(
                    ranking.verdict() != Verdict::Likely || found == Some(0),
                    "{name} {written}: {named:?}"
                );
            }
        }
    }
}

/// No published ID is called rounded (F8 has no false alarm here), in the future, or not of its scheme.
#[test]
fn f8_published_ids_raise_no_false_alarm() {
    let now_ms = UnixTime::parse(b"2026-12-01").unwrap().unix_ms();
    for row in &ids() {
        let scheme = Scheme::named(text(row, "scheme")).unwrap();
        for warning in scheme.warnings(id(row), now_ms) {
            assert!(matches!(warning, Warning::Special(_) | Warning::Observed), "{row}: {warning}");
        }
    }
}

//! What the page is told, without a browser: by core's own vectors, and by whatever a visitor may paste.

#![cfg(all(feature = "read", feature = "simulate"))]

use proptest::prelude::*;
use serde_json::Value;
use snowmint_core::{Field, Layout, Role, Scheme};
use snowmint_playground::{
    Batch, Lanes, at, change, decode, derive, difference, faults, flip, layout, schemes,
};

/// 2026-12-01.
const NOW_MS: u64 = 1_796_083_200_000;

fn ask(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn rows(text: &str, reader: &str) -> Vec<Value> {
    let mut batch = Batch::new(text.to_owned(), reader, NOW_MS);
    let mut rows = Vec::new();
    loop {
        let taken = ask(&batch.take(3));
        rows.extend(taken["rows"].as_array().unwrap().iter().cloned());
        if taken["done"] == true {
            return rows;
        }
    }
}

/// Every published ID is read by its scheme to its fields, and no number is JSON's: JavaScript would round it.
#[test]
fn vectors() {
    let vectors = ask(include_str!("../../core/tests/data/ids.json"));
    for vector in vectors.as_array().unwrap() {
        let text = vector["text"].as_str().or(vector["id"].as_str()).unwrap();
        let report = ask(&decode(text, vector["scheme"].as_str().unwrap(), NOW_MS));
        assert_eq!(report["id"], vector["id"], "{text}");
        for field in report["fields"].as_array().unwrap() {
            if let Some(expected) = vector["fields"].get(field["name"].as_str().unwrap()) {
                assert_eq!(&field["value"], expected, "{text}");
            }
        }
        let candidates = report["candidates"].as_array().unwrap();
        assert_eq!(candidates.len(), Scheme::all().len(), "{text}: every scheme is told");
        assert!(report["time"]["arithmetic"].as_array().unwrap().len() >= 3, "{text}");
    }
}

/// By hand means that the numbers add up: the last line is the time, in the unit of the ticks.
#[test]
fn arithmetic() {
    let check = |text: &str, scheme: &str, lines: &[&str]| {
        assert_eq!(ask(&decode(text, scheme, NOW_MS))["time"]["arithmetic"], serde_json::json!(lines));
    };
    check(
        "1205161015177961473",
        "twitter",
        &[
            "(id >> 22) & 2199023255551 = 287332776827",
            "287332776827 + 1288834974657 = 1576167751484 ms since 1970",
            "= 2019-12-12T16:22:31.484Z",
        ],
    );
    check(
        "314948827708654619",
        "sonyflake_v1",
        &[
            "(id >> 24) & 549755813887 = 18772412998",
            "18772412998 × 10 ms = 187724129980 ms",
            "187724129980 + 1409529600000 = 1597253729980 ms since 1970",
            "= 2020-08-12T17:35:29.98Z",
        ],
    );
}

/// What is found in what people paste, and what is not.
#[test]
fn pasted() {
    let check = |text: &str, expected: &[&str]| {
        let found: Vec<_> = rows(text, "auto")
            .iter()
            .filter(|row| row["error"].is_null())
            .map(|row| row["text"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(found, expected, "{text}");
    };
    check("1205161015177961473", &["1205161015177961473"]);
    check("  \"1205161015177961473\",\r\n", &["1205161015177961473"]);
    check("https://x.com/a/status/1205161015177961473?s=20", &["1205161015177961473"]);
    check("https://www.instagram.com/p/C3xkq1-Mx8F/", &["C3xkq1-Mx8F"]);
    check("www.instagram.com/p/C3xkq1-Mx8F/?img_index=1", &["C3xkq1-Mx8F"]);
    check("https://www.instagram.com/explore/", &[]);
    check("0.1205161015177961473", &[]);
    check(
        "a\n\nb 175928847299117063 c\n017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
        &["175928847299117063", "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"],
    );
    check("0J4AEXRN106Z0", &["0J4AEXRN106Z0"]);
    // A single line that is none is told why; of many, those without an ID are counted.
    assert!(rows("hello", "auto")[0]["error"].as_str().unwrap().contains("digits"));
    assert!(rows("hello\nthere", "auto").is_empty());
    assert_eq!(rows("1\n2\n3\n4\n5\n6\n7", "twitter").len(), 7);
}

/// The page's layout file is one that the command reads: the same keys, roles and numbers.
#[test]
fn exported_toml() {
    for scheme in Scheme::all() {
        let report = ask(&layout(scheme.name, 60, 4, 200, 3_000, NOW_MS));
        let text = report["exports"][0]["text"].as_str().unwrap();
        let file: toml::Table = text.parse().unwrap();
        let number = |value: &toml::Value| u64::try_from(value.as_integer().unwrap()).unwrap();
        let fields: Vec<Field> = file["fields"]
            .as_array()
            .unwrap()
            .iter()
            .map(|field| {
                let role = Role::from_name(field["role"].as_str().unwrap()).unwrap();
                let bits = u8::try_from(number(&field["bits"])).unwrap();
                let name = field.get("name").map_or(role.name(), |name| name.as_str().unwrap());
                Field::named(role, bits, name).unwrap()
            })
            .collect();
        let read = Layout::for_decoding(&fields, number(&file["epoch_unix_ms"]), number(&file["tick_ns"]));
        assert_eq!(read, Ok(scheme.layout), "{}", scheme.name);
    }
}

/// A fix that is offered mends what it is offered for, and breaks nothing that passed.
#[test]
fn fixes_mend() {
    let mut fixed = 0;
    for (timestamp, region, worker) in
        [(41, 2, 8), (39, 2, 8), (43, 1, 7), (41, 4, 6), (45, 2, 4), (37, 5, 9)]
    {
        let sequence = 63 - timestamp - region - worker;
        let text = format!(
            "reserved:1 timestamp:{timestamp} region:{region} worker:{worker} sequence:{sequence} \
             epoch-ms:1735689600000 tick-ns:1000000"
        );
        for (years, workers, burst) in [(60, 200, 3_000), (30, 300, 3_000), (15, 200, 500), (10, 900, 64)] {
            let report = ask(&layout(&text, years, 4, workers, burst, NOW_MS));
            let margins = report["margins"].as_array().unwrap();
            for (nth, margin) in margins.iter().enumerate().filter(|(_, margin)| margin["passes"] == false) {
                assert!(margin["fix"]["text"].is_string(), "{text}: {margin}");
                let Some(offered) = margin["fix"]["layout"].as_str() else { continue };
                let after = ask(&layout(offered, years, 4, workers, burst, NOW_MS));
                assert_eq!(after["margins"][nth]["passes"], true, "{text} to {offered}");
                for (before, after) in margins.iter().zip(after["margins"].as_array().unwrap()) {
                    assert!(before["passes"] == false || after["passes"] == true, "{text} to {offered}");
                }
                fixed += 1;
            }
        }
    }
    assert!(fixed > 10, "{fixed}");
}

/// The same rules as core's, said in the page's words.
#[test]
fn answers() {
    let ids = ask(&at("2019-12-12T16:22:31.484Z", "twitter"));
    assert_eq!((&ids["first"], &ids["last"]), (&"1205161015176593408".into(), &"1205161015180787711".into()));
    let apart = ask(&difference("1205161015177961473", "1593572310593806338", "twitter", NOW_MS));
    assert_eq!(
        (&apart["span"], &apart["ticks"]),
        (&"1071 d 19 h 27 min 49.160 s".into(), &"92604469160".into())
    );
    assert_eq!(flip(0, 63), 1 << 63);
    assert_eq!(flip(flip(77, 5), 5), 77);
    assert_eq!(flip(77, 64), 77);
    assert_eq!(ask(&schemes()).as_array().unwrap().len(), Scheme::all().len());
    assert_eq!(ask(&derive(60, 4, 200, 3_000, 1_735_689_600_000))["layout"], Layout::SNOWMINT.to_string());
    assert!(ask(&derive(60, 4, 300, 3_000, 0))["error"].as_str().unwrap().contains("1 bit over"));
    let wider =
        "reserved:1 timestamp:41 region:3 worker:9 sequence:10 epoch-ms:1735689600000 tick-ns:1000000";
    let planned = ask(&change("snowmint", wider, "2030-01-01", NOW_MS));
    assert_eq!(planned["plan"]["new_first"]["utc"], "2030-01-01T00:00:00.000Z");
    assert_ne!(planned["example"]["old"], planned["example"]["new"]);
    assert!(ask(&change("snowmint", "sharded", "2030-01-01", NOW_MS))["no_plan"].is_string());
}

/// Time cut up otherwise is the same world, and an unknown fault is none.
#[test]
fn lanes() {
    let run = |step_us: u32| {
        let mut lanes = Lanes::new(u64::MAX);
        for _ in 0..2_000_000 / step_us {
            lanes.advance(step_us);
        }
        assert!(lanes.inject("back-5", 0) && !lanes.inject("nothing", 0));
        for _ in 0..1_000_000 / step_us {
            lanes.advance(step_us);
        }
        ask(&lanes.state())
    };
    assert_eq!(run(500), run(100_000));
    assert_eq!(run(500)["duplicates"], "0");
    assert_eq!(ask(&faults())["faults"].as_array().unwrap().len(), 11);
}

proptest! {
    /// Whatever is pasted or put into an address is answered in JSON, never with a panic.
    #[test]
    fn hostile(text in "(?s).{0,60}", reader in "(auto|twitter|[a-z0-9:/ -]{0,40})", now_ms in any::<u64>(), small in any::<u32>()) {
        for answer in [
            decode(&text, &reader, now_ms),
            difference(&text, &reader, &reader, now_ms),
            at(&text, "twitter"),
            at("2026-01-01", &text),
            layout(&text, small, 1, small, 1, now_ms),
            layout("sonyflake_v1", small, small, small, small, now_ms),
            change("snowmint", &text, "2030-01-01", now_ms),
            change("hybrid", "snowmint", &text, now_ms),
            derive(small, small, 1, small, now_ms),
        ] {
            prop_assert!(serde_json::from_str::<Value>(&answer).is_ok());
        }
        for row in rows(&text, &reader) {
            prop_assert!(row["error"].is_string() || row["text"].is_string());
        }
    }

    /// Any 64 bits have a reading by every scheme, and its fields are the ID.
    #[test]
    fn any_bits(id in any::<u64>(), nth in 0..Scheme::all().len()) {
        let scheme = &Scheme::all()[nth];
        let report = ask(&decode(&id.to_string(), scheme.name, NOW_MS));
        let joined = report["fields"].as_array().unwrap().iter().fold(0_u64, |joined, field| {
            let value: u64 = field["value"].as_str().unwrap().parse().unwrap();
            joined | value << field["low"].as_u64().unwrap()
        });
        prop_assert_eq!(joined, id);
    }
}

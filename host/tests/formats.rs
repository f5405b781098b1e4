//! Formats by every face: one table of published IDs through core, the command line and the component; hostile text;
//! layouts derived, shown and changed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};
use std::sync::{LazyLock, Mutex};

use serde_json::Value;
use snowmint::{CodecError, Engine, Instance, InstanceError, TextError, TextFault};
use snowmint_core::{
    CutoverPlan, Field, FieldError, FormatHistory, Id, Layout, LayoutError, MintError, Node, ParseErrorKind,
    Policy, Refusal, Role, Scheme, TextForm, TickError, UnixTime,
};
use snowmint_lease::protocol::{Bid, Holder, Now, acquire, renew};
use snowmint_lease::{ClusterRecord, CodeRecord, Owner};

#[allow(dead_code)] // The rest is for the tests of the generator.
#[path = "../../crates/core/tests/cases/mod.rs"]
mod table;

use table::World;

/// One engine for all tests of this file: compiling the component takes a debug build a second and more.
static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::new(None).unwrap());

/// An instance that was never started: the codec needs no grant.
static CODEC: LazyLock<Mutex<Instance>> =
    LazyLock::new(|| Mutex::new(ENGINE.instantiate(Box::new(World::new(Node::new(0, 0), 0))).unwrap()));

fn codec<T>(call: impl FnOnce(&mut Instance) -> T) -> T {
    call(&mut CODEC.lock().unwrap())
}

fn core<T, E: std::fmt::Debug>(result: Result<T, InstanceError<E>>) -> Result<T, E> {
    result.map_err(|error| match error {
        InstanceError::Core(error) => error,
        other => panic!("not one of core's errors: {other:?}"),
    })
}

/// The command with these arguments and nothing of the environment that it would read.
fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_snowmint"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SNOWMINT_") {
            command.env_remove(name);
        }
    }
    command.args(args);
    command
}

/// What a run of the command came to.
struct Run {
    code: i32,
    out: String,
    err: String,
}

impl Run {
    fn of(output: Output) -> Self {
        let err = String::from_utf8(output.stderr).expect("errors are UTF-8 whatever the input is");
        let is_raw =
            |char: char| (char.is_control() && char != '\n') || ('\u{200b}'..='\u{206f}').contains(&char);
        assert!(!err.contains(is_raw), "no raw control character reaches a terminal: {err:?}");
        let out = String::from_utf8(output.stdout).unwrap();
        assert!(!out.contains(is_raw), "{out:?}");
        assert!(!err.contains("panicked"), "{err}");
        Self { code: output.status.code().expect("not killed"), out, err }
    }

    fn json(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn run(args: &[&str]) -> Run {
    Run::of(command(args).stdin(Stdio::null()).output().unwrap())
}

/// Runs with an input, which is written while the output is read.
fn pipe(args: &[&str], input: &[u8]) -> Run {
    let mut child =
        command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input));
        Run::of(child.wait_with_output().unwrap())
    })
}

fn rows() -> Vec<Value> {
    serde_json::from_str(include_str!("../../crates/core/tests/data/ids.json")).unwrap()
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_else(|| panic!("{key} of {row}"))
}

fn scheme(row: &Value) -> &'static Scheme {
    Scheme::named(text(row, "scheme")).unwrap()
}

/// What a face says of an ID: Unix milliseconds, and the values of the fields as decimal text, in order.
#[derive(Debug, PartialEq)]
struct Reading {
    unix_ms: u64,
    fields: Vec<(String, String)>,
}

fn named<'a>(layout: &'a Layout, values: impl Iterator<Item = u64> + 'a) -> Vec<(String, String)> {
    layout
        .fields()
        .iter()
        .zip(values)
        .map(|(field, value)| (field.name().to_owned(), value.to_string()))
        .collect()
}

fn by_core(scheme: &Scheme, id: Id) -> Reading {
    let layout = &scheme.layout;
    let fields = named(layout, layout.values(id).map(|(_, value)| value));
    Reading { unix_ms: layout.time_of(id).unix_ms(), fields }
}

fn by_component(scheme: &Scheme, id: Id) -> Reading {
    let reading = core(codec(|codec| codec.decode(&scheme.layout, id))).unwrap();
    assert_eq!(core(codec(|codec| codec.compose(&scheme.layout, &reading.values))), Ok(id));
    Reading { unix_ms: reading.time.unix_ms(), fields: named(&scheme.layout, reading.values.into_iter()) }
}

fn by_command(scheme: &Scheme, id: Id) -> Reading {
    let run = run(&["decode", "--layout", scheme.name, "--json", &id.to_string()]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    let [object] = run.json().try_into().unwrap();
    assert_eq!(text(&object, "id"), id.to_string());
    assert_eq!(text(&object, "layout"), scheme.name);
    let time = UnixTime::parse(text(&object, "time").as_bytes()).unwrap();
    assert_eq!(time, scheme.layout.time_of(id), "to the layout's own precision");
    let fields = object["fields"].as_object().unwrap().iter().map(|(name, value)| {
        // Numbers below 2^53, strings above.
        let value = value.as_u64().map_or_else(
            || text(&object["fields"], name).to_owned(),
            |value| {
                assert!(value < 1 << 53);
                value.to_string()
            },
        );
        (name.clone(), value)
    });
    Reading { unix_ms: object["unix_ms"].as_u64().unwrap(), fields: fields.collect() }
}

/// F17, F8: every published ID, to the millisecond and field by field, through core, the component and the command.
#[test]
fn f17_one_table_three_faces() {
    let rows = rows();
    assert_eq!(rows.len(), 24);
    for row in &rows {
        let scheme = scheme(row);
        let id = TextForm::Decimal.parse(text(row, "id").as_bytes()).unwrap();
        let expected_ms = UnixTime::parse(text(row, "expect_utc").as_bytes()).unwrap().unix_ms();
        for face in [by_core, by_component, by_command] {
            let reading = face(scheme, id);
            let off_ms = reading.unix_ms.abs_diff(expected_ms);
            assert!(off_ms <= row["tolerance_ms"].as_u64().unwrap(), "{row}: off by {off_ms} ms");
            let expected = row["fields"].as_object().unwrap();
            assert_eq!(reading.fields.len(), expected.len());
            for (name, value) in &reading.fields {
                assert_eq!(Some(value.as_str()), expected[name].as_str(), "{row}: {name}");
            }
            assert_eq!(reading, by_core(scheme, id));
        }
        if let Some(published) = row["text"].as_str() {
            let run = run(&["decode", "--layout", scheme.name, "--json", published]);
            assert_eq!(text(&run.json()[0], "id"), text(row, "id"), "{published}");
        }
    }
}

/// `auto` puts the row's scheme among its first three, and says when it cannot tell; as a number and as its own text.
#[test]
fn auto_names_the_scheme_or_says_that_it_cannot_tell() {
    let mut input = String::new();
    let mut names = Vec::new();
    for row in &rows() {
        for written in [row["id"].as_str(), row["text"].as_str()].into_iter().flatten() {
            input.push_str(written);
            input.push('\n');
            names.push(text(row, "scheme").to_owned());
        }
    }
    let run = pipe(&["decode", "--json"], input.as_bytes());
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    let objects = run.json();
    assert_eq!(objects.len(), names.len());
    for (object, name) in objects.iter().zip(&names) {
        let candidates: Vec<_> = object["candidates"].as_array().unwrap().iter().map(Value::as_str).collect();
        let at = candidates.iter().position(|candidate| *candidate == Some(name.as_str()));
        assert!(at.is_some() && candidates.len() <= 3, "{name}: {object}");
        match text(object, "verdict") {
            "likely" => assert_eq!(at, Some(0), "{object}"),
            verdict => assert_eq!(verdict, "ambiguous", "{object}"),
        }
    }
    // To a reader it is said in words, with reasons.
    let run = self::run(&["decode", "175928847299117063"]);
    assert!(run.out.contains("it cannot be told which scheme made the ID"), "{}", run.out);
    assert!(run.out.contains("one ID in 8 is taken to be of this scheme"), "{}", run.out);
}

/// Random numbers are called implausible or ambiguous, and an implausible one is given no layout.
#[test]
fn random_numbers_are_not_guessed() {
    let mut state = 7_u64;
    let mut input = String::new();
    for _ in 0..2_000 {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        input.push_str(&format!("{}\n", mixed ^ (mixed >> 31)));
    }
    let run = pipe(&["decode", "--json"], input.as_bytes());
    let objects = run.json();
    assert_eq!((run.code, objects.len()), (0, 2_000));
    for object in &objects {
        match text(object, "verdict") {
            "implausible" => assert!(object["layout"].is_null() && object["time"].is_null(), "{object}"),
            verdict => assert_eq!(verdict, "ambiguous", "{object}"),
        }
    }
    assert!(objects.iter().any(|object| object["verdict"] == "implausible"));
}

/// The shape of a line of JSON, byte by byte.
#[test]
fn json_is_as_promised() {
    let run = run(&["decode", "--layout", "twitter", "--json", "1205161015177961473"]);
    assert_eq!(
        run.out,
        "{\"id\":\"1205161015177961473\",\"layout\":\"twitter\",\"time\":\"2019-12-12T16:22:31.484Z\",\
         \"unix_ms\":1576167751484,\"fields\":{\"reserved\":0,\"timestamp\":287332776827,\"datacenter\":10,\
         \"worker\":14,\"sequence\":1},\"warnings\":[]}\n"
    );
    // The precision is the layout's own: whole seconds, and microseconds.
    let time = |layout: &str, id: &str| {
        text(&self::run(&["decode", "--layout", layout, "--json", id]).json()[0], "time").to_owned()
    };
    assert_eq!(time("tiktok", "7206382937372134662"), "2023-03-03T18:06:17Z");
    assert!(time("atproto_tid", "3870172288071432645").ends_with('Z'));
    // A value of 2^53 or more is a string.
    let run = self::run(&["decode", "--layout", "yitter", "--json", "18446744073709551615"]);
    assert_eq!(run.json()[0]["fields"]["timestamp"], 4_503_599_627_370_495_u64);
    let directory = tempfile::tempdir().unwrap();
    let wide = directory.path().join("wide.toml");
    let fields = "[{ role = \"timestamp\", bits = 60 }, { role = \"reserved\", bits = 1 }, { role = \"other\", bits = 2 },\
                  { role = \"reserved\", bits = 1 }]";
    std::fs::write(&wide, format!("epoch_unix_ms = 0\ntick_ns = 1\nfields = {fields}\n")).unwrap();
    let run = self::run(&["decode", "--layout", wide.to_str().unwrap(), "--json", "18446744073709551615"]);
    let fields = &run.json()[0]["fields"];
    assert_eq!(fields["timestamp"], "1152921504606846975");
    assert_eq!((&fields["reserved"], &fields["reserved_2"]), (&1.into(), &1.into()), "no key stands twice");
}

/// F8: a rounded ID is called so; IDs are strings in every JSON that is emitted.
#[test]
fn f8_rounded_ids() {
    let run = run(&["decode", "--layout", "twitter", "--json", "1205161015177961500"]);
    let object = &run.json()[0];
    assert_eq!(text(object, "id"), "1205161015177961500");
    let warning = object["warnings"][0].as_str().unwrap();
    assert!(warning.contains("rounded") && warning.contains("1205161015177961344"), "{warning}");
    let human = self::run(&["decode", "1205161015177961500"]);
    assert!(human.out.contains("warning: the ID may have been rounded"), "{}", human.out);
    let at = self::run(&["decode", "--layout", "twitter", "--at", "2019-12-12", "--json"]);
    assert!(at.json()[0]["first"].is_string() && at.json()[0]["last"].is_string());
    let order = self::run(&["decode", "--json", "1205161015177961473", "1593572310593806338"]);
    assert_eq!(text(&order.json()[2], "older"), "1205161015177961473");
    // The component writes all digits, too.
    let written = codec(|codec| codec.write(Id::new(1_205_161_015_177_961_473), TextForm::Decimal)).unwrap();
    assert_eq!(written, "1205161015177961473");
}

/// F18: the IDs of a date, on the command line and from the component: each published ID lies within those of its own
/// time, and where a range query cannot work that is said.
#[test]
fn f18_the_ids_of_a_time() {
    for row in &rows() {
        let scheme = scheme(row);
        let id = TextForm::Decimal.parse(text(row, "id").as_bytes()).unwrap();
        let time = scheme.layout.time_of(id);
        let expected = scheme.layout.ids_at(time).unwrap();
        assert_eq!(core(codec(|codec| codec.ids_at(&scheme.layout, time))), Ok(expected));
        let run = run(&["decode", "--layout", scheme.name, "--at", &time.to_string(), "--json"]);
        let [object] = run.json().try_into().unwrap();
        assert_eq!(run.code, 0, "{}", run.err);
        assert_eq!(text(&object, "first"), expected.first.to_string());
        assert_eq!(text(&object, "last"), expected.last.to_string());
        assert!(expected.first <= id && id <= expected.last);
        assert_eq!(object["is_range"].as_bool(), Some(expected.is_range));
        if expected.is_range {
            assert_eq!(text(&object, "sql"), format!("id BETWEEN {} AND {}", expected.first, expected.last));
        }
    }
    for name in ["seata", "mysql_uuid_short", "sharded"] {
        let run = run(&["decode", "--layout", name, "--at", "2026-01-01", "--json"]);
        let object = &run.json()[0];
        assert!(object["sql"].is_null() && object["is_range"] == false, "{object}");
        assert!(object["warnings"][0].as_str().unwrap().contains("no range query"), "{object}");
    }
    // Times that the layout has no tick for are refused with its bounds; what is no time is bad usage.
    let check = |at: &str, code: i32, told: &str| {
        let run = run(&["decode", "--layout", "snowmint", "--at", at]);
        assert!((run.code, run.out.as_str()) == (code, "") && run.err.contains(told), "{at}: {}", run.err);
    };
    check("2024-12-31", 1, "before the layout's epoch 2025-01-01");
    check("2100-01-01", 1, "after the layout's last tick 2094-09-07");
    check("yesterday", 2, "a time such as");
    check("2026-02-30", 2, "the day at byte 8");
    let epoch = UnixTime::from_unix_ms(Layout::SNOWMINT.epoch_unix_ms());
    let early = core(codec(|codec| codec.ids_at(&Layout::SNOWMINT, UnixTime::from_unix_ms(0))));
    assert_eq!(early, Err(CodecError::Time(TickError::BeforeEpoch { epoch })));
    let last = UnixTime::from_unix_ms(Layout::SNOWMINT.last_ms());
    let late = core(codec(|codec| codec.ids_at(&Layout::SNOWMINT, UnixTime::from_unix_ns(u128::MAX))));
    assert_eq!(late, Err(CodecError::Time(TickError::AfterEnd { last })));
}

/// F19: region 4 in 2 bits and worker 300 in 8 are refused with the range by every face that takes them, never masked.
#[test]
fn f19_values_out_of_range_are_refused() {
    let layout = Layout::SNOWMINT;
    let check = |values: [u64; 5], role: Role, value: u64, max: u64| {
        let composed = core(codec(|codec| codec.compose(&layout, &values)));
        assert_eq!(composed, Err(CodecError::Value(FieldError { role, value, max })));
        let mut given = values.iter();
        let by_core = layout.compose_values(|_| *given.next().unwrap());
        assert_eq!(by_core, Err(FieldError { role, value, max }));
    };
    check([0, 1, 4, 0, 0], Role::Region, 4, 3);
    check([0, 1, 0, 300, 0], Role::Worker, 300, 255);
    check([0, 1, 0, 0, 4_096], Role::Sequence, 4_096, 4_095);
    check([0, 1 << 41, 0, 0, 0], Role::Timestamp, 1 << 41, (1 << 41) - 1);
    check([1, 1, 0, 0, 0], Role::Reserved, 1, 0);
    check([0, u64::MAX, u64::MAX, u64::MAX, u64::MAX], Role::Timestamp, u64::MAX, (1 << 41) - 1);
    for values in [&[][..], &[0; 4], &[0; 6], &[0; 1_000]] {
        let composed = core(codec(|codec| codec.compose(&layout, values)));
        assert_eq!(composed, Err(CodecError::ValueCount { given: values.len() as u64, fields: 5 }));
    }
    let directory = tempfile::tempdir().unwrap();
    let store = format!("redb:{}", directory.path().join("store").display());
    let run = run(&["init", "--store", &store, "--region", "4"]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("region 4") && run.err.contains("0 to 3"), "{}", run.err);
}

/// Layouts that are none are refused by the component by name, and by the command with a way out.
#[test]
fn layouts_that_are_none_are_refused() {
    // Core makes no such layout, so the component is asked through its own types elsewhere (see the engine's tests);
    // here a file is at fault.
    let directory = tempfile::tempdir().unwrap();
    let check = |content: &str, told: &str| {
        let path = directory.path().join("layout.toml");
        std::fs::write(&path, content).unwrap();
        let run = run(&["decode", "--layout", path.to_str().unwrap(), "5"]);
        assert_eq!(run.code, 2, "{content}: {}", run.err);
        assert!(run.err.contains(told), "{content}: {}", run.err);
    };
    let timestamp =
        |bits: u32| format!("epoch_unix_ms = 0\nfields = [{{ role = \"timestamp\", bits = {bits} }}]");
    check(&timestamp(63), "63");
    check(&timestamp(64), "64");
    check(&timestamp(256), "layout.toml");
    check("epoch_unix_ms = 0\nfields = [{ role = \"tim\u{1b}[31m\", bits = 1 }]", "layout.toml");
    check("epoch_unix_ms = 0\nfields = []\nstray = 1", "stray");
    check("\u{1b}[31m", "layout.toml");
    check("history = \"0..5\"", "layout.toml");
    let missing = run(&["decode", "--layout", "no\u{202e}such", "5"]);
    assert!(missing.code == 2 && missing.err.contains("no\\u{202e}such"), "{}", missing.err);
}

/// Hostile texts with the place of the fault, in decimal. Each is an exact error by core, component and command.
fn hostile() -> Vec<(Vec<u8>, usize, TextFault)> {
    let row = |text: &[u8], at: usize, fault: TextFault| (text.to_vec(), at, fault);
    vec![
        row(b"36893488147419103232", 19, TextFault::Overflow),
        row(b"18446744073709551616", 19, TextFault::Overflow),
        row(b"184467440737095516150", 20, TextFault::TooLong),
        row(b"-1", 0, TextFault::Sign),
        row(b"+1", 0, TextFault::Sign),
        row(b"-9223372036854775808", 0, TextFault::Sign),
        row(b"1 2", 1, TextFault::Digit),
        row(b"12\x00", 2, TextFault::Digit),
        row(b"\x1b[31m12", 0, TextFault::Digit),
        row(b"12\x07", 2, TextFault::Digit),
        row("12051610151779614\u{200f}73".as_bytes(), 17, TextFault::Digit),
        row("\u{202e}12".as_bytes(), 0, TextFault::Digit),
        row("１２".as_bytes(), 0, TextFault::Digit),
        row(b"12\xe2\x80", 2, TextFault::Digit),
        row(b"\xff\xfe", 0, TextFault::Digit),
        row(b"12\xc0\xaf", 2, TextFault::Digit),
        row(b"12.5", 2, TextFault::Digit),
        row(b"1e18", 1, TextFault::Digit),
        row(b"0x12", 1, TextFault::Digit),
        row(&[b'1'; 10_000], 20, TextFault::TooLong),
    ]
}

#[test]
fn hostile_text_is_refused_exactly() {
    let rows = hostile();
    for (text, at, fault) in &rows {
        let by_core = TextForm::Decimal.parse(text).unwrap_err();
        assert_eq!(by_core.at, *at, "{by_core}");
        let core_fault = match by_core.kind {
            ParseErrorKind::Empty => TextFault::Empty,
            ParseErrorKind::Sign => TextFault::Sign,
            ParseErrorKind::TooLong { .. } => TextFault::TooLong,
            ParseErrorKind::TooShort { .. } => TextFault::TooShort,
            ParseErrorKind::Overflow => TextFault::Overflow,
            _ => TextFault::Digit,
        };
        assert_eq!(core_fault, *fault, "{by_core}");
        let by_component = core(codec(|codec| codec.parse(text, TextForm::Decimal)));
        assert_eq!(by_component, Err(TextError { at: *at, fault: *fault }));
    }
    // As one input, each between two sound lines: every fault is told with its line, and the rest goes on.
    let mut input = b"1205161015177961473\n".to_vec();
    for (text, ..) in &rows {
        input.extend_from_slice(text);
        input.extend_from_slice(b"\n1205161015177961473\n");
    }
    let run = pipe(&["decode", "--layout", "twitter", "--json"], &input);
    assert_eq!((run.code, run.json().len()), (1, rows.len() + 1));
    let told: Vec<_> = run.err.lines().collect();
    assert_eq!(told.len(), rows.len() + 1, "{}", run.err);
    for (nth, (text, ..)) in rows.iter().enumerate() {
        let exact = Scheme::named("twitter").unwrap().parse(text, 0).unwrap_err();
        assert_eq!(told[nth], format!("snowmint: line {}: {exact}", 2 * nth + 2));
    }
    assert_eq!(
        told[rows.len()],
        format!("snowmint: {} of {} lines are no IDs", rows.len(), 2 * rows.len() + 1)
    );
    // The same by `auto`; and as an argument.
    let run = pipe(&["decode"], &input);
    assert_eq!((run.code, run.out.lines().count()), (1, rows.len() + 1), "{}", run.out);
    for text in ["36893488147419103232", "-1", "\u{202e}12", "12\u{7}", "1e18"] {
        let run = self::run(&["decode", "--", text]);
        assert!((run.code, run.out.as_str()) == (1, "") && run.err.starts_with("snowmint: "), "{}", run.err);
    }
}

/// Other forms of text through the component: what core writes it writes, and it reads it back; its faults are core's.
#[test]
fn every_form_crosses_the_boundary() {
    for id in [0, 1, 61, 62, 1_205_161_015_177_961_473, u64::MAX].map(Id::new) {
        for form in TextForm::ALL {
            let written = codec(|codec| codec.write(id, form)).unwrap();
            assert_eq!(written, form.write(id).as_str());
            assert_eq!(core(codec(|codec| codec.parse(written.as_bytes(), form))), Ok(id));
            let longer = "1".repeat(25);
            let error = core(codec(|codec| codec.parse(longer.as_bytes(), form))).unwrap_err();
            assert_eq!(error.at, form.parse(longer.as_bytes()).unwrap_err().at);
        }
    }
    let short = core(codec(|codec| codec.parse(b"00", TextForm::Hex)));
    assert_eq!(short, Err(TextError { at: 2, fault: TextFault::TooShort }));
    assert_eq!(
        core(codec(|codec| codec.parse(b"", TextForm::Base62))),
        Err(TextError { at: 0, fault: TextFault::Empty })
    );
}

/// A line of 10 MB is counted, not kept, and what follows it is read: in bounded memory, whatever it consists of.
#[test]
fn long_lines_are_refused_in_bounded_memory() {
    for byte in [b'1', b' ', 0xff, 0x1b] {
        let mut input = vec![byte; 10_000_000];
        input.extend_from_slice(b"\n1205161015177961473\n");
        let run = pipe(&["decode", "--layout", "twitter"], &input);
        assert_eq!((run.code, run.out.lines().count()), (1, 1), "{}", run.err);
        assert!(
            run.err.starts_with("snowmint: line 1: the line has 10000000 bytes, and 1048576 is the most"),
            "{}",
            run.err
        );
    }
    // 200 MB in one line, under a limit of address space that could not hold it.
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -v 150000; exec \"$0\" decode --layout twitter", env!("CARGO_BIN_EXE_snowmint")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let megabyte = vec![b'7'; 1 << 20];
    for _ in 0..200 {
        stdin.write_all(&megabyte).unwrap();
    }
    stdin.write_all(b"\n5\n").unwrap();
    drop(stdin);
    let run = Run::of(child.wait_with_output().unwrap());
    assert_eq!((run.code, run.out.lines().count()), (1, 1), "{}", run.err);
    assert!(run.err.contains("the line has 209715200 bytes"), "{}", run.err);
}

/// Whoever reads has seen enough: that is no error.
#[test]
fn a_closed_pipe_is_no_error() {
    for args in [&["decode"][..], &["decode", "--json"], &["layout", "list"], &["decode", "--extract"]] {
        let mut child = command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let writer = std::thread::spawn(move || {
            for _ in 0..100_000 {
                // The reader may have gone by then.
                if stdin.write_all(b"1205161015177961473\n").is_err() {
                    break;
                }
            }
        });
        stdout.read_exact(&mut [0; 10]).unwrap();
        drop(stdout);
        writer.join().unwrap();
        let run = Run::of(child.wait_with_output().unwrap());
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{args:?}");
    }
}

/// Blank lines and blanks around IDs are no faults; an input without IDs is none either.
#[test]
fn lines_are_read_as_people_pipe_them() {
    let run =
        pipe(&["decode", "--layout", "twitter", "-"], b"\n  1205161015177961473\t\r\n\n1205161015177961473");
    assert_eq!((run.code, run.out.lines().count()), (0, 2), "{}", run.err);
    assert_eq!(
        run.out.lines().next(),
        Some(" 1205161015177961473  2019-12-12T16:22:31.484Z  twitter  datacenter=10  worker=14  sequence=1")
    );
    let run = pipe(&["decode"], b"");
    assert_eq!((run.code, run.out.as_str()), (0, ""));
}

/// Of two IDs the older is told, and by how much.
#[test]
fn two_ids() {
    let check = |ids: [&str; 2], told: &str| {
        let run = run(&["decode", "--layout", "twitter", ids[0], ids[1]]);
        assert_eq!(run.out.lines().last(), Some(told));
    };
    let (old, new) = ("1205161015177961473", "1593572310593806338");
    let told = "1205161015177961473 is older than 1593572310593806338 by 1071 d 19 h 27 min 49.160 s";
    check([old, new], told);
    check([new, old], told);
    check([old, old], "both have the same time");
    let run = run(&["decode", "--layout", "twitter", "--json", new, old]);
    assert_eq!(
        run.out.lines().last(),
        Some(
            "{\"older\":\"1205161015177961473\",\"newer\":\"1593572310593806338\",\"by_ms\":92604469160,\
             \"by\":\"1071 d 19 h 27 min 49.160 s\"}"
        )
    );
    // One of them is none: the other is read all the same.
    let run = self::run(&["decode", "--layout", "twitter", "--json", new, "x"]);
    assert_eq!((run.code, run.json().len()), (1, 1));
    assert!(run.err.starts_with("snowmint: ID 2: "), "{}", run.err);
}

/// IDs are pulled out of logs, CSV and JSON; digits of other kinds are left.
#[test]
fn extraction() {
    let log = "2019-12-12T16:22:31.484123456Z INFO user=1205161015177961473 took 0.123456789012345678 s\n\
               \"175928847299117063\",\"x\",1576167751484,7\n\
               {\"id\":1593572310593806338,\"request\":\"017f22e2-79b0-7cc3-98c4-dc0c0c07398f\"}\n\
               md5 d41d8cd98f00b204e9800998ecf8427e of nothing\n\
               user_1205161015177961473/01ARZ3NDEKTSV4RRFFQ69G5FAV.\n";
    let run = pipe(&["decode", "--extract", "--json"], log.as_bytes());
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    let found: Vec<_> = run
        .json()
        .iter()
        .map(|object| (object["line"].as_u64().unwrap(), text(object, "id").to_owned()))
        .collect();
    let expected = [
        (1, "1205161015177961473"),
        (2, "175928847299117063"),
        (3, "1593572310593806338"),
        (3, "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"),
        (5, "1205161015177961473"),
        (5, "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
    ];
    assert_eq!(found, expected.map(|(line, id)| (line, id.to_owned())));
    let run = pipe(&["decode", "--extract", "--layout", "twitter"], b"\xff\xfe id:1205161015177961473\x1b\n");
    assert_eq!((run.code, run.out.lines().count()), (0, 1));
    assert!(run.out.starts_with("     1:  1205161015177961473"), "{}", run.out);
}

/// Wide kinds are recognised, with their time where they carry one.
#[test]
fn wide_kinds() {
    let check = |id: &str, kind: &str, time: Option<&str>| {
        let run = run(&["decode", "--json", id]);
        let object = &run.json()[0];
        assert_eq!((text(object, "layout"), object["time"].as_str()), (kind, time), "{object}");
        assert_eq!(text(object, "id"), id);
    };
    check("C232AB00-9414-11EC-B3C8-9F6BDECED846", "uuidv1", Some("2022-02-22T19:22:22.0000000Z"));
    check("919108f7-52d1-4320-9bac-f847db4148a8", "uuidv4", None);
    check("017F22E2-79B0-7CC3-98C4-DC0C0C07398F", "uuidv7", Some("2022-02-22T19:22:22.000Z"));
    check("01ARZ3NDEKTSV4RRFFQ69G5FAV", "ulid", Some("2016-07-30T23:54:10.259Z"));
    check("507f1f77bcf86cd799439011", "objectid", Some("2012-10-17T21:13:27Z"));
    check("0ujtsYcgvSTl8PAuAdqWYSMnLOv", "ksuid", Some("2017-10-10T04:00:47Z"));
    check("9m4e2mr0ui3e8a215n4g", "xid", Some("2011-03-22T17:50:19Z"));
}

/// What Snowmint was made for derives its default layout with nothing to spare; more says what it costs.
#[test]
fn derived_layouts() {
    let derive = |flags: &[&str]| {
        let needs = ["--years", "60", "--regions", "4", "--workers", "200", "--burst", "3000"];
        let mut args = vec!["layout", "derive", "--json"];
        for (flag, value) in needs.chunks(2).map(|pair| (pair[0], pair[1])) {
            let value = flags.chunks(2).find(|pair| pair[0] == flag).map_or(value, |pair| pair[1]);
            args.extend([flag, value]);
        }
        run(&args)
    };
    let run = derive(&[]);
    let object = &run.json()[0];
    let widths: Vec<_> =
        object["fields"].as_array().unwrap().iter().map(|field| field["bits"].as_u64()).collect();
    assert_eq!(widths, [1, 41, 2, 8, 12].map(Some));
    assert_eq!(
        (object["spare_bits"].as_u64(), object["passes"].as_bool(), run.code),
        (Some(0), Some(true), 0)
    );
    let margins = object["margins"].as_array().unwrap();
    assert_eq!(margins.len(), 4);
    assert_eq!((margins[3]["asked"].as_u64(), margins[3]["holds"].as_u64()), (Some(3_000), Some(4_096)));
    for (flags, cheapest) in [
        (["--workers", "300"], "256 workers a region instead of 300"),
        (["--regions", "5"], "4 regions instead of 5"),
    ] {
        let run = derive(&flags);
        assert_eq!(run.code, 1);
        assert!(
            run.err.starts_with("snowmint: 1 bit over the 63 that an ID has: make do with "),
            "{}",
            run.err
        );
        let over = &run.json()[0];
        assert_eq!((over["bits_over"].as_u64(), text(&over["ways"][0], "text")), (Some(1), cheapest));
    }
    assert_eq!(derive(&["--years", "0"]).code, 2);
    // What is derived can be saved and shown.
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("derived.toml");
    let toml = self::run(&["layout", "derive", "--workers", "1000", "--regions", "1", "--toml"]);
    std::fs::write(&file, &toml.out).unwrap();
    let shown = self::run(&[
        "layout",
        "show",
        file.to_str().unwrap(),
        "--workers",
        "1000",
        "--regions",
        "1",
        "--json",
    ]);
    assert_eq!((shown.code, shown.json()[0]["passes"].as_bool()), (0, Some(true)));
}

#[test]
fn shown_layouts() {
    let run = run(&["layout", "show", "snowmint"]);
    assert_eq!(run.code, 0);
    for told in [
        "- ----------------------------------------- -- -------- ------------",
        "69.7 years",
        "2094-09-07",
        "pass  burst",
    ] {
        assert!(run.out.contains(told), "{told}: {}", run.out);
    }
    // `sharded` fails a burst of 3,000, and says so.
    let run = self::run(&["layout", "show", "sharded", "--burst", "3000"]);
    assert_eq!(run.code, 1);
    assert!(
        run.out.contains("FAIL  burst    3000 IDs a worker a millisecond asked for, 256 held: too few"),
        "{}",
        run.out
    );
    assert!(self::run(&["layout", "show", "baidu_uid"]).out.contains("it has ended"));
    let list = self::run(&["layout", "list", "--json"]);
    let names: Vec<_> = list.json().iter().map(|object| text(object, "name").to_owned()).collect();
    assert_eq!(names.len(), 40);
    for name in &names {
        let shown = self::run(&["layout", "show", name, "--json"]);
        assert_eq!((shown.code, text(&shown.json()[0], "name")), (0, name.as_str()));
    }
    assert_eq!(self::run(&["layout", "show", "nobody"]).code, 2);
}

/// The layout of the cut-over: 1 + 41 + 3 + 9 + 10.
fn wider() -> Layout {
    let fields = [
        (Role::Reserved, 1),
        (Role::Timestamp, 41),
        (Role::Region, 3),
        (Role::Worker, 9),
        (Role::Sequence, 10),
    ];
    let old = Layout::SNOWMINT;
    Layout::new(&fields.map(|(role, bits)| Field::new(role, bits)), old.epoch_unix_ms(), old.tick_ns())
        .unwrap()
}

/// From `snowmint` to 1 + 41 + 3 + 9 + 10 through the component: a writer that lags keeps the old layout and a lease whose
/// ceiling the store clamps to the plan, so it mints to the last millisecond and is refused from then on; the new
/// writer's IDs all lie above; readers of both read either.
#[test]
fn a_cutover_refuses_the_writer_that_lags() {
    let (old, new) = (Layout::SNOWMINT, wider());
    let now_ms = 1_800_000_000_000;
    let plan = CutoverPlan::new(&old, &new, now_ms + 5_000, now_ms).unwrap();
    let history = FormatHistory::new(old).after(&plan).unwrap();

    // The store's record knows of the plan: every grant and renewal under it ends at the old layout's last millisecond.
    let mut cluster = ClusterRecord::new(1, old, 3).unwrap();
    cluster.cutover_last_ms = Some(plan.old_last_ms());
    let owner = Owner::new("lagging").unwrap();
    let bid = Bid { owner: &owner, window_ms: 10_000, lead_ms: 1_000 };
    let now = |wall_ms| Now { boot_ms: 0, wall_ms, clock_error_ms: 0 };
    let granted = acquire(&CodeRecord::UNUSED, &cluster, &bid, &now(now_ms), 5).unwrap();
    assert_eq!(granted.end_ms, plan.old_last_ms(), "a window of 10 s, cut to 5 s");
    let renewed =
        renew(&granted, &cluster, Holder { term: 1, nonce: 5 }, 10_000, &now(now_ms + 4_000), 6).unwrap();
    assert_eq!(renewed.end_ms, plan.old_last_ms());
    assert!(acquire(&CodeRecord::UNUSED, &cluster, &bid, &now(now_ms + 5_000), 7).is_err());

    let world = World::new(old.node(3, 255).unwrap(), granted.floor_ms);
    {
        let mut state = world.state();
        (state.now_ms, state.ceiling_ms) = (plan.old_last_ms(), renewed.end_ms);
    }
    let mut lagging = ENGINE.start(&old, &Policy::HYBRID, Box::new(world.clone())).unwrap();
    let last = core(lagging.mint(u32::MAX)).unwrap().last().unwrap();
    assert_eq!(last, plan.old_last_id(), "the very last that the old layout can make");
    for wall_ms in [plan.old_last_ms(), now_ms + 5_000, now_ms + 86_400_000] {
        world.state().now_ms = wall_ms;
        let refusal = Refusal::Ceiling { ceiling_ms: plan.old_last_ms() };
        assert_eq!(core(lagging.mint(1)), Err(MintError::Refused(refusal)));
        assert_eq!(core(lagging.next_id()), Err(MintError::Refused(refusal)));
    }

    let world = World::new(new.node(7, 511).unwrap(), plan.new_floor_ms());
    world.state().now_ms = now_ms + 5_000;
    let mut fresh = ENGINE.start(&new, &Policy::HYBRID, Box::new(world)).unwrap();
    let first = core(fresh.next_id()).unwrap();
    assert!(first > last && first >= plan.new_first_id());

    for (id, layout, values) in
        [(last, &old, vec![0, 0, 3, 255, 4_095]), (first, &new, vec![0, 0, 7, 511, 0])]
    {
        assert_eq!(history.layout_of(id), Some(layout));
        let reading = core(codec(|codec| codec.decode(history.layout_of(id).unwrap(), id))).unwrap();
        assert_eq!(
            (reading.values[2], reading.values[3], reading.values[4]),
            (values[2], values[3], values[4])
        );
    }
}

/// The same plan on the command line: shown, saved as a history, and read by; plans that promise nothing are refused.
#[test]
fn a_cutover_is_planned_and_read_by() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let fields: Vec<String> = wider()
        .fields()
        .iter()
        .map(|field| format!("{{ role = \"{}\", bits = {} }}", field.role().name(), field.bits()))
        .collect();
    let epoch = wider().epoch_unix_ms();
    std::fs::write(path("new.toml"), format!("epoch_unix_ms = {epoch}\nfields = [{}]\n", fields.join(", ")))
        .unwrap();
    let at = "2090-01-01";
    let at_ms = UnixTime::parse(at.as_bytes()).unwrap().unix_ms();
    let plan = CutoverPlan::new(&Layout::SNOWMINT, &wider(), at_ms, 0).unwrap();

    let json = run(&["layout", "cutover", "snowmint", &path("new.toml"), "--at", at, "--json"]);
    let [object] = json.json().try_into().unwrap();
    assert_eq!(object["old_last_ms"].as_u64(), Some(plan.old_last_ms()));
    assert_eq!(text(&object, "old_last_id"), plan.old_last_id().to_string());
    assert_eq!(text(&object, "new_first_id"), plan.new_first_id().to_string());
    assert!(plan.old_last_id() < plan.new_first_id());

    let toml = run(&["layout", "cutover", "snowmint", &path("new.toml"), "--at", at, "--toml"]);
    std::fs::write(path("both.toml"), &toml.out).unwrap();
    let input = format!("{}\n{}\n", plan.old_last_id(), plan.new_first_id());
    let read = pipe(&["decode", "--layout", &path("both.toml"), "--json"], input.as_bytes());
    let objects = read.json();
    assert_eq!(objects[0]["fields"]["worker"], 255, "{}", read.out);
    assert_eq!((&objects[1]["fields"]["worker"], &objects[1]["fields"]["region"]), (&0.into(), &0.into()));
    assert_eq!(text(&objects[0], "time"), "2089-12-31T23:59:59.999Z");
    assert_eq!(text(&objects[1], "time"), "2090-01-01T00:00:00.000Z");
    let last = run(&["decode", "--layout", &path("both.toml"), "--at", "2089-12-31T23:59:59.999Z", "--json"]);
    assert_eq!(text(&last.json()[0], "last"), plan.old_last_id().to_string());
    let first = run(&["decode", "--layout", &path("both.toml"), "--at", at, "--json"]);
    assert_eq!(text(&first.json()[0], "first"), plan.new_first_id().to_string());

    let refused = |old: &str, new: &str, at: &str, told: &str| {
        let run = run(&["layout", "cutover", old, new, "--at", at]);
        assert!((run.code, run.out.as_str()) == (1, "") && run.err.contains(told), "{}", run.err);
    };
    refused("snowmint", "sharded", at, "its shard above the timestamp");
    refused("snowmint", "snowmint", at, "the same");
    refused("snowmint", &path("new.toml"), "2026-01-01", "IDs above its end may exist");
    refused("snowmint", "tiktok", "2079-01-01", "cannot be minted by");
    let help = run(&["layout", "cutover", "--help"]);
    assert!(help.out.contains("touches no store"), "{}", help.out);
}

/// Bad usage is 2, on every new command.
#[test]
fn bad_usage() {
    for args in [
        &["decode", "--layout"][..],
        &["decode", "--nonsense"],
        &["decode", "5", "--at", "2026-01-01"],
        &["decode", "5", "--extract"],
        &["decode", "--layout", "auto", "--at", "x"],
        &["layout"],
        &["layout", "derive", "--years", "x"],
        &["layout", "derive", "--years", "-1"],
        &["layout", "show", "auto"],
        &["layout", "cutover", "snowmint", "hybrid"],
        &["layout", "cutover", "snowmint", "hybrid", "--at", "soon"],
    ] {
        assert_eq!(run(args).code, 2, "{args:?}");
    }
}

/// Every layout that core refuses for decoding is refused by the component as core does.
#[test]
fn the_component_decodes_by_whatever_core_does() {
    for scheme in Scheme::all() {
        for id in [0, 1, u64::MAX, 1 << 63, 0x0123_4567_89ab_cdef].map(Id::new) {
            let reading = core(codec(|codec| codec.decode(&scheme.layout, id))).unwrap();
            assert_eq!(reading.time, scheme.layout.time_of(id), "{}", scheme.name);
            assert_eq!(reading.reserved_set, scheme.layout.decode(id).reserved);
            assert_eq!(reading.values, scheme.layout.values(id).map(|(_, value)| value).collect::<Vec<_>>());
        }
    }
    // A layout that only decodes is no layout to mint by, and nothing is taken for it.
    let tiktok = Scheme::named("tiktok").unwrap().layout;
    let world = World::new(Node::new(0, 0), 0);
    let started = core(ENGINE.start(&tiktok, &Policy::CLASSIC, Box::new(world.clone()))).err().unwrap();
    let missing = LayoutError::RoleMissing { role: Role::Sequence };
    assert_eq!(started, snowmint_core::StartError::Config(missing.into()));
    assert!(world.state().grant.is_ok());
}

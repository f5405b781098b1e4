//! Pasted text: one ID or thousands, one a line, or within logs, CSV, JSON and URLs.

use std::fmt::Write as _;

use serde::Serialize;
use snowmint_core::{Form, Ranking, Role, Verdict, Warning, is_id_like, words};
use wasm_bindgen::prelude::wasm_bindgen;

use crate::decode::Reading;
use crate::facts::Reader;
use crate::value::{Digits, json};

/// The fewest bytes of an address's part that is read as a scheme's own form, such as Instagram's shortcodes.
const PART_BYTES_MIN: usize = 9;

/// What stands around an ID in JSON, CSV and code.
const AROUND: &[char] =
    &['"', '\'', '`', ',', ';', '[', ']', '(', ')', '{', '}', '<', '>', '\u{feff}', '\u{200b}'];

/// A pasted text, read some lines at a time so that the page stays awake.
#[wasm_bindgen]
pub struct Batch {
    text: String,
    reader: Result<Reader, String>,
    now_ms: u64,
    /// Where the next line begins.
    at: usize,
    line: u32,
    skipped: u32,
    is_single: bool,
}

#[derive(Serialize)]
struct Taken {
    rows: Vec<Row>,
    /// Lines so far in which there was no ID.
    skipped: u32,
    done: bool,
}

/// One ID of the text, or what was wrong with it.
#[derive(Serialize)]
struct Row {
    line: u32,
    text: String,
    id: Option<Digits>,
    name: &'static str,
    verdict: Option<&'static str>,
    utc: Option<String>,
    unix_ms: Option<Digits>,
    fields: String,
    warnings: usize,
    error: Option<String>,
}

#[wasm_bindgen]
impl Batch {
    /// The text, to be read at `now_ms` by `reader`: see [`crate::decode`].
    #[wasm_bindgen(constructor)]
    pub fn new(text: String, reader: &str, now_ms: u64) -> Self {
        let is_single = text.lines().filter(|line| !line.trim().is_empty()).take(2).count() < 2;
        Self { text, reader: Reader::named(reader), now_ms, at: 0, line: 0, skipped: 0, is_single }
    }

    /// Reads up to so many more lines, and returns their rows.
    pub fn take(&mut self, lines_max: u32) -> String {
        let mut rows = Vec::new();
        let reader = match &self.reader {
            Ok(reader) => *reader,
            Err(error) => {
                let row = Row::bad(0, "", error.clone());
                return json(&Taken { rows: vec![row], skipped: 0, done: true });
            }
        };
        let mut left = lines_max;
        while let Some(rest) = self.text.get(self.at..).filter(|rest| !rest.is_empty() && left > 0) {
            let len = rest.find('\n').map_or(rest.len(), |end| end + 1);
            let line = rest.get(..len).unwrap_or_default().trim();
            self.at += len;
            self.line += 1;
            left -= 1;
            if line.is_empty() {
                continue;
            }
            let before = rows.len();
            read_line(&reader, line, self.line, self.now_ms, &mut rows);
            if rows.len() == before {
                self.skipped += 1;
                if self.is_single {
                    let error = Reading::of(&reader, line.as_bytes(), self.now_ms).err();
                    let none = || String::from("there is no ID in this text");
                    rows.push(Row::bad(self.line, line, error.unwrap_or_else(none)));
                }
            }
        }
        json(&Taken { rows, skipped: self.skipped, done: self.at >= self.text.len() })
    }
}

/// Every ID of a line, into `rows`.
fn read_line(reader: &Reader, line: &str, number: u32, now_ms: u64, rows: &mut Vec<Row>) {
    let bare = line.trim_matches(|char: char| AROUND.contains(&char) || char.is_whitespace());
    if let Ok(reading) = Reading::of(reader, bare.as_bytes(), now_ms) {
        rows.push(Row::of(number, bare, &reading, now_ms));
        return;
    }
    let before = rows.len();
    let found = words(line.as_bytes()).filter(|word| is_id_like(word)).filter_map(|word| {
        let reading = Reading::of(reader, word, now_ms).ok()?;
        is_plausible(&reading, now_ms).then(|| (String::from_utf8_lossy(word).into_owned(), reading))
    });
    for (text, reading) in found {
        rows.push(Row::of(number, &text, &reading, now_ms));
    }
    if rows.len() == before
        && let Some((_, path)) = line.split_once("://").map_or(line, |(_, rest)| rest).split_once('/')
    {
        // An address: a part of its path may be an ID in its scheme's own form.
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let parts = path.split(|char: char| !char.is_ascii_alphanumeric() && !matches!(char, '-' | '_'));
        for part in parts.filter(|part| part.len() >= PART_BYTES_MIN) {
            let Ok(ranking) = Ranking::of_text(part.as_bytes(), now_ms) else { continue };
            let is_own = ranking.verdict() != Verdict::Implausible
                && ranking.candidates().next().is_some_and(|first| matches!(first.form, Form::Foreign(_)));
            if is_own && let Ok(reading) = Reading::of(reader, part.as_bytes(), now_ms) {
                rows.push(Row::of(number, part, &reading, now_ms));
            }
        }
    }
}

/// Whether a number out of a line is one that its layout explains: others are counters, times and telephone numbers.
fn is_plausible(reading: &Reading, now_ms: u64) -> bool {
    match reading {
        Reading::Ranked { ranking, .. } => ranking.verdict() != Verdict::Implausible,
        Reading::Wide(wide) => wide.time.is_none_or(|time| time.unix_ms() <= now_ms),
        Reading::Named { .. } => !reading.warnings(now_ms).iter().any(|warning| {
            matches!(warning, Warning::ReservedSet | Warning::InFuture { .. } | Warning::BeforeBirth { .. })
        }),
    }
}

impl Row {
    fn of(line: u32, text: &str, reading: &Reading, now_ms: u64) -> Self {
        let time = reading.time();
        let mut fields = String::new();
        if let (Some(layout), Some(id)) = (reading.layout(), reading.id()) {
            for (field, value) in layout.values(id) {
                let is_told = match field.role() {
                    Role::Timestamp => false,
                    Role::Reserved => value != 0,
                    _ => true,
                };
                if is_told {
                    let space = if fields.is_empty() { "" } else { " " };
                    let _ = write!(fields, "{space}{}={value}", field.name());
                }
            }
        }
        Self {
            line,
            text: text.to_owned(),
            id: reading.id().map(|id| Digits(id.get())),
            name: reading.name(),
            verdict: reading.verdict().map(Verdict::name),
            utc: time.map(|(time, digits)| time.text(digits).as_str().to_owned()),
            unix_ms: time.map(|(time, _)| Digits(time.unix_ms())),
            fields,
            warnings: reading.warnings(now_ms).len(),
            error: None,
        }
    }

    fn bad(line: u32, text: &str, error: String) -> Self {
        Self {
            line,
            text: text.to_owned(),
            id: None,
            name: "",
            verdict: None,
            utc: None,
            unix_ms: None,
            fields: String::new(),
            warnings: 0,
            error: Some(error),
        }
    }
}

//! The lanes of the simulator, for the page to draw.

use serde::Serialize;
use snowmint_sim::lanes::{
    Episode, LANES_IDS_PER_TICK, LANES_MS_MAX, LANES_WINDOW_MS, LaneFault, LaneLine, LaneView, Lanes as World,
};
use wasm_bindgen::prelude::wasm_bindgen;

use crate::value::{Digits, json};

/// A world of a few workers, with a naive Snowflake beside.
#[wasm_bindgen]
pub struct Lanes {
    world: World,
}

#[derive(Serialize)]
struct State<'a> {
    /// Microseconds of shown time.
    now_us: u64,
    true_ms: Digits,
    is_over: bool,
    ids: Digits,
    duplicates: Digits,
    naive_ids: Digits,
    naive_duplicates: Digits,
    lanes: Vec<LaneState<'a>>,
    episodes: Vec<EpisodeState>,
    lines: Vec<LineState>,
}

/// A lane; its clocks in milliseconds from the true time, which are small numbers.
#[derive(Serialize)]
struct LaneState<'a> {
    name: &'a str,
    region: u32,
    wall_off_ms: i64,
    id_off_ms: Option<i64>,
    last_id: Option<Digits>,
    used: u64,
    ids: Digits,
    code: Option<u32>,
    phase: &'static str,
    lease_ms: u64,
    refusal: Option<&'static str>,
    is_alive: bool,
    is_paused: bool,
    is_cut: bool,
    naive_code: Option<u32>,
    naive_off_ms: Option<i64>,
    naive_ids: Digits,
    naive_duplicates: Digits,
}

#[derive(Serialize)]
struct EpisodeState {
    fault: &'static str,
    title: &'static str,
    lane: usize,
    at_us: u64,
    duplicates: Digits,
    naive_duplicates: Digits,
    refused: Vec<(&'static str, u64)>,
    is_recovered: bool,
}

#[derive(Serialize)]
struct LineState {
    at_us: u64,
    lane: Option<usize>,
    is_naive: bool,
    text: String,
}

#[wasm_bindgen]
impl Lanes {
    /// The world of a seed, at its beginning.
    #[wasm_bindgen(constructor)]
    pub fn new(seed: u64) -> Self {
        Self { world: World::new(seed) }
    }

    /// Lets so many microseconds pass.
    pub fn advance(&mut self, us: u32) {
        self.world.advance_us(u64::from(us));
    }

    /// Brings a fault about in a lane; `false` if there is none of this name.
    pub fn inject(&mut self, fault: &str, lane: usize) -> bool {
        let fault = LaneFault::from_name(fault);
        if let Some(fault) = fault {
            self.world.inject(fault, lane);
        }
        fault.is_some()
    }

    /// Everything that can be seen now, with the log's lines since this was last asked.
    pub fn state(&mut self) -> String {
        let lines = self.world.take_lines();
        let true_ms = self.world.true_ms();
        json(&State {
            now_us: self.world.now_us(),
            true_ms: Digits(true_ms),
            is_over: self.world.is_over(),
            ids: Digits(self.world.ids()),
            duplicates: Digits(self.world.duplicates()),
            naive_ids: Digits(self.world.naive_ids()),
            naive_duplicates: Digits(self.world.naive_duplicates()),
            lanes: self.world.views().map(|view| lane(&view, true_ms)).collect(),
            episodes: self.world.episodes().iter().map(episode).collect(),
            lines: lines.into_iter().map(line).collect(),
        })
    }
}

fn lane<'a>(view: &LaneView<'a>, true_ms: u64) -> LaneState<'a> {
    let off_ms = |ms: u64| ms.cast_signed().saturating_sub(true_ms.cast_signed());
    LaneState {
        name: view.name,
        region: view.region,
        wall_off_ms: view.off_ms,
        id_off_ms: view.id_ms.map(off_ms),
        last_id: view.last_id.map(|id| Digits(id.get())),
        used: view.used,
        ids: Digits(view.ids),
        code: view.code,
        phase: view.phase.unwrap_or("none"),
        lease_ms: view.lease_ms,
        refusal: view.refusal,
        is_alive: view.is_alive,
        is_paused: view.is_paused,
        is_cut: view.is_cut,
        naive_code: view.naive_code,
        naive_off_ms: view.naive_id_ms.map(off_ms),
        naive_ids: Digits(view.naive_ids),
        naive_duplicates: Digits(view.naive_duplicates),
    }
}

fn episode(episode: &Episode) -> EpisodeState {
    EpisodeState {
        fault: episode.fault.name(),
        title: episode.fault.title(),
        lane: episode.lane,
        at_us: episode.at_us,
        duplicates: Digits(episode.duplicates),
        naive_duplicates: Digits(episode.naive_duplicates),
        refused: episode.refused_us.iter().map(|(reason, us)| (*reason, *us)).collect(),
        is_recovered: episode.is_recovered,
    }
}

fn line(line: LaneLine) -> LineState {
    LineState { at_us: line.at_us, lane: line.lane, is_naive: line.is_naive, text: line.text }
}

/// The faults with what is predicted of each, and the world's measures.
#[wasm_bindgen]
pub fn faults() -> String {
    #[derive(Serialize)]
    struct FaultText {
        name: &'static str,
        title: &'static str,
        prediction: &'static str,
        naive_prediction: &'static str,
    }
    #[derive(Serialize)]
    struct Catalogue {
        window_ms: u32,
        ids_per_tick: u64,
        shown_ms_max: u64,
        faults: Vec<FaultText>,
    }
    let faults = LaneFault::ALL.into_iter().map(|fault| FaultText {
        name: fault.name(),
        title: fault.title(),
        prediction: fault.prediction(),
        naive_prediction: fault.naive_prediction(),
    });
    json(&Catalogue {
        window_ms: LANES_WINDOW_MS,
        ids_per_tick: LANES_IDS_PER_TICK,
        shown_ms_max: LANES_MS_MAX,
        faults: faults.collect(),
    })
}

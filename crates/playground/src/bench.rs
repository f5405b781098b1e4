//! What the page measures: the core, asked for one ID a call or for a run a call.

use core::num::NonZeroU32;

use snowmint_core::{Bounds, Generator, Grant, Layout, Policy};
use wasm_bindgen::prelude::wasm_bindgen;

/// A generator without a lease, for measuring alone.
#[wasm_bindgen]
pub struct Bench {
    generator: Option<Generator>,
}

#[wasm_bindgen]
impl Bench {
    /// Of the default layout.
    #[wasm_bindgen(constructor)]
    #[allow(clippy::new_without_default)] // JavaScript knows no defaults.
    pub fn new() -> Self {
        let node = Layout::SNOWMINT.node(0, 1).ok();
        let generator = node
            .and_then(|node| Generator::new(Layout::SNOWMINT, Grant::new(node, 1, 0), Policy::CLASSIC).ok());
        Self { generator }
    }

    /// One ID; 0 where it is refused.
    pub fn next(&mut self, now_ms: u64) -> u64 {
        self.run(now_ms, 1)
    }

    /// The first ID of a run of `count`, one apart; 0 where it is refused.
    pub fn run(&mut self, now_ms: u64, count: u32) -> u64 {
        let Some((generator, want)) = self.generator.as_mut().zip(NonZeroU32::new(count)) else { return 0 };
        generator.mint(now_ms, &Bounds::OPEN, want).map_or(0, |run| run.first().get())
    }
}

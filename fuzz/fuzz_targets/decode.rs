//! Any ID by any layout: no panic, and what is taken apart is put together again as the same ID.
#![no_main]

use libfuzzer_sys::fuzz_target;
use snowmint_core::{Id, Layout, Node};

fuzz_target!(|input: (u64, u64, u32, u32, u64)| {
    let (bits, tick, region, worker, sequence) = input;
    for layout in [Layout::SNOWMINT, Layout::HYBRID] {
        let parts = layout.decode(Id::new(bits));
        let (of_region, of_worker) = (parts.region as u32, parts.worker as u32);
        let composed = layout.compose(parts.tick, Node::new(of_region, of_worker), parts.sequence);
        if !parts.reserved {
            assert_eq!(composed, Ok(Id::new(bits)));
        }
        if let Ok(id) = layout.compose(tick, Node::new(region, worker), sequence) {
            let parts = layout.decode(id);
            assert_eq!((parts.tick, parts.sequence), (tick, sequence));
            assert_eq!((parts.region, parts.worker), (region.into(), worker.into()));
        }
    }
});

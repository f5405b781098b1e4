//! Any text as a layout: no panic, one text for each layout, and no ID that it cannot take apart.
#![no_main]

use libfuzzer_sys::fuzz_target;
use snowmint_core::{Id, Layout};

fuzz_target!(|text: &str| {
    let Ok(layout) = text.parse::<Layout>() else { return };
    assert_eq!(layout.to_string(), text, "only the canonical text is a layout");
    for bits in [0, 1, u64::MAX, u64::MAX >> 1, 0x5555_5555_5555_5555] {
        let _ = layout.decode(Id::new(bits));
    }
    let _ = (layout.check_mints(), layout.last_ms(), layout.last_tick(), layout.workers_per_region());
});

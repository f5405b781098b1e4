//! Any text as a layout file: no panic, and what is read can take every ID apart.
#![no_main]

#[allow(dead_code)] // The command's own.
#[path = "../../host/src/cli/layout_toml.rs"]
mod layout_toml;

use libfuzzer_sys::fuzz_target;
use snowmint_core::Id;

fuzz_target!(|text: &str| {
    let Ok(history) = layout_toml::read(text) else { return };
    for bits in [0, 1, u64::MAX, u64::MAX >> 1, 0x5555_5555_5555_5555] {
        let _ = history.current().decode(Id::new(bits));
    }
    assert_eq!(history.to_string().parse().as_ref(), Ok(&history), "a history has a text of its own");
});

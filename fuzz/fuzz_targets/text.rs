//! Any bytes as an ID in any form: no panic, and what is read is written and read again as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use snowmint_core::{ForeignForm, TextForm};

fuzz_target!(|text: &[u8]| {
    for form in TextForm::ALL {
        if let Ok(id) = form.parse(text) {
            assert_eq!(form.parse(form.write(id).as_bytes()), Ok(id));
        }
    }
    for form in ForeignForm::ALL {
        if let Ok(id) = form.parse(text)
            && let Some(written) = form.write(id)
        {
            assert_eq!(form.parse(written.as_bytes()), Ok(id));
        }
    }
});

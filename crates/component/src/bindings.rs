//! What `wit-bindgen` makes of `/wit`. Nothing here is written by hand.

#![allow(missing_docs, clippy::pedantic, unreachable_pub, unused_qualifications)]
// The generated glue checks lengths by other means, and frees what the host passed.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic, clippy::undocumented_unsafe_blocks)]

wit_bindgen::generate!({
    world: "snowmint",
    path: "../../wit",
    pub_export_macro: true,
});

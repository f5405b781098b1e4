//! The store in memory keeps the contract.

use snowmint_lease::{MemoryStore, conformance, init};

#[test]
fn the_store_in_memory_conforms() {
    // Shows every case of the suite over the store in memory.
    conformance::run(&|cluster| {
        let store = MemoryStore::new();
        init(&store, cluster).unwrap();
        Box::new(store)
    });
}

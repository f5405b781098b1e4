//! The redb store keeps the contract of every store.
#![allow(clippy::unwrap_used)] // It is all test.

use std::cell::RefCell;

use snowmint_lease::conformance;
use snowmint_lease_redb::RedbStore;

#[test]
fn the_redb_store_conforms() {
    // Shows every case of the suite over real files.
    let dirs = RefCell::new(Vec::new());
    conformance::run(&|cluster| {
        let dir = tempfile::tempdir().unwrap();
        let store = RedbStore::init(dir.path(), cluster).unwrap();
        dirs.borrow_mut().push(dir);
        Box::new(store)
    });
}

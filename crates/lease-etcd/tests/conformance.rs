//! The etcd store keeps the contract of every store.
#![allow(clippy::unwrap_used)] // It is all test.

mod common;

use common::Cluster;
use snowmint_lease::conformance;
use snowmint_lease_etcd::EtcdStore;

#[test]
fn the_etcd_store_conforms() {
    // Shows every case of the suite over three real members, each store under a prefix of its own.
    let Some(etcd) = Cluster::start(3) else { return };
    conformance::run(&|cluster| {
        let store = EtcdStore::connect(etcd.config(cluster.region)).unwrap();
        snowmint_lease::init(&store, cluster).unwrap();
        Box::new(store)
    });
}

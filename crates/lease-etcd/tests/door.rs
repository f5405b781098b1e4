//! Who may come in, and what is found there.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // It is all test.

mod common;

use std::fs;

use common::{Cluster, T, cluster_record, layout, now};
use etcd_client::{AlarmAction, AlarmType, Permission};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use snowmint_lease::store::scan_complete;
use snowmint_lease::{
    ClusterRecord, CodeRecord, Event, Hindrance, Keeper, KeeperConfig, Loss, Notice, Owner, Store,
    StoreError, Subject,
};
use snowmint_lease_etcd::{EtcdConfig, EtcdIdentity, EtcdStore, EtcdTls, EtcdUser, Recovery, Secret};

fn founded(config: &EtcdConfig) -> EtcdStore {
    let store = EtcdStore::connect(config.clone()).unwrap();
    snowmint_lease::init(&store, &cluster_record(config.region)).unwrap();
    store
}

fn keeper(bits: u32, region: u32) -> Keeper {
    Keeper::new(KeeperConfig::fleet(layout(bits), region, Owner::new("a").unwrap())).unwrap()
}

fn step(keeper: &mut Keeper, store: &dyn Store, boot_ms: u64) -> Vec<Notice> {
    let mut drawn = u128::from(boot_ms) << 64;
    let mut nonce = || {
        drawn += 1;
        drawn
    };
    snowmint_lease::step(keeper, Event::Time, store, &mut || now(boot_ms), &mut nonce).notices
}

fn renew(store: &EtcdStore, code: u32) -> Result<(), StoreError> {
    let (cluster, stored) = (store.cluster()?, store.read(code)?);
    store.swap(code, stored.revision, cluster.revision, &stored.record).map(drop)
}

#[test]
fn only_whom_etcd_knows_and_lets_comes_in() {
    // Shows that a user with the right to the prefix is served, also after etcd has forgotten all tokens; and that a
    // wrong password, an unknown user, none at all, and one without the right are each Denied, which is told at once.
    let Some(mut etcd) = Cluster::start(1) else { return };
    let user = |name: &str, password: &str| {
        Some(EtcdUser { name: String::from(name), password: Secret::new(password) })
    };
    let plain = etcd.config(0);
    let mint = EtcdConfig { user: user("mint", "secret"), ..plain.clone() };
    let denied = |result: Result<(), StoreError>| match result {
        Err(error @ StoreError::Denied { .. }) => println!("{error}"),
        other => panic!("{other:?}"),
    };
    // While nobody is asked who he is, a user is a mistake.
    denied(EtcdStore::connect(mint.clone()).map(drop));

    etcd.admin(0, async |client| {
        client.user_add("root", "root", None).await?;
        client.user_grant_role("root", "root").await?;
        client.role_add("snowmint").await?;
        let prefix = format!("{}/", mint.prefix);
        client.role_grant_permission("snowmint", Permission::read_write(prefix).with_prefix()).await?;
        client.user_add("mint", "secret", None).await?;
        client.user_grant_role("mint", "snowmint").await?;
        client.user_add("other", "secret", None).await?;
        client.auth_enable().await
    });
    let store = founded(&mint);
    renew(&store, 0).unwrap();

    denied(EtcdStore::connect(EtcdConfig { user: user("mint", "wrong"), ..plain.clone() }).map(drop));
    denied(EtcdStore::connect(EtcdConfig { user: user("nobody", "secret"), ..plain.clone() }).map(drop));
    denied(EtcdStore::connect(EtcdConfig { user: user("other", "secret"), ..plain.clone() }).map(drop));
    denied(EtcdStore::connect(plain.clone()).map(drop));
    let elsewhere = EtcdConfig { prefix: String::from("elsewhere"), ..mint.clone() };
    denied(EtcdStore::connect(elsewhere).map(drop));

    // A member that starts again knows no token.
    let (cluster, code) = (store.cluster().unwrap(), store.read(0).unwrap());
    etcd.kill(0);
    etcd.run(0);
    while etcd.try_admin(0, async |client| client.status().await).is_err() {}
    // A swap that is refused for its token is not sent again, though it was not carried out.
    let swap = || store.swap(0, code.revision, cluster.revision, &code.record);
    let error = swap().unwrap_err();
    println!("{error}");
    assert!(error.is_transient());
    assert_eq!(store.read(0).unwrap(), code);
    swap().unwrap();
}

#[test]
fn what_an_operator_broke_is_named_and_nothing_is_minted() {
    // Shows each state that an operator's slip can leave: its name, and that a keeper which held a grant stops at once.
    let Some(etcd) = Cluster::start(1) else { return };
    let put = |key: String, value: Vec<u8>| etcd.admin(0, async |client| client.put(key, value, None).await);
    let delete = |key: String| etcd.admin(0, async |client| client.delete(key, None).await);
    let get =
        |key: String| etcd.admin(0, async |client| client.get(key, None).await).kvs()[0].value().to_vec();

    // Nothing there, then something there.
    let config = etcd.config(1);
    let key = |name: &str| format!("{}/1/{name}", config.prefix);
    let store = EtcdStore::connect(config.clone()).unwrap();
    assert!(
        matches!(store.cluster(), Err(StoreError::NotInitialised { place }) if place.contains(&config.prefix))
    );
    snowmint_lease::init(&store, &cluster_record(1)).unwrap();
    let again = snowmint_lease::init(&store, &cluster_record(1));
    assert!(matches!(again, Err(StoreError::AlreadyInitialised { .. })));
    assert!(get(key("code/00007")) == CodeRecord::UNUSED.encode());

    // Another region's keys are others; another region's record under these keys is refused, and is not written either.
    let other_region = EtcdStore::connect(EtcdConfig { region: 2, ..config.clone() }).unwrap();
    assert!(matches!(other_region.cluster(), Err(StoreError::NotInitialised { .. })));
    let wrong = StoreError::WrongRegion { stored: 1, configured: 2 };
    assert_eq!(other_region.create_cluster(&cluster_record(1)), Err(wrong.clone()));
    put(format!("{}/2/cluster", config.prefix), cluster_record(1).encode());
    assert_eq!(other_region.cluster(), Err(wrong.clone()));
    assert_eq!(step(&mut keeper(3, 2), &other_region, 1_000), [Notice::Hindered(Hindrance::Store(wrong))]);

    // Another layout.
    let notices = step(&mut keeper(4, 1), &store, 1_000);
    assert!(
        matches!(&notices[..], [Notice::Hindered(Hindrance::Store(StoreError::WrongLayout { .. }))]),
        "{notices:?}"
    );

    // Records that were deleted, damaged, or written by another version, under a keeper that holds a code.
    let newer = |mut bytes: Vec<u8>| {
        bytes[5] = 9;
        bytes
    };
    let flipped = |mut bytes: Vec<u8>| {
        bytes[20] ^= 1;
        bytes
    };
    for (what, subject, reason) in [
        ("delete", Subject::Code(0), "missing"),
        ("flip", Subject::Code(0), "damaged"),
        ("empty", Subject::Code(0), "damaged"),
        ("newer", Subject::Code(0), "wrong-version"),
        ("delete", Subject::Cluster, "missing"),
        ("flip", Subject::Cluster, "damaged"),
        ("newer", Subject::Cluster, "wrong-version"),
    ] {
        let config = etcd.config(1);
        let store = founded(&config);
        let mut keeper = keeper(3, 1);
        step(&mut keeper, &store, 1_000);
        let grant = keeper.take_grant(1_000).unwrap();
        let code = grant.node().worker();
        let key = match subject {
            Subject::Cluster => format!("{}/1/cluster", config.prefix),
            Subject::Code(_) => format!("{}/1/code/{code:05}", config.prefix),
        };
        match what {
            "delete" => drop(delete(key)),
            "flip" => drop(put(key.clone(), flipped(get(key)))),
            "empty" => drop(put(key, Vec::new())),
            _ => drop(put(key.clone(), newer(get(key)))),
        }
        let found = match subject {
            Subject::Cluster => store.cluster().map(drop),
            Subject::Code(_) => store.read(code).map(drop),
        };
        let error = found.unwrap_err();
        println!("{what} {subject:?}: {error}");
        assert_eq!(error.reason(), reason, "{what} {subject:?}");
        let notices = step(&mut keeper, &store, 4_400);
        assert!(
            notices.iter().any(|notice| matches!(notice,
                Notice::Lost { loss: Loss::Store(error), .. } if error.reason() == reason)),
            "{what} {subject:?}: {notices:?}"
        );
        assert_eq!(keeper.ceiling_ms(grant.ticket(), 4_400), 0);
        // And nobody else gets a code.
        let mut next = self::keeper(3, 1);
        step(&mut next, &store, 60_000);
        assert!(next.take_grant(60_000).is_none(), "{what} {subject:?}");
    }

    // A cluster record that is gone is no empty place, also for who would found one.
    let config = etcd.config(1);
    let store = founded(&config);
    let stored = store.read(3).unwrap();
    let granted = CodeRecord { term: 1, end_ms: T, ..CodeRecord::UNUSED };
    store.swap(3, stored.revision, store.cluster().unwrap().revision, &granted).unwrap();
    delete(format!("{}/1/cluster", config.prefix));
    let missing = Err(StoreError::Missing { subject: Subject::Cluster });
    assert_eq!(store.cluster().map(drop), missing);
    assert_eq!(snowmint_lease::init(&store, &cluster_record(1)), missing);

    // A key among the codes that is none.
    let config = etcd.config(1);
    let store = founded(&config);
    put(format!("{}/1/code/7", config.prefix), CodeRecord::UNUSED.encode());
    assert!(matches!(store.scan(), Err(StoreError::Unreadable { .. })));
}

#[test]
fn a_broken_store_is_recovered_above_what_was_stamped() {
    // Shows that with the cluster record or code records deleted or damaged, or any of both, a recovery makes a whole
    // store of a higher generation; that records which are whole stay as they were; that no grant begins at or below the
    // time that the operator vouches for; and that another layout is refused and nothing written.
    let Some(etcd) = Cluster::start(1) else { return };
    for (is_cluster_lost, is_cluster_damaged) in [(false, false), (true, false), (false, true)] {
        let config = etcd.config(1);
        let store = founded(&config);
        let mut before = keeper(3, 1);
        step(&mut before, &store, 1_000);
        let grant = before.take_grant(1_000).unwrap();
        let held = grant.node().worker();
        let kept = store.read(held).unwrap();
        let key = |name: &str| format!("{}/1/{name}", config.prefix);
        let (first, second) = ((held + 1) % 8, (held + 2) % 8);
        etcd.admin(0, async |client| {
            client.delete(key(&format!("code/{first:05}")), None).await?;
            client.put(key(&format!("code/{second:05}")), "nonsense", None).await?;
            if is_cluster_lost {
                client.delete(key("cluster"), None).await?;
            }
            if is_cluster_damaged {
                client.put(key("cluster"), "nonsense", None).await?;
            }
            Ok(())
        });
        let known = ClusterRecord { generation: 4, ..cluster_record(1) };
        let recovery = Recovery { cluster: known.clone(), not_before_ms: T + 50_000, window_ms: 10_000 };
        let other = Recovery { cluster: ClusterRecord { layout: layout(4), ..known }, ..recovery.clone() };
        let revision = etcd.revision();
        if !is_cluster_lost && !is_cluster_damaged {
            let refused = EtcdStore::recover(config.clone(), &other, &now(2_000));
            assert!(matches!(refused, Err(StoreError::WrongLayout { .. })));
            assert_eq!(etcd.revision(), revision);
        }

        let recovered = EtcdStore::recover(config.clone(), &recovery, &now(2_000)).unwrap();
        let cluster = recovered.cluster().unwrap().record;
        assert_eq!((cluster.generation, cluster.not_before_ms), (5, T + 50_000));
        let codes = scan_complete(&recovered, &cluster).unwrap();
        assert_eq!(codes[held as usize].1, kept);
        for code in [first, second] {
            assert_eq!(codes[code as usize].1.record, CodeRecord::UNUSED);
        }
        // The worker of before, through its own store, is out; and whoever is next begins above.
        let notices = step(&mut before, &store, 4_400);
        assert!(notices.iter().any(|notice| matches!(notice, Notice::Lost { .. })), "{notices:?}");
        let mut next = keeper(3, 1);
        step(&mut next, &recovered, 49_000);
        assert!(next.take_grant(49_000).is_none());
        step(&mut next, &recovered, 60_000);
        assert!(next.take_grant(60_000).unwrap().floor_ms() >= T + 50_000);
        // Again: the generation is never the same.
        let again = EtcdStore::recover(config, &recovery, &now(3_000)).unwrap();
        assert_eq!(again.cluster().unwrap().record.generation, 6);
    }
}

#[test]
fn a_full_etcd_is_full_and_serves_again() {
    // Shows that under the alarm of no space a swap is Full and has written nothing, while reads go on; and that it
    // serves again once an operator has disarmed the alarm.
    let Some(etcd) = Cluster::start(1) else { return };
    let store = founded(&etcd.config(0));
    let (cluster, code) = (store.cluster().unwrap(), store.read(0).unwrap());
    etcd.admin(0, async |client| client.alarm(AlarmAction::Activate, AlarmType::Nospace, None).await);
    let swap = || store.swap(0, code.revision, cluster.revision, &code.record);
    let error = swap().unwrap_err();
    println!("{error}");
    assert!(matches!(error, StoreError::Full { .. }));
    assert_eq!(store.read(0).unwrap(), code);
    let more = store.create_codes(&[(8, CodeRecord::UNUSED)]);
    assert!(matches!(more, Err(StoreError::Full { .. })));
    etcd.admin(0, async |client| client.alarm(AlarmAction::Deactivate, AlarmType::Nospace, None).await);
    swap().unwrap();
}

#[test]
fn a_large_layout_is_founded_in_parts_and_scanned_in_pages() {
    // Shows that 4,096 codes, which are 32 transactions and two pages, are all there; that founding goes on where it was
    // cut off; and that creating refuses where one of the codes exists.
    let Some(etcd) = Cluster::start(1) else { return };
    let store = EtcdStore::connect(etcd.config(0)).unwrap();
    let cluster = ClusterRecord { layout: layout(12), ..cluster_record(0) };
    let part: Vec<_> = (0..300).map(|code| (code, CodeRecord::UNUSED)).collect();
    store.create_codes(&part).unwrap();
    assert!(matches!(store.create_codes(&part[299..]), Err(StoreError::AlreadyInitialised { .. })));
    snowmint_lease::init(&store, &cluster).unwrap();
    assert_eq!(scan_complete(&store, &cluster).unwrap().len(), 4_096);
    assert!(matches!(
        store.create_codes(&[(65_536, CodeRecord::UNUSED)]),
        Err(StoreError::Misconfigured { .. })
    ));
}

#[test]
fn it_can_be_called_and_dropped_inside_another_runtime() {
    // Shows that neither a call nor the end of a store minds that its thread belongs to an async runtime.
    let Some(etcd) = Cluster::start(1) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let config = etcd.config(0);
    runtime.block_on(async {
        let store = founded(&config);
        renew(&store, 0).unwrap();
        drop(store);
    });
}

/// An authority, and certificates by it.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn certify(&self, name: &str) -> EtcdIdentity {
        let (cert_pem, key_pem) = self.certify_pems(name);
        EtcdIdentity { cert_pem, key_pem: Secret::new(key_pem) }
    }

    /// A certificate and its key.
    fn certify_pems(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![String::from(name)]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

#[test]
fn certificates_are_checked_on_both_sides() {
    // Shows that over TLS a store with the right authority and a certificate of its own is served; and that another
    // authority, another name, no certificate or one by somebody else is refused, and PEM that is none is told before.
    let (ours, theirs) = (Authority::new(), Authority::new());
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, pem: &str| {
        let path = dir.path().join(name);
        fs::write(&path, pem).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (cert, key) = ours.certify_pems("etcd.test");
    let args = [
        String::from("--client-cert-auth"),
        format!("--cert-file={}", write("server.pem", &cert)),
        format!("--key-file={}", write("server.key", &key)),
        format!("--trusted-ca-file={}", write("ca.pem", &ours.pem)),
    ];
    let Some(etcd) = Cluster::start_with(1, "https", &args) else { return };
    let good = EtcdTls {
        ca_pem: ours.pem.clone(),
        identity: Some(ours.certify("mint")),
        server_name: Some(String::from("etcd.test")),
    };
    let config = etcd.config(0);
    let connect = |tls: &EtcdTls| EtcdStore::connect(EtcdConfig { tls: Some(tls.clone()), ..config.clone() });
    let started = std::time::Instant::now();
    let store = loop {
        match connect(&good) {
            Ok(store) => break store,
            Err(error) => assert!(error.is_transient() && started.elapsed() < common::PATIENCE, "{error}"),
        }
    };
    snowmint_lease::init(&store, &cluster_record(0)).unwrap();
    renew(&store, 0).unwrap();

    for (what, tls) in [
        ("another authority", EtcdTls { ca_pem: theirs.pem.clone(), ..good.clone() }),
        ("another name", EtcdTls { server_name: Some(String::from("a.test")), ..good.clone() }),
        ("no certificate", EtcdTls { identity: None, ..good.clone() }),
        ("another's certificate", EtcdTls { identity: Some(theirs.certify("mint")), ..good.clone() }),
    ] {
        let error = connect(&tls).unwrap_err();
        println!("{what}: {error}");
        assert!(matches!(error, StoreError::Unreachable { .. }), "{what}: {error}");
    }
    for tls in [
        EtcdTls {
            ca_pem: String::from("-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----"),
            ..good.clone()
        },
        EtcdTls {
            identity: Some(EtcdIdentity { cert_pem: cert.clone(), key_pem: Secret::new("none") }),
            ..good.clone()
        },
    ] {
        let error = connect(&tls).unwrap_err();
        assert!(matches!(error, StoreError::Misconfigured { .. }), "{error}");
    }
}

//! The fleet's lease store: one etcd cluster a region, for all workers of it.
//!
//! ```no_run
//! use snowmint_core::Layout;
//! use snowmint_lease::{ClusterRecord, Event, Keeper, KeeperConfig, Now, Owner};
//! use snowmint_lease_etcd::{EtcdConfig, EtcdStore, EtcdTls, EtcdUser, Secret};
//!
//! # let mut clock = || Now { boot_ms: 5_000, wall_ms: 1_750_000_000_000, clock_error_ms: 1 };
//! # let mut drawn = 0;
//! # let mut nonce = || { drawn += 1; drawn };
//! let members = ["a", "b", "c"].map(|host| format!("https://{host}.etcd.example:2379"));
//! let config = EtcdConfig {
//!     user: Some(EtcdUser { name: "snowmint".into(), password: Secret::new("...") }),
//!     tls: Some(EtcdTls { ca_pem: std::fs::read_to_string("ca.pem")?, identity: None, server_name: None }),
//!     ..EtcdConfig::new(members.to_vec(), 0)
//! };
//! let store = EtcdStore::connect(config)?;
//!
//! // Once in a region's life, by an operator:
//! snowmint_lease::init(&store, &ClusterRecord::new(0x5eed, Layout::SNOWMINT, 0)?)?;
//!
//! // Whenever a worker starts:
//! let mut keeper = Keeper::new(KeeperConfig::fleet(Layout::SNOWMINT, 0, Owner::new("host-a")?))?;
//! let _ = snowmint_lease::step(&mut keeper, Event::Time, &store, &mut clock, &mut nonce);
//! assert!(keeper.take_grant(5_000).is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What lies in etcd
//!
//! | key | value |
//! |---|---|
//! | `<prefix>/<region>/cluster` | the cluster record |
//! | `<prefix>/<region>/code/00017` | the record of code 17, its code in five digits |
//!
//! Plain keys, in the encoding of [`snowmint_lease::encoding`], never bound to a lease of etcd: that such a lease ended
//! does not prove that its holder has stopped, and a record that vanishes takes with it how far its IDs reach. A record
//! is replaced, never deleted. Its revision is etcd's `mod_revision`.
//!
//! A region of 256 codes takes about 40 KB, and each renewal adds a version of one record, about 150 bytes: let etcd
//! compact (`--auto-compaction-retention`), or it runs out of space.
//!
//! # What a call does
//!
//! | call | etcd sees | asked again by itself? |
//! |---|---|---|
//! | `cluster`, `read`, `scan` | linearizable reads; a scan in pages of 2,048 | of another member, within the call's limit |
//! | `swap` | one transaction: if the cluster record's *and* the code's `mod_revision` are as expected, put; else read both | never |
//! | `swap_cluster`, `create_cluster`, `create_codes` | transactions that compare and put; of codes, 128 in one | never |
//!
//! A swap that gets no answer may have been carried out: it is [`StoreError::Unreachable`], and whoever sent it reads the
//! record and compares the nonce, as the keeper does. The client library is told not to send anything twice either. A
//! member that fails is left for another, and asked again after a pause that doubles and is half random; a connection on
//! which a request got no answer is not used again.
//!
//! # What can go wrong
//!
//! | what | error |
//! |---|---|
//! | no member answers, no leader, no quorum, a token that ran out | [`StoreError::Unreachable`] |
//! | a member's certificate is not trusted, or ours is not | [`StoreError::Unreachable`], since that is told by a closed connection |
//! | wrong password, unknown user, no permission, authentication not enabled though there is a user | [`StoreError::Denied`] |
//! | etcd's `NOSPACE` alarm | [`StoreError::Full`] |
//! | etcd's `CORRUPT` alarm, or a key among the codes that is none | [`StoreError::Unreadable`] |
//! | another user wrote first; the cluster record was changed | [`StoreError::Conflict`]; [`StoreError::ClusterChanged`] |
//! | a record was deleted; overwritten; written by another version | [`StoreError::Missing`]; [`StoreError::Damaged`]; [`StoreError::WrongVersion`] |
//! | the record under a region's keys is another region's | [`StoreError::WrongRegion`] |
//! | another layout | [`StoreError::WrongLayout`], by the keeper |
//! | nothing under the prefix; something already | [`StoreError::NotInitialised`]; [`StoreError::AlreadyInitialised`] |
//! | etcd's data was put back from a backup, or an endpoint leads to another cluster | [`StoreError::Copied`], as far as this store saw the one before |
//! | endpoints, prefix, certificates or times that cannot be followed | [`StoreError::Misconfigured`] |
//!
//! `Full` is told only once a read has shown that nothing was written: etcd can carry out a transaction and refuse it
//! for want of space.
//!
//! # What is assumed of etcd
//!
//! 1. One cluster for each region and prefix. Endpoints of two clusters in one configuration are noticed, but only by a
//!    store that has talked to both.
//! 2. What it has confirmed survives what its operators promise to survive: the disks of a majority of its members.
//! 3. Reads that are not marked serializable, and transactions, are linearizable; a transaction is all or nothing.
//! 4. A key's `mod_revision` grows with each write, and never comes back, unless the data is put back from a backup.
//! 5. A refusal is about a request that was not carried out, but for those in the table of outcomes above.
//! 6. Nobody but Snowmint writes under the prefix. A slip is noticed (checksums, absent records), malice is not.
//!
//! Nothing is assumed of its clocks, its leases or its watches: none of them is used.
//!
//! # Backups
//!
//! A backup of etcd is older than what was granted since. Put back, it would grant ranges again that were used. So:
//!
//! 1. Stop every worker of the region, or cut it off from etcd.
//! 2. Put the backup back.
//! 3. Raise the generation (`snowmint init --recover --not-before MS`), with a time at or above all that was stamped: the
//!    latest end that any worker's log names, or the present time plus the lead. [`snowmint_lease::store::recover`] does
//!    it where all records are whole; [`EtcdStore::recover`] also makes those anew that are not, and takes the highest
//!    generation that anybody remembers, since a backup can be older than the last recovery.
//! 4. Let the workers back. Grants of before are over; none begins at or below that time.
//!
//! A worker that was missed in the first step, and that has seen etcd further on than the backup, refuses by itself
//! ([`StoreError::Copied`]) until the generation is raised. One that starts in between cannot know: that is why the first
//! step is an assumption of the proof.
//!
//! # What is not here
//!
//! No watch, no lease of etcd, no lock, no retry of a write, no discovery of members, no environment variable. No
//! `unsafe`.
//!
//! [`StoreError::AlreadyInitialised`]: snowmint_lease::StoreError::AlreadyInitialised
//! [`StoreError::ClusterChanged`]: snowmint_lease::StoreError::ClusterChanged
//! [`StoreError::Conflict`]: snowmint_lease::StoreError::Conflict
//! [`StoreError::Copied`]: snowmint_lease::StoreError::Copied
//! [`StoreError::Damaged`]: snowmint_lease::StoreError::Damaged
//! [`StoreError::Denied`]: snowmint_lease::StoreError::Denied
//! [`StoreError::Full`]: snowmint_lease::StoreError::Full
//! [`StoreError::Misconfigured`]: snowmint_lease::StoreError::Misconfigured
//! [`StoreError::Missing`]: snowmint_lease::StoreError::Missing
//! [`StoreError::NotInitialised`]: snowmint_lease::StoreError::NotInitialised
//! [`StoreError::Unreachable`]: snowmint_lease::StoreError::Unreachable
//! [`StoreError::Unreadable`]: snowmint_lease::StoreError::Unreadable
//! [`StoreError::WrongLayout`]: snowmint_lease::StoreError::WrongLayout
//! [`StoreError::WrongRegion`]: snowmint_lease::StoreError::WrongRegion
//! [`StoreError::WrongVersion`]: snowmint_lease::StoreError::WrongVersion

#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod config;
mod fault;
mod members;
mod seen;
mod store;

pub use config::{EtcdConfig, EtcdIdentity, EtcdTls, EtcdUser, Secret};
pub use store::{EtcdStore, Recovery};

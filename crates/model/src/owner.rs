//! One owner: a process with its keeper, its generators and what it has under way.

use std::hash::{Hash, Hasher};
use std::num::NonZeroU32;

use snowmint_core::{Bounds, Generator, Grant, Layout, Policy};
use snowmint_lease::keeper::Name;
use snowmint_lease::{CodeRecord, Keeper, Reply, Request, Revision, Stored};

use crate::TICK_MS;
use crate::world::BOOT_STEPS;

/// A set of ticks, by number.
pub(crate) type Ticks = u16;

/// How many ticks a [`Ticks`] can hold.
pub(crate) const TICKS_MAX: u64 = 16;

/// The ticks of a set above this one.
pub(crate) const fn above(ticks: Ticks, tick: u64) -> Ticks {
    if tick + 1 >= TICKS_MAX { 0 } else { ticks & (Ticks::MAX << (tick + 1)) }
}

/// Names as bits: they are given anew when nobody remembers them, so that few are ever needed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Names {
    nonces: u64,
    revisions: u64,
    clusters: u64,
}

impl Names {
    pub(crate) fn add(&mut self, name: Name) {
        let bit = |number: u128| 1_u64 << number.min(63);
        match name {
            Name::Nonce(nonce) => self.nonces |= bit(nonce),
            Name::Revision(revision) => self.revisions |= bit(revision.get().into()),
            Name::Cluster(revision) => self.clusters |= bit(revision.get().into()),
        }
    }

    pub(crate) fn add_all(&mut self, other: Self) {
        self.nonces |= other.nonces;
        self.revisions |= other.revisions;
        self.clusters |= other.clusters;
    }

    pub(crate) fn add_stored(&mut self, stored: &Stored<CodeRecord>) {
        self.add(Name::Nonce(stored.record.nonce));
        self.add(Name::Revision(stored.revision));
    }

    pub(crate) fn add_request(&mut self, request: &Request) {
        if let Request::Swap { expected, cluster, record, .. } = request {
            self.add(Name::Nonce(record.nonce));
            self.add(Name::Revision(*expected));
            self.add(Name::Cluster(*cluster));
        }
    }

    pub(crate) fn add_flight(&mut self, flight: &Flight) {
        match &flight.load {
            Load::Ask(request) => self.add_request(request),
            Load::Answer(reply) => self.add_reply(reply),
        }
    }

    fn add_reply(&mut self, reply: &Reply) {
        match reply {
            Reply::Cluster(stored) => self.add(Name::Cluster(stored.revision)),
            Reply::Scan(codes) => codes.iter().for_each(|(_, stored)| self.add_stored(stored)),
            Reply::Read(stored) => self.add_stored(stored),
            Reply::Swapped(revision) => self.add(Name::Revision(*revision)),
            Reply::Failed(_) => {}
        }
    }

    pub(crate) const fn has_nonce(&self, nonce: u128) -> bool {
        nonce < 64 && self.nonces & (1 << nonce) != 0
    }

    /// The lowest nonces that nobody remembers: an even and an odd one, which a keeper may choose differently by. 0 is
    /// that of a record that was never swapped.
    pub(crate) fn fresh_nonces(&self) -> [u128; 2] {
        // Its number becomes that of a revision too.
        let taken = self.nonces | self.revisions;
        let lowest = |first| (first..64).step_by(2).find(|nonce| taken & (1 << nonce) == 0).unwrap_or(63);
        [lowest(1), lowest(2)]
    }

    pub(crate) fn fresh_revision(&self) -> Revision {
        Revision::new(u64::from((self.revisions | 1).trailing_ones()))
    }

    pub(crate) fn fresh_cluster(&self) -> Revision {
        Revision::new(u64::from((self.clusters | 1).trailing_ones()))
    }
}

pub(crate) fn rename_stored(stored: &mut Stored<CodeRecord>, number: &dyn Fn(u128) -> u128) {
    stored.record.nonce = number(stored.record.nonce);
    stored.revision.rename(number);
}

pub(crate) fn rename_request(request: &mut Request, number: &dyn Fn(u128) -> u128) {
    if let Request::Swap { expected, record, .. } = request {
        expected.rename(number);
        record.nonce = number(record.nonce);
    }
}

/// Something on its way between a process and the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flight {
    pub(crate) load: Load,
    /// Whether the keeper still waits for it.
    pub(crate) is_current: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Load {
    Ask(Request),
    Answer(Reply),
}

/// A generator as far as the protocol is concerned: which ticks it may have stamped. It may stamp, at any time until
/// it is stopped, whatever any ceiling that it was ever told allows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Minting {
    pub(crate) ticket: u64,
    pub(crate) code: u32,
    pub(crate) term: u32,
    pub(crate) generation: u16,
    /// Whether it is of the layout that was cut over to.
    pub(crate) is_next: bool,
    pub(crate) floor_ms: u64,
    pub(crate) seen_ms: u64,
    pub(crate) may: Ticks,
}

impl Minting {
    pub(crate) fn new(grant: &Grant, is_next: bool) -> Self {
        let ticket = grant.ticket();
        #[allow(clippy::cast_possible_truncation)]
        // A ticket is 16 bits of generation, 16 of code, 32 of term.
        Self {
            ticket,
            code: ((ticket >> 32) & 0xffff) as u32,
            term: ticket as u32,
            generation: (ticket >> 48) as u16,
            is_next,
            floor_ms: grant.floor_ms(),
            seen_ms: 0,
            may: 0,
        }
    }

    /// The ticks at which a real generator of this grant mints under a ceiling: by any clock, up to its lead ahead.
    pub(crate) fn ticks_under(&self, layout: Layout, lead_ms: u32, ceiling_ms: u64) -> Ticks {
        let bounds = Bounds { ceiling_ms, ..Bounds::OPEN };
        let mints = |tick: &u64| {
            let node = layout.node(0, self.code).ok()?;
            let grant = Grant::new(node, self.ticket, self.floor_ms);
            let mut generator = Generator::new(layout, grant, Policy::CLASSIC.with_lead_ms(lead_ms)).ok()?;
            let run = generator.mint(tick * TICK_MS, &bounds, NonZeroU32::MIN).ok()?;
            // A floor within a tick of the model is its end, so that what lies above belongs to the next.
            Some(layout.decode(run.first()).tick.div_ceil(TICK_MS))
        };
        let ticks = (0..TICKS_MAX).filter_map(|tick| mints(&tick)).filter(|tick| *tick < TICKS_MAX);
        ticks.fold(0, |ticks, tick| ticks | 1 << tick)
    }
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    pub(crate) keeper: Keeper,
    pub(crate) grant: Option<Minting>,
    /// The generator of an earlier grant that nobody stopped.
    pub(crate) former: Option<Minting>,
    /// How long ago the swaps were sent that the keeper remembers, in steps of its boot-time clock.
    pub(crate) sent: Vec<(u128, u8)>,
    /// Up to where the store has confirmed: (code, term, end).
    pub(crate) confirmed: Vec<(u32, u32, u64)>,
    pub(crate) flights: Vec<Flight>,
    /// The nonce of all its swaps, where that rule is broken.
    pub(crate) nonce: Option<u128>,
    /// At which revision its keeper last saw the peers, and whether they had renewed since it saw them before.
    pub(crate) saw_peers: Option<Revision>,
    pub(crate) is_told: bool,
}

impl Owner {
    pub(crate) fn new(keeper: Keeper) -> Self {
        Self {
            keeper,
            grant: None,
            former: None,
            sent: Vec::new(),
            confirmed: Vec::new(),
            flights: Vec::new(),
            nonce: None,
            saw_peers: None,
            is_told: false,
        }
    }

    /// A step of its boot-time clock passes.
    pub(crate) fn grow_older(&mut self) {
        for (_, age) in &mut self.sent {
            *age = BOOT_STEPS.min(*age + 1);
        }
    }

    pub(crate) fn rename(&mut self, number: &dyn Fn(u128) -> u128) {
        self.keeper.rename(number);
        self.sent.iter_mut().for_each(|(nonce, _)| *nonce = number(*nonce));
        self.saw_peers.iter_mut().for_each(|revision| revision.rename(number));
        for flight in &mut self.flights {
            match &mut flight.load {
                Load::Ask(request) => rename_request(request, number),
                Load::Answer(Reply::Scan(codes)) => {
                    for (_, stored) in codes {
                        rename_stored(stored, number);
                    }
                }
                Load::Answer(Reply::Read(stored)) => rename_stored(stored, number),
                Load::Answer(Reply::Swapped(revision)) => revision.rename(number),
                Load::Answer(Reply::Cluster(_) | Reply::Failed(_)) => {}
            }
        }
    }

    pub(crate) fn names(&self) -> Names {
        let mut names = Names::default();
        self.keeper.names(&mut |name| names.add(name));
        self.flights.iter().for_each(|flight| names.add_flight(flight));
        self.nonce.into_iter().for_each(|nonce| names.add(Name::Nonce(nonce)));
        self.saw_peers.into_iter().for_each(|revision| names.add(Name::Revision(revision)));
        names
    }
}

/// An owner with what is asked of it again and again.
#[derive(Debug)]
pub(crate) struct Known {
    hash: u64,
    /// The hash of what it is in, whatever its nonces and revisions are called.
    blind: u64,
    /// Its nonces and revisions, in an order that depends on what it is in.
    pub(crate) met: Vec<u128>,
    pub(crate) names: Names,
    pub(crate) owner: Owner,
}

impl Known {
    pub(crate) fn new(owner: Owner) -> Self {
        let mut blind = owner.clone();
        let met = std::cell::RefCell::new(Vec::with_capacity(8));
        blind.rename(&|name| {
            met.borrow_mut().push(name);
            0
        });
        let names = owner.names();
        Self { hash: hash_of(&owner), blind: hash_of(&blind), met: met.into_inner(), names, owner }
    }

    /// Owners are told apart by nothing but this.
    pub(crate) const fn key(&self) -> (u64, u64) {
        (self.blind, self.hash)
    }
}

impl PartialEq for Known {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.owner == other.owner
    }
}

impl Eq for Known {}

impl Hash for Known {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

fn hash_of(owner: &Owner) -> u64 {
    let mut hasher = Mixer(0);
    owner.hash(&mut hasher);
    hasher.finish()
}

/// A fast hash of many small numbers, for which the standard one takes most of a step's time.
struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let number = part.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte));
            self.write_u64(number);
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = u128::from(self.0 ^ number ^ 0x9e37_79b9_7f4a_7c15)
            .wrapping_mul(0xd6e8_feb8_6659_fd93_a076_1d64_78bd_642f);
        #[allow(clippy::cast_possible_truncation)] // Both halves are folded into one.
        let folded = (mixed >> 64) as u64 ^ mixed as u64;
        self.0 = folded.rotate_left(23);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

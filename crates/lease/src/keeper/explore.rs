//! What a model checker needs of a keeper: copies, names, and one form for states that behave alike.
//!
//! With the feature `explore` a keeper is `Clone`, and a copy has the grant once more: that is for a checker, which
//! explores one branch with each copy. A program that mints never turns the feature on.

use super::{Asked, Keeper, Mode, Next, RequestId, Sent};
use crate::{CodeRecord, Revision, State, protocol::Watch};

/// The boot-time clock of a settled keeper.
pub const SETTLED_BOOT_MS: u64 = 1 << 20;

/// Something that a keeper remembers and only ever compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Name {
    /// Of a swap.
    Nonce(u128),
    /// Of a code's record.
    Revision(Revision),
    /// Of the cluster record.
    Cluster(Revision),
}

impl RequestId {
    /// The id of no request that stands: what a reply bears that comes too late.
    pub const STALE: Self = Self(0);
}

impl Revision {
    /// Gives it another number.
    pub fn rename(&mut self, number: &dyn Fn(u128) -> u128) {
        if let Ok(renamed) = u64::try_from(number(self.get().into())) {
            *self = Self::new(renamed);
        }
    }
}

impl Keeper {
    /// The request that it waits for.
    pub fn asked_id(&self) -> Option<RequestId> {
        self.asked.as_ref().map(|(id, ..)| *id)
    }

    /// The code that it holds, has asked for, or gives back.
    pub fn code(&self) -> Option<u32> {
        self.own_code()
    }

    /// The nonce of the held grant's last confirmed swap.
    pub fn confirmed_nonce(&self) -> Option<u128> {
        match &self.mode {
            Mode::Held(held) => Some(held.record.nonce),
            _ => None,
        }
    }

    /// Tells every name that it remembers. A name that nobody remembers can be given again.
    pub fn names(&self, tell: &mut dyn FnMut(Name)) {
        let held = match &self.mode {
            Mode::Held(held) => Some(held),
            Mode::Releasing(releasing) => {
                releasing.nonces.iter().for_each(|nonce| tell(Name::Nonce(*nonce)));
                Some(&releasing.held)
            }
            Mode::Acquiring(claim) => {
                tell(Name::Nonce(claim.sent.nonce));
                None
            }
            Mode::Seeking | Mode::Ended => None,
        };
        if let Some(held) = held {
            tell(Name::Nonce(held.record.nonce));
            tell(Name::Revision(held.revision));
            held.unknown.iter().for_each(|sent| tell(Name::Nonce(sent.nonce)));
        }
        if let Next::Take { stored, .. } = &self.next {
            tell(Name::Nonce(stored.record.nonce));
            tell(Name::Revision(stored.revision));
        }
        if let Some((.., Asked::Swap(record))) = &self.asked {
            tell(Name::Nonce(record.nonce));
        }
        if let Some(cluster) = &self.cluster {
            tell(Name::Cluster(cluster.revision));
        }
        if let Some(first) = &self.peers.first {
            first.revisions.iter().for_each(|(_, revision)| tell(Name::Revision(*revision)));
        }
    }

    /// Gives every nonce and every revision of a code's record that it remembers another number.
    pub fn rename(&mut self, number: &dyn Fn(u128) -> u128) {
        let nonce = |nonce: &mut u128| *nonce = number(*nonce);
        let held = match &mut self.mode {
            Mode::Held(held) => Some(held),
            Mode::Releasing(releasing) => {
                releasing.nonces.iter_mut().for_each(nonce);
                Some(&mut releasing.held)
            }
            Mode::Acquiring(claim) => {
                nonce(&mut claim.sent.nonce);
                None
            }
            Mode::Seeking | Mode::Ended => None,
        };
        if let Some(held) = held {
            nonce(&mut held.record.nonce);
            held.revision.rename(number);
            held.unknown.iter_mut().for_each(|sent| nonce(&mut sent.nonce));
        }
        if let Next::Take { stored, .. } = &mut self.next {
            nonce(&mut stored.record.nonce);
            stored.revision.rename(number);
        }
        if let Some((.., Asked::Swap(record))) = &mut self.asked {
            nonce(&mut record.nonce);
        }
        if let Some(first) = &mut self.peers.first {
            first.revisions.iter_mut().for_each(|(_, revision)| revision.rename(number));
        }
    }

    /// Makes it count the holders of these records as silent for as long as it takes: expiry at any moment.
    pub fn lose_patience<'a>(&mut self, records: impl IntoIterator<Item = (u32, &'a CodeRecord)>) {
        for (code, record) in records {
            if record.state != State::Active {
                continue;
            }
            let mut watch = Watch::new();
            for third in 0..=4 {
                let boot_ms = third * u64::from(record.ttl_ms);
                watch.saw(record, boot_ms, boot_ms);
            }
            self.watches.insert(code, watch);
        }
    }

    /// Brings it to the one form of all keepers that behave as it does from `now_boot_ms` on, in which that reading is
    /// [`SETTLED_BOOT_MS`]. Forgets what is only reported, and what it has watched: a
    /// checker lets holders expire by [`Keeper::lose_patience`]. Forgets swaps too that can never be heard of again:
    /// `is_alive` says whether a nonce is on its way or in a record.
    /// `step_ms` is the step by which a checker lets the boot-time clock move: what falls due within one falls due at
    /// its end.
    pub fn settle(&mut self, now_boot_ms: u64, step_ms: u64, is_alive: &dyn Fn(u128) -> bool) {
        let window_ms = u64::from(self.config.window_ms);
        let shift = |boot_ms: &mut u64, least_ms: u64| {
            *boot_ms = boot_ms.saturating_add(SETTLED_BOOT_MS).saturating_sub(now_boot_ms).max(least_ms);
        };
        // What was due is due; what was sent a window ago or earlier is all the same.
        let due = |boot_ms: &mut u64| {
            shift(boot_ms, SETTLED_BOOT_MS);
            *boot_ms = SETTLED_BOOT_MS + (*boot_ms - SETTLED_BOOT_MS).next_multiple_of(step_ms);
        };
        let sent = |boot_ms: &mut u64| shift(boot_ms, SETTLED_BOOT_MS - window_ms);
        let unstamp = |record: &mut CodeRecord| record.stamp_ms = 0;

        due(&mut self.wake_boot_ms);
        if let Some((id, sent_boot_ms, asked)) = &mut self.asked {
            *id = RequestId(1);
            sent(sent_boot_ms);
            if let Asked::Swap(record) = asked {
                unstamp(record);
            }
        }
        self.requests = 1;
        if self.asked.is_some() {
            // Whatever comes of the request decides what is next, and when.
            self.next = Next::Cluster;
            self.wake_boot_ms = SETTLED_BOOT_MS;
        }
        if let Next::Take { stored, .. } = &mut self.next {
            unstamp(&mut stored.record);
        }
        let held = match &mut self.mode {
            Mode::Held(held) => Some(held),
            Mode::Releasing(releasing) => {
                due(&mut releasing.until_boot_ms);
                releasing.nonces.retain(|nonce| is_alive(*nonce));
                Some(&mut releasing.held)
            }
            Mode::Acquiring(claim) => {
                sent(&mut claim.sent.boot_ms);
                None
            }
            Mode::Seeking | Mode::Ended => None,
        };
        if let Some(held) = held {
            unstamp(&mut held.record);
            due(&mut held.deadline_boot_ms);
            held.unknown.retain(|sent| is_alive(sent.nonce));
            for Sent { boot_ms, .. } in &mut held.unknown {
                sent(boot_ms);
            }
        }
        if let Mode::Releasing(releasing) = &mut self.mode {
            let held = &mut releasing.held;
            // It only looks for its own nonces now.
            held.deadline_boot_ms = SETTLED_BOOT_MS;
            held.is_lapsed = false;
            held.unknown.iter_mut().for_each(|sent| sent.boot_ms = SETTLED_BOOT_MS);
        }
        if let Some(first) = &mut self.peers.first {
            // An older scan is the same to a checker, whose clocks are wrong by more or not at all.
            shift(&mut first.sent_boot_ms, SETTLED_BOOT_MS - 2 * window_ms);
        }
        self.peers.forget_what_is_reported();
        // Races lost count up to the delay that they cause.
        self.tries = self.tries.min(5);
        self.watches.clear();
        self.hindrance = None;
        self.loss = None;
    }
}

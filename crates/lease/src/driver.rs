//! One step of a keeper over a store that can be called: what a host's thread and a simulator both do.

use crate::{Event, Keeper, Notice, Now, Reply, Request, Store};

/// How many requests one step makes at most, so that a store that answers nonsense cannot keep a thread busy.
const REQUESTS_MAX: usize = 32;

/// What a step did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Step {
    /// When to step again at the latest, by the boot-time clock. `u64::MAX`: the keeper has ended.
    pub next_wake_boot_ms: u64,
    /// What happened.
    pub notices: Vec<Notice>,
}

/// Carries out one request.
pub fn perform(store: &dyn Store, request: &Request) -> Reply {
    let reply = match request {
        Request::Cluster => store.cluster().map(|stored| Reply::Cluster(Box::new(stored))),
        Request::Scan => store.scan().map(Reply::Scan),
        Request::Read { code } => store.read(*code).map(Reply::Read),
        Request::Swap { code, expected, cluster, record } => {
            store.swap(*code, *expected, *cluster, record).map(Reply::Swapped)
        }
    };
    reply.unwrap_or_else(Reply::Failed)
}

/// Tells a keeper `event`, and carries out what it asks until it asks nothing more for now.
///
/// `clock` is read once for each event; `nonce` gives 128 fresh random bits a call. Blocks only as the store does.
pub fn step(
    keeper: &mut Keeper,
    event: Event,
    store: &dyn Store,
    clock: &mut dyn FnMut() -> Now,
    nonce: &mut dyn FnMut() -> u128,
) -> Step {
    let mut notices = Vec::new();
    let mut event = event;
    for _ in 0..REQUESTS_MAX {
        let output = keeper.handle(event, &clock(), nonce());
        notices.extend(output.notices);
        let Some((id, request)) = output.request else { break };
        event = Event::Reply { id, reply: perform(store, &request) };
    }
    Step { next_wake_boot_ms: keeper.next_wake_boot_ms(), notices }
}

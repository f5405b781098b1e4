//! A host's process: the real keeper and generator, and the discipline around them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use snowmint_core::{AtomicGenerator, Grant, Layout, LeaseError, MarkError, Minter, Ports};
use snowmint_lease::{Event, Keeper, Now, RequestId, Revision};

use crate::WallClock;
use crate::ledger::GeneratorId;

/// A disk with the durable mark of a fixed node.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    /// `None`: the node was explicitly begun, and nothing was reserved yet.
    pub(crate) durable_ms: Cell<Option<u64>>,
    /// What is on its way to the disk.
    pub(crate) wanted_ms: Cell<Option<u64>>,
    /// Whether a mark becomes durable later, not at once.
    pub(crate) is_slow: bool,
}

/// By what right a process mints.
#[derive(Debug)]
pub(crate) enum Right {
    Leased(Box<RefCell<Keeper>>),
    Fixed(Rc<Disk>),
}

/// What the ports of a process's generator look at.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) right: Right,
    pub(crate) now_ms: Cell<u64>,
    pub(crate) clock_error_ms: Cell<u32>,
    pub(crate) boot_ms: Cell<u64>,
    /// The error bound that was asked for during this mint, if it was.
    pub(crate) told_error_ms: Cell<Option<u32>>,
}

/// The ports of a generator in a process.
#[derive(Debug)]
pub(crate) struct HostPorts {
    pub(crate) desk: Rc<Desk>,
    pub(crate) grant: Option<Grant>,
    pub(crate) ticket: u64,
    pub(crate) floor_ms: u64,
}

impl Ports for HostPorts {
    fn now_ms(&mut self) -> u64 {
        self.desk.now_ms.get()
    }

    fn error_bound_ms(&mut self) -> u32 {
        let error_ms = self.desk.clock_error_ms.get();
        self.desk.told_error_ms.set(Some(error_ms));
        error_ms
    }

    fn take(&mut self) -> Result<Grant, LeaseError> {
        self.grant.take().ok_or(LeaseError::AlreadyTaken)
    }

    fn ceiling_ms(&mut self, ticket: u64) -> u64 {
        match &self.desk.right {
            Right::Leased(keeper) => keeper.borrow().ceiling_ms(ticket, self.desk.boot_ms.get()),
            Right::Fixed(_) => u64::MAX,
        }
    }

    fn recover(&mut self, ticket: u64) -> Result<Option<u64>, MarkError> {
        if ticket != self.ticket {
            return Err(MarkError::UnknownTicket);
        }
        match &self.desk.right {
            Right::Leased(_) => Ok(Some(self.floor_ms)),
            Right::Fixed(disk) => Ok(disk.durable_ms.get()),
        }
    }

    fn reserve(&mut self, ticket: u64, until_ms: u64) -> u64 {
        match &self.desk.right {
            Right::Leased(keeper) => {
                let view = keeper.borrow().view();
                view.filter(|view| view.ticket == ticket).map_or(0, |view| view.end_ms)
            }
            Right::Fixed(disk) => {
                if disk.is_slow {
                    disk.wanted_ms.set(disk.wanted_ms.get().max(Some(until_ms)));
                } else {
                    disk.durable_ms.set(disk.durable_ms.get().max(Some(until_ms)));
                }
                disk.durable_ms.get().unwrap_or(0)
            }
        }
    }
}

/// The two forms of generator.
#[derive(Debug)]
pub(crate) enum Form {
    /// One caller at a time, over ports: the component's form.
    One(Box<RefCell<Minter<HostPorts>>>),
    /// Many threads at once.
    Shared(Box<AtomicGenerator>),
}

/// A generator in a process.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) form: Form,
    pub(crate) id: GeneratorId,
    pub(crate) ticket: u64,
    pub(crate) code: u32,
    pub(crate) floor_ms: u64,
}

/// What a keeper was told: told again to a new keeper, it makes the same state. That is how a process is cloned,
/// since neither keeper nor generator can be.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    Event(Event, Now, u128),
    Take(u64),
}

/// The last swap that a keeper asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastSwap {
    pub(crate) code: u32,
    pub(crate) ticket: u64,
    pub(crate) end_ms: u64,
}

/// A running process.
#[derive(Debug)]
pub(crate) struct Process {
    /// What it was begun with: a new version of the configuration is for the next process.
    pub(crate) layout: Layout,
    pub(crate) desk: Rc<Desk>,
    pub(crate) instance: Option<Rc<Instance>>,
    /// A grant that was taken from the keeper, for the next instance.
    pub(crate) waiting: Option<Grant>,
    /// For a host that draws one nonce a process.
    pub(crate) nonce: u128,
    pub(crate) told: Vec<Told>,
    pub(crate) last_swap: Option<LastSwap>,
    /// What the keeper's last scan showed, and whether the hosts that renewed since the one before are right about the
    /// time, and enough to outvote a clock.
    pub(crate) scanned: Vec<(u32, Revision)>,
    pub(crate) has_right_peers: bool,
    /// The generation that the keeper last read of.
    pub(crate) generation: Option<u16>,
    /// The request whose reply the keeper waits for, and when that was sent by the boot-time clock.
    pub(crate) standing: Option<(RequestId, u64)>,
    /// When the keeper is woken next, in microseconds of true time.
    pub(crate) wake_us: u64,
    /// The last millisecond of the run before the last: what was handed on for certain.
    pub(crate) emitted_ms: Option<u64>,
    pub(crate) run_ms: Option<u64>,
}

/// A machine.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) region: u32,
    /// The layout of the next process.
    pub(crate) layout: Layout,
    pub(crate) clock: WallClock,
    /// What the boot-time clock shows at true time 0, in microseconds.
    pub(crate) boot_us: u64,
    /// Of a fixed node: its code and its disk.
    pub(crate) fixed: Option<(u32, Rc<Disk>)>,
    /// Counts processes: what was meant for a former one is not for this one.
    pub(crate) life: u32,
    pub(crate) process: Option<Process>,
    pub(crate) paused_until_us: u64,
    pub(crate) cut_until_us: u64,
    /// Whether it takes a grant only when it is asked for IDs.
    pub(crate) is_lazy: bool,
    /// Whether its generator is the shared one.
    pub(crate) is_shared: bool,
    /// Whether a refusal of any kind but a full tick is a fault of ours.
    pub(crate) must_mint: bool,
}

impl Host {
    pub(crate) fn boot_ms(&self, true_us: u64) -> u64 {
        (self.boot_us + true_us) / 1_000
    }

    pub(crate) fn now(&self, true_us: u64) -> Now {
        Now {
            boot_ms: self.boot_ms(true_us),
            wall_ms: self.clock.now_ms(true_us),
            clock_error_ms: self.clock.error_ms(true_us),
        }
    }
}

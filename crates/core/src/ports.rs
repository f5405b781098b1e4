//! A generator with its ports: when each is asked, one layer out from the rules themselves.

use core::fmt;
use core::num::NonZeroU32;

use crate::{Bounds, ConfigError, Generator, Grant, Id, Layout, ObserveError, Policy, Refusal, Run};

/// What a generator asks of the world: a clock, a lease and a high-water mark. The WebAssembly component imports
/// exactly these; a simulator supplies its own.
///
/// No answer makes a generator panic or repeat an ID of its own, but uniqueness across generators rests on the MUSTs.
/// Nothing here may block.
pub trait Ports {
    /// The wall clock in Unix milliseconds. MAY step back or stand still.
    fn now_ms(&mut self) -> u64;

    /// The largest error of the clock in milliseconds. MUST be `u32::MAX` when unknown. Asked once a tick.
    fn error_bound_ms(&mut self) -> u32;

    /// Hands out the grant. MUST hand it out at most once.
    fn take(&mut self) -> Result<Grant, LeaseError>;

    /// The last Unix millisecond that the grant with this ticket may stamp. MUST be 0 when ownership cannot be proven
    /// and for other tickets, and MUST NOT exceed what is confirmed. Asked once a tick.
    fn ceiling_ms(&mut self, ticket: u64) -> u64;

    /// The mark that a former life of the ticket's node left. MUST be `None` only where somebody has explicitly begun
    /// a node that was never minted for.
    fn recover(&mut self, ticket: u64) -> Result<Option<u64>, MarkError>;

    /// Asks that the mark be raised to `until_ms` and returns the mark that is durable now, 0 for another ticket. MUST
    /// NOT fall for one ticket.
    fn reserve(&mut self, ticket: u64, until_ms: u64) -> u64;
}

/// Why no grant is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseError {
    /// The grant was handed out before.
    AlreadyTaken,
    /// Every worker code is in use or in quarantine.
    NoCodeLeft {
        /// In how many milliseconds the next one is not, where that is known.
        wait_ms: Option<u64>,
    },
    /// The lease store cannot be reached, or answers with an error.
    Unavailable,
}

impl fmt::Display for LeaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::AlreadyTaken => f.write_str(
                "the grant was handed out before; one grant makes one generator, so take a new one",
            ),
            Self::NoCodeLeft { wait_ms: Some(wait_ms) } => write!(
                f,
                "no worker code is left: all are in use or in quarantine; the next is free in {wait_ms} ms"
            ),
            Self::NoCodeLeft { wait_ms: None } => {
                f.write_str("no worker code is left: all are in use or in quarantine")
            }
            Self::Unavailable => {
                f.write_str("the lease store cannot be used; its own error says why and what to do")
            }
        }
    }
}

impl core::error::Error for LeaseError {}

/// Why the mark of a former life cannot be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkError {
    /// There is none, and nobody has said that there never was one.
    Missing,
    /// What is stored is not a mark.
    Damaged,
    /// The storage cannot be read.
    Unavailable,
    /// The ticket is not this generator's.
    UnknownTicket,
}

impl fmt::Display for MarkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => {
                "the high-water mark is missing: IDs may exist above anything known; begin the node explicitly, or \
                 put the mark back"
            }
            Self::Damaged => "the high-water mark is damaged; recover it explicitly, above anything minted",
            Self::Unavailable => "the high-water mark cannot be read; see to its storage",
            Self::UnknownTicket => "the high-water mark knows no such grant; the host is at fault",
        })
    }
}

impl core::error::Error for MarkError {}

/// Why a generator did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartError {
    /// The configuration is at fault. Nothing was taken unless the grant itself does not fit the layout.
    Config(ConfigError),
    /// No grant was handed out.
    Lease(LeaseError),
    /// The mark of a former life cannot be told.
    Mark(MarkError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Lease(error) => error.fmt(f),
            Self::Mark(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for StartError {}

/// Why a mint gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MintError {
    /// None were asked for: the caller's fault.
    ZeroCount,
    /// A bound forbids it.
    Refused(Refusal),
}

impl fmt::Display for MintError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroCount => f.write_str("0 IDs were asked for; ask for 1 or more"),
            Self::Refused(refusal) => refusal.fmt(f),
        }
    }
}

impl core::error::Error for MintError {}

impl From<Refusal> for MintError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// A [`Generator`] with its [`Ports`]: reads the clock once a mint, and the other ports once a tick.
#[derive(Debug)]
pub struct Minter<P> {
    generator: Generator,
    ports: P,
    mark_ms: u64,
}

impl<P: Ports> Minter<P> {
    /// Checks the configuration, takes the grant, recovers the mark, and begins above both.
    pub fn start(layout: Layout, policy: Policy, mut ports: P) -> Result<Self, StartError> {
        // Before the grant is taken, so that a slip in the configuration costs no worker code.
        layout.check_mints().map_err(|error| StartError::Config(error.into()))?;
        policy.check(&layout).map_err(|error| StartError::Config(error.into()))?;
        let grant = ports.take().map_err(StartError::Lease)?;
        let mark_ms = ports.recover(grant.ticket()).map_err(StartError::Mark)?;
        let generator = Generator::new(layout, grant.above(mark_ms), policy).map_err(StartError::Config)?;
        Ok(Self { generator, ports, mark_ms: mark_ms.unwrap_or(0) })
    }

    /// Mints a run of up to `max` IDs of one tick.
    pub fn mint(&mut self, max: u32) -> Result<Run, MintError> {
        let want = NonZeroU32::new(max).ok_or(MintError::ZeroCount)?;
        let now_ms = self.ports.now_ms();
        if let Some(run) = self.generator.mint_checked(now_ms, want) {
            return Ok(run);
        }
        let ticket = self.generator.ticket();
        if let Some(until_ms) = self.generator.policy().mark_to_ask(now_ms, self.mark_ms) {
            // A mark that was durable once stays so, whatever the port says later.
            self.mark_ms = self.mark_ms.max(self.ports.reserve(ticket, until_ms));
        }
        let bounds = Bounds {
            ceiling_ms: self.ports.ceiling_ms(ticket),
            mark_ms: self.mark_ms,
            clock_error_ms: self.ports.error_bound_ms(),
        };
        Ok(self.generator.mint(now_ms, &bounds, want)?)
    }

    /// See [`Generator::observe`].
    pub fn observe(&mut self, id: Id) -> Result<(), ObserveError> {
        let now_ms = self.ports.now_ms();
        let ceiling_ms = self.ports.ceiling_ms(self.generator.ticket());
        self.generator.observe(id, now_ms, ceiling_ms)
    }

    /// See [`Generator::stop`].
    pub fn stop(&mut self) -> Option<u64> {
        self.generator.stop()
    }

    /// The generator, to look at.
    pub fn generator(&self) -> &Generator {
        &self.generator
    }

    /// The ports, for a simulator that steps its world between mints.
    pub fn ports_mut(&mut self) -> &mut P {
        &mut self.ports
    }
}

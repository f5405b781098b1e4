//! The two records that a store holds, and what makes one valid.

use std::fmt;
use std::sync::Arc;

use snowmint_core::Layout;

/// The most codes that a region may have. Every one of them has a record, and a ticket has 16 bits for it.
pub const CODES_MAX: u32 = 1 << 16;

/// The most characters of an owner's name.
pub const OWNER_CHARS_MAX: usize = 128;

/// The most former layouts that a cluster record lists.
pub const FORMER_LAYOUTS_MAX: usize = 16;

/// Who holds a code, for people to read: 1 to [`OWNER_CHARS_MAX`] printable characters, no space at either end.
///
/// No right rests on it: two processes of the same name are two owners, told apart by nonces. Where clocks are compared,
/// it says who shares one: [`Owner::host`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(Arc<str>);

impl Owner {
    /// An owner of this name.
    pub fn new(name: impl Into<String>) -> Result<Self, OwnerError> {
        let name = name.into();
        let chars = name.chars().count();
        if !(1..=OWNER_CHARS_MAX).contains(&chars) {
            return Err(OwnerError::Length { chars });
        }
        if name.trim() != name {
            return Err(OwnerError::Space);
        }
        match name.chars().find(|&char| !is_printable(char)) {
            Some(char) => Err(OwnerError::NotPrintable { char }),
            None => Ok(Self(name.into())),
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part before the first `/`, or all of it: owners of one host share a clock, and so have one voice about
    /// others' clocks ([`crate::agreement`]).
    pub fn host(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(host, _)| host)
    }
}

/// Control characters, and those that turn or hide the text around them, would let a name forge a log line.
fn is_printable(char: char) -> bool {
    !char.is_control()
        && !matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a name cannot be an owner's. The fault is the configuration's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OwnerError {
    /// Empty or too long.
    Length {
        /// How many characters it has.
        chars: usize,
    },
    /// White space at an end.
    Space,
    /// A character that cannot be printed.
    NotPrintable {
        /// The character.
        char: char,
    },
}

impl fmt::Display for OwnerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Length { chars } => {
                write!(f, "the owner's name has {chars} characters; give it 1 to {OWNER_CHARS_MAX}")
            }
            Self::Space => f.write_str("the owner's name begins or ends with white space; take it away"),
            Self::NotPrintable { char } => {
                write!(f, "the owner's name contains {char:?}, which cannot be printed; take it away")
            }
        }
    }
}

impl std::error::Error for OwnerError {}

/// What a code is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Nobody holds it.
    Free,
    /// Its owner holds it, and renews.
    Active,
    /// Its owner was seen not to renew for a whole TTL.
    Expired,
    /// An operator took it from its owner.
    Fenced,
}

impl State {
    /// The state's name, as every face writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Active => "active",
            Self::Expired => "expired",
            Self::Fenced => "fenced",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// All that a store knows of one code. Times are Unix milliseconds by the clock of whoever wrote them.
///
/// `end_ms` is the one number that safety rests on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CodeRecord {
    /// What the code is doing.
    pub state: State,
    /// Counts grants and fences. 0: never granted.
    pub term: u32,
    /// Who holds the code, or held it last. `None`: nobody ever.
    pub owner: Option<Owner>,
    /// The last millisecond that a grant before this one may have stamped. At most `end_ms`.
    pub floor_ms: u64,
    /// The last millisecond that any grant so far may have stamped. Never falls, except that a clean release lowers
    /// it to what was really reserved.
    pub end_ms: u64,
    /// The writer's clock at the last swap.
    pub stamp_ms: u64,
    /// The error bound of that clock in milliseconds; `u32::MAX` when it is unknown.
    pub clock_error_ms: u32,
    /// How long the same nonce must be seen before the owner counts as gone, in milliseconds.
    pub ttl_ms: u32,
    /// The code's quarantine: not to be granted or freed before. 0: none.
    pub not_again_before_ms: u64,
    /// Fresh random bits of the last swap, by which a writer knows its own write again.
    pub nonce: u128,
}

impl CodeRecord {
    /// The record of a code that nobody ever held.
    pub const UNUSED: Self = Self {
        state: State::Free,
        term: 0,
        owner: None,
        floor_ms: 0,
        end_ms: 0,
        stamp_ms: 0,
        clock_error_ms: 0,
        ttl_ms: 0,
        not_again_before_ms: 0,
        nonce: 0,
    };

    /// Whether the fields fit each other. A record that was written by this crate always does.
    pub fn is_valid(&self) -> bool {
        let held_once = self.term > 0;
        let is_held = matches!(self.state, State::Active | State::Expired);
        self.floor_ms <= self.end_ms
            && (self.owner.is_none() || held_once)
            && (!is_held || self.owner.is_some())
    }
}

/// A layout that IDs were minted by before a cut-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FormerLayout {
    /// The layout.
    pub layout: Layout,
    /// The last Unix millisecond that was stamped by it.
    pub last_ms: u64,
}

/// What all codes of one region share. Every swap of a code compares it too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClusterRecord {
    /// Tells stores apart: 128 random bits, chosen by init.
    pub uuid: u128,
    /// The layout to mint by. Stored as its canonical text, which is its fingerprint: fields, epoch, tick.
    pub layout: Layout,
    /// The layouts before it, oldest first; at most [`FORMER_LAYOUTS_MAX`].
    pub former: Vec<FormerLayout>,
    /// The region that the codes belong to.
    pub region: u32,
    /// Raised by each recovery: a grant of an earlier one is over. 1 or more.
    pub generation: u16,
    /// No grant begins before: raised by a recovery above all that may have been stamped. Unix milliseconds.
    pub not_before_ms: u64,
    /// The last millisecond of a planned cut-over to another layout: no grant ends above it. Unix milliseconds.
    pub cutover_last_ms: Option<u64>,
}

impl ClusterRecord {
    /// The record of a new cluster.
    pub fn new(uuid: u128, layout: Layout, region: u32) -> Result<Self, ClusterError> {
        let cluster = Self {
            uuid,
            layout,
            former: Vec::new(),
            region,
            generation: 1,
            not_before_ms: 0,
            cutover_last_ms: None,
        };
        cluster.check()?;
        Ok(cluster)
    }

    /// Whether leases can be given under this record.
    pub fn check(&self) -> Result<(), ClusterError> {
        self.layout.check_mints().map_err(ClusterError::Layout)?;
        self.layout.node(self.region, 0).map_err(ClusterError::Region)?;
        let codes = self.layout.workers_per_region();
        if codes > u64::from(CODES_MAX) {
            return Err(ClusterError::Codes { codes });
        }
        if self.generation == 0 {
            return Err(ClusterError::Generation);
        }
        if self.former.len() > FORMER_LAYOUTS_MAX {
            return Err(ClusterError::FormerLayouts { count: self.former.len() });
        }
        Ok(())
    }

    /// How many codes the region has: 0 to `codes() - 1` are the workers.
    #[allow(clippy::cast_possible_truncation)] // A valid record has at most CODES_MAX.
    pub const fn codes(&self) -> u32 {
        let codes = self.layout.workers_per_region();
        if codes > CODES_MAX as u64 { CODES_MAX } else { codes as u32 }
    }

    /// The last Unix millisecond that any grant may reach: the layout's, or that of a planned cut-over.
    pub const fn last_ms(&self) -> u64 {
        let last_ms = self.layout.last_ms();
        match self.cutover_last_ms {
            Some(cutover_last_ms) if cutover_last_ms < last_ms => cutover_last_ms,
            _ => last_ms,
        }
    }

    /// What the lease port calls the grant of a code's term: a number that is never 0, and that no other code,
    /// generation or grant of this store ever has.
    pub const fn ticket(&self, code: u32, term: u32) -> u64 {
        ticket(self.generation, code, term)
    }
}

/// 16 bits of generation, 16 of code, 32 of term; see [`ClusterRecord::ticket`].
pub(crate) const fn ticket(generation: u16, code: u32, term: u32) -> u64 {
    ((generation as u64) << 48) | (((code & (CODES_MAX - 1)) as u64) << 32) | term as u64
}

/// What a ticket is made of: generation, code, term; see [`ticket`].
#[allow(clippy::cast_possible_truncation)] // Each part is cut out.
pub(crate) const fn ticket_parts(ticket: u64) -> (u16, u32, u32) {
    ((ticket >> 48) as u16, (ticket >> 32) as u32 & (CODES_MAX - 1), ticket as u32)
}

/// Why a cluster record cannot be leased by. The fault is that of whoever chose layout and region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClusterError {
    /// No generator can mint by the layout.
    Layout(snowmint_core::LayoutError),
    /// The region does not fit the layout.
    Region(snowmint_core::FieldError),
    /// The region would have more codes than [`CODES_MAX`].
    Codes {
        /// How many.
        codes: u64,
    },
    /// The generation is 0.
    Generation,
    /// More former layouts than [`FORMER_LAYOUTS_MAX`].
    FormerLayouts {
        /// How many.
        count: usize,
    },
}

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layout(error) => error.fmt(f),
            Self::Region(error) => error.fmt(f),
            Self::Codes { codes } => write!(
                f,
                "the layout has {codes} workers a region, each with a record of its own; lease a layout with at most \
                 {CODES_MAX}"
            ),
            Self::Generation => f.write_str("the generation is 0; the first is 1"),
            Self::FormerLayouts { count } => {
                write!(f, "{count} former layouts are listed; at most {FORMER_LAYOUTS_MAX} are supported")
            }
        }
    }
}

impl std::error::Error for ClusterError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_a_name_that_can_be_printed() {
        // Shows which names are taken and which are refused, with the reason.
        for (name, expected) in [
            ("a", Ok(())),
            ("host-7/serve 3", Ok(())),
            ("Zürich", Ok(())),
            ("", Err(OwnerError::Length { chars: 0 })),
            (" a", Err(OwnerError::Space)),
            ("a\n", Err(OwnerError::Space)),
            ("a\nb", Err(OwnerError::NotPrintable { char: '\n' })),
            ("a\u{202e}b", Err(OwnerError::NotPrintable { char: '\u{202e}' })),
        ] {
            assert_eq!(Owner::new(name).map(|_| ()), expected, "{name:?}");
        }
        for (name, host) in [("a", "a"), ("host-7/serve 3", "host-7"), ("h/1/2", "h"), ("/x", "")] {
            assert_eq!(Owner::new(name).unwrap().host(), host, "{name}");
        }
        assert!(Owner::new("é".repeat(OWNER_CHARS_MAX)).is_ok());
        assert_eq!(Owner::new("é".repeat(129)), Err(OwnerError::Length { chars: 129 }));
    }

    #[test]
    fn tickets_differ_wherever_generation_code_or_term_does() {
        // Shows that a ticket takes all three apart to the last bit, and is never 0.
        let corners = [0_u32, 1, 255, CODES_MAX - 1];
        let mut seen = std::collections::HashSet::new();
        for generation in [1, 2, u16::MAX] {
            for code in corners {
                for term in [1, 2, u32::MAX] {
                    let ticket = ticket(generation, code, term);
                    assert!(ticket != 0 && seen.insert(ticket));
                    assert_eq!(ticket_parts(ticket), (generation, code, term));
                }
            }
        }
    }

    #[test]
    fn a_cluster_needs_a_layout_that_can_be_leased() {
        // Shows the refusals of a region out of range and of a layout with too many workers.
        assert!(ClusterRecord::new(1, Layout::SNOWMINT, 3).is_ok());
        assert!(matches!(ClusterRecord::new(1, Layout::SNOWMINT, 4), Err(ClusterError::Region(_))));
        let wide: Layout =
            "reserved:1 timestamp:41 worker:20 sequence:2 epoch-ms:0 tick-ns:1000000".parse().unwrap();
        assert_eq!(ClusterRecord::new(1, wide, 0), Err(ClusterError::Codes { codes: 1 << 20 }));
    }
}

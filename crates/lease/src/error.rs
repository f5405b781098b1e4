//! What can be wrong with a store: one enum for all of them, to branch on.

use std::fmt;

use crate::{DecodeError, LeaseRefusal};

/// Which record an error speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The cluster record.
    Cluster,
    /// The record of a code.
    Code(u32),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("the cluster record"),
            Self::Code(code) => write!(f, "the record of code {code}"),
        }
    }
}

/// Why a store did not do what was asked. Every one of them is fail-closed: what is not known to be confirmed is not.
///
/// | kind | errors | a holder |
/// |---|---|---|
/// | an answer | `Conflict`, `ClusterChanged` | reads again, and then knows |
/// | transient | `Unreachable` | goes on to its confirmed end, until its deadline; asks again |
/// | definite | all others | stops at once: ceiling 0 |
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreError {
    /// The code's record is at another revision than the swap expected; nothing was written.
    Conflict {
        /// The code.
        code: u32,
    },
    /// The cluster record is at another revision than the swap expected; nothing was written.
    ClusterChanged,
    /// No reply: the request may or may not have been carried out.
    Unreachable {
        /// What the transport says.
        detail: String,
    },
    /// The store does not know this user, or does not let it do this. Nothing was written.
    Denied {
        /// What the store says.
        detail: String,
    },
    /// How to reach the store is not said in a way that can be followed. Nothing was asked.
    Misconfigured {
        /// What does not fit.
        detail: String,
    },
    /// A record that must exist does not. It was deleted: an absent record is never "unused".
    Missing {
        /// Which.
        subject: Subject,
    },
    /// The whole store was here, and is gone.
    Gone {
        /// Where it was.
        place: String,
    },
    /// A record was changed by something else than Snowmint.
    Damaged {
        /// Which.
        subject: Subject,
        /// What does not fit.
        detail: String,
    },
    /// The store as a whole cannot be read: its file is cut off, overwritten, or no store.
    Unreadable {
        /// What does not fit.
        detail: String,
    },
    /// Another version of Snowmint wrote it.
    WrongVersion {
        /// The version found.
        found: u32,
        /// The version that this program reads.
        expected: u32,
    },
    /// The store is for another layout.
    WrongLayout {
        /// The canonical text of the store's.
        stored: String,
        /// The canonical text of the one asked for.
        configured: String,
    },
    /// The store is for another region.
    WrongRegion {
        /// The store's.
        stored: u32,
        /// The one asked for.
        configured: u32,
    },
    /// Another generation, or another store in the same place: grants of before are over.
    WrongGeneration {
        /// The store's.
        stored: u16,
        /// The grant's.
        granted: u16,
    },
    /// There is no store.
    NotInitialised {
        /// Where one was looked for.
        place: String,
    },
    /// There is a store already.
    AlreadyInitialised {
        /// Where.
        place: String,
    },
    /// Another process has the store.
    InUse {
        /// Which, as well as can be told.
        by: String,
    },
    /// The file system cannot lock, so that two processes could have the store at once.
    NoLocks {
        /// Where.
        place: String,
    },
    /// The store is a copy of another one, or was moved by copying.
    Copied {
        /// What tells.
        detail: String,
    },
    /// A recovery needs to be told what nothing that can be read tells.
    Untold {
        /// Which flags are missing.
        flags: &'static str,
    },
    /// The protocol refuses what an operator asked for. Nothing was written.
    Refused(LeaseRefusal),
    /// There is something else where the store should be.
    NoDirectory {
        /// Where.
        place: String,
        /// What the system says.
        detail: String,
    },
    /// The handle was opened by another process (a fork).
    Forked,
    /// The store cannot be written.
    ReadOnly {
        /// What the system says.
        detail: String,
    },
    /// There is no space left.
    Full {
        /// What the system says.
        detail: String,
    },
    /// Input or output failed. Whether the request was carried out is not known.
    Io {
        /// What the system says.
        detail: String,
    },
}

impl StoreError {
    /// The error for bytes that are no record.
    pub fn from_decode(subject: Subject, error: DecodeError) -> Self {
        match error {
            DecodeError::WrongVersion { version } => Self::WrongVersion {
                found: u32::from(version),
                expected: u32::from(crate::encoding::VERSION),
            },
            _ => Self::Damaged { subject, detail: error.to_string() },
        }
    }

    /// Whether asking again may help without anybody's doing: a holder goes on inside its confirmed window.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    /// The error's name, for metrics and problem documents.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Conflict { .. } => "conflict",
            Self::ClusterChanged => "cluster-changed",
            Self::Unreachable { .. } => "unreachable",
            Self::Denied { .. } => "denied",
            Self::Misconfigured { .. } => "misconfigured",
            Self::Missing { .. } => "missing",
            Self::Gone { .. } => "gone",
            Self::Damaged { .. } => "damaged",
            Self::Unreadable { .. } => "unreadable",
            Self::WrongVersion { .. } => "wrong-version",
            Self::WrongLayout { .. } => "wrong-layout",
            Self::WrongRegion { .. } => "wrong-region",
            Self::WrongGeneration { .. } => "wrong-generation",
            Self::NotInitialised { .. } => "not-initialised",
            Self::AlreadyInitialised { .. } => "already-initialised",
            Self::InUse { .. } => "in-use",
            Self::NoLocks { .. } => "no-locks",
            Self::Copied { .. } => "copied",
            Self::Untold { .. } => "untold",
            Self::Refused(_) => "refused",
            Self::NoDirectory { .. } => "no-directory",
            Self::Forked => "forked",
            Self::ReadOnly { .. } => "read-only",
            Self::Full { .. } => "full",
            Self::Io { .. } => "io",
        }
    }
}

impl fmt::Display for StoreError {
    #[allow(clippy::too_many_lines)] // A row for each error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict { code } => {
                write!(f, "somebody else wrote the record of code {code} first; read it again")
            }
            Self::ClusterChanged => {
                f.write_str("the cluster record was changed meanwhile (a cut-over or a recovery); read it again")
            }
            Self::Unreachable { detail } => write!(
                f,
                "the lease store does not answer ({detail}): see to the store and the network to it; minting goes on \
                 to the confirmed ceiling only"
            ),
            Self::Denied { detail } => write!(
                f,
                "the lease store refuses this user ({detail}): correct the user, password or certificate, and let the \
                 user read and write all keys under the store's prefix"
            ),
            Self::Misconfigured { detail } => write!(
                f,
                "the lease store cannot be reached by this configuration ({detail}): correct `--store` and what goes \
                 with it"
            ),
            Self::Missing { subject } => write!(
                f,
                "{subject} is missing from the lease store: somebody deleted it, and how far its IDs reach is not \
                 known; put the store back, or run `snowmint init --recover --not-before MS` with a time above all \
                 that was stamped"
            ),
            Self::Gone { place } => write!(
                f,
                "there was a lease store at {place}, and it is gone: somebody emptied the place; put the store back, \
                 or run `snowmint init --recover --not-before MS` with a time above all that was stamped"
            ),
            Self::Damaged { subject, detail } => write!(
                f,
                "{subject} is not as Snowmint wrote it ({detail}): see to the disk; put the store back, or run \
                 `snowmint init --recover --not-before MS` with a time above all that was stamped"
            ),
            Self::Unreadable { detail } => write!(
                f,
                "the lease store cannot be read ({detail}): see to the disk; put the store back, or run \
                 `snowmint init --recover --not-before MS` with a time above all that was stamped"
            ),
            Self::WrongVersion { found, expected } => write!(
                f,
                "the lease store has version {found}, and this program reads version {expected}: use the program that \
                 fits the store"
            ),
            Self::WrongLayout { stored, configured } => write!(
                f,
                "the lease store is for the layout `{stored}`, and the configuration says `{configured}`: correct \
                 `--layout`, or cut over with `snowmint layout cutover`"
            ),
            Self::WrongRegion { stored, configured } => write!(
                f,
                "the lease store is for region {stored}, and the configuration says region {configured}: correct \
                 `--region` or `--store`"
            ),
            Self::WrongGeneration { stored, granted } => write!(
                f,
                "the lease store was recovered or replaced (generation {stored}; the grant is of {granted}): the grant \
                 is over, and a new one is taken"
            ),
            Self::NotInitialised { place } => {
                write!(f, "there is no lease store at {place}: if there never was one, make it, once, with `snowmint init`; if there was, \
                     its records were deleted: put them back, or run `snowmint init --recover --not-before MS` with a time \
                     above all that was stamped")
            }
            Self::AlreadyInitialised { place } => write!(
                f,
                "there is a lease store at {place} already: open it without init; two stores for one region would make \
                 the same IDs"
            ),
            Self::InUse { by } => write!(
                f,
                "the lease store is in use by {by}: stop that process, or give this one a store or region of its own"
            ),
            Self::NoLocks { place } => write!(
                f,
                "the file system at {place} cannot lock files, so that two processes could mint the same IDs: put the \
                 store on a local file system"
            ),
            Self::Copied { detail } => write!(
                f,
                "the lease store is a copy ({detail}), and its original may be minting: use the original, or, if it is \
                 gone for good, run `snowmint init --recover --not-before MS` with a time above all that was stamped"
            ),
            Self::Untold { flags } => write!(
                f,
                "nothing that can be read of the lease store tells what it was for: say so with {flags}, exactly as it \
                 was; another region's or layout's would make duplicates"
            ),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::NoDirectory { place, detail } => write!(
                f,
                "{place} cannot be the lease store's directory ({detail}): name a directory, or a path where one can \
                 be made"
            ),
            Self::Forked => f.write_str(
                "the lease store was opened by another process, of which this one is a fork: open the store after \
                 forking, in the process that mints",
            ),
            Self::ReadOnly { detail } => write!(
                f,
                "the lease store cannot be written ({detail}): give this user the right to write its directory, on a \
                 file system that is not read-only"
            ),
            Self::Full { detail } => {
                write!(f, "the lease store has no space left ({detail}): make space on its disk, then open it again")
            }
            Self::Io { detail } => write!(
                f,
                "the lease store's disk failed ({detail}), and whether the last write is there is not known: see to \
                 the disk, then open the store again"
            ),
        }
    }
}

impl std::error::Error for StoreError {}

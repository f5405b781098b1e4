//! From what redb and the system say to what a caller branches on.

use std::any::Any;
use std::io;

use snowmint_lease::StoreError;

/// An error inside a call of the database: one to be handed on, or redb's.
#[derive(Debug)]
pub(crate) enum Fault {
    Store(StoreError),
    Redb(redb::Error),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

macro_rules! from_redb {
    ($($error:ty),*) => {$(
        impl From<$error> for Fault {
            fn from(error: $error) -> Self {
                Self::Redb(error.into())
            }
        }
    )*};
}

from_redb!(
    redb::DatabaseError,
    redb::TransactionError,
    redb::TableError,
    redb::StorageError,
    redb::CommitError,
    redb::SetDurabilityError
);

impl Fault {
    pub(crate) fn into_store_error(self) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Redb(error) => from_redb(error),
        }
    }
}

fn from_redb(error: redb::Error) -> StoreError {
    match error {
        redb::Error::Io(error) => from_io(&error),
        redb::Error::DatabaseAlreadyOpen => {
            StoreError::InUse { by: String::from("another process, which has its file") }
        }
        redb::Error::UpgradeRequired(version) => {
            StoreError::WrongVersion { found: u32::from(version), expected: crate::FORMAT_VERSION }
        }
        error @ (redb::Error::Corrupted(_)
        | redb::Error::TableTypeMismatch { .. }
        | redb::Error::TableIsMultimap(_)
        | redb::Error::TableIsNotMultimap(_)
        | redb::Error::TypeDefinitionChanged { .. }
        | redb::Error::TableDoesNotExist(_)
        | redb::Error::RepairAborted) => StoreError::Unreadable { detail: error.to_string() },
        error => StoreError::Io { detail: error.to_string() },
    }
}

/// What an error of the system means for a store.
pub(crate) fn from_io(error: &io::Error) -> StoreError {
    let detail = error.to_string();
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full { detail },
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            StoreError::ReadOnly { detail }
        }
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => StoreError::Unreadable { detail },
        _ => StoreError::Io { detail },
    }
}

/// What a panic of redb means: it checks some of its own invariants so, and a damaged file can break them.
pub(crate) fn from_panic(panic: &(dyn Any + Send)) -> StoreError {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("an unknown one");
    StoreError::Unreadable { detail: format!("redb panicked: {text}") }
}

/// Whether the store must not be used after this error until it is opened again: nobody knows what is on the disk.
pub(crate) const fn is_lasting(error: &StoreError) -> bool {
    !matches!(
        error,
        StoreError::Conflict { .. }
            | StoreError::ClusterChanged
            | StoreError::Missing { .. }
            | StoreError::Damaged { .. }
            | StoreError::WrongVersion { .. }
            | StoreError::NotInitialised { .. }
            | StoreError::AlreadyInitialised { .. }
            | StoreError::InUse { .. }
            | StoreError::Forked
    )
}

/// Whether nothing can be learned from the store any more, so that a recovery makes a new one.
pub(crate) const fn means_unreadable(error: &StoreError) -> bool {
    matches!(error, StoreError::Missing { .. } | StoreError::Damaged { .. } | StoreError::Unreadable { .. })
}

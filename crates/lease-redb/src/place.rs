//! The directory: its files, its lock, and how a file is known again.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use snowmint_core::Layout;
use snowmint_lease::{ClusterRecord, StoreError};

use crate::fault::from_io;

const STORE_FILE: &str = "store.redb";
const NEW_STORE_FILE: &str = "store.redb.new";
const DAMAGED_STORE_FILE: &str = "store.redb.damaged";
const LOCK_FILE: &str = "store.lock";

/// The lock file is a few lines; what is longer is not ours.
const LOCK_FILE_BYTES_MAX: u64 = 4_096;

/// The directory of a store.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    dir: PathBuf,
}

impl Place {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_path_buf() }
    }

    pub(crate) fn name(&self) -> String {
        self.dir.display().to_string()
    }

    pub(crate) fn store_path(&self) -> PathBuf {
        self.dir.join(STORE_FILE)
    }

    pub(crate) fn new_store_path(&self) -> PathBuf {
        self.dir.join(NEW_STORE_FILE)
    }

    fn lock_path(&self) -> PathBuf {
        self.dir.join(LOCK_FILE)
    }

    pub(crate) fn has_store(&self) -> Result<bool, StoreError> {
        self.store_path().try_exists().map_err(|error| self.directory_error(&error))
    }

    /// What an error means where the directory itself is in question, and not yet its disk.
    fn directory_error(&self, error: &io::Error) -> StoreError {
        match error.kind() {
            io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::NotFound
            | io::ErrorKind::InvalidFilename
            | io::ErrorKind::InvalidInput => {
                StoreError::NoDirectory { place: self.name(), detail: error.to_string() }
            }
            _ => from_io(error),
        }
    }

    /// Makes the directory, durably.
    pub(crate) fn create_dir(&self) -> Result<(), StoreError> {
        let is_there = |path: &Path| path.as_os_str().is_empty() || path.exists();
        let mut created = Vec::new();
        let mut ancestor = self.dir.as_path();
        while !is_there(ancestor) {
            created.push(ancestor.to_path_buf());
            let Some(parent) = ancestor.parent() else { break };
            ancestor = parent;
        }
        fs::create_dir_all(&self.dir).map_err(|error| self.directory_error(&error))?;
        for path in created {
            sync_dir(path.parent().unwrap_or(Path::new(".")))?;
        }
        Ok(())
    }

    /// Puts the new store in the store's place, durably: before, there is none; afterwards, a whole one.
    pub(crate) fn publish_new_store(&self) -> Result<(), StoreError> {
        fs::rename(self.new_store_path(), self.store_path()).map_err(|error| from_io(&error))?;
        sync_dir(&self.dir)
    }

    /// Removes what a founding that was cut off left behind.
    pub(crate) fn remove_new_store(&self) -> Result<(), StoreError> {
        match fs::remove_file(self.new_store_path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(from_io(&error)),
            _ => Ok(()),
        }
    }

    /// Keeps a store that cannot be read, for whoever wants to look at it, out of the way.
    pub(crate) fn set_store_aside(&self) -> Result<(), StoreError> {
        match fs::rename(self.store_path(), self.dir.join(DAMAGED_STORE_FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(from_io(&error)),
            _ => sync_dir(&self.dir),
        }
    }

    /// What the lock file says, without the lock; empty if there is none.
    pub(crate) fn mark(&self) -> Mark {
        let Ok(file) = File::open(self.lock_path()) else { return Mark::default() };
        let mut text = String::new();
        // Somebody may be writing it: whatever cannot be read is not known.
        let _ = file.take(LOCK_FILE_BYTES_MAX).read_to_string(&mut text);
        Mark::parse(&text)
    }

    /// Takes the lock, which is held as long as the result lives.
    pub(crate) fn lock(&self) -> Result<Lock, StoreError> {
        let path = self.lock_path();
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(|error| self.directory_error(&error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let by = match self.mark().pid {
                    Some(pid) => format!("process {pid}"),
                    None => String::from("another process"),
                };
                return Err(StoreError::InUse { by });
            }
            Err(TryLockError::Error(error)) => return Err(self.lock_error(&error)),
        }
        // Somebody may have deleted the file between opening and locking: then this lock keeps nobody out.
        let watched = Watched::new(path, &file)?;
        watched.check(&self.name())?;
        let mut lock = Lock { file, watched };
        let mark = Mark { pid: Some(std::process::id()), ..self.mark() };
        lock.write(&mark)?;
        Ok(lock)
    }

    fn lock_error(&self, error: &io::Error) -> StoreError {
        match error.kind() {
            io::ErrorKind::PermissionDenied => from_io(error),
            _ => StoreError::NoLocks { place: self.name() },
        }
    }
}

fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| from_io(&error))
}

/// What the lock file tells others: who has the store, and that there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) pid: Option<u32>,
    /// What store there is, or was, here.
    pub(crate) founded: Option<Founded>,
}

/// What the lock file knows of a store, should its own file be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Founded {
    pub(crate) uuid: u128,
    pub(crate) generation: u16,
    pub(crate) region: u32,
    pub(crate) layout: Layout,
}

impl Founded {
    pub(crate) const fn of(cluster: &ClusterRecord) -> Self {
        let ClusterRecord { uuid, generation, region, layout, .. } = *cluster;
        Self { uuid, generation, region, layout }
    }

    fn parse(words: &str) -> Option<Self> {
        let (uuid, words) = words.split_once(" generation ")?;
        let (generation, words) = words.split_once(" region ")?;
        let (region, layout) = words.split_once(" layout ")?;
        Some(Self {
            uuid: u128::from_str_radix(uuid, 16).ok()?,
            generation: generation.parse().ok()?,
            region: region.parse().ok()?,
            layout: layout.parse().ok()?,
        })
    }

    fn text(&self) -> String {
        let Self { uuid, generation, region, layout } = self;
        format!("store {uuid:032x} generation {generation} region {region} layout {layout}")
    }
}

impl Mark {
    pub(crate) const fn with_founded(self, founded: Founded) -> Self {
        Self { founded: Some(founded), ..self }
    }

    fn parse(text: &str) -> Self {
        let value = |key| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        let founded = value("store").and_then(Founded::parse);
        Self { pid: value("pid").and_then(|pid| pid.parse().ok()), founded }
    }

    fn text(&self) -> String {
        let head = "snowmint: locked by the process that has the store; keep it with the store";
        let founded = self.founded.map(|founded| founded.text());
        let pid = self.pid.map(|pid| format!("pid {pid}"));
        let lines = [Some(head.to_owned()), founded, pid].into_iter().flatten();
        lines.map(|line| line + "\n").collect()
    }
}

/// The lock. Held by the open file, so that the system gives it back however the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    watched: Watched,
}

impl Lock {
    pub(crate) fn write(&mut self, mark: &Mark) -> Result<(), StoreError> {
        let mut write = || {
            // Written before it is cut to length: a crash between leaves the lines that matter.
            self.file.seek(SeekFrom::Start(0))?;
            let text = mark.text();
            self.file.write_all(text.as_bytes())?;
            self.file.set_len(text.len() as u64)?;
            self.file.sync_all()
        };
        write().map_err(|error| from_io(&error))
    }

    pub(crate) fn check(&self, place: &str) -> Result<(), StoreError> {
        self.watched.check(place)
    }
}

/// A file that is open, and the path that must lead to it.
#[derive(Debug)]
pub(crate) struct Watched {
    path: PathBuf,
    at: Option<(u64, u64)>,
}

impl Watched {
    pub(crate) fn new(path: PathBuf, file: &File) -> Result<Self, StoreError> {
        let metadata = file.metadata().map_err(|error| from_io(&error))?;
        Ok(Self { path, at: device_and_inode(&metadata) })
    }

    /// Fails if the path leads to another file, or none: who opens the store next would not see what is written here.
    pub(crate) fn check(&self, place: &str) -> Result<(), StoreError> {
        match fs::metadata(&self.path) {
            Ok(metadata) if device_and_inode(&metadata) == self.at => Ok(()),
            Ok(_) => Err(StoreError::Gone { place: place.to_owned() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(StoreError::Gone { place: place.to_owned() })
            }
            Err(error) => Err(from_io(&error)),
        }
    }
}

#[cfg(unix)]
#[allow(clippy::unnecessary_wraps)] // Other systems have none.
fn device_and_inode(metadata: &Metadata) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn device_and_inode(_: &Metadata) -> Option<(u64, u64)> {
    None
}

/// How a file is known from its copies: by its inode and its time of birth, as far as the file system has them.
///
/// Not by its device, whose number may be another after each start of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    inode: Option<u64>,
    born_ns: Option<u64>,
}

impl Identity {
    pub(crate) fn of(file: &File) -> Result<Self, StoreError> {
        let metadata = file.metadata().map_err(|error| from_io(&error))?;
        let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        Ok(Self {
            inode: device_and_inode(&metadata).map(|(_, inode)| inode),
            born_ns: born.and_then(|born| u64::try_from(born.as_nanos()).ok()),
        })
    }

    /// What differs, if it is not the same file. What either does not know says nothing.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        let differ =
            |one: Option<u64>, other: Option<u64>| one.zip(other).filter(|(one, other)| one != other);
        if let Some((stored, found)) = differ(self.inode, other.inode) {
            return Some(format!("it was founded as inode {stored}, and is inode {found}"));
        }
        differ(self.born_ns, other.born_ns).map(|_| String::from("its file is younger than the store in it"))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        // 0 is no inode and no time of birth of any file.
        let [inode, born_ns] = [self.inode, self.born_ns].map(|number| number.unwrap_or(0).to_le_bytes());
        [inode, born_ns].concat()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (inode, born_ns) = bytes.split_at_checked(8)?;
        let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
        let known = |number| (number != 0).then_some(number);
        Some(Self { inode: known(number(inode)?), born_ns: known(number(born_ns)?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_cannot_lock_is_named_as_such() {
        // Shows what the system's errors of locking mean: 37 no locks available, 38 and 95 not supported, 13 no right.
        let place = Place::new(Path::new("dir"));
        for (errno, reason) in [(37, "no-locks"), (38, "no-locks"), (95, "no-locks"), (13, "read-only")] {
            assert_eq!(place.lock_error(&io::Error::from_raw_os_error(errno)).reason(), reason, "{errno}");
        }
    }

    #[test]
    fn the_lock_file_is_read_as_far_as_it_can_be() {
        // Shows that a mark survives its text, and that a torn or foreign text is nothing known, never an error.
        for mark in [
            Mark::default(),
            Mark { pid: Some(7), founded: None },
            Mark {
                pid: Some(u32::MAX),
                founded: Some(Founded {
                    uuid: u128::MAX,
                    generation: u16::MAX,
                    region: 3,
                    layout: Layout::SHARDED,
                }),
            },
        ] {
            assert_eq!(Mark::parse(&mark.text()), mark);
        }
        for text in
            ["", "pid", "pid x", "pid -1", "store 5", "store 5 generation 1 region 0 layout reserved:1"]
        {
            assert_eq!(Mark::parse(text), Mark::default(), "{text:?}");
        }
    }

    #[test]
    fn what_a_file_system_does_not_know_tells_no_file_from_another() {
        // Shows when two identities differ, and that their bytes are read back.
        let identity = |inode, born_ns| Identity { inode, born_ns };
        let own = identity(Some(5), Some(9));
        for (other, is_other) in [
            (own, false),
            (identity(Some(6), Some(9)), true),
            (identity(Some(5), Some(8)), true),
            (identity(Some(5), None), false),
            (identity(None, None), false),
        ] {
            assert_eq!(own.difference(&other).is_some(), is_other, "{other:?}");
            assert_eq!(Identity::decode(&other.encode()), Some(other));
        }
        assert_eq!(Identity::decode(&[0; 15]), None);
    }
}

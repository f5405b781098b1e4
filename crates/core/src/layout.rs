//! Layouts: which bits of an ID mean what.

use core::fmt;

use crate::{Id, Node};

/// The most fields that a layout may list. The widest public scheme lists five.
pub const FIELDS_MAX: usize = 8;

/// Bits of an ID.
pub const ID_BITS: u32 = 64;

/// Nanoseconds of a millisecond.
pub const NS_PER_MS: u64 = 1_000_000;

/// The bits of the sequence that the `spread` policy varies.
pub(crate) const SPREAD_BITS: u32 = 6;

/// The narrowest sequence on which `spread` is offered: below it, too much of a tick would be given away.
pub(crate) const SPREAD_SEQUENCE_BITS_MIN: u32 = 12;

/// What a field is for. The names are those of the field of ID generation; what a public scheme calls a
/// datacenter is a region here, its process, machine or node a worker, its counter a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Always zero. A reserved top bit makes every ID a positive signed 64-bit integer.
    Reserved,
    /// A hash that spreads neighbours in time over key ranges.
    Shard,
    /// Ticks since the layout's epoch.
    Timestamp,
    /// The region, the outer half of the node code.
    Region,
    /// The worker within its region, the inner half of the node code.
    Worker,
    /// Counts within one tick.
    Sequence,
    /// Bits that only the scheme's own maker understands (random bits, fractions). Decoded, never minted.
    Other,
}

impl Role {
    /// The role's own name, which a field bears when it is given no other.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Shard => "shard",
            Self::Timestamp => "timestamp",
            Self::Region => "region",
            Self::Worker => "worker",
            Self::Sequence => "sequence",
            Self::Other => "other",
        }
    }

    /// The role with this name, the inverse of [`Role::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        [
            Self::Reserved,
            Self::Shard,
            Self::Timestamp,
            Self::Region,
            Self::Worker,
            Self::Sequence,
            Self::Other,
        ]
        .into_iter()
        .find(|role| role.name() == name)
    }

    /// Whether a layout may list the role more than once.
    const fn repeats(self) -> bool {
        matches!(self, Self::Reserved | Self::Other)
    }
}

/// One field of a layout: a role, a width in bits, and the name that its scheme gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    role: Role,
    bits: u8,
    name: Name,
}

impl Field {
    /// A field under its role's own name. The width is checked by [`Layout::new`].
    pub const fn new(role: Role, bits: u8) -> Self {
        Self { role, bits, name: Name::OWN }
    }

    /// A field under another name, as public schemes need. The name is 1 to 15 of `a-z`, `0-9` and `_`.
    pub const fn named(role: Role, bits: u8, name: &str) -> Result<Self, FieldNameError> {
        match Name::new(name) {
            // A name that says nothing is none, so that both ways to write a field are equal.
            Some(given) if given.is(role.name()) => Ok(Self { role, bits, name: Name::OWN }),
            Some(name) => Ok(Self { role, bits, name }),
            None => Err(FieldNameError),
        }
    }

    /// What the field is for.
    pub const fn role(self) -> Role {
        self.role
    }

    /// The field's width, 1 to 63 bits in a valid layout.
    pub const fn bits(self) -> u32 {
        self.bits as u32
    }

    /// The name that the field bears.
    pub fn name(&self) -> &str {
        if self.name.len == 0 { self.role.name() } else { self.name.as_str() }
    }

    /// Whether the field bears this name: [`Field::name`] compared, without reading it as text first.
    pub const fn is_named(&self, name: &str) -> bool {
        if self.name.len == 0 { is_same(self.role.name().as_bytes(), name) } else { self.name.is(name) }
    }

    /// The largest value that the field holds.
    pub const fn value_max(self) -> u64 {
        low_mask(self.bits as u32)
    }
}

/// A short name kept in place, so that a layout read at run time owns its names without an allocator.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Name {
    bytes: [u8; NAME_BYTES_MAX],
    len: u8,
}

const NAME_BYTES_MAX: usize = 15;

impl Name {
    /// The role's own name, which is not spelled out: most fields bear it.
    const OWN: Self = Self { bytes: [0; NAME_BYTES_MAX], len: 0 };

    const fn is(&self, name: &str) -> bool {
        let (own, _) = self.bytes.split_at(self.len as usize);
        is_same(own, name)
    }

    #[allow(clippy::indexing_slicing)] // `get` is not const; both indices are below the checked length.
    #[allow(clippy::cast_possible_truncation)] // The length is at most 15.
    const fn new(name: &str) -> Option<Self> {
        let source = name.as_bytes();
        if source.is_empty() || source.len() > NAME_BYTES_MAX {
            return None;
        }
        let mut bytes = [0; NAME_BYTES_MAX];
        let mut at = 0;
        while at < source.len() {
            if !matches!(source[at], b'a'..=b'z' | b'0'..=b'9' | b'_') {
                return None;
            }
            bytes[at] = source[at];
            at += 1;
        }
        Some(Self { bytes, len: source.len() as u8 })
    }

    fn as_str(&self) -> &str {
        // Names are ASCII by construction, so neither step can fail.
        let bytes = self.bytes.get(..usize::from(self.len)).unwrap_or_default();
        core::str::from_utf8(bytes).unwrap_or_default()
    }
}

#[allow(clippy::indexing_slicing)] // `get` is not const; the index is below both lengths.
const fn is_same(one: &[u8], other: &str) -> bool {
    let other = other.as_bytes();
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// Where one role's bits lie: `bits` of them, `shift` above the lowest. No bits: the layout lacks the role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    pub(crate) shift: u8,
    pub(crate) bits: u8,
}

impl Span {
    const ABSENT: Self = Self { shift: 0, bits: 0 };

    pub(crate) const fn value_max(self) -> u64 {
        low_mask(self.bits as u32)
    }

    /// The span's value in `id`.
    pub(crate) const fn get(self, id: u64) -> u64 {
        (id >> self.shift) & self.value_max()
    }

    /// `value`, which the caller has checked to fit, at the span's place.
    pub(crate) const fn put(self, value: u64) -> u64 {
        value << self.shift
    }

    const fn is_absent(self) -> bool {
        self.bits == 0
    }
}

/// `bits` ones. 0 to 63 by construction: no field is 64 bits wide.
pub(crate) const fn low_mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// An ordered list of fields from the most significant bit, an epoch and a tick length.
///
/// A value of this type is valid: exactly 64 bits, one timestamp, no role twice but reserved and other bits.
/// Two ways to make one:
///
/// | constructor | for | also demands |
/// |---|---|---|
/// | [`Layout::new`] | minting | one sequence, ticks of whole milliseconds, only roles that a generator can fill |
/// | [`Layout::for_decoding`] | reading any scheme | nothing |
///
/// ```
/// use snowmint_core::{Field, Layout, LayoutError, Role};
///
/// const EPOCH_MS: u64 = 1_735_689_600_000;
/// let fields = [
///     Field::new(Role::Reserved, 1),
///     Field::new(Role::Timestamp, 41),
///     Field::new(Role::Worker, 10),
///     Field::new(Role::Sequence, 12),
/// ];
/// let layout = Layout::new(&fields, EPOCH_MS, 1_000_000)?;
/// assert_eq!(layout.ids_per_tick(), 4_096);
///
/// let short = Layout::new(&fields[1..], EPOCH_MS, 1_000_000);
/// assert_eq!(short, Err(LayoutError::Bits { bits: 63 }));
/// # Ok::<(), LayoutError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Layout {
    fields: [Field; FIELDS_MAX],
    len: u8,
    epoch_unix_ms: u64,
    tick_ns: u64,
    pub(crate) timestamp: Span,
    pub(crate) sequence: Span,
    region: Span,
    worker: Span,
    shard: Span,
    reserved_mask: u64,
}

impl Layout {
    /// The default: 1 reserved, 41 timestamp, 2 region, 8 worker, 12 sequence; milliseconds from
    /// 2025-01-01T00:00:00Z. 69.7 years, 4 regions, 256 workers each, 4,096 IDs a worker a millisecond.
    pub const SNOWMINT: Self = preset(&[
        Field::new(Role::Reserved, 1),
        Field::new(Role::Timestamp, 41),
        Field::new(Role::Region, 2),
        Field::new(Role::Worker, 8),
        Field::new(Role::Sequence, 12),
    ]);

    /// The sequence above the node, so that causal order can be kept across workers by
    /// [`crate::Generator::observe`]; made for a lead of 1,000 ms.
    pub const HYBRID: Self = preset(&[
        Field::new(Role::Reserved, 1),
        Field::new(Role::Timestamp, 41),
        Field::new(Role::Sequence, 12),
        Field::new(Role::Region, 2),
        Field::new(Role::Worker, 8),
    ]);

    /// A 4-bit shard first: writes spread over 16 key ranges, sorted by time within each. 256 IDs a worker a
    /// millisecond.
    pub const SHARDED: Self = preset(&[
        Field::new(Role::Reserved, 1),
        Field::new(Role::Shard, 4),
        Field::new(Role::Timestamp, 41),
        Field::new(Role::Region, 2),
        Field::new(Role::Worker, 8),
        Field::new(Role::Sequence, 8),
    ]);

    /// The presets with their names.
    pub const PRESETS: [(&'static str, Self); 3] =
        [("snowmint", Self::SNOWMINT), ("hybrid", Self::HYBRID), ("sharded", Self::SHARDED)];

    /// The preset of this name.
    pub fn preset(name: &str) -> Option<Self> {
        Self::PRESETS.iter().find(|(preset, _)| *preset == name).map(|(_, layout)| *layout)
    }

    /// A layout to mint by.
    ///
    /// `fields` run from the most significant bit. `epoch_unix_ms` is tick 0, in Unix milliseconds; `tick_ns` is
    /// the length of a tick in nanoseconds, a whole number of milliseconds.
    pub const fn new(fields: &[Field], epoch_unix_ms: u64, tick_ns: u64) -> Result<Self, LayoutError> {
        let layout = match Self::for_decoding(fields, epoch_unix_ms, tick_ns) {
            Ok(layout) => layout,
            Err(error) => return Err(error),
        };
        match layout.check_mints() {
            Ok(()) => Ok(layout),
            Err(error) => Err(error),
        }
    }

    /// A layout to decode by: also those that nobody here could mint by (no sequence, ticks of less than a
    /// millisecond, random bits).
    #[allow(clippy::indexing_slicing)] // `get` is not const; every index is below the checked length.
    #[allow(clippy::cast_possible_truncation)] // Shifts and lengths are at most 64.
    pub const fn for_decoding(
        fields: &[Field],
        epoch_unix_ms: u64,
        tick_ns: u64,
    ) -> Result<Self, LayoutError> {
        if fields.len() > FIELDS_MAX {
            return Err(LayoutError::FieldCount { count: fields.len() });
        }
        if tick_ns == 0 {
            return Err(LayoutError::TickZero);
        }
        let mut total = 0;
        let mut at = 0;
        while at < fields.len() {
            let bits = fields[at].bits();
            if bits == 0 || bits >= ID_BITS {
                return Err(LayoutError::FieldBits { role: fields[at].role, bits });
            }
            total += bits;
            at += 1;
        }
        if total != ID_BITS {
            return Err(LayoutError::Bits { bits: total });
        }

        let mut layout = Self {
            fields: [Field::new(Role::Reserved, 0); FIELDS_MAX],
            len: fields.len() as u8,
            epoch_unix_ms,
            tick_ns,
            timestamp: Span::ABSENT,
            sequence: Span::ABSENT,
            region: Span::ABSENT,
            worker: Span::ABSENT,
            shard: Span::ABSENT,
            reserved_mask: 0,
        };
        let mut shift = ID_BITS;
        at = 0;
        while at < fields.len() {
            let field = fields[at];
            shift -= field.bits();
            let span = Span { shift: shift as u8, bits: field.bits };
            if !layout.span(field.role).is_absent() && !field.role.repeats() {
                return Err(LayoutError::RoleTwice { role: field.role });
            }
            match field.role {
                Role::Reserved => layout.reserved_mask |= span.put(span.value_max()),
                Role::Shard => layout.shard = span,
                Role::Timestamp => layout.timestamp = span,
                Role::Region => layout.region = span,
                Role::Worker => layout.worker = span,
                Role::Sequence => layout.sequence = span,
                Role::Other => {}
            }
            layout.fields[at] = field;
            at += 1;
        }
        if layout.timestamp.is_absent() {
            return Err(LayoutError::RoleMissing { role: Role::Timestamp });
        }
        Ok(layout)
    }

    /// Whether a generator can mint by this layout, and if not, why.
    #[allow(clippy::indexing_slicing)] // `get` is not const; the index is below the length.
    pub const fn check_mints(&self) -> Result<(), LayoutError> {
        if self.sequence.is_absent() {
            return Err(LayoutError::RoleMissing { role: Role::Sequence });
        }
        if !self.tick_ns.is_multiple_of(NS_PER_MS) {
            return Err(LayoutError::TickNotWholeMs { tick_ns: self.tick_ns });
        }
        // Codes are 32-bit numbers everywhere outside an ID.
        if self.region.bits > 32 {
            return Err(LayoutError::FieldBits { role: Role::Region, bits: self.region.bits as u32 });
        }
        if self.worker.bits > 32 {
            return Err(LayoutError::FieldBits { role: Role::Worker, bits: self.worker.bits as u32 });
        }
        // A run's length, and every count of IDs, is a 32-bit number.
        if self.sequence.bits > 31 {
            return Err(LayoutError::FieldBits { role: Role::Sequence, bits: self.sequence.bits as u32 });
        }
        let mut at = 0;
        while at < self.len as usize {
            if matches!(self.fields[at].role, Role::Other) {
                return Err(LayoutError::RoleNotMinted { role: Role::Other });
            }
            at += 1;
        }
        // The end of the layout must be a time that a clock can show.
        let span_ms = (self.last_tick() as u128 + 1) * self.tick_ms() as u128 + self.epoch_unix_ms as u128;
        if span_ms > u64::MAX as u128 {
            return Err(LayoutError::EndsTooLate);
        }
        Ok(())
    }

    /// Whether this layout, whose generator would run at `now_ms` (Unix milliseconds), has begun.
    pub const fn check_begun(&self, now_ms: u64) -> Result<(), NotBegunError> {
        if now_ms < self.epoch_unix_ms.saturating_add(self.tick_ms()) {
            return Err(NotBegunError { epoch_unix_ms: self.epoch_unix_ms, now_ms });
        }
        Ok(())
    }

    const fn span(&self, role: Role) -> Span {
        match role {
            Role::Shard => self.shard,
            Role::Timestamp => self.timestamp,
            Role::Region => self.region,
            Role::Worker => self.worker,
            Role::Sequence => self.sequence,
            Role::Reserved | Role::Other => Span::ABSENT,
        }
    }

    /// The fields, from the most significant bit.
    pub fn fields(&self) -> &[Field] {
        self.fields.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// The width in bits of the field with this role; 0 where the layout has none. For reserved and other bits,
    /// which may stand in several places, the sum.
    pub fn bits(&self, role: Role) -> u32 {
        self.fields().iter().filter(|field| field.role == role).map(|field| field.bits()).sum()
    }

    /// Tick 0 in Unix milliseconds.
    pub const fn epoch_unix_ms(&self) -> u64 {
        self.epoch_unix_ms
    }

    /// The length of a tick in nanoseconds.
    pub const fn tick_ns(&self) -> u64 {
        self.tick_ns
    }

    /// The length of a tick in milliseconds, which is exact where the layout can be minted by. Layouts that can
    /// only be decoded by may have shorter ticks; 1 then, so that no division anywhere can fail.
    pub(crate) const fn tick_ms(&self) -> u64 {
        if self.tick_ns < NS_PER_MS { 1 } else { self.tick_ns / NS_PER_MS }
    }

    /// How many IDs one worker can mint in one tick.
    pub const fn ids_per_tick(&self) -> u64 {
        self.sequence.value_max() + 1
    }

    /// How many regions the layout holds; 1 where it has no region field.
    pub const fn regions(&self) -> u64 {
        self.region.value_max() + 1
    }

    /// How many workers a region holds; 1 where the layout has no worker field.
    pub const fn workers_per_region(&self) -> u64 {
        self.worker.value_max() + 1
    }

    /// The last tick that the timestamp field holds.
    pub const fn last_tick(&self) -> u64 {
        self.timestamp.value_max()
    }

    /// The last Unix millisecond that a generator may stamp: the last millisecond of the last tick. Only for
    /// layouts that can be minted by, for which [`Layout::check_mints`] has shown that it fits.
    pub const fn last_ms(&self) -> u64 {
        self.last_ms_of_tick(self.last_tick())
    }

    /// The tick of a Unix millisecond, rounded down, 0 for everything before the epoch.
    ///
    /// The one rounding of the system: clock, floor, ceiling and mark all pass through here, so that they can only
    /// be compared on one scale.
    pub(crate) const fn tick_of_ms(&self, unix_ms: u64) -> u64 {
        unix_ms.saturating_sub(self.epoch_unix_ms) / self.tick_ms()
    }

    /// The first Unix millisecond of a tick; saturates where no clock can reach.
    pub(crate) const fn first_ms_of_tick(&self, tick: u64) -> u64 {
        self.epoch_unix_ms.saturating_add(tick.saturating_mul(self.tick_ms()))
    }

    /// The last Unix millisecond of a tick; saturates where no clock can reach.
    pub(crate) const fn last_ms_of_tick(&self, tick: u64) -> u64 {
        self.first_ms_of_tick(tick).saturating_add(self.tick_ms() - 1)
    }

    /// The first Unix millisecond of the tick after that of `floor_ms`: from when on a generator with this floor can
    /// mint, without a lead. In ticks, as the generator compares, not in milliseconds.
    pub const fn first_ms_above(&self, floor_ms: u64) -> u64 {
        self.first_ms_of_tick(self.tick_of_ms(floor_ms).saturating_add(1))
    }

    /// The code of a worker, checked against the layout.
    pub const fn node(&self, region: u32, worker: u32) -> Result<Node, FieldError> {
        if region as u64 > self.region.value_max() {
            let max = self.region.value_max();
            return Err(FieldError { role: Role::Region, value: region as u64, max });
        }
        if worker as u64 > self.worker.value_max() {
            let max = self.worker.value_max();
            return Err(FieldError { role: Role::Worker, value: worker as u64, max });
        }
        Ok(Node { region, worker })
    }

    /// The bits of an ID that never change for a node: region, worker and the node's own shard.
    pub(crate) const fn node_bits(&self, node: Node) -> u64 {
        let key = ((node.region as u64) << 32) | node.worker as u64;
        self.region.put(node.region as u64) | self.worker.put(node.worker as u64) | self.shard_bits(key)
    }

    const fn shard_bits(&self, key: u64) -> u64 {
        self.shard.put(mix(key) & self.shard.value_max())
    }

    /// The same ID in the shard of a caller's key, so that one tenant's rows lie together. Time, node and sequence
    /// tell IDs apart whatever the shard, so this cannot make two IDs equal. Without a shard field, the ID itself.
    pub const fn with_shard_of(&self, id: Id, key: u64) -> Id {
        let cleared = id.get() & !self.shard.put(self.shard.value_max());
        Id::new(cleared | self.shard_bits(key))
    }

    /// Puts an ID together. Every value is checked against its field, never masked.
    pub const fn compose(&self, tick: u64, node: Node, sequence: u64) -> Result<Id, FieldError> {
        if let Err(error) = self.node(node.region, node.worker) {
            return Err(error);
        }
        if tick > self.timestamp.value_max() {
            let max = self.timestamp.value_max();
            return Err(FieldError { role: Role::Timestamp, value: tick, max });
        }
        if sequence > self.sequence.value_max() {
            let max = self.sequence.value_max();
            return Err(FieldError { role: Role::Sequence, value: sequence, max });
        }
        Ok(Id::new(self.timestamp.put(tick) | self.sequence.put(sequence) | self.node_bits(node)))
    }

    /// Takes an ID apart. Any 64 bits have a reading; whether it is plausible is for the reader to judge.
    pub const fn decode(&self, id: Id) -> Parts {
        let bits = id.get();
        #[allow(clippy::cast_possible_truncation)] // Only layouts that mint promise 32 bits; see `Parts`.
        Parts {
            tick: self.timestamp.get(bits),
            region: self.region.get(bits),
            worker: self.worker.get(bits),
            shard: self.shard.get(bits),
            sequence: self.sequence.get(bits),
            reserved: bits & self.reserved_mask != 0,
        }
    }

    /// Whether IDs of the layout compare as their cursors do: nothing that differs between IDs stands above the
    /// timestamp, and the sequence below it.
    pub(crate) const fn is_time_ordered(&self) -> bool {
        let top = self.timestamp.shift;
        (self.shard.is_absent() || self.shard.shift < top)
            && (self.region.is_absent() || self.region.shift < top)
            && (self.worker.is_absent() || self.worker.shift < top)
            && self.sequence.shift < top
    }

    /// Whether the `spread` policy is offered: see [`crate::Policy::spread`].
    pub(crate) const fn can_spread(&self) -> bool {
        self.sequence.shift == 0 && self.sequence.bits as u32 >= SPREAD_SEQUENCE_BITS_MIN
    }
}

/// Layouts are equal when they give every ID the same reading: fields with names, epoch and tick.
impl PartialEq for Layout {
    fn eq(&self, other: &Self) -> bool {
        self.fields() == other.fields()
            && self.epoch_unix_ms == other.epoch_unix_ms
            && self.tick_ns == other.tick_ns
    }
}

impl Eq for Layout {}

impl core::hash::Hash for Layout {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.fields().hash(state);
        self.epoch_unix_ms.hash(state);
        self.tick_ns.hash(state);
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Layout({self})")
    }
}

/// The canonical text, which stores keep as the layout's fingerprint: role and width of each field from the most
/// significant bit, with the name after a `/` where it is not the role's own, then epoch and tick.
///
/// `reserved:1 timestamp:41 region:2 worker:8 sequence:12 epoch-ms:1735689600000 tick-ns:1000000`
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for field in self.fields() {
            write!(f, "{}:{}", field.role.name(), field.bits)?;
            if field.name() != field.role.name() {
                write!(f, "/{}", field.name())?;
            }
            f.write_str(" ")?;
        }
        write!(f, "epoch-ms:{} tick-ns:{}", self.epoch_unix_ms, self.tick_ns)
    }
}

/// Reads the canonical text back. What it accepts is exactly what [`fmt::Display`] writes, so that two texts are
/// the same layout only if they are the same bytes.
impl core::str::FromStr for Layout {
    type Err = LayoutTextError;

    fn from_str(text: &str) -> Result<Self, LayoutTextError> {
        let mut fields = [Field::new(Role::Reserved, 0); FIELDS_MAX];
        let mut len = 0;
        let mut words = text.split(' ');
        let epoch_unix_ms = loop {
            let (key, value) =
                words.next().and_then(|word| word.split_once(':')).ok_or(LayoutTextError::Text)?;
            if key == "epoch-ms" {
                break number(value)?;
            }
            let role = Role::from_name(key).ok_or(LayoutTextError::Text)?;
            let (bits, name) = match value.split_once('/') {
                // A name that says nothing is not written.
                Some((_, name)) if name == role.name() => return Err(LayoutTextError::Text),
                Some(named) => named,
                None => (value, role.name()),
            };
            let bits = u8::try_from(number(bits)?).map_err(|_| LayoutTextError::Text)?;
            let count = len + 1;
            *fields.get_mut(len).ok_or(LayoutError::FieldCount { count })? =
                Field::named(role, bits, name).map_err(|_| LayoutTextError::Text)?;
            len = count;
        };
        let tick_ns = match words.next().and_then(|word| word.split_once(':')) {
            Some(("tick-ns", value)) => number(value)?,
            _ => return Err(LayoutTextError::Text),
        };
        if words.next().is_some() {
            return Err(LayoutTextError::Text);
        }
        Ok(Self::for_decoding(fields.get(..len).unwrap_or_default(), epoch_unix_ms, tick_ns)?)
    }
}

/// A decimal number without sign or leading zeros.
fn number(text: &str) -> Result<u64, LayoutTextError> {
    let plain = text == "0" || !text.starts_with(['0', '+']);
    text.parse().ok().filter(|_| plain).ok_or(LayoutTextError::Text)
}

/// The parts of an ID under a layout. A part whose field the layout lacks is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Ticks since the layout's epoch.
    pub tick: u64,
    /// The region.
    pub region: u64,
    /// The worker within its region.
    pub worker: u64,
    /// The shard.
    pub shard: u64,
    /// The sequence within the tick.
    pub sequence: u64,
    /// Whether any reserved bit is set: no generator of this layout made the ID.
    pub reserved: bool,
}

/// Mixes a key so that every bit of it moves every bit of the result.
///
/// The finaliser of `SplitMix64` (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014, with
/// the constants of Stafford's variant 13).
const fn mix(key: u64) -> u64 {
    let key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ (key >> 31)
}

/// 2025-01-01T00:00:00Z in Unix milliseconds, the epoch of the presets.
const EPOCH_2025_MS: u64 = 1_735_689_600_000;

const fn preset(fields: &[Field]) -> Layout {
    match Layout::new(fields, EPOCH_2025_MS, NS_PER_MS) {
        Ok(layout) => layout,
        #[allow(clippy::panic)] // Reached only while compiling: the presets are constants.
        Err(_) => panic!("a preset is not a valid layout"),
    }
}

/// Why a list of fields is not a layout. The fault is always that of whoever wrote the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// More than [`FIELDS_MAX`] fields.
    FieldCount {
        /// How many there are.
        count: usize,
    },
    /// A field's width is out of range.
    FieldBits {
        /// The field.
        role: Role,
        /// Its width.
        bits: u32,
    },
    /// The widths do not add up to 64.
    Bits {
        /// What they add up to.
        bits: u32,
    },
    /// A role that may stand once stands twice.
    RoleTwice {
        /// The role.
        role: Role,
    },
    /// A role that is needed is missing.
    RoleMissing {
        /// The role.
        role: Role,
    },
    /// A role that a generator cannot fill. The layout can still be decoded by.
    RoleNotMinted {
        /// The role.
        role: Role,
    },
    /// The tick has no length.
    TickZero,
    /// The tick is not a whole number of milliseconds. The layout can still be decoded by.
    TickNotWholeMs {
        /// The tick in nanoseconds.
        tick_ns: u64,
    },
    /// The last tick ends beyond what a 64-bit millisecond clock can show.
    EndsTooLate,
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::FieldCount { count } => {
                write!(f, "the layout lists {count} fields; at most {FIELDS_MAX} are supported")
            }
            Self::FieldBits { role, bits } => {
                let max = match role {
                    Role::Region | Role::Worker => 32,
                    Role::Sequence => 31,
                    _ => 63,
                };
                write!(f, "the {} field is {bits} bits wide; give it 1 to {max} bits", role.name())
            }
            Self::Bits { bits } if bits < ID_BITS => write!(
                f,
                "the fields add up to {bits} bits; an ID has exactly 64: widen fields by {} bits, or add reserved bits",
                ID_BITS - bits
            ),
            Self::Bits { bits } => write!(
                f,
                "the fields add up to {bits} bits; an ID has exactly 64: narrow fields by {} bits",
                bits - ID_BITS
            ),
            Self::RoleTwice { role } => {
                write!(f, "the layout has more than one {} field; keep one", role.name())
            }
            Self::RoleMissing { role } => write!(f, "the layout has no {} field; add one", role.name()),
            Self::RoleNotMinted { role } => write!(
                f,
                "the layout has a field of role `{}`, which a generator cannot fill; it can only be decoded by",
                role.name()
            ),
            Self::TickZero => f.write_str("the tick is 0 ns long; give it a length, such as 1000000 for 1 ms"),
            Self::TickNotWholeMs { tick_ns } => write!(
                f,
                "the tick is {tick_ns} ns, not a whole number of milliseconds; to mint, use a multiple of 1000000 \
                 (the layout can still be decoded by)"
            ),
            Self::EndsTooLate => f.write_str(
                "the last tick ends beyond any 64-bit millisecond clock; narrow the timestamp or shorten the tick",
            ),
        }
    }
}

impl core::error::Error for LayoutError {}

/// A field's name is not 1 to 15 of `a-z`, `0-9` and `_`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldNameError;

impl fmt::Display for FieldNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a field's name must be 1 to {NAME_BYTES_MAX} characters of a-z, 0-9 and _")
    }
}

impl core::error::Error for FieldNameError {}

/// The epoch lies in the future (or the clock in the past): nothing can be minted yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotBegunError {
    /// Tick 0 in Unix milliseconds.
    pub epoch_unix_ms: u64,
    /// The clock, in Unix milliseconds.
    pub now_ms: u64,
}

impl fmt::Display for NotBegunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { epoch_unix_ms, now_ms } = self;
        write!(
            f,
            "the layout's epoch {epoch_unix_ms} (Unix ms) is not yet past: the clock reads {now_ms}; choose an epoch \
             in the past, or set the clock right"
        )
    }
}

impl core::error::Error for NotBegunError {}

/// Why a text is not a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutTextError {
    /// Not the canonical text.
    Text,
    /// The text of something that is not a layout.
    Layout(LayoutError),
}

impl fmt::Display for LayoutTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str(
                "not the canonical text of a layout, such as `reserved:1 timestamp:41 region:2 worker:8 sequence:12 \
                 epoch-ms:1735689600000 tick-ns:1000000`",
            ),
            Self::Layout(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for LayoutTextError {}

impl From<LayoutError> for LayoutTextError {
    fn from(error: LayoutError) -> Self {
        Self::Layout(error)
    }
}

/// A value does not fit its field. Nothing is ever masked to make it fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field.
    pub role: Role,
    /// The value that was asked for.
    pub value: u64,
    /// The largest value that the field holds.
    pub max: u64,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} does not fit the layout; it takes 0 to {}", self.role.name(), self.value, self.max)
    }
}

impl core::error::Error for FieldError {}

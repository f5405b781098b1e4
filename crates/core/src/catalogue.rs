//! The public 64-bit schemes, for reading their IDs: 37 of others, and our own three.

use core::fmt;

use crate::Role::{Other, Region, Reserved, Sequence, Shard, Timestamp, Worker};
use crate::{Field, ForeignForm, Id, Layout, NS_PER_MS, Role, UnixTime};

const US: u64 = 1_000;
const MS: u64 = NS_PER_MS;
const S: u64 = 1_000_000_000;

/// A scheme by which IDs are made: its layout, where that is known from, and what a reader must know besides.
///
/// ```
/// use snowmint_core::{Id, Scheme};
///
/// let discord = Scheme::named("discord").unwrap();
/// let id = Id::new(175_928_847_299_117_063);
/// assert_eq!(discord.layout.time_text(id).as_str(), "2016-04-30T11:18:25.796Z");
/// let values: Vec<_> = discord.layout.values(id).map(|(_, value)| value).collect();
/// assert_eq!(values, [41_944_705_796, 1, 0, 7]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scheme {
    /// The name on every face, `a-z`, `0-9`, `_` and `.`.
    pub name: &'static str,
    /// What people call it.
    pub title: &'static str,
    /// Its fields, epoch and tick; the fields bear the names that the scheme gives them.
    pub layout: Layout,
    /// How it is known.
    pub status: Status,
    /// Where it is known from.
    pub source: &'static str,
    /// How its IDs are written where that is not plain decimal.
    pub form: Option<ForeignForm>,
    /// From when on IDs of it can exist, in Unix milliseconds: its epoch, or 1 January (or month) of its first
    /// publication if that is later. For judging what is plausible, not a historian's date.
    pub born_ms: u64,
    /// What every reader of its IDs should be told.
    pub caution: Option<Caution>,
    /// What the scheme costs in a ranking, in bits: see [`crate::Ranking`].
    pub(crate) weight_bits: u8,
    habits: [(Habit, &'static [&'static str]); 1],
}

/// How a scheme is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// It is ours: we mint by it.
    Own,
    /// Its maker documents it, or publishes the code that makes the IDs.
    Documented,
    /// Others worked it out from IDs; its maker promises nothing.
    Observed,
}

impl Status {
    /// The status's name on every face.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Documented => "documented",
            Self::Observed => "observed",
        }
    }
}

/// What is special to a scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Caution {
    /// Versions of the software place node and count differently: one ID has two readings.
    LayoutChanged,
    /// The timestamp is when the server started; the ID was made later.
    ServerStart,
    /// The epoch is midnight in the time zone of the machine that made the ID.
    EpochZone,
    /// The node is `XORed` onto the shifted time: `(time << 15) ^ node`. Below 2^15 that is the field that it looks
    /// like, and nothing needs undoing; a greater node flips bits of the time, which cannot be undone without
    /// knowing it.
    NodeFlipsTime,
}

impl fmt::Display for Caution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LayoutChanged => {
                "versions of this software place node and count differently, so the ID has two readings: read it \
                 by the version that made it (pgedge_1.0 or pgedge_current)"
            }
            Self::ServerStart => {
                "the time is when the server started, not when the ID was made: take it as a lower bound"
            }
            Self::EpochZone => {
                "the epoch is midnight in the time zone of the machine that made the ID, and this reading takes \
                 that for UTC: elsewhere, subtract the zone's offset from the time"
            }
            Self::NodeFlipsTime => {
                "a node of 32768 or more flips bits of the time: on so large a cluster the time may be off by up \
                 to 0.7 s; on others it is exact"
            }
        })
    }
}

/// How a scheme's makers fill a field, for rankings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Small values are more likely, but any will do.
    Small,
    /// Any value is as likely as another.
    Even,
    /// As `Small`, numbered from 1: 0 is never used.
    FromOne,
    /// Numbered from 1, and large values do not occur.
    FewFromOne,
}

impl Scheme {
    /// Every scheme: our own first, then the public ones.
    pub const fn all() -> &'static [Self] {
        &SCHEMES
    }

    /// The scheme of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        SCHEMES.iter().find(|scheme| scheme.name == name)
    }

    /// When the scheme's last tick begins: no ID of it can be of a later time.
    pub const fn ends(&self) -> UnixTime {
        self.layout.time_of_tick(self.layout.last_tick())
    }

    /// The ID as the scheme's own makers write it; decimal where they have no other form, or the ID does not fit it.
    pub fn text(&self, id: Id) -> crate::Text {
        self.form.and_then(|form| form.write(id)).unwrap_or_else(|| crate::TextForm::Decimal.write(id))
    }

    /// How the scheme fills a field.
    pub(crate) fn habit_of(&self, field: &Field) -> Habit {
        let own = self
            .habits
            .iter()
            .find(|(_, names)| names.iter().any(|name| field.is_named(name)))
            .map(|(habit, _)| *habit);
        own.unwrap_or(match field.role() {
            Shard | Other => Habit::Even,
            _ => Habit::Small,
        })
    }

    const fn of(
        name: &'static str,
        title: &'static str,
        epoch_unix_ms: u64,
        tick_ns: u64,
        fields: &[(Role, u8, &str)],
    ) -> Self {
        let layout = layout(fields, epoch_unix_ms, tick_ns);
        Self {
            name,
            title,
            layout,
            status: Status::Documented,
            source: "",
            form: None,
            born_ms: epoch_unix_ms,
            caution: None,
            weight_bits: 9,
            habits: [(Habit::Small, &[])],
        }
    }

    const fn own(name: &'static str, title: &'static str, layout: Layout, weight_bits: u8) -> Self {
        let scheme = Self::of(name, title, 0, MS, &[(Timestamp, 63, "timestamp"), (Sequence, 1, "sequence")]);
        Self { layout, status: Status::Own, source: "Layout::PRESETS", weight_bits, ..scheme }
            .born(2026, 11, 1)
    }

    const fn source(self, source: &'static str) -> Self {
        Self { source, ..self }
    }

    const fn weight(self, weight_bits: u8) -> Self {
        Self { weight_bits, ..self }
    }

    const fn born(self, year: u64, month: u64, day: u64) -> Self {
        Self { born_ms: utc_ms(year, month, day), ..self }
    }

    const fn form(self, form: ForeignForm) -> Self {
        Self { form: Some(form), ..self }
    }

    const fn habit(self, habit: Habit, names: &'static [&'static str]) -> Self {
        Self { habits: [(habit, names)], ..self }
    }

    const fn observed(self) -> Self {
        Self { status: Status::Observed, ..self }
    }

    const fn caution(self, caution: Caution) -> Self {
        Self { caution: Some(caution), ..self }
    }
}

#[allow(clippy::indexing_slicing, clippy::panic)] // Run only while compiling: the schemes are constants.
const fn layout(fields: &[(Role, u8, &str)], epoch_unix_ms: u64, tick_ns: u64) -> Layout {
    let mut named = [Field::new(Reserved, 1); crate::FIELDS_MAX];
    let mut at = 0;
    while at < fields.len() {
        let (role, bits, name) = fields[at];
        named[at] = match Field::named(role, bits, name) {
            Ok(field) => field,
            Err(_) => panic!("not a field's name"),
        };
        at += 1;
    }
    match Layout::for_decoding(named.split_at(fields.len()).0, epoch_unix_ms, tick_ns) {
        Ok(layout) => layout,
        Err(_) => panic!("a scheme is not a valid layout"),
    }
}

/// The Unix millisecond at which a day after 1970 begins in UTC. Howard Hinnant's `days_from_civil` for years of one
/// sign; see the time module.
const fn utc_ms(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + day_of_year;
    (days - 719_468) * 86_400_000
}

/// Each with its fields from the most significant bit. `weight` is how much commoner the scheme's IDs are among those
/// that people paste: IDs of a scheme of weight n are taken to be one in 2^n. They add up to about one.
static SCHEMES: [Scheme; 40] = [
    Scheme::own("snowmint", "Snowmint, the default", Layout::SNOWMINT, 4),
    Scheme::own("hybrid", "Snowmint, the counter above the node", Layout::HYBRID, 9),
    Scheme::own("sharded", "Snowmint, spread over 16 key ranges", Layout::SHARDED, 9),
    Scheme::of("twitter", "Twitter (X) snowflake", 1_288_834_974_657, MS, &[(Reserved, 1, "reserved"), (Timestamp, 41, "timestamp"), (Region, 5, "datacenter"), (Worker, 5, "worker"), (Sequence, 12, "sequence")])
        .source("twitter-archive/snowflake src/main/scala/com/twitter/service/snowflake/IdWorker.scala@05b22eb3aa")
        .weight(2)
        .habit(Habit::Even, &["datacenter", "worker"]),
    Scheme::of("discord", "Discord snowflake", 1_420_070_400_000, MS, &[(Timestamp, 42, "timestamp"), (Region, 5, "worker"), (Worker, 5, "process"), (Sequence, 12, "sequence")])
        .source("discord/discord-api-docs developers/reference.mdx")
        .weight(3)
        .born(2015, 2, 1),
    Scheme::of("instagram", "Instagram and Threads media", 1_314_220_021_721, MS, &[(Timestamp, 41, "timestamp"), (Shard, 13, "shard"), (Sequence, 10, "sequence")])
        .source("instagram-engineering.com/sharding-ids-at-instagram-1cf5a71e5a5c; RyanDFIR/unfurl parse_instagram.py")
        .weight(3)
        .form(ForeignForm::Shortcode)
        .habit(Habit::Even, &["sequence"]),
    Scheme::of("mastodon", "Mastodon status", 0, MS, &[(Timestamp, 48, "timestamp"), (Sequence, 16, "sequence")])
        .source("mastodon/mastodon lib/mastodon/snowflake.rb")
        .weight(5)
        .born(2016, 1, 1)
        .habit(Habit::Even, &["sequence"]),
    Scheme::of("sonyflake_v1", "Sonyflake 1", 1_409_529_600_000, 10_000_000, &[(Reserved, 1, "reserved"), (Timestamp, 39, "timestamp"), (Sequence, 8, "sequence"), (Worker, 16, "machine")])
        .source("sony/sonyflake sonyflake.go")
        .weight(5)
        .born(2015, 1, 1)
        .form(ForeignForm::PlainHex)
        .habit(Habit::Even, &["machine"]),
    Scheme::of("sonyflake_v2", "Sonyflake 2", 1_735_689_600_000, 10_000_000, &[(Reserved, 1, "reserved"), (Timestamp, 39, "timestamp"), (Sequence, 8, "sequence"), (Worker, 16, "machine")])
        .source("sony/sonyflake v2/sonyflake.go")
        .weight(7)
        .born(2025, 3, 1)
        .form(ForeignForm::PlainHex)
        .habit(Habit::Even, &["machine"]),
    Scheme::of("baidu_uid", "Baidu uid-generator, default bits", 1_463_673_600_000, S, &[(Reserved, 1, "reserved"), (Timestamp, 28, "timestamp"), (Worker, 22, "worker"), (Sequence, 13, "sequence")])
        .source("baidu/uid-generator DefaultUidGenerator.java")
        .weight(8)
        .born(2017, 1, 1),
    Scheme::of("leaf", "Meituan Leaf", 1_288_834_974_657, MS, &[(Reserved, 1, "reserved"), (Timestamp, 41, "timestamp"), (Worker, 10, "worker"), (Sequence, 12, "sequence")])
        .source("Meituan-Dianping/Leaf SnowflakeIDGenImpl.java")
        .weight(7)
        .born(2017, 1, 1),
    Scheme::of("hazelcast", "Hazelcast flake ID", 1_514_764_800_000, MS, &[(Reserved, 1, "reserved"), (Timestamp, 41, "timestamp"), (Sequence, 6, "sequence"), (Worker, 16, "node")])
        .source("hazelcast FlakeIdGeneratorConfig.java")
        .weight(6),
    Scheme::of("yitter", "Yitter IdGenerator, default bits", 1_582_136_402_000, MS, &[(Timestamp, 52, "timestamp"), (Worker, 6, "worker"), (Sequence, 6, "sequence")])
        .source("yitter/IdGenerator Go/source/idgen/IdGeneratorOptions.go")
        .weight(7),
    Scheme::of("cockroach_unique_rowid", "CockroachDB unique_rowid", 1_420_070_400_000, 10_000, &[(Reserved, 1, "reserved"), (Timestamp, 48, "timestamp"), (Worker, 15, "node")])
        .source("cockroachdb/cockroach pkg/sql/sem/builtins/builtins.go GenerateUniqueInt")
        .weight(5)
        .habit(Habit::FewFromOne, &["node"])
        .caution(Caution::NodeFlipsTime),
    Scheme::of("tsid", "TSID", 1_577_836_800_000, MS, &[(Timestamp, 42, "timestamp"), (Worker, 10, "node"), (Sequence, 12, "counter")])
        .source("f4b6a3/tsid-creator README.md")
        .weight(4)
        .born(2020, 4, 1)
        .form(ForeignForm::Base32)
        .habit(Habit::Even, &["node", "counter"]),
    Scheme::of("scru64", "SCRU64", 0, 256_000_000, &[(Reserved, 2, "reserved"), (Timestamp, 38, "timestamp"), (Other, 24, "node_ctr")])
        .source("scru64/rust src/test_cases.rs")
        .weight(7)
        .born(2023, 1, 1)
        .form(ForeignForm::Base36Short),
    Scheme::of("tidb_tso", "TiDB timestamp oracle", 0, MS, &[(Timestamp, 46, "timestamp"), (Sequence, 18, "logical")])
        .source("docs.pingcap.com/tidb/stable/tso")
        .weight(7)
        .born(2016, 1, 1),
    Scheme::of("frostflake", "Frostflake", 0, S, &[(Timestamp, 32, "timestamp"), (Sequence, 21, "sequence"), (Worker, 11, "generator")])
        .source("ordo-one/package-frostflake README.md")
        .weight(8)
        .born(2022, 1, 1)
        .form(ForeignForm::Base58),
    Scheme::of("atproto_tid", "AT protocol (Bluesky) TID", 0, US, &[(Reserved, 1, "reserved"), (Timestamp, 53, "timestamp"), (Worker, 10, "clock_id")])
        .source("atproto.com/specs/tid")
        .weight(5)
        .born(2022, 1, 1)
        .form(ForeignForm::Sortable32)
        .habit(Habit::Even, &["clock_id"]),
    Scheme::of("linkedin", "LinkedIn activity", 0, MS, &[(Timestamp, 42, "timestamp"), (Other, 22, "rest")])
        .source("RyanDFIR/unfurl parse_linkedin.py (observed)")
        .weight(5)
        .born(2012, 1, 1)
        .observed(),
    Scheme::of("tiktok", "TikTok video", 0, S, &[(Timestamp, 32, "timestamp"), (Other, 32, "rest")])
        .source("RyanDFIR/unfurl parse_tiktok.py; arxiv 2504.13279 (observed)")
        .weight(5)
        .born(2014, 1, 1)
        .observed(),
    Scheme::of("gmail", "Gmail message", 0, MS, &[(Timestamp, 44, "timestamp"), (Other, 20, "rest")])
        .source("RyanDFIR/unfurl parse_gmail.py; metaspike (observed)")
        .weight(6)
        .born(2004, 4, 1)
        .observed(),
    Scheme::of("telegram_msg_id", "Telegram MTProto message", 0, S, &[(Timestamp, 32, "timestamp"), (Other, 30, "fraction"), (Other, 2, "kind")])
        .source("core.telegram.org/mtproto/description#message-identifier-msg-id")
        .weight(6)
        .born(2013, 1, 1)
        .form(ForeignForm::UpperHex),
    Scheme::of("clickhouse", "ClickHouse generateSnowflakeID", 0, MS, &[(Reserved, 1, "reserved"), (Timestamp, 41, "timestamp"), (Worker, 10, "machine"), (Sequence, 12, "counter")])
        .source("clickhouse.com/docs uuid-functions")
        .weight(7)
        .born(2024, 1, 1),
    Scheme::of("pgedge_current", "pgEdge snowflake, current", 1_672_531_200_000, MS, &[(Reserved, 1, "reserved"), (Timestamp, 41, "timestamp"), (Worker, 10, "node"), (Sequence, 12, "count")])
        .source("pgEdge/snowflake snowflake.c HEAD")
        .weight(8)
        .born(2023, 6, 1)
        .habit(Habit::FromOne, &["node"])
        .caution(Caution::LayoutChanged),
    Scheme::of("pgedge_1.0", "pgEdge snowflake 1.0", 1_672_531_200_000, MS, &[(Reserved, 1, "reserved"), (Timestamp, 41, "timestamp"), (Sequence, 12, "count"), (Worker, 10, "node")])
        .source("pgEdge/snowflake snowflake.c@2203a0f")
        .weight(8)
        .born(2023, 6, 1)
        .habit(Habit::FromOne, &["node"])
        .caution(Caution::LayoutChanged),
    Scheme::of("seata", "Apache Seata", 1_588_435_200_000, MS, &[(Reserved, 1, "reserved"), (Worker, 10, "worker"), (Timestamp, 41, "timestamp"), (Sequence, 12, "sequence")])
        .source("apache/incubator-seata IdWorker.java")
        .weight(9),
    Scheme::of("shardingsphere", "Apache ShardingSphere", 1_477_958_400_000, MS, &[(Reserved, 1, "reserved"), (Timestamp, 41, "timestamp"), (Worker, 10, "worker"), (Sequence, 12, "sequence")])
        .source("apache/shardingsphere SnowflakeKeyGenerateAlgorithm.java (epoch = 2016-11-01 local JVM zone)")
        .weight(8)
        .caution(Caution::EpochZone),
    Scheme::of("cosid", "CosId", 1_577_203_200_000, MS, &[(Reserved, 1, "reserved"), (Timestamp, 41, "timestamp"), (Worker, 10, "machine"), (Sequence, 12, "sequence")])
        .source("Ahoo-Wang/CosId CosId.java")
        .weight(8)
        .born(2021, 6, 1),
    Scheme::of("cosid_js_safe", "CosId, safe for JavaScript", 1_577_203_200_000, MS, &[(Reserved, 11, "reserved"), (Timestamp, 41, "timestamp"), (Worker, 3, "machine"), (Sequence, 9, "sequence")])
        .source("Ahoo-Wang/CosId SafeJavaScriptSnowflakeId.java")
        .weight(9)
        .born(2021, 6, 1),
    Scheme::of("risingwave", "RisingWave row", 1_617_235_200_000, MS, &[(Reserved, 1, "reserved"), (Timestamp, 41, "timestamp"), (Shard, 10, "vnode"), (Sequence, 12, "sequence")])
        .source("risingwavelabs/risingwave src/common/src/util/row_id.rs")
        .weight(9)
        .born(2022, 1, 1),
    Scheme::of("snowid", "SnowID", 1_704_067_200_000, MS, &[(Timestamp, 42, "timestamp"), (Worker, 10, "node"), (Sequence, 12, "sequence")])
        .source("qeeqez/snowid-rust README.md")
        .weight(8)
        .born(2024, 11, 1)
        .form(ForeignForm::PlainBase62),
    Scheme::of("flake_idgen", "flake-idgen (npm)", 0, MS, &[(Timestamp, 42, "timestamp"), (Region, 5, "datacenter"), (Worker, 5, "worker"), (Sequence, 12, "counter")])
        .source("T-PWK/flake-idgen README.md")
        .weight(8)
        .born(2013, 1, 1),
    Scheme::of("simpleflake_py", "Simpleflake (Python)", 946_702_800_000, MS, &[(Timestamp, 41, "timestamp"), (Other, 23, "random")])
        .source("simpleflake (Python) SIMPLEFLAKE_EPOCH=946702800")
        .weight(9)
        .born(2012, 1, 1),
    Scheme::of("simpleflakes_npm", "simpleflakes (npm)", 946_684_800_000, MS, &[(Timestamp, 41, "timestamp"), (Other, 23, "random")])
        .source("leodutra/simpleflakes README.md")
        .weight(9)
        .born(2013, 1, 1),
    Scheme::of("spaceflake", "Spaceflake", 1_420_070_400_000, MS, &[(Reserved, 1, "reserved"), (Timestamp, 41, "timestamp"), (Region, 5, "node"), (Worker, 5, "worker"), (Sequence, 12, "sequence")])
        .source("kkrypt0nn/spaceflake; Racum/uuinfo")
        .weight(9)
        .born(2022, 1, 1),
    Scheme::of("pixelfed", "Pixelfed", 1_549_756_800_000, MS, &[(Timestamp, 42, "timestamp"), (Other, 5, "random_a"), (Other, 5, "random_b"), (Sequence, 12, "sequence")])
        .source("pixelfed app/Services/SnowflakeService.php")
        .weight(9)
        .born(2021, 1, 1),
    Scheme::of("idgen_net", "IdGen (.NET)", 1_420_070_400_000, MS, &[(Reserved, 1, "reserved"), (Timestamp, 41, "timestamp"), (Worker, 10, "generator"), (Sequence, 12, "sequence")])
        .source("RobThree/IdGen README.md")
        .weight(9),
    Scheme::of("nano64", "Nano64", 0, MS, &[(Timestamp, 44, "timestamp"), (Other, 20, "random")])
        .source("only-cliches/nano64; Racum/uuinfo")
        .weight(9)
        .born(2025, 1, 1),
    Scheme::of("mysql_uuid_short", "MySQL and MariaDB UUID_SHORT", 0, S, &[(Worker, 8, "server_id"), (Timestamp, 32, "timestamp"), (Sequence, 24, "counter")])
        .source("mariadb.com/docs uuid_short (timestamp = server START)")
        .weight(7)
        .born(2007, 1, 1)
        .caution(Caution::ServerStart),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Names are unique, and every scheme is found by its own.
    #[test]
    fn names() {
        for scheme in Scheme::all() {
            assert_eq!(Scheme::named(scheme.name), Some(scheme));
            assert!(!scheme.source.is_empty() && !scheme.title.is_empty());
            assert!(scheme.born_ms >= scheme.layout.epoch_unix_ms(), "{}", scheme.name);
        }
        assert_eq!(Scheme::named("nobody"), None);
    }

    /// Habits name fields that exist.
    #[test]
    fn habits() {
        for scheme in Scheme::all() {
            for name in scheme.habits.iter().flat_map(|(_, names)| *names) {
                assert!(
                    scheme.layout.fields().iter().any(|field| field.name() == *name),
                    "{}: {name}",
                    scheme.name
                );
            }
        }
    }

    #[test]
    fn dates() {
        assert_eq!(utc_ms(1970, 1, 1), 0);
        assert_eq!(utc_ms(2025, 1, 1), Layout::SNOWMINT.epoch_unix_ms());
        assert_eq!(utc_ms(2024, 2, 29), 1_709_164_800_000);
        assert_eq!(Scheme::named("baidu_uid").unwrap().ends().text(0).as_str(), "2024-11-20T13:24:15Z");
    }
}

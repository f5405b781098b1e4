//! The component's whole surface under a hostile host and hostile callers: no trap, and no ID twice.
//!
//! Every export is called with values made from its own type, and every import answers with values made from its, so
//! that a function that is added is driven too. What runs is the compiled component: no coverage can be had from within
//! it, so the cases are drawn from a seed rather than bred by a fuzzer. `cargo xtask fuzz` runs this for as long as its
//! other targets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use wasmtime::component::types::{ComponentFunc, ComponentItem};
use wasmtime::component::{Component, Func, Linker, Type, Val};
use wasmtime::{Config, Engine, Store, StoreContextMut};

const COMPONENT: &[u8] = include_bytes!(env!("SNOWMINT_COMPONENT"));
const IMPORTS: [&str; 3] =
    ["snowmint:id/clock@0.1.0", "snowmint:id/lease@0.1.0", "snowmint:id/high-water-mark@0.1.0"];
const EXPORTS: [&str; 2] = ["snowmint:id/generator@0.1.0", "snowmint:id/codec@0.1.0"];

/// Layouts that a generator can mint by, as (role, bits) from the top.
const LAYOUTS: [&[(&str, u8)]; 5] = [
    &[("reserved", 1), ("timestamp", 41), ("region", 2), ("worker", 8), ("sequence", 12)],
    &[("reserved", 1), ("timestamp", 41), ("sequence", 12), ("region", 2), ("worker", 8)],
    &[("reserved", 1), ("shard", 4), ("timestamp", 41), ("region", 2), ("worker", 8), ("sequence", 8)],
    &[("timestamp", 48), ("sequence", 16)],
    &[("reserved", 1), ("timestamp", 41), ("sequence", 22)],
];

/// A moment that a hostile host's times lie around, in Unix milliseconds.
const T: u64 = 1_790_000_000_000;

/// Draws values: [SplitMix64](https://doi.org/10.1145/2714064.2660195).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound).unwrap()).unwrap()
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    /// The ends of the range, times near a moment, small numbers, and any.
    fn u64(&mut self) -> u64 {
        match self.below(8) {
            0 => [0, 1, u64::MAX, u64::MAX - 1, 1 << 63, 1 << 53, u64::from(u32::MAX)][self.below(7)],
            1 => self.next(),
            2 => self.next() % 16,
            _ => T + self.next() % 64,
        }
    }

    fn u32(&mut self) -> u32 {
        let any = u32::try_from(self.next() >> 32).unwrap();
        match self.below(4) {
            0 => [0, 1, u32::MAX, u32::MAX - 1, 4_096, 4_097, 255, 256][self.below(8)],
            1 => any,
            _ => any % 16,
        }
    }

    fn layout(&mut self) -> Val {
        let fields = LAYOUTS[self.below(LAYOUTS.len())].iter().map(|&(role, bits)| {
            Val::Record(vec![
                (String::from("role"), Val::Enum(role.into())),
                (String::from("bits"), Val::U8(if self.chance(1) { 0 } else { bits })),
            ])
        });
        let fields = Val::List(fields.collect());
        let tick_ns = if self.chance(90) { 1_000_000 } else { self.next() % 20_000_000 };
        Val::Record(vec![
            (String::from("fields"), fields),
            (String::from("epoch-unix-ms"), Val::U64(if self.chance(90) { T - 60_000 } else { self.u64() })),
            (String::from("tick-ns"), Val::U64(tick_ns)),
        ])
    }

    fn grant(&mut self) -> Val {
        let small = |draw: &mut Self| Val::U32(u32::try_from(draw.next() % 2).unwrap());
        let node = Val::Record(vec![
            (String::from("region"), if self.chance(50) { Val::U32(0) } else { small(self) }),
            (String::from("worker"), if self.chance(50) { Val::U32(0) } else { small(self) }),
        ]);
        let grant = Val::Record(vec![
            (String::from("node"), node),
            (String::from("ticket"), Val::U64(self.u64())),
            (String::from("floor-ms"), Val::U64(T - 1)),
        ]);
        Val::Result(Ok(Some(Box::new(grant))))
    }

    fn policy(&mut self) -> Val {
        let lead_ms = if self.chance(50) { 0 } else { 1_000 };
        let fields =
            [("lead-ms", lead_ms), ("wait-ms-max", 5), ("clock-error-ms-max", 10), ("mark-window-ms", 2_000)];
        let mut fields: Vec<_> =
            fields.into_iter().map(|(name, ms)| (String::from(name), Val::U32(ms))).collect();
        fields.push((String::from("observe-ahead-ms-max"), Val::U32(lead_ms / 2)));
        fields.push((String::from("spread"), Val::Bool(self.chance(20))));
        Val::Record(fields)
    }

    /// Any value of a type; of a layout and a policy mostly one that can be followed, or nothing further is reached.
    fn value(&mut self, ty: &Type) -> Val {
        match ty {
            Type::Bool => Val::Bool(self.chance(50)),
            Type::U8 => Val::U8(u8::try_from(self.next() & 0xff).unwrap()),
            Type::U32 => Val::U32(self.u32()),
            Type::U64 => Val::U64(self.u64()),
            Type::List(list) => {
                let longest = if self.chance(2) { 3_000 } else { 24 };
                let length = self.below(longest);
                Val::List((0..length).map(|_| self.value(&list.ty())).collect())
            }
            Type::Record(record) => {
                let names: Vec<_> = record.fields().map(|field| field.name.to_owned()).collect();
                let is = |expected: &str| names.iter().any(|name| name == expected);
                if is("tick-ns") && self.chance(90) {
                    return self.layout();
                }
                if is("wait-ms-max") && self.chance(80) {
                    return self.policy();
                }
                let fields = record.fields().map(|field| (field.name.to_owned(), self.value(&field.ty)));
                Val::Record(fields.collect())
            }
            Type::Variant(variant) => {
                let cases: Vec<_> = variant.cases().collect();
                let case = &cases[self.below(cases.len())];
                let payload = case.ty.as_ref().map(|ty| Box::new(self.value(ty)));
                Val::Variant(case.name.to_owned(), payload)
            }
            Type::Enum(names) => {
                let names: Vec<_> = names.names().collect();
                Val::Enum(names[self.below(names.len())].to_owned())
            }
            Type::Option(option) => {
                Val::Option(if self.chance(50) { Some(Box::new(self.value(&option.ty()))) } else { None })
            }
            Type::Result(result) => Val::Result(if self.chance(95) {
                Ok(result.ok().map(|ty| Box::new(self.value(&ty))))
            } else {
                Err(result.err().map(|ty| Box::new(self.value(&ty))))
            }),
            other => panic!("the contract has no {other:?}"),
        }
    }
}

/// A host that answers from a seed.
struct Host(Draw);

/// What an import answers: anything, but mostly what lets minting go on, or nothing further is reached.
fn answer(
    name: &str,
) -> impl Fn(StoreContextMut<'_, Host>, ComponentFunc, &[Val], &mut [Val]) -> wasmtime::Result<()> + use<> {
    let friendly = match name {
        "ceiling-ms" | "reserve" => Some(Val::U64(T + 5_000)),
        "error-bound-ms" => Some(Val::U32(3)),
        "recover" => Some(Val::Result(Ok(Some(Box::new(Val::Option(Some(Box::new(Val::U64(T - 1))))))))),
        _ => None,
    };
    let is_take = name == "take";
    move |mut host, ty, _, results| {
        let draw = &mut host.data_mut().0;
        for (result, ty) in results.iter_mut().zip(ty.results()) {
            *result = match &friendly {
                Some(friendly) if draw.chance(80) => friendly.clone(),
                _ if is_take && draw.chance(90) => draw.grant(),
                _ => draw.value(&ty),
            };
        }
        Ok(())
    }
}

struct Surface {
    engine: Engine,
    component: Component,
    linker: Linker<Host>,
}

impl Surface {
    fn new() -> Self {
        let mut config = Config::new();
        config.concurrency_support(false);
        let engine = Engine::new(&config).unwrap();
        let component = Component::new(&engine, COMPONENT).unwrap();
        let mut linker = Linker::<Host>::new(&engine);
        for (interface, item) in component.component_type().imports(&engine) {
            assert!(IMPORTS.contains(&interface), "{interface} is imported");
            let ComponentItem::ComponentInstance(instance) = item.ty else {
                panic!("{interface} is no interface")
            };
            let mut imported = linker.instance(interface).unwrap();
            for (name, item) in instance.exports(&engine) {
                let ComponentItem::ComponentFunc(_) = item.ty else { continue };
                imported.func_new(name, answer(name)).unwrap();
            }
        }
        Self { engine, component, linker }
    }

    /// All functions that are exported, by `interface#name`.
    fn functions(&self, store: &mut Store<Host>) -> BTreeMap<String, Func> {
        let instance = self.linker.instantiate(&mut *store, &self.component).unwrap();
        let mut functions = BTreeMap::new();
        for interface in EXPORTS {
            let (item, at) = instance.get_export(&mut *store, None, interface).unwrap();
            let ComponentItem::ComponentInstance(exported) = item else {
                panic!("{interface} is no interface")
            };
            let names: Vec<_> = exported
                .exports(&self.engine)
                .filter(|(_, item)| matches!(item.ty, ComponentItem::ComponentFunc(_)))
                .map(|(name, _)| name.to_owned())
                .collect();
            for name in names {
                let (_, function) = instance.get_export(&mut *store, Some(&at), &name).unwrap();
                let function = instance.get_func(&mut *store, function).unwrap();
                functions.insert(format!("{interface}#{name}"), function);
            }
        }
        functions
    }
}

/// The IDs of one instance: always greater than those before, but for the shard's bits.
struct Minted {
    shard_mask: u64,
    last: Option<u64>,
    count: u64,
}

impl Minted {
    fn keep(&mut self, first: u64, stride: u64, count: u64) -> Result<(), String> {
        if count == 0 {
            return Err("a run of nothing".into());
        }
        let below = |id: u64| id & !self.shard_mask;
        if self.last.is_some_and(|last| below(first) <= below(last)) {
            return Err(format!("{first:#x} after {:#x}", self.last.unwrap()));
        }
        let last = stride.checked_mul(count - 1).and_then(|span| first.checked_add(span));
        let last = last.ok_or("a run beyond 64 bits")?;
        if count > 1 && below(last) <= below(first) {
            return Err(format!("a run from {first:#x} to {last:#x}"));
        }
        self.last = Some(last);
        self.count += count;
        Ok(())
    }
}

fn number(value: &Val) -> u64 {
    match value {
        Val::U8(number) => (*number).into(),
        Val::U32(number) => (*number).into(),
        Val::U64(number) => *number,
        other => panic!("{other:?} is no number"),
    }
}

fn field<'a>(record: &'a Val, name: &str) -> &'a Val {
    let Val::Record(fields) = record else { panic!("{record:?} is no record") };
    &fields.iter().find(|(field, _)| field == name).expect(name).1
}

/// Where the shard's bits are in the layout of a configuration.
fn shard_mask(config: &Val) -> u64 {
    let Val::List(fields) = field(field(config, "layout"), "fields") else { panic!() };
    let mut shift = 64;
    let mut mask = 0;
    for given in fields {
        let bits = number(field(given, "bits"));
        shift -= bits;
        if *field(given, "role") == Val::Enum("shard".into()) {
            mask = ((1 << bits) - 1) << shift;
        }
    }
    mask
}

/// Takes note of what a call has minted.
fn note(name: &str, params: &[Val], result: Option<&Val>, minted: &mut Minted) -> Result<(), String> {
    let Some(Val::Result(Ok(value))) = result else { return Ok(()) };
    match (name.rsplit('#').next().unwrap_or_default(), value.as_deref()) {
        ("start", _) => minted.shard_mask = shard_mask(&params[0]),
        ("next", Some(id)) => minted.keep(number(id), 0, 1)?,
        ("mint", Some(run)) => {
            minted.keep(
                number(field(run, "first")),
                number(field(run, "stride")),
                number(field(run, "count")),
            )?;
        }
        ("batch", Some(Val::List(ids))) => ids.iter().try_for_each(|id| minted.keep(number(id), 0, 1))?,
        _ => {}
    }
    Ok(())
}

/// One instance and what befalls it; how many IDs it minted.
fn run(surface: &Surface, seed: u64) -> Result<u64, String> {
    let mut draw = Draw(seed);
    let mut store = Store::new(&surface.engine, Host(Draw(draw.next())));
    let mut functions: Vec<_> = surface.functions(&mut store).into_iter().collect();
    functions.sort_by_key(|(name, _)| !name.starts_with(EXPORTS[0]));
    let mut minted = Minted { shard_mask: 0, last: None, count: 0 };
    let start = functions.iter().position(|(name, _)| name.ends_with("#start")).unwrap();
    let generator = functions.iter().filter(|(name, _)| name.starts_with(EXPORTS[0])).count();
    for call in 0..60 {
        // Started at once in most cases; then mostly the generator's functions, and its end seldom.
        let at = match call {
            0 if draw.chance(90) => start,
            _ if draw.chance(70) => draw.below(generator),
            _ => draw.below(functions.len()),
        };
        let (name, function) = &functions[at];
        if name.ends_with("#stop") && !draw.chance(5) {
            continue;
        }
        let ty = function.ty(&store);
        let params: Vec<_> = ty.params().map(|(_, ty)| draw.value(&ty)).collect();
        let mut results = vec![Val::Bool(false); ty.results().len()];
        let called = function.call(&mut store, &params, &mut results);
        called.map_err(|trap| format!("{name}({params:?}) traps: {trap:#}"))?;
        note(name, &params, results.first(), &mut minted)
            .map_err(|why| format!("{name}({params:?}): {why}"))?;
    }
    assert!(generator >= 6, "the generator's functions are {generator}");
    Ok(minted.count)
}

/// F16: whatever a host and a caller send, the component answers; and no ID of an instance comes twice.
#[test]
fn f16_the_component_never_traps_and_never_repeats_under_a_hostile_host() {
    let seconds = std::env::var("SNOWMINT_FUZZ_SECONDS").ok();
    let seconds =
        seconds.map_or(3, |seconds| seconds.parse().expect("SNOWMINT_FUZZ_SECONDS is whole seconds"));
    let replay = std::env::var("SNOWMINT_SEED").ok().map(|seed| seed.parse::<u64>().expect("SNOWMINT_SEED"));
    let mut random = [0; 8];
    getrandom::fill(&mut random).unwrap();
    let first = replay.unwrap_or_else(|| u64::from_le_bytes(random));
    println!("SNOWMINT_SEED={first}");
    let surface = Surface::new();
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut cases, mut ids, mut seed) = (0, 0, first);
    while cases == 0 || (replay.is_none() && Instant::now() < end) {
        match run(&surface, seed) {
            Ok(count) => ids += count,
            Err(why) => panic!("{why}\nthis instance again: SNOWMINT_SEED={seed}"),
        }
        cases += 1;
        seed = seed.wrapping_add(1);
    }
    println!("{cases} instances minted {ids} IDs");
    assert!(
        replay.is_some() || ids > 10 * cases,
        "only {ids} IDs in {cases} instances: the cases reach nothing"
    );
}

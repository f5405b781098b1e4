//! The arrows between our crates point one way: toward core.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use crate::cargo::{Dependency, Package};

/// What a crate may be built with. Tests may use more: dev-dependencies are not looked at.
struct Arrows {
    from: &'static str,
    /// Crates of this workspace.
    to: &'static [&'static str],
    others: Others,
}

/// What a crate may use that is not ours.
enum Others {
    Any,
    /// These, and by choice of a feature that is off unless asked for, any.
    Only(&'static [&'static str]),
}

/// Every crate of the workspace has its row; a crate without one is refused.
const ARROWS: &[Arrows] = &[
    Arrows { from: "snowmint-core", to: &[], others: Others::Only(&[]) },
    Arrows { from: "snowmint-lease", to: &["snowmint-core"], others: Others::Only(&[]) },
    Arrows { from: "snowmint-kernel-clock", to: &[], others: Others::Only(&["libc"]) },
    Arrows { from: "snowmint-lease-redb", to: &["snowmint-core", "snowmint-lease"], others: Others::Any },
    Arrows { from: "snowmint-lease-etcd", to: &["snowmint-core", "snowmint-lease"], others: Others::Any },
    Arrows { from: "snowmint-lease-http", to: &["snowmint-core", "snowmint-lease"], others: Others::Any },
    Arrows { from: "snowmint-sim", to: &["snowmint-core", "snowmint-lease"], others: Others::Only(&[]) },
    Arrows {
        from: "snowmint-model",
        to: &["snowmint-core", "snowmint-lease"],
        others: Others::Only(&["stateright"]),
    },
    Arrows {
        from: "snowmint-component",
        to: &["snowmint-core"],
        others: Others::Only(&["dlmalloc", "wit-bindgen"]),
    },
    Arrows { from: "snowmint-playground", to: &["snowmint-core", "snowmint-sim"], others: Others::Any },
    // Never the component: the host loads it as an artifact and has no second path.
    Arrows {
        from: "snowmint",
        to: &[
            "snowmint-core",
            "snowmint-kernel-clock",
            "snowmint-lease",
            "snowmint-lease-redb",
            "snowmint-lease-etcd",
            "snowmint-lease-http",
        ],
        others: Others::Any,
    },
    Arrows { from: "xtask", to: &[], others: Others::Any },
];

/// Refuses what the table does not allow, naming every arrow that is too many.
pub(super) fn check(packages: &[Package]) -> Result<()> {
    let ours: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let mut wrong = Vec::new();
    for package in packages {
        let Some(row) = ARROWS.iter().find(|row| row.from == package.name) else {
            wrong.push(format!("{} has no row in the table of arrows", package.name));
            continue;
        };
        let by_default = features_by_default(package);
        for dependency in package.dependencies.iter().filter(|it| it.kind.as_deref() != Some("dev")) {
            let name = dependency.name.as_str();
            let is_allowed = if ours.contains(name) {
                row.to.contains(&name)
            } else {
                match row.others {
                    Others::Any => true,
                    Others::Only(names) => names.contains(&name) || !is_used(dependency, &by_default),
                }
            };
            if !is_allowed {
                wrong.push(format!("{} must not depend on {name}", package.name));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(())
}

/// Whether a dependency is built when nobody asks for features.
fn is_used(dependency: &Dependency, by_default: &BTreeSet<&str>) -> bool {
    let name = dependency.rename.as_ref().unwrap_or(&dependency.name);
    let turns_on = |feature: &&str| {
        let feature = feature.strip_prefix("dep:").unwrap_or(feature);
        // `name/feature` turns `name` on, `name?/feature` does not.
        feature.split_once('/').map_or(feature, |(package, _)| package) == name
    };
    !dependency.optional || by_default.iter().any(turns_on)
}

/// All that the feature `default` turns on, itself not included.
fn features_by_default(package: &Package) -> BTreeSet<&str> {
    let mut on = BTreeSet::new();
    let mut todo = vec!["default"];
    while let Some(feature) = todo.pop() {
        for more in package.features.get(feature).into_iter().flatten() {
            if on.insert(more.as_str()) {
                todo.push(more);
            }
        }
    }
    on
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A package as cargo tells it, of (dependency, kind) pairs.
    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        let dependencies: Vec<_> = dependencies
            .iter()
            .map(|(name, kind)| json!({"name": name, "kind": kind, "rename": null, "optional": false}))
            .collect();
        let package = json!({"name": name, "manifest_path": "Cargo.toml", "dependencies": dependencies});
        serde_json::from_value(package).unwrap()
    }

    fn told(packages: &[Package]) -> String {
        check(packages).map_or_else(|error| error.to_string(), |()| "fine".to_owned())
    }

    #[test]
    fn an_arrow_that_is_not_in_the_table_is_refused() {
        fn row(from: &str, to: &str, kind: Option<&str>, expected: &str) {
            let names = ["snowmint-core", "snowmint-lease", "snowmint-component", "snowmint"];
            let mut packages: Vec<_> =
                names.iter().filter(|name| **name != from).map(|name| package(name, &[])).collect();
            packages.push(package(from, &[(to, kind)]));
            assert_eq!(told(&packages), expected, "{from} -> {to}");
        }
        row("snowmint-lease", "snowmint-core", None, "fine");
        row("snowmint", "snowmint-lease", None, "fine");
        row("snowmint", "wasmtime", None, "fine");
        row("snowmint-component", "wit-bindgen", None, "fine");
        row("snowmint-core", "proptest", Some("dev"), "fine");
        row("snowmint-core", "snowmint-lease", None, "snowmint-core must not depend on snowmint-lease");
        row("snowmint-lease", "snowmint", Some("build"), "snowmint-lease must not depend on snowmint");
        row("snowmint", "snowmint-component", None, "snowmint must not depend on snowmint-component");
        row(
            "snowmint",
            "snowmint-component",
            Some("build"),
            "snowmint must not depend on snowmint-component",
        );
        row("snowmint-core", "libm", None, "snowmint-core must not depend on libm");
        row("snowmint-core", "cc", Some("build"), "snowmint-core must not depend on cc");
        row("snowmint-lease", "tokio", None, "snowmint-lease must not depend on tokio");
        row("newcomer", "libm", None, "newcomer has no row in the table of arrows");
    }

    #[test]
    fn every_wrong_arrow_is_told_at_once() {
        let packages =
            [package("snowmint-core", &[("libm", None), ("cc", Some("build"))]), package("new", &[])];
        let told = told(&packages);
        assert_eq!(told.matches("; ").count(), 2, "{told}");
    }

    #[test]
    fn an_optional_dependency_of_core_must_be_off_by_default() {
        fn row(features: &serde_json::Value, expected: &str) {
            let package = json!({
                "name": "snowmint-core",
                "manifest_path": "Cargo.toml",
                "dependencies": [{"name": "serde", "kind": null, "rename": null, "optional": true}],
                "features": features,
            });
            assert_eq!(told(&[serde_json::from_value(package).unwrap()]), expected);
        }
        let refused = "snowmint-core must not depend on serde";
        row(&json!({"serde": ["dep:serde"]}), "fine");
        row(&json!({"default": ["std"], "std": ["serde?/std"], "serde": ["dep:serde"]}), "fine");
        row(&json!({"default": ["serde"], "serde": ["dep:serde"]}), refused);
        row(&json!({"default": ["std"], "std": ["serde/std"], "serde": ["dep:serde"]}), refused);
        row(&json!({"default": ["text"], "text": ["dep:serde"]}), refused);
    }
}

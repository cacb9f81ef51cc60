//! Checks the layout of `crates/core/src`: one folder per stage, and no dependency on a later stage.
//!
//! A file may use files of its own stage and of earlier stages (`STAGES`), but not of later stages. Siblings (files and
//! folders in the same folder) must not depend on each other in a cycle; a `mod.rs` counts as its folder. Code behind
//! `#[cfg(test)]` is not checked.
//!
//! The checks search the source text for paths that start with `crate::`, `super::` or `self::`, in `use` and
//! elsewhere. A name that a module re-exports with `pub use` leads to the file that defines the name.

#![expect(clippy::unwrap_used, reason = "a file that cannot be read fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Stages in the order of the data flow. The empty name stands for the files of `src` itself, which come first.
const STAGES: [&str; 11] =
    ["", "os", "probe", "job", "sampler", "store", "market", "analysis", "report", "fleet", "run"];

/// Maximum number of lines of a file, including its tests.
const MAX_LINES: usize = 500;

/// Module path and text of every file.
type Sources = BTreeMap<Vec<String>, String>;

#[derive(Debug, Default)]
struct Checked {
    edges: BTreeSet<(Vec<String>, Vec<String>)>,
    against_the_flow: Vec<String>,
    cycles: Vec<String>,
}

#[test]
fn dependencies_follow_the_flow() {
    let sources = read_sources();
    let checked = check(&sources);
    assert!(sources.len() >= 120, "only {} files were read", sources.len());
    assert!(checked.edges.len() >= 400, "only {} dependencies were found", checked.edges.len());
    assert_eq!(checked.against_the_flow, Vec::<String>::new(), "dependencies on a later stage");
    assert_eq!(checked.cycles, Vec::<String>::new(), "cycles between siblings");
}

#[test]
fn every_folder_is_a_stage_and_every_file_is_short() {
    let sources = read_sources();
    let folders: BTreeSet<&str> = sources.keys().map(|module| stage_of(&sources, module)).collect();
    let unknown: Vec<_> = folders.iter().filter(|folder| !STAGES.contains(folder)).collect();
    assert!(unknown.is_empty(), "folders that are not a stage: {unknown:?}");
    assert!(folders.len() >= 9, "only {folders:?}");
    let files = fs::read_dir(src()).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_file()).count();
    assert!(files <= 5, "{files} files beside the folders");
    let long: Vec<_> = sources
        .iter()
        .map(|(module, text)| (module.join("/"), text.lines().count()))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .collect();
    assert!(long.is_empty(), "files with more than {MAX_LINES} lines: {long:?}");
}

#[test]
fn dependency_on_a_later_stage_is_reported() {
    let mut sources = read_sources();
    let count = check(&sources).against_the_flow.len();
    sources.get_mut(&module("probe/host")).unwrap().insert_str(0, "use crate::store::{csv, frame::Frame};\n");
    let found = check(&sources).against_the_flow;
    assert_eq!(found.len(), count + 2, "{found:?}");
    assert!(found.contains(&"probe/host uses store/frame".to_owned()), "{found:?}");
    sources.insert(module("metric"), "fn f() { crate::os::now_ns(); }".to_owned());
    assert!(check(&sources).against_the_flow.contains(&"metric uses os".to_owned()));
}

#[test]
fn cycle_between_siblings_is_reported() {
    let of = |texts: &[(&str, &str)]| -> Sources {
        texts.iter().map(|(path, text)| (module(path), (*text).to_owned())).collect()
    };
    let straight = of(&[("os", "mod a;\nmod b;"), ("os/a", "use super::b::B;"), ("os/b", "pub struct B;")]);
    assert_eq!((check(&straight).cycles, check(&straight).edges.len()), (Vec::new(), 1));
    let cycle = of(&[
        ("os", "mod a;\nmod b;\npub use a::A;"),
        ("os/a", "use super::b::B;"),
        ("os/b", "#[doc = \"b\"]\nuse super::A;"),
    ]);
    assert_eq!(check(&cycle).cycles, ["os: a, b"]);
    let only_in_tests = of(&[
        ("os", "mod a;\nmod b;"),
        ("os/a", "use super::b::B;"),
        ("os/b", "struct B;\n#[cfg(test)]\nmod tests {\n    use super::super::a::A;\n}\n"),
    ]);
    assert_eq!(check(&only_in_tests).cycles, Vec::<String>::new());
}

fn src() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))
}

/// Module path of a file: `os/root/linux` for `os/root/linux.rs`, `os` for `os/mod.rs`, empty for `lib.rs`.
fn module(path: &str) -> Vec<String> {
    path.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn read_sources() -> Sources {
    let mut sources = Sources::new();
    let mut folders = vec![src().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(src()).unwrap().with_extension("");
                let name = name.to_str().unwrap();
                let name = name.strip_suffix("/mod").unwrap_or(name);
                let name = if name == "lib" { "" } else { name };
                sources.insert(module(name), fs::read_to_string(&path).unwrap());
            }
        }
    }
    sources
}

/// The stage of a file: the top folder that contains it, or the empty name for files of `src` itself.
fn stage_of<'s>(sources: &Sources, module: &'s [String]) -> &'s str {
    let is_folder = module.len() > 1 || sources.keys().any(|other| other.len() > 1 && other[..1] == *module);
    module.first().filter(|_| is_folder).map_or("", String::as_str)
}

fn check(sources: &Sources) -> Checked {
    let mut checked = Checked::default();
    let exports = sources.iter().map(|(module, text)| (module.clone(), exports(module, text))).collect();
    let is_shipped = |module: &[String]| module.last().is_some_and(|name| name != "tests");
    for (from, text) in sources.iter().filter(|(from, _)| is_shipped(from)) {
        for path in paths(&without_tests(text), from) {
            let Some(to) = resolve(sources, &exports, &path) else { continue };
            if to != *from && !to.is_empty() && !from.starts_with(&to) && !to.starts_with(from) {
                checked.edges.insert((from.clone(), to));
            }
        }
    }
    let place = |module: &Vec<String>| STAGES.iter().position(|stage| *stage == stage_of(sources, module));
    for (from, to) in checked.edges.iter().filter(|(from, to)| place(from) < place(to)) {
        checked.against_the_flow.push(format!("{} uses {}", from.join("/"), to.join("/")));
    }
    checked.cycles = cycles(&checked.edges);
    checked
}

/// Names that a module re-exports, and the absolute path of each name.
fn exports(module: &[String], text: &str) -> BTreeMap<String, Vec<String>> {
    let statements = text.split(';').filter_map(|statement| {
        let (visibility, tree) = statement.rsplit_once("use ")?;
        visibility.trim_end().rsplit('\n').next()?.trim().starts_with("pub").then_some(tree)
    });
    let mut names = BTreeMap::new();
    for path in statements.flat_map(leaves) {
        let (path, name) =
            path.split_once(" as ").map_or((path.as_str(), None), |(path, name)| (path, Some(name)));
        let Some(path) = absolute(path, module).or_else(|| absolute(&format!("self::{path}"), module)) else {
            continue;
        };
        let name = name.map_or_else(|| path.last().cloned(), |name| Some(name.trim().to_owned()));
        names.extend(name.map(|name| (name, path)));
    }
    names
}

/// The file that defines the item at a path: the deepest module of the path, after following re-exports.
fn resolve(
    sources: &Sources,
    exports: &BTreeMap<Vec<String>, BTreeMap<String, Vec<String>>>,
    path: &[String],
) -> Option<Vec<String>> {
    let length = (0..=path.len()).rev().find(|length| sources.contains_key(&path[..*length]))?;
    let module = &path[..length];
    let target = path.get(length).and_then(|name| exports.get(module)?.get(name));
    match target {
        Some(target) if target.as_slice() != path => resolve(sources, exports, target),
        _ => Some(module.to_vec()),
    }
}

/// The text without comments and string literals, up to the test module at its end.
fn without_tests(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod ").or_else(|| text.find("#[cfg(all(test")).unwrap_or(text.len());
    let lines = text[..end].lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.map(|line| line.split('"').step_by(2).collect::<String>() + "\n").collect()
}

/// All paths in a text that start with `crate`, `super` or `self`, as absolute paths.
fn paths(text: &str, module: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for statement in text.split(';') {
        if let Some((_, tree)) = statement.rsplit_once("use ") {
            found.extend(leaves(tree).iter().filter_map(|path| absolute(path, module)));
        }
    }
    let is_path = |character: char| character.is_alphanumeric() || character == '_' || character == ':';
    let words = text.split(|character: char| !is_path(character));
    found.extend(words.filter(|word| !word.ends_with(':')).filter_map(|word| absolute(word, module)));
    found
}

/// The paths in a `use` tree: `a::{b, c::d}` contains `a::b` and `a::c::d`.
fn leaves(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((prefix, rest)) = tree.split_once('{') else { return vec![tree.to_owned()] };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut parts, mut depth, mut part) = (Vec::new(), 0, String::new());
    for character in inner.chars() {
        match character {
            ',' if depth == 0 => parts.push(std::mem::take(&mut part)),
            _ => {
                depth += i32::from(character == '{') - i32::from(character == '}');
                part.push(character);
            }
        }
    }
    parts.push(part);
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| leaves(part).into_iter().map(|leaf| format!("{prefix}{leaf}"))).collect()
}

/// The path relative to `crate`; `None` if it leads out of the crate.
fn absolute(path: &str, module: &[String]) -> Option<Vec<String>> {
    let mut names = path.split("::").map(str::trim).peekable();
    let mut base = match names.next()? {
        "crate" => Vec::new(),
        "self" => module.to_vec(),
        "super" => module.split_last()?.1.to_vec(),
        _ => return None,
    };
    while names.next_if_eq(&"super").is_some() {
        base.pop()?;
    }
    let names = names.filter(|name| !name.is_empty() && *name != "self" && *name != "*");
    base.extend(names.map(|name| name.split(" as ").next().unwrap_or(name).to_owned()));
    Some(base)
}

/// Groups of siblings that depend on each other in a cycle, with the name of their folder.
fn cycles(edges: &BTreeSet<(Vec<String>, Vec<String>)>) -> Vec<String> {
    let mut siblings: BTreeMap<&[String], BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for (from, to) in edges {
        let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
        let (Some(a), Some(b)) = (from.get(common), to.get(common)) else { continue };
        siblings.entry(&from[..common]).or_default().entry(a.as_str()).or_default().insert(b.as_str());
    }
    let mut found = Vec::new();
    for (folder, edges) in siblings {
        let reach = |start: &str| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![start.to_owned()]);
            while let Some(name) = open.pop() {
                for next in edges.get(name.as_str()).into_iter().flatten() {
                    if seen.insert((*next).to_owned()) {
                        open.push((*next).to_owned());
                    }
                }
            }
            seen
        };
        let looping: BTreeSet<&str> =
            edges.keys().copied().filter(|name| reach(name).contains(*name)).collect();
        if !looping.is_empty() {
            found.push(format!("{}: {}", folder.join("/"), Vec::from_iter(looping).join(", ")));
        }
    }
    found
}

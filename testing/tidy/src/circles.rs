//! Which modules of a crate use each other, and the groups in which each uses each, directly or
//! through others.
//!
//! A module uses another one when its code, without tests, names something that is defined there.
//! A name that is only handed on (`pub use`) counts as one of the module that defines it, and
//! handing on is no use.
//!
//! Must not: count a module within a file: the file is what a reader opens.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::source::{code_only, declared_modules, files, without_tests};

/// Most re-exports that are followed for one name.
const HANDED_ON_MAX: usize = 8;

/// Modules of one crate that use each other, by their paths, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circle {
    /// The folder of the crate.
    pub folder: PathBuf,
    /// Paths of the modules below the crate's root.
    pub modules: Vec<String>,
    /// Who uses whom within the circle.
    pub uses: Vec<(String, String)>,
}

/// A module's path: empty for the crate's root.
type ModulePath = Vec<String>;

struct Module {
    code: String,
    /// Names that are handed on or imported: by name, the path that is meant.
    names: BTreeMap<String, ModulePath>,
    /// Modules all of whose names are handed on.
    globs: Vec<ModulePath>,
    children: BTreeSet<String>,
}

/// The circles of every crate below a folder, the largest first.
///
/// # Errors
/// What the operating system reports.
pub fn circles(below: &Path) -> std::io::Result<Vec<Circle>> {
    let mut found = Vec::new();
    for manifest in files(below, "Cargo.toml")? {
        let Some(folder) = manifest.parent() else {
            continue;
        };
        for root in roots(folder)? {
            let modules = modules(&root)?;
            found.extend(
                circles_of(&modules)
                    .into_iter()
                    .map(|(modules, uses)| Circle {
                        folder: folder.to_path_buf(),
                        modules,
                        uses,
                    }),
            );
        }
    }
    found.sort_by_key(|circle| std::cmp::Reverse(circle.modules.len()));
    Ok(found)
}

/// The files that a crate's targets begin with.
fn roots(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut roots = Vec::new();
    for name in ["src/lib.rs", "src/main.rs"] {
        let path = folder.join(name);
        if path.exists() {
            roots.push(path);
        }
    }
    let programs = folder.join("src/bin");
    if programs.exists() {
        for entry in std::fs::read_dir(programs)? {
            let path = entry?.path();
            let main = path.join("main.rs");
            if main.exists() {
                roots.push(main);
            }
        }
    }
    Ok(roots)
}

/// The modules of the target that begins with this file, by path.
fn modules(root: &Path) -> std::io::Result<BTreeMap<ModulePath, Module>> {
    let mut modules = BTreeMap::new();
    let mut waiting = vec![(ModulePath::new(), root.to_path_buf())];
    while let Some((path, file)) = waiting.pop() {
        let code = without_tests(&code_only(&std::fs::read_to_string(&file)?));
        let mut children = BTreeSet::new();
        let folder = match file.file_name().and_then(|name| name.to_str()) {
            Some("mod.rs" | "lib.rs" | "main.rs") => file.parent().map(Path::to_path_buf),
            _ => Some(file.with_extension("")),
        };
        for name in declared_modules(&code) {
            let Some(folder) = &folder else { continue };
            let flat = folder.join(format!("{name}.rs"));
            let deep = folder.join(&name).join("mod.rs");
            if let Some(file) = [flat, deep].into_iter().find(|file| file.exists()) {
                children.insert(name.clone());
                let mut path = path.clone();
                path.push(name);
                waiting.push((path, file));
            }
        }
        let mut module = Module {
            code,
            names: BTreeMap::new(),
            globs: Vec::new(),
            children,
        };
        module.take_imports(&path);
        modules.insert(path, module);
    }
    Ok(modules)
}

/// A path that is named in a `use`, and the name by which it is known from then on.
struct Import {
    path: Vec<String>,
    name: String,
    is_handed_on: bool,
}

/// Every `use` of the code, and the code without them.
fn imports(code: &str) -> (Vec<Import>, String) {
    let mut imports = Vec::new();
    let mut others = String::new();
    let mut rest = code;
    while let Some(at) = next_use(rest) {
        let (before, from) = rest.split_at(at);
        let end = from.find(';').map_or(from.len(), |end| end + 1);
        let (statement, after) = from.split_at(end);
        let is_handed_on = before
            .rsplit_once(['\n', ';', '}'])
            .map_or(before, |(_, last)| last)
            .trim_start()
            .starts_with("pub");
        others.push_str(before);
        let tree = statement.trim_start_matches("use").trim_end_matches(';');
        let tree: String = tree.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut found = Vec::new();
        branches(&tree, &[], &mut found);
        imports.extend(found.into_iter().map(|(path, name)| Import {
            path,
            name,
            is_handed_on,
        }));
        rest = after;
    }
    others.push_str(rest);
    (imports, others)
}

/// Where the next `use` begins.
fn next_use(code: &str) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + code.get(from..)?.find("use ")?;
        let before = code.get(..at)?.chars().next_back();
        if before.is_none_or(|before| before.is_whitespace() || before == '}') {
            return Some(at);
        }
        from = at + 4;
    }
}

/// The paths of a tree of imports.
fn branches(tree: &str, above: &[String], found: &mut Vec<(Vec<String>, String)>) {
    let tree = tree.trim();
    if let Some((head, inner)) = tree.split_once('{') {
        let mut path = above.to_vec();
        path.extend(segments(head));
        let inner = inner.strip_suffix('}').unwrap_or(inner);
        let mut depth = 0_usize;
        let mut start = 0;
        for (at, each) in inner.char_indices() {
            match each {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                ',' if depth == 0 => {
                    branches(inner.get(start..at).unwrap_or_default(), &path, found);
                    start = at + 1;
                }
                _ => {}
            }
        }
        branches(inner.get(start..).unwrap_or_default(), &path, found);
        return;
    }
    if tree.is_empty() {
        return;
    }
    let (tree, renamed) = tree
        .split_once(" as ")
        .map_or((tree, None), |(a, b)| (a, Some(b)));
    let mut path = above.to_vec();
    path.extend(segments(tree));
    if path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let last = path.last().cloned().unwrap_or_default();
    found.push((path, renamed.map_or(last, |name| name.trim().to_owned())));
}

fn segments(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split("::")
        .map(|one| one.trim().to_owned())
        .filter(|one| !one.is_empty())
}

impl Module {
    fn take_imports(&mut self, own: &ModulePath) {
        let (found, _) = imports(&self.code);
        for import in found {
            let Some(path) = absolute(&import.path, own, &self.children) else {
                continue;
            };
            match import.name.as_str() {
                "*" => self.globs.push(path[..path.len() - 1].to_vec()),
                name => {
                    self.names.insert(name.to_owned(), path);
                }
            }
        }
    }
}

/// A path from the crate's root. `None` for what is another crate's, or local.
fn absolute(path: &[String], own: &ModulePath, children: &BTreeSet<String>) -> Option<ModulePath> {
    let mut absolute = own.clone();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => {
            absolute.clear();
            rest = &path[1..];
        }
        "self" => rest = &path[1..],
        "super" => {
            while rest.first().is_some_and(|one| one == "super") {
                absolute.pop();
                rest = &rest[1..];
            }
        }
        child if children.contains(child) => {}
        _ => return None,
    }
    absolute.extend(rest.iter().cloned());
    Some(absolute)
}

/// The module in which the name at the end of this path is defined.
fn definer(modules: &BTreeMap<ModulePath, Module>, path: &ModulePath) -> ModulePath {
    let mut path = path.clone();
    for _ in 0..HANDED_ON_MAX {
        let depth = (0..=path.len())
            .rev()
            .find(|depth| modules.contains_key(&path[..*depth]))
            .unwrap_or(0);
        let (at, rest) = path.split_at(depth);
        let Some((module, name)) = modules.get(at).zip(rest.first()) else {
            return at.to_vec();
        };
        let next = module.names.get(name).cloned().or_else(|| {
            let globs = module
                .globs
                .iter()
                .map(|glob| [glob.as_slice(), rest].concat());
            globs
                .into_iter()
                .find(|path| names_something(modules, path))
        });
        match next {
            Some(next) => path = [next.as_slice(), &rest[1..]].concat(),
            None => return at.to_vec(),
        }
    }
    path
}

/// Whether the module at the beginning of the path knows the name that follows.
fn names_something(modules: &BTreeMap<ModulePath, Module>, path: &[String]) -> bool {
    let Some((name, module)) = path.split_last() else {
        return false;
    };
    modules.get(module).is_some_and(|module| {
        module.names.contains_key(name)
            || [
                "fn ", "struct ", "enum ", "trait ", "const ", "static ", "type ", "union ",
            ]
            .iter()
            .any(|kind| module.code.contains(&format!("{kind}{name}")))
    })
}

/// What each module uses.
fn uses(modules: &BTreeMap<ModulePath, Module>) -> BTreeMap<ModulePath, BTreeSet<ModulePath>> {
    let mut uses = BTreeMap::new();
    for (own, module) in modules {
        let mut used = BTreeSet::new();
        let (found, code) = imports(&module.code);
        let mut named: Vec<Vec<String>> = found
            .into_iter()
            .filter(|import| !import.is_handed_on)
            .map(|import| import.path)
            .collect();
        named.extend(paths_in(&code));
        for path in named {
            if let Some(path) = absolute(&path, own, &module.children) {
                used.insert(definer(modules, &path));
            }
        }
        used.remove(own);
        uses.insert(own.clone(), used);
    }
    uses
}

/// Paths that the code names: `crate::a::B`, `super::c`, `child::d`.
fn paths_in(code: &str) -> Vec<Vec<String>> {
    let is_word = |each: char| each.is_alphanumeric() || each == '_' || each == ':';
    code.split(|each: char| !is_word(each))
        .filter(|word| word.contains("::"))
        .map(|word| segments(word).collect())
        .collect()
}

type Found = (Vec<String>, Vec<(String, String)>);

/// Groups of more than one module in which each reaches each.
fn circles_of(modules: &BTreeMap<ModulePath, Module>) -> Vec<Found> {
    let uses = uses(modules);
    let reached: BTreeMap<&ModulePath, BTreeSet<&ModulePath>> = uses
        .keys()
        .map(|from| (from, reached(&uses, from)))
        .collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (from, others) in &reached {
        if seen.contains(from) || !others.contains(from) {
            continue;
        }
        let circle: BTreeSet<&ModulePath> = others
            .iter()
            .copied()
            .filter(|to| reached.get(to).is_some_and(|back| back.contains(from)))
            .collect();
        seen.extend(circle.iter().copied());
        let shown = |path: &ModulePath| match path.is_empty() {
            true => "(root)".to_owned(),
            false => path.join("::"),
        };
        let mut within = Vec::new();
        for from in &circle {
            for to in uses.get(*from).into_iter().flatten() {
                if circle.contains(to) {
                    within.push((shown(from), shown(to)));
                }
            }
        }
        found.push((circle.into_iter().map(shown).collect(), within));
    }
    found
}

fn reached<'a>(
    uses: &'a BTreeMap<ModulePath, BTreeSet<ModulePath>>,
    from: &ModulePath,
) -> BTreeSet<&'a ModulePath> {
    let mut reached = BTreeSet::new();
    let mut waiting: Vec<&ModulePath> = uses.get(from).into_iter().flatten().collect();
    while let Some(next) = waiting.pop() {
        if reached.insert(next) {
            waiting.extend(uses.get(next).into_iter().flatten());
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(code: &str, children: &[&str]) -> Module {
        Module {
            code: code.to_owned(),
            names: BTreeMap::new(),
            globs: Vec::new(),
            children: children.iter().map(|&one| one.to_owned()).collect(),
        }
    }

    fn crate_of(files: &[(&str, &str, &[&str])]) -> Vec<Vec<String>> {
        let mut modules = BTreeMap::new();
        for (path, code, children) in files {
            let path: ModulePath = segments(path).collect();
            let mut one = module(code, children);
            one.take_imports(&path);
            modules.insert(path, one);
        }
        circles_of(&modules)
            .into_iter()
            .map(|(modules, _)| modules)
            .collect()
    }

    #[test]
    fn a_circle_is_found_through_what_is_handed_on() {
        let found = crate_of(&[
            ("", "mod a;\nmod b;\npub use a::A;", &["a", "b"]),
            ("a", "use crate::b::{self, B};\nstruct A;", &[]),
            ("b", "struct B;\nfn f(a: crate::A) {}", &[]),
        ]);
        assert_eq!(found, [["a", "b"]]);
    }

    #[test]
    fn handing_on_and_using_one_way_are_no_circle() {
        let found = crate_of(&[
            (
                "",
                "mod a;\nmod b;\npub use a::A;\npub use b::*;",
                &["a", "b"],
            ),
            ("a", "use super::B;\nstruct A;", &[]),
            ("b", "struct B;", &[]),
        ]);
        assert_eq!(found, Vec::<Vec<String>>::new());
    }

    #[test]
    fn a_parent_and_its_child_can_be_one() {
        let found = crate_of(&[
            ("", "mod a;\nfn f() { a::g(); }", &["a"]),
            ("a", "fn g() { super::f(); }", &[]),
        ]);
        assert_eq!(found, [["(root)", "a"]]);
    }
}

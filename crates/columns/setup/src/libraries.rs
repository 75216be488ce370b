//! The list in `shared_preload_libraries`, as the server reads it (`SplitDirectoriesString`,
//! varlena.c): names between commas, each with or without double quotes.
//!
//! Must not: read a file.

/// The library of the extension.
pub(crate) const LIBRARY: &str = "strongroom_columns";

/// Returns whether the list has the extension's library, with or without a directory and `.so`.
pub(crate) fn has_library(list: &str) -> bool {
    items(list).iter().any(|item| is_library(item))
}

/// Returns the names that are in `list` or in `also`, as they are written there, in order and each
/// once, with the extension's library as the last one unless it is among them.
pub(crate) fn joined(list: &str, also: &str) -> String {
    let mut all: Vec<&str> = Vec::new();
    for item in items(list).into_iter().chain(items(also)) {
        if !all.iter().any(|known| name(known) == name(item)) {
            all.push(item);
        }
    }
    if !all.iter().any(|item| is_library(item)) {
        all.push(LIBRARY);
    }
    all.join(", ")
}

/// Returns whether every name in `part` is in `list` too.
pub(crate) fn includes(list: &str, part: &str) -> bool {
    let known = items(list);
    items(part)
        .iter()
        .all(|item| known.iter().any(|known| name(known) == name(item)))
}

/// Returns the names in a list, without their quotes.
pub(crate) fn names(list: &str) -> Vec<String> {
    items(list).into_iter().map(name).collect()
}

/// Returns the items of a list as they are written, without the white space around them. A comma
/// between double quotes belongs to its name.
fn items(list: &str) -> Vec<&str> {
    let mut quoted = false;
    let parts = list.split(|c: char| {
        quoted ^= c == '"';
        c == ',' && !quoted
    });
    parts
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .collect()
}

/// Returns the name that an item stands for.
fn name(item: &str) -> String {
    let inner = item
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    inner.map_or_else(|| item.to_owned(), |inner| inner.replace("\"\"", "\""))
}

/// Returns whether an item names the extension's library.
fn is_library(item: &str) -> bool {
    let name = name(item);
    let file = name.rsplit('/').next().unwrap_or_default();
    file.strip_suffix(".so").unwrap_or(file) == LIBRARY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_added_behind_what_is_there() {
        for (list, wanted) in [
            ("", "strongroom_columns"),
            (
                " pg_stat_statements ",
                "pg_stat_statements, strongroom_columns",
            ),
            ("\"a,b\" , c", "\"a,b\", c, strongroom_columns"),
            ("\"a\"\"b,c\",d", "\"a\"\"b,c\", d, strongroom_columns"),
            (
                "$libdir/strongroom_columns.so,x",
                "$libdir/strongroom_columns.so, x",
            ),
            ("\"strongroom_columns\"", "\"strongroom_columns\""),
            (
                "strongroom_columns_other",
                "strongroom_columns_other, strongroom_columns",
            ),
        ] {
            assert_eq!(joined(list, ""), wanted, "{list}");
            assert_eq!(joined(&joined(list, ""), list), wanted, "{list}");
        }
        assert!(!has_library("\"x,strongroom_columns\""));
        assert_eq!(
            joined("a, strongroom_columns", "\"a\", b"),
            "a, strongroom_columns, b"
        );
        assert!(includes("a, \"b\"", "b,a") && !includes("a", "a, b") && includes("a", ""));
    }
}

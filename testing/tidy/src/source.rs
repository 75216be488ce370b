//! Rust sources as text: which files there are, and what is left without comments, strings and
//! tests.

use std::path::{Path, PathBuf};

/// Folders that hold no sources of ours.
const SKIPPED: [&str; 6] = [
    "target",
    ".git",
    "corpus",
    "artifacts",
    "demo-out",
    "node_modules",
];

/// Every file below a folder whose name has this ending, in order of name.
///
/// # Errors
/// What the operating system reports.
pub fn files(below: &Path, ending: &str) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![below.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type()?;
            if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
                folders.push(entry.path());
            } else if kind.is_file() && name.ends_with(ending) {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The source without comments, and with empty strings and characters in place of literals.
#[must_use]
pub fn code_only(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            end_of_block_comment(rest)
        } else if let Some(len) = raw_string(rest) {
            code.push_str("\"\"");
            len
        } else if next == '"' {
            code.push_str("\"\"");
            end_of_string(rest)
        } else if let Some(len) = character(rest) {
            code.push_str("' '");
            len
        } else {
            code.push(next);
            next.len_utf8()
        };
        rest = rest.get(skipped..).unwrap_or_default();
    }
    code
}

/// Comments nest.
fn end_of_block_comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with("*/") {
            (depth, at) = (depth.saturating_sub(1), at + 2);
            if depth == 0 {
                break;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

fn end_of_string(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, each) in text.char_indices().skip(1) {
        match each {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of the raw string that the text begins with.
fn raw_string(text: &str) -> Option<usize> {
    let hashes = text.strip_prefix('r')?;
    let marks = hashes.len() - hashes.trim_start_matches('#').len();
    hashes.get(marks..)?.strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(marks));
    let body = marks + 2;
    let len = text.get(body..)?.find(&end)?;
    Some(body + len + end.len())
}

/// The length of the literal of one character that the text begins with; a lifetime is none.
fn character(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('\'')?;
    if let Some(escaped) = inner.strip_prefix('\\') {
        let first = escaped.chars().next()?.len_utf8();
        let end = escaped.get(first..)?.find('\'')?;
        return (end < 12).then_some(2 + first + end + 1);
    }
    let first = inner.chars().next()?.len_utf8();
    inner
        .get(first..)?
        .starts_with('\'')
        .then_some(1 + first + 1)
}

/// The code without modules that exist in tests only.
#[must_use]
pub fn without_tests(code: &str) -> String {
    let mut kept = String::with_capacity(code.len());
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            kept.push_str(line);
            kept.push('\n');
            continue;
        }
        // The item that follows: up to the brace or the semicolon that ends it.
        let mut depth = 0_i64;
        for line in lines.by_ref() {
            for each in line.chars() {
                depth += i64::from(each == '{') - i64::from(each == '}');
            }
            let is_attribute = line.trim_start().starts_with("#[");
            let ends = line.trim_end().ends_with([';', '}']);
            if depth <= 0 && ends && !is_attribute {
                break;
            }
        }
    }
    kept
}

/// Names of the modules that are declared in files of their own.
#[must_use]
pub fn declared_modules(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in code.lines() {
        let mut words = line
            .trim()
            .trim_end_matches(';')
            .split_whitespace()
            .peekable();
        if !line.trim().ends_with(';') {
            continue;
        }
        while words.next_if(|word| word.starts_with("pub")).is_some() {}
        if words.next() == Some("mod")
            && let Some(name) = words.next()
        {
            names.push(name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_left_out() {
        let text =
            "a(\"x // \\\" y\", 'c', '\\'', r#\"z \" z\"#); // b\n/* c /* d */ */ fn e<'f>() {}";
        assert_eq!(code_only(text), "a(\"\", ' ', ' ', \"\"); \n fn e<'f>() {}");
    }

    #[test]
    fn modules_of_tests_are_left_out() {
        let code = "a;\n#[cfg(test)]\nmod tests {\n  fn b() {\n  }\n}\n#[cfg(test)]\nuse c;\nd;\n";
        assert_eq!(without_tests(code), "a;\nd;\n");
    }
}

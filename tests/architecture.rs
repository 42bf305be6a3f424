//! Holds each room's imports to the table in `docs/architecture.md`, which this test reads: one truth, not two.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The table: room → rooms that it may import.
fn allowed() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let mut table = BTreeMap::new();
    for line in text.lines().filter(|l| l.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [room, _owns, imports] = cells[..] else { continue };
        let name = room.split('`').nth(1).unwrap().to_string();
        let imports = imports.split(',').map(|w| w.trim().trim_matches('`').to_string()).filter(|w| w != "–").collect();
        table.insert(name, imports);
    }
    table
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// Rooms named after `crate::` in a source text, outside comments; grouped imports (`crate::{a, b::c}`) too.
fn imports(text: &str) -> BTreeSet<String> {
    let code: String = text.lines().filter(|l| !l.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let mut rooms = BTreeSet::new();
    for part in code.split("crate::").skip(1) {
        if let Some(group) = part.strip_prefix('{') {
            let mut depth = 0;
            let mut item = String::new();
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => {
                        rooms.insert(first_word(&item));
                        item.clear();
                    }
                    c if depth == 0 => item.push(c),
                    _ => {}
                }
            }
            rooms.insert(first_word(&item));
        } else {
            rooms.insert(first_word(part));
        }
    }
    rooms.remove("");
    rooms
}

fn first_word(text: &str) -> String {
    text.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

#[test]
fn each_room_imports_only_what_the_table_allows() {
    let table = allowed();
    assert!(table.len() >= 15, "the table in docs/architecture.md has {} rooms", table.len());
    let mut files = Vec::new();
    sources(&root().join("src"), &mut files);
    let mut breaches = Vec::new();
    let mut rooms_seen = BTreeSet::new();
    for file in files {
        let relative = file.strip_prefix(root().join("src")).unwrap();
        let room =
            relative.components().next().unwrap().as_os_str().to_string_lossy().trim_end_matches(".rs").to_string();
        if room == "lib" || room == "main" {
            continue;
        }
        rooms_seen.insert(room.clone());
        let Some(may) = table.get(&room) else {
            breaches.push(format!("{}: room `{room}` is not in the table", relative.display()));
            continue;
        };
        for import in imports(&fs::read_to_string(&file).unwrap()) {
            if import != room && !may.contains(&import) && !may.contains("all") {
                breaches.push(format!("{}: `{room}` may not import `{import}`", relative.display()));
            }
        }
    }
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
    assert!(rooms_seen.contains("units"));
}

#[test]
fn the_reader_of_imports_sees_groups_and_skips_comments() {
    let found = imports("// crate::cli is not imported\nuse crate::{units::{A, B}, events};\nuse crate::plan::Plan;\n");
    assert_eq!(found, ["events", "plan", "units"].map(String::from).into());
}

#[test]
fn files_stay_readable() {
    let mut files = Vec::new();
    sources(&root().join("src"), &mut files);
    let long: Vec<String> = files
        .iter()
        .map(|f| (f, fs::read_to_string(f).unwrap().lines().count()))
        .filter(|(_, lines)| *lines > 600)
        .map(|(f, lines)| format!("{}: {lines} lines", f.display()))
        .collect();
    assert!(long.is_empty(), "{}", long.join("\n"));
}

use super::*;
use crate::scenario::error::Findings;
use crate::scenario::tree::from_toml;
use crate::scenario::walk;
use std::collections::BTreeSet;

#[test]
fn every_example_is_right() {
    for section in SECTIONS {
        for key in section.all_keys() {
            let mut findings = Findings::default();
            let entries = from_toml(key.example, &mut findings).unwrap_or_default();
            assert_eq!(entries.len(), 1, "{}: {}", key.name, key.example);
            let fields = walk::section(section, "", 0, &entries, &mut findings);
            assert!(fields.get(key.name).is_some() && !fields.flawed, "{}: {}", key.name, key.example);
        }
    }
}

#[test]
fn names_and_aliases_stand_once_in_a_section() {
    for section in SECTIONS {
        let mut seen = BTreeSet::new();
        for name in section.all_keys().flat_map(|key| key.aliases.iter().copied().chain([key.name])) {
            assert!(seen.insert(name), "{} in {}", name, section.header());
        }
    }
}

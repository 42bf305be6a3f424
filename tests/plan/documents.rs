//! The files of the repository: every scenario is read and planned, documentation and schema say what is read.

use halfopen::plan::{Overrides, build};
use halfopen::scenario::{BrokerKind, list_entry, read, reference, schema};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn scenarios() -> Vec<(String, String)> {
    let folder = |name: &str| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(root().join(name)).expect("the folder is there");
        entries.map(|entry| entry.expect("is readable").path()).collect()
    };
    let mut files: Vec<PathBuf> = ["scenarios", "scenarios/cases", "scenarios/faults", "scenarios/findings"]
        .into_iter()
        .flat_map(folder)
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    let text = |path: &Path| std::fs::read_to_string(path).expect("is readable");
    files
        .iter()
        .map(|path| (path.file_stem().expect("has a name").to_string_lossy().into_owned(), text(path)))
        .collect()
}

#[test]
fn every_scenario_is_read_without_a_warning_and_planned() {
    let scenarios = scenarios();
    for needed in ["first-look", "kernel-timers", "one-way", "control"] {
        assert!(scenarios.iter().any(|(name, _)| name == needed), "scenarios/{needed}.toml is missing");
    }
    for (name, text) in scenarios {
        let label = format!("scenarios/{name}.toml");
        let scenario = read(&label, &text).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(scenario.name, name, "{label} is named as its file");
        assert_eq!(scenario.warnings, Vec::<String>::new());
        assert!(scenario.question.ends_with('?'), "{label} asks a question: {}", scenario.question);
        assert!(!scenario.gates.is_empty(), "{label} has a gate");
        let entry = list_entry(&label, &text).expect("was read above");
        assert_eq!((entry.name, entry.question, entry.ci), (name, scenario.question.clone(), scenario.ci));
        let plan = build(scenario, &Overrides::default()).expect("is planned");
        assert!(!plan.trials.is_empty());
    }
}

#[test]
fn the_first_look_is_what_the_readme_promises() {
    let (_, text) = scenarios().into_iter().find(|(name, _)| name == "first-look").expect("is there");
    let plan = build(read("first-look", &text).expect("is read"), &Overrides::default()).expect("is planned");
    assert!(plan.scenario.arms.len() >= 4);
    assert!(plan.trials.len() >= 100);
    assert!(plan.estimate < Duration::from_secs(150), "{:?}", plan.estimate);
    assert_eq!(plan.scenario.broker.kinds, [BrokerKind::Rabbitmq, BrokerKind::Redis]);
    let phases: BTreeSet<Duration> = plan.trials.iter().map(|trial| trial.phase).collect();
    assert_eq!(phases.len(), plan.trials.len(), "each connection is cut at its own phase");
}

#[test]
fn the_reference_is_the_table() {
    let path = root().join("docs/scenario.md");
    if std::env::var_os("HALFOPEN_BLESS").is_some() {
        std::fs::create_dir_all(root().join("docs")).expect("docs/ is writable");
        std::fs::write(&path, reference()).expect("docs/ is writable");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == reference(),
        "docs/scenario.md differs from the table of keys; HALFOPEN_BLESS=1 cargo test --test plan writes it anew"
    );
}

#[test]
fn the_schema_knows_every_key_that_the_scenarios_use() {
    let schema = schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    for (name, text) in scenarios() {
        let document: toml_edit::DocumentMut = text.parse().expect("is TOML");
        for (section, item) in document.iter() {
            let described = &schema["properties"][section];
            assert!(described.is_object(), "{name}: {section}");
            let one = if described["items"].is_object() { &described["items"] } else { described };
            let one = if one["anyOf"].is_array() { &one["anyOf"][0] } else { one };
            let tables: Vec<&dyn toml_edit::TableLike> = match item {
                toml_edit::Item::ArrayOfTables(tables) => tables.iter().map(|table| table as _).collect(),
                other => other.as_table_like().into_iter().collect(),
            };
            for (key, _) in tables.iter().flat_map(|table| table.iter()) {
                assert!(one["properties"][key].is_object(), "{name}: [{section}] {key} is not in the schema");
            }
        }
    }
    insta::assert_snapshot!("schema", serde_json::to_string_pretty(&schema).expect("is JSON"));
}

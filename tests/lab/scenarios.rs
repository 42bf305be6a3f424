//! The scenarios marked `ci = true`, as their users run them: every gate holds. One of each family; the others are nightly.

use crate::common::{binary, require_root};
use std::process::Command;

/// A test for each scenario, so that waiting for one is no waiting for the others.
macro_rules! hold {
    ($($name:ident: $file:literal,)*) => {
        const ALL: &[&str] = &[$($file,)*];
        $(#[test]
        fn $name() {
            holds($file);
        })*
    };
}

hold! {
    timers_of_the_kernel: "kernel-timers.toml",
    nobody_is_alarmed_without_a_fault: "control.toml",
    messages_with_a_ghost: "prefetch-ghost.toml",
    a_reaper_that_asks_for_keys: "reaper-redis-ttl.toml",
    a_pickle_that_nobody_reads: "pickle-refused.toml",
    tasks_in_the_layout_of_kombu: "kombu-layout.toml",
    a_successor_under_the_same_name: "same-worker-id.toml",
    a_worker_that_sleeps: "paused-worker.toml",
    a_reaper_that_is_cut_off: "reaper-cut-off.toml",
    a_watcher_of_running_rows: "task-heartbeat.toml",
    a_scheduler_with_retries: "airflow-retry.toml",
    a_user_who_asks_again: "user-view.toml",
    a_nat_that_forgets: "faults/nat-expired.toml",
    a_frozen_broker: "faults/frozen-broker.toml",
    a_proxy_that_swallows: "faults/swallowing-proxy.toml",
    a_full_send_buffer: "faults/full-send-buffer.toml",
    a_link_that_loses: "faults/lossy-link.toml",
}

fn holds(file: &str) {
    require_root();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let scenario = format!("scenarios/{file}");
    let run = Command::new(binary())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["run", &scenario, "--out"])
        .arg(&out)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
    // A gate that fails names cells; the trials say why.
    let trials = std::fs::read_to_string(out.join("trials.csv")).unwrap_or_default();
    assert_eq!(run.status.code(), Some(0), "{scenario}: {said}\n{trials}");
}

/// Run whole by a test that asks for more than its gates.
const ELSEWHERE: &str = "inspect-then-cut.toml";

#[test]
fn all_of_them_are_here() {
    let list = Command::new(binary())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["list", "scenarios", "--json"])
        .output()
        .unwrap();
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
    let marked = list.as_array().unwrap().iter().filter(|one| one["ci"] == true);
    let mut marked: Vec<_> =
        marked.map(|one| one["file"].as_str().unwrap().trim_start_matches("scenarios/").to_string()).collect();
    let mut here = [ALL, &[ELSEWHERE]].concat();
    marked.sort();
    here.sort_unstable();
    assert_eq!(marked, here, "the scenarios marked `ci = true` are those that have a test here");
}

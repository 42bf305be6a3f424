//! Workers, reapers, a database and a broker that are killed at moments that nobody chose.

use crate::common::{binary, require_root};
use std::path::Path;
use std::process::Command;
use std::thread;

/// The scenario with other numbers in it, run in a lab; what it said, and its trials.
pub fn run(file: &str, changes: &[(&str, &str)], dir: &Path, lab: &str) -> (Option<i32>, String) {
    let mut text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(file)).unwrap();
    for (from, to) in changes {
        assert!(text.contains(from), "{file} has no `{from}`");
        text = text.replace(from, to);
    }
    let name = file.rsplit('/').next().unwrap();
    let scenario = dir.join(name);
    std::fs::write(&scenario, text).unwrap();
    let out = dir.join(name.trim_end_matches(".toml"));
    let run =
        Command::new(binary()).arg("run").arg(&scenario).args(["--lab", lab, "--out"]).arg(&out).output().unwrap();
    let trials = std::fs::read_to_string(out.join("trials.csv")).unwrap_or_default();
    let said = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
    (run.status.code(), format!("{said}\n{trials}"))
}

/// How often something that was killed ran again, and how often it was killed, of one trial.
pub fn restarts(out: &Path) -> (usize, usize) {
    let events = std::fs::read_to_string(out.join("events.jsonl")).unwrap();
    let of_one =
        |what: &str| events.lines().filter(|line| line.contains("\"trial\":0,") && line.contains(what)).count();
    (of_one("started again and runs as"), of_one("\"fault_applied\"") + of_one("\"fault_repeated\""))
}

#[test]
fn worker_reaper_store_and_broker_killed_five_times_each_side_by_side() {
    require_root();
    let dir = tempfile::tempdir().unwrap();
    let five = ("repeat = 20", "repeat = 5");
    // Five deaths may lose nothing: that one of them does is asked of twenty.
    let most = ("quantile = 0.95\nmin = 1", "quantile = 1.0\nmax = 1");
    let all: [(&str, &[(&str, &str)]); 4] = [
        ("kill-worker.toml", &[("trials = 20", "trials = 5"), most]),
        ("kill-reaper.toml", &[five, ("horizon = \"55s\"", "horizon = \"20s\"")]),
        ("kill-store.toml", &[five, ("horizon = \"75s\"", "horizon = \"30s\"")]),
        // Each of its starts takes ten seconds, and more beside others.
        ("kill-broker.toml", &[five, ("horizon = \"400s\"", "horizon = \"120s\""), ("trials = 4", "trials = 2")]),
    ];
    let results: Vec<_> = thread::scope(|scope| {
        let started: Vec<_> =
            all.iter().map(|(file, changes)| scope.spawn(|| run(file, changes, dir.path(), "netns"))).collect();
        started.into_iter().map(|run| run.join().unwrap()).collect()
    });
    for ((file, _), (code, said)) in all.iter().zip(&results) {
        assert_eq!(*code, Some(0), "{file}: {said}");
    }
    for (name, least) in [("kill-reaper", 5), ("kill-store", 5), ("kill-broker", 5)] {
        let (again, killed) = restarts(&dir.path().join(name));
        assert!(killed >= least && again + 1 >= killed, "{name}: killed {killed} times, back {again} times");
    }
}

#[test]
fn a_payment_is_made_once_wherever_its_worker_dies() {
    require_root();
    let dir = tempfile::tempdir().unwrap();
    let (code, said) = run("payment-idempotency.toml", &[("trials = 3", "trials = 1")], dir.path(), "netns");
    assert_eq!(code, Some(0), "{said}");
}

//! What dies and comes back, and a name server, in containers: the same scenarios, the same gates.

use crate::deaths::{restarts, run};
use crate::docker::has_engine;
use std::thread;

#[test]
fn whatever_is_killed_in_containers_comes_back_there_and_names_are_late() {
    if !has_engine() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let three = ("repeat = 20", "repeat = 3");
    let most = ("quantile = 0.95\nmin = 1", "quantile = 1.0\nmax = 1");
    let all: [(&str, &[(&str, &str)]); 5] = [
        ("faults/dns-late.toml", &[]),
        ("faults/restarted-broker.toml", &[]),
        ("kill-worker.toml", &[("trials = 20", "trials = 3"), most]),
        ("kill-reaper.toml", &[three, ("horizon = \"55s\"", "horizon = \"20s\"")]),
        ("kill-store.toml", &[three, ("horizon = \"75s\"", "horizon = \"30s\"")]),
    ];
    let results: Vec<_> = thread::scope(|scope| {
        let started: Vec<_> =
            all.iter().map(|(file, changes)| scope.spawn(|| run(file, changes, dir.path(), "docker"))).collect();
        started.into_iter().map(|run| run.join().unwrap()).collect()
    });
    for ((file, _), (code, said)) in all.iter().zip(&results) {
        assert_eq!(*code, Some(0), "{file}: {said}");
    }
    for name in ["kill-reaper", "kill-store"] {
        let (again, killed) = restarts(&dir.path().join(name));
        assert!(killed >= 3 && again + 1 >= killed, "{name}: killed {killed} times, back {again} times");
    }
}

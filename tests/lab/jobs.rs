//! Several scenarios in guests side by side.

use crate::common::{binary, processes_with, within};
use crate::vm::boot;
use halfopen::host::process::{Launch, Stream};
use halfopen::store;
use std::collections::BTreeSet;
use std::time::Duration;

fn scenario(name: &str, seed: u32) -> String {
    format!(
        "# Do guests side by side stay apart?\n[scenario]\nname = \"{name}\"\nhorizon = \"200s\"\ntrials = 3\n\
         seed = {seed}\n[load]\nrate = \"10/s\"\n[fault]\nprofile = \"blackhole\"\n[[arm]]\nname = \"a\"\n\
         subject = \"tcp-reader\"\nkeepalive = {{ idle = \"60s\", interval = \"10s\", probes = 9 }}\n\
         [[gate]]\nmetric = \"agreement\"\nmin = 1.0\n"
    )
}

/// The processors that a process may use.
fn cpus(pid: u32) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"))?.trim().to_string())
}

#[test]
fn two_guests_side_by_side_have_a_processor_and_a_run_directory_each() {
    boot(&["/bin/true"]);
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().to_str().unwrap();
    for (name, seed) in [("one", 1), ("two", 2)] {
        std::fs::write(dir.path().join(format!("{name}.toml")), scenario(name, seed)).unwrap();
    }
    let args = ["run", "one.toml", "two.toml", "--lab", "vm", "--jobs", "2", "--out", "runs"];
    let mut launch = Launch::new(binary()).args(args);
    launch.cwd = Some(dir.path().to_path_buf());
    launch.env.push(("TMPDIR".into(), base.into()));
    (launch.stdout, launch.stderr) = (Stream::Null, Stream::File(dir.path().join("err")));
    let mut harness = launch.spawn().unwrap();
    // Each guest's kernel has a directory of its own in its command line, and so have the processes inside, which are
    // pinned with it.
    let (mut guests, mut pinned) = (BTreeSet::new(), BTreeSet::new());
    let both = within(Duration::from_secs(120), || {
        let seen = processes_with(&format!("uml_dir={base}/"));
        let dirs: BTreeSet<String> = seen
            .iter()
            .filter_map(|(_, line)| line.split_whitespace().find_map(|word| word.strip_prefix("uml_dir=")))
            .map(str::to_string)
            .collect();
        if dirs.len() == 2 {
            guests = dirs;
            pinned.extend(seen.iter().filter(|(_, line)| line.contains("uml_dir=")).filter_map(|(pid, _)| cpus(*pid)));
        }
        guests.len() == 2 && !pinned.is_empty()
    });
    let status = harness.wait().unwrap();
    let errors = std::fs::read_to_string(dir.path().join("err")).unwrap();
    assert!(both, "two guests never ran at the same time\n{errors}");
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    assert_eq!(pinned.len(), processors.min(2), "{pinned:?}");
    assert_eq!(status.code(), Some(0), "{errors}");
    for (name, seed) in [("one", 1), ("two", 2)] {
        let recorded = store::read(&dir.path().join("runs").join(name)).unwrap();
        assert!(recorded.run.complete && recorded.run.lab == "vm");
        assert_eq!((recorded.run.plan.scenario.name.as_str(), recorded.run.seed), (name, seed));
        assert_eq!(recorded.run.plan.trials.len(), 3);
    }
}

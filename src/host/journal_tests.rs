use super::*;
use crate::host::process::{Launch, Process, Stream};

/// Waits in the shell itself, without a child that would outlive it, until its input ends.
fn waiting(mut launch: Launch) -> (Process, Identity) {
    launch.stdin = Stream::Pipe;
    let process = launch.spawn().unwrap();
    let identity = procfs::identity(process.pid()).unwrap();
    (process, identity)
}

/// A process with the words of an init in other places of its command line.
fn look_alike(run_id: &str) -> (Process, Identity) {
    waiting(Launch::new("/bin/sh").args(["-c", "read line", "__init", run_id]))
}

fn dead() -> Identity {
    Identity { pid: std::process::id(), start_ticks: 1 }
}

fn journal() -> (tempfile::TempDir, Journal) {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(&dir.path().join("state")).unwrap();
    (dir, journal)
}

/// A script that runs as `sh __init RUN_ID …`, so that its command line is that of an init.
fn init_like(dir: &Path, run_id: &str) -> (Process, Identity) {
    fs::write(dir.join("__init"), "read line\n").unwrap();
    let mut launch = Launch::new("/bin/sh").args(["__init", run_id, "3", "4", "--", "x"]);
    launch.cwd = Some(dir.to_path_buf());
    waiting(launch)
}

#[test]
fn an_entry_is_written_replaced_listed_and_struck() {
    let (_dir, journal) = journal();
    let mut entry = Entry::new("r1", dead(), Path::new("/out"));
    journal.write(&entry).unwrap();
    entry.init = Some(dead());
    journal.write(&entry).unwrap();
    assert_eq!(journal.entries().unwrap().0, [entry]);
    journal.strike("r1").unwrap();
    journal.strike("r1").unwrap();
    assert!(journal.entries().unwrap().0.is_empty());
}

#[test]
fn a_running_run_is_left_alone() {
    let (_dir, journal) = journal();
    let me = procfs::identity(std::process::id()).unwrap();
    journal.write(&Entry::new("r1", me, Path::new("/out"))).unwrap();
    let report = clean(&journal.dir, false, &|_, _| Ok(Vec::new()));
    assert!(report.is_clean());
    assert_eq!(report.runs[0].finding, Finding::Running);
    assert_eq!(journal.entries().unwrap().0.len(), 1);
}

#[test]
fn the_surviving_init_of_a_dead_run_is_killed_and_nothing_else() {
    let (dir, journal) = journal();
    let (mut init, identity) = init_like(dir.path(), "r1");
    let (mut other_run, _) = init_like(dir.path(), "r2");
    let entry = Entry { init: Some(identity), ..Entry::new("r1", dead(), Path::new("/out")) };
    journal.write(&entry).unwrap();

    let dry = clean(&journal.dir, true, &|_, _| Ok(Vec::new()));
    assert_eq!(dry.runs[0].finding, Finding::InitKilled);
    assert!(init.try_wait().unwrap().is_none(), "a dry run ends nothing");

    let report = clean(&journal.dir, false, &|_, _| Ok(Vec::new()));
    assert_eq!(report.runs[0].finding, Finding::InitKilled);
    assert!(init.wait_at_most(Duration::from_secs(5)).unwrap().is_some());
    assert!(other_run.try_wait().unwrap().is_none());
    other_run.kill().unwrap();
    assert!(clean(&journal.dir, false, &|_, _| Ok(Vec::new())).runs.is_empty(), "struck");
}

#[test]
fn a_process_under_the_same_number_is_a_stranger() {
    let (dir, journal) = journal();
    let (mut init, identity) = init_like(dir.path(), "r1");
    let (mut stranger, stranger_is) = look_alike("r1x");
    let wrong_start = Identity { start_ticks: identity.start_ticks + 1, ..identity };
    for (run, init) in [("r1", wrong_start), ("r3", identity), ("r1x", stranger_is)] {
        journal.write(&Entry { init: Some(init), ..Entry::new(run, dead(), Path::new("/out")) }).unwrap();
    }
    let other_boot =
        Entry { boot_id: "another".into(), init: Some(identity), ..Entry::new("r1b", dead(), Path::new("/o")) };
    journal.write(&other_boot).unwrap();
    let report = clean(&journal.dir, false, &|_, _| Ok(Vec::new()));
    assert_eq!(report.runs.len(), 4);
    assert!(report.runs.iter().all(|r| r.finding == Finding::OnlyEntry), "{report:?}");
    assert!(init.try_wait().unwrap().is_none() && stranger.try_wait().unwrap().is_none());
    init.kill().unwrap();
    stranger.kill().unwrap();
}

#[test]
fn a_file_that_is_no_entry_is_reported_and_kept_and_half_a_write_removed() {
    let (_dir, journal) = journal();
    fs::write(journal.path("bad"), "{").unwrap();
    let me = procfs::identity(std::process::id()).unwrap();
    let (mine, left) = (format!("r1.{}-{}.new", me.pid, me.start_ticks), format!("r1.{}-1.new", me.pid));
    fs::write(journal.dir.join(&mine), "{").unwrap();
    fs::write(journal.dir.join(&left), "{").unwrap();
    let report = clean(&journal.dir, false, &|_, _| Ok(Vec::new()));
    assert_eq!(report.errors.len(), 1);
    assert!(!report.is_clean());
    assert!(journal.path("bad").exists());
    assert!(journal.dir.join(mine).exists(), "a write that goes on");
    assert!(!journal.dir.join(left).exists(), "the half of a dead one");
}

#[test]
fn no_journal_is_clean() {
    assert!(clean(Path::new("/nonexistent/halfopen"), false, &|_, _| Ok(Vec::new())).is_clean());
}

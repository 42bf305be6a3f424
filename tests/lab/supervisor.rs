//! The supervisor: what runs inside is isolated, and nothing of it outlives the outer process.

use crate::common::{binary, processes_with, require_root, run_id, within};
use halfopen::host::journal::clean;
use halfopen::host::procfs::command_line;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// "Within one second everything is gone".
const GONE: Duration = Duration::from_secs(1);

/// A run to be supervised: its id and its directories.
pub struct Run {
    pub id: String,
    dir: tempfile::TempDir,
}

impl Run {
    pub fn new(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("out")).unwrap();
        Self { id: run_id(name), dir }
    }

    pub fn out(&self) -> std::path::PathBuf {
        self.dir.path().join("out")
    }

    pub fn state(&self) -> std::path::PathBuf {
        self.dir.path().join("state")
    }

    fn command(&self, script: &str) -> Command {
        self.command_of(&["/bin/sh", "-c", script])
    }

    fn command_of(&self, program: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.arg("__supervise").arg(&self.id).arg(self.out()).arg("--").args(program);
        command.env("HALFOPEN_STATE_DIR", self.state()).stdin(Stdio::null());
        command
    }

    fn output(&self, script: &str) -> Output {
        self.command(script).output().unwrap()
    }

    pub fn journal_is_empty(&self) -> bool {
        clean(&self.state(), true, &|_, _| Ok(Vec::new())).runs.is_empty()
    }

    pub fn assert_nothing_left(&self, when: &str) {
        let gone = within(GONE, || processes_with(&self.id).is_empty());
        assert!(gone, "{when}: left {:?}", processes_with(&self.id));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_string()
}

#[test]
fn the_program_runs_in_namespaces_of_its_own_and_its_exit_code_is_returned() {
    require_root();
    let run = Run::new("inside");
    let output = run.output(
        "readlink /proc/self/ns/net; ls -d /proc/[0-9]* | wc -l; cat /proc/1/cmdline | tr '\\0' ' ' | cut -d' ' -f2; \
         cat /proc/net/dev | grep -c : ; ls -A $HALFOPEN_WORK_DIR | wc -l; echo x > $HALFOPEN_WORK_DIR/f; \
         cat /sys/class/net/lo/flags; echo \"$HALFOPEN_WORK_DIR\"; echo y > \"$0\"; exit 7",
    );
    let stdout = text(&output.stdout);
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    assert_ne!(lines[0], own.to_str().unwrap());
    assert!(lines[1].parse::<u32>().unwrap() <= 5, "only the run's own processes are visible: {stdout}");
    assert_eq!(lines[2], "__init");
    assert_eq!(lines[3], "1", "the loopback alone");
    assert_eq!(lines[4], "0", "an empty working directory");
    assert!(!Path::new(lines[6]).join("f").exists(), "the working directory is private");
    assert!(run.journal_is_empty());
    run.assert_nothing_left("after its end");
}

#[test]
fn the_run_directory_stays_visible_and_writable() {
    require_root();
    let run = Run::new("out");
    let output = run.output(&format!("echo kept > {}/file", run.out().display()));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read_to_string(run.out().join("file")).unwrap(), "kept\n");
}

#[test]
fn a_daemon_that_detached_ends_with_the_program() {
    require_root();
    let run = Run::new("daemon");
    let output = run.output("setsid sh -c 'sleep 600 & sleep 600' >/dev/null 2>&1 & sleep 0.05; exit 0");
    assert!(output.status.success(), "{output:?}");
    run.assert_nothing_left("after the program's end");
}

#[test]
fn a_signal_is_forwarded_and_a_second_one_kills() {
    require_root();
    let run = Run::new("signal");
    let forwarded = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.01; done";
    let mut child = spawn_until_ready(&mut run.command(forwarded));
    signal(&child, Signal::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(9));

    let run = Run::new("signal");
    let deaf = "trap 'echo heard' INT; echo ready; while :; do sleep 0.01; done";
    let mut child = run.command(deaf).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    signal(&child, Signal::SIGINT);
    assert_eq!(lines.next().unwrap().unwrap(), "heard");
    assert!(child.try_wait().unwrap().is_none(), "the first signal lets the program finish");
    signal(&child, Signal::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(137));
    run.assert_nothing_left("after the second signal");
    assert!(run.journal_is_empty());
}

#[test]
fn a_program_that_is_not_there_is_an_error_that_leaves_nothing() {
    require_root();
    let run = Run::new("missing");
    let output = run.command_of(&["/nonexistent/engine"]).output().unwrap();
    assert_eq!(output.status.code(), Some(5));
    assert!(text(&output.stderr).contains("/nonexistent/engine"), "{output:?}");
    run.assert_nothing_left("after the error");
    assert!(run.journal_is_empty());
}

/// A program that fills the place: a tree of processes, one of them detached, and a socket in the run's namespace.
const BUSY: &str = "setsid sleep 600 & sh -c 'sleep 600 & sleep 600' & echo ready; while :; do sleep 0.01; done";

#[test]
fn killed_at_every_stage_nothing_survives() {
    require_root();
    let decoy_run = Run::new("decoy");
    let mut decoy = spawn_until_ready(&mut decoy_run.command(BUSY));
    assert!(within(Duration::from_secs(10), || sleepers(&decoy_run) == 3));

    // The stages as they can be seen from outside: the outer process's first moment, its entry in the journal, its
    // child before and after exec, the program, the program at work.
    type Reached = fn(&Run, u32) -> bool;
    let stages: [(&str, Reached); 6] = [
        ("started", |_, _| true),
        ("journal", |run, _| run.state().join(format!("{}.run.json", run.id)).exists()),
        ("cloned", |_, outer| !children(outer).is_empty()),
        ("init", |_, outer| children(outer).iter().any(|c| command_line(*c).get(1).is_some_and(|a| a == "__init"))),
        ("program", |run, _| processes_with(&run.id).iter().any(|(_, line)| line.starts_with("/bin/sh"))),
        ("busy", |run, _| sleepers(run) == 3),
    ];
    for (stage, reached) in stages {
        for _ in 0..5 {
            let run = Run::new(stage);
            let mut child = run.command(BUSY).stdout(Stdio::null()).spawn().unwrap();
            assert!(within(Duration::from_secs(10), || reached(&run, child.id())), "stage {stage} was not reached");
            kill_and_check(&run, &mut child, stage);
        }
    }
    assert_eq!(sleepers(&decoy_run), 3, "another run is left alone");
    decoy.kill().unwrap();
    decoy.wait().unwrap();
    decoy_run.assert_nothing_left("after the decoy's own end");
}

#[test]
fn killed_at_swept_moments_nothing_survives() {
    require_root();
    // Start-up takes some 20 ms: the sweep covers all of it and the first steps of the program.
    for step in 0u64..60 {
        let run = Run::new("sweep");
        let mut child = run.command(BUSY).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(step * 701));
        kill_and_check(&run, &mut child, &format!("after {} µs", step * 701));
    }
}

#[test]
fn killing_init_ends_everything_and_is_reported() {
    require_root();
    let run = Run::new("init-killed");
    let mut child = spawn_until_ready(&mut run.command(BUSY));
    let init = children(child.id())[0];
    kill(Pid::from_raw(init as i32), Signal::SIGKILL).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(137));
    run.assert_nothing_left("after init's death");
    assert!(run.journal_is_empty());
}

#[test]
fn an_ordinary_user_gets_a_user_namespace() {
    require_root();
    // The build directory may be closed to others, so the binary goes where everybody can run it.
    let run = Run::new("nobody");
    let place = run.dir.path();
    std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o755)).unwrap();
    let copy = place.join("halfopen");
    std::fs::copy(binary(), &copy).unwrap();
    std::os::unix::fs::chown(run.out(), Some(65534), Some(65534)).unwrap();
    std::fs::create_dir(run.state()).unwrap();
    std::os::unix::fs::chown(run.state(), Some(65534), Some(65534)).unwrap();
    let script = format!(
        "id -u; echo x > {}/file; echo y > $HALFOPEN_WORK_DIR/f && echo 1 > /proc/sys/net/ipv4/ip_forward && ls -d /proc/[0-9]* | wc -l",
        run.out().display()
    );
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(&copy)
        .arg("__supervise")
        .arg(&run.id)
        .arg(run.out())
        .args(["--", "/bin/sh", "-c", &script])
        .env("HALFOPEN_STATE_DIR", run.state())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stdout).lines().next(), Some("0"), "root inside");
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(run.out().join("file")).unwrap());
    assert_eq!(owner, 65534, "and the ordinary user outside");
    run.assert_nothing_left("after its end");
}

fn sleepers(run: &Run) -> usize {
    processes_with(&run.id).iter().filter(|(_, line)| line == "sleep 600").count()
}

fn kill_and_check(run: &Run, child: &mut Child, when: &str) {
    child.kill().unwrap();
    child.wait().unwrap();
    run.assert_nothing_left(when);
    let report = clean(&run.state(), false, &|_, _| Ok(Vec::new()));
    assert!(report.errors.is_empty(), "{when}: {report:?}");
    let survivors = report.runs.iter().filter(|r| r.finding != halfopen::host::journal::Finding::OnlyEntry).count();
    assert_eq!(survivors, 0, "{when}: {report:?}");
    assert!(run.journal_is_empty(), "{when}");
    assert_eq!(std::fs::read_dir(run.out()).unwrap().count(), 0);
    let state = std::fs::read_dir(run.state()).map_or(0, Iterator::count);
    assert_eq!(state, 0, "{when}: something is left in the journal's directory");
}

fn children(parent: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|p| p.parse().ok()).collect()
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
}

fn spawn_until_ready(command: &mut Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    assert_eq!(line.trim(), "ready");
    child
}

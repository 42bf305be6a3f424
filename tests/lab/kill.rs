//! The whole harness, killed: at every step of a run and at random moments, nothing of it survives by itself, nobody
//! else's things are touched, and `clean` finds nothing to remove.

use crate::common::{below, processes_with, require_root, within};
use crate::place::Place;
use halfopen::host::netns::NetNs;
use halfopen::host::procfs::{Identity, identity, is_running};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const GONE: Duration = Duration::from_secs(1);

/// Bare TCP and Redis: up in a tenth of a second, through all steps in about six.
pub const LIGHT: &str = r#"# Is everything gone?
[scenario]
name = "light"
horizon = "4s"
trials = 5
seed = 1
settle = "500ms"

[[arm]]
name = "reader"
subject = "tcp-reader"
keepalive = { idle = "1s", interval = "1s", probes = 1 }

[[arm]]
name = "redis"
subject = "redis-blocking"
read_timeout = "2s"

[fault]
profile = "blackhole"
scope = "flow"
phase_window = "1s"
"#;

const RABBIT: &str = "\n[[arm]]\nname = \"lapin\"\nsubject = \"lapin\"\nheartbeat = \"1s\"\n";

/// A run of the real command in a place of its own.
pub struct Run {
    place: Place,
    child: Child,
}

impl Run {
    fn start(scenario: &str) -> Self {
        Self::start_in(Place::of_root(), scenario, &[])
    }

    pub fn start_in(place: Place, scenario: &str, env: &[(&str, &str)]) -> Self {
        std::fs::write(place.path("scenario.toml"), scenario).unwrap();
        let child = place
            .halfopen()
            .arg("run")
            .arg(place.path("scenario.toml"))
            .arg("--out")
            .arg(place.path("out"))
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(place.path("stderr")).unwrap())
            .spawn()
            .unwrap();
        Self { place, child }
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    fn out(&self) -> PathBuf {
        self.place.path("out")
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.place.path(name)).unwrap_or_default()
    }

    fn has_event(&self, kind: &str) -> bool {
        self.read("out/events.jsonl").contains(&format!("\"kind\":\"{kind}\""))
    }

    fn descendant(&self, name: &str) -> Option<u32> {
        let carries = |pid: &u32| halfopen::host::procfs::command_line(*pid).join(" ").contains(name);
        below(self.child.id()).into_iter().find(carries)
    }

    /// SIGKILL to the outer process, then: within a second all its processes and namespaces are gone by themselves.
    pub fn kill_and_check(mut self, when: &str) {
        let inside: Vec<Identity> = below(self.child.id()).into_iter().filter_map(identity).collect();
        let namespaces = namespaces(inside.iter().map(|p| p.pid));
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.check(when, &inside, &namespaces);
    }

    fn check(&self, when: &str, inside: &[Identity], namespaces: &BTreeSet<u64>) {
        let place = self.place.path("").to_string_lossy().into_owned();
        let gone = within(GONE, || !inside.iter().any(|p| is_running(*p)) && processes_with(&place).is_empty());
        assert!(gone, "{when}: left {:?}", processes_with(&place));
        let held = within(GONE, || self::namespaces(halfopen::host::procfs::pids()).is_disjoint(namespaces));
        assert!(held, "{when}: a namespace of the run is still held");
        let report = self.place.clean();
        assert_eq!(report["errors"], serde_json::json!([]), "{when}: {report}");
        let runs = report["runs"].as_array().unwrap();
        assert!(runs.iter().all(|run| run["finding"] == "only_entry"), "{when}: {report}");
        assert_eq!(self.place.clean()["runs"], serde_json::json!([]), "{when}");
        assert_eq!(self.place.strangers(), Vec::<PathBuf>::new(), "{when}");
    }
}

/// Network namespaces in which the processes live or that they hold open, but for this test's own.
fn namespaces(pids: impl IntoIterator<Item = u32>) -> BTreeSet<u64> {
    let own = std::fs::metadata("/proc/self/ns/net").unwrap().ino();
    let mut found = BTreeSet::new();
    for pid in pids {
        let ns = PathBuf::from(format!("/proc/{pid}/ns/net"));
        found.extend(std::fs::metadata(ns).map(|m| m.ino()));
        for fd in std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let target = std::fs::read_link(fd.path()).unwrap_or_default();
            let inode: Option<u64> =
                target.to_str().and_then(|t| t.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok());
            found.extend(inode);
        }
    }
    found.remove(&own);
    found
}

/// Somebody else's things of the same kinds: a Redis, a namespace with a table of our table's name, and a process that
/// is called like ours.
struct Decoys {
    dir: tempfile::TempDir,
    children: Vec<Child>,
    namespace: NetNs,
}

impl Decoys {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("redis.sock");
        let mut redis = Command::new("redis-server");
        redis.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket).current_dir(dir.path());
        let mut named = Command::new("/bin/bash");
        named.args(["-c", "exec -a 'halfopen' sleep 600"]);
        let children = [redis, named].into_iter().map(|mut c| c.stdout(Stdio::null()).spawn().unwrap()).collect();
        assert!(within(Duration::from_secs(10), || socket.exists()), "the decoy Redis does not start");
        let namespace = NetNs::create("decoy").unwrap();
        let made = namespace.run(|| Command::new("nft").arg("add table ip halfopen").status()).unwrap();
        assert!(made.success());
        Self { dir, children, namespace }
    }

    fn check(mut self) {
        for child in &mut self.children {
            assert!(child.try_wait().unwrap().is_none(), "a decoy was killed");
        }
        assert!(self.dir.path().join("redis.sock").exists());
        let tables = self.namespace.run(|| Command::new("nft").args(["list", "tables"]).output()).unwrap();
        assert_eq!(String::from_utf8_lossy(&tables.stdout).trim(), "table ip halfopen");
        for child in &mut self.children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

/// What a run must never change: the links, rules and named namespaces of the host.
fn host_network() -> String {
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let links = run("ip", &["-o", "link"]);
    // Other tests come and go; only what could be ours is compared.
    let ours: Vec<&str> = links.lines().filter(|l| l.contains("halfopen") || l.contains("10.25")).collect();
    // The docker lab's own tests make tables at bridges meanwhile; this lab never does.
    let tables = run("nft", &["list", "tables"]);
    let tables: String = tables.lines().filter(|l| l.contains("halfopen") && !l.starts_with("table bridge")).collect();
    let named = run("ip", &["netns", "list"]);
    format!("{ours:?}{tables}{named}")
}

pub type Reached = fn(&Run) -> bool;

pub const STEPS: [(&str, Reached); 9] = [
    ("started", |_| true),
    ("run.json", |run| run.out().join("run.json").exists()),
    ("engine", |run| run.descendant("__engine").is_some()),
    ("redis", |run| run.descendant("redis-server").is_some()),
    ("subjects", |run| run.descendant("__subject").is_some()),
    ("opening", |run| run.read("stderr").contains("opening")),
    ("cut", |run| run.has_event("fault_applied")),
    ("noticed", |run| run.has_event("notice")),
    ("ended", |run| run.has_event("trial_ended")),
];

pub fn reach(run: &Run, step: &str, reached: Reached) {
    let there = within(Duration::from_secs(90), || reached(run));
    assert!(there, "step {step} was not reached: {}", run.read("stderr"));
}

#[test]
fn killed_at_every_step_nothing_survives() {
    require_root();
    let (before, decoys) = (host_network(), Decoys::start());
    std::thread::scope(|scope| {
        for steps in STEPS.chunks(3) {
            scope.spawn(move || {
                for (step, reached) in steps {
                    let run = Run::start(LIGHT);
                    reach(&run, step, *reached);
                    run.kill_and_check(step);
                }
            });
        }
    });
    decoys.check();
    assert_eq!(host_network(), before);
}

#[test]
fn killed_at_twenty_random_moments_nothing_survives() {
    require_root();
    let decoys = Decoys::start();
    // The run takes some seven seconds; the moments are drawn over all of it, the same ones each time.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        Duration::from_micros(state % 7_000_000)
    };
    let moments: Vec<Duration> = (0..20).map(|_| draw()).collect();
    std::thread::scope(|scope| {
        for moments in moments.chunks(5) {
            scope.spawn(move || {
                for moment in moments {
                    let run = Run::start(LIGHT);
                    std::thread::sleep(*moment);
                    run.kill_and_check(&format!("after {moment:?}"));
                }
            });
        }
    });
    decoys.check();
}

#[test]
fn killed_with_rabbitmq_at_work_nothing_survives() {
    require_root();
    let steps: [(&str, Reached); 3] = [
        ("rabbitmq starts", |run| run.descendant("beam.smp").is_some()),
        ("rabbitmq is used", |run| run.has_event("ready")),
        ("cut", |run| run.has_event("fault_applied")),
    ];
    for (step, reached) in steps {
        let run = Run::start(&LIGHT.replace("\n[fault]", &format!("{RABBIT}\n[fault]")));
        reach(&run, step, reached);
        run.kill_and_check(step);
    }
}

/// A store of tasks, and a reaper that soon has something to do.
const REAPER: &str = r#"# Is the reaper gone?
[scenario]
name = "reaper"
horizon = "6s"
trials = 5
seed = 1
settle = "500ms"

[load]
rate = "5/s"

[reaper]
rule = "queued-timeout"
timeout = "500ms"
interval = "200ms"

[[arm]]
name = "redis"
subject = "redis-blocking"
expect = "censored"

[fault]
profile = "blackhole"
scope = "flow"
"#;

#[test]
fn killed_with_a_reaper_at_work_nothing_survives() {
    require_root();
    let steps: [(&str, Reached); 3] = [
        ("reaper starts", |run| run.descendant("__reaper").is_some()),
        ("tasks are queued", |run| run.has_event("started")),
        ("tasks are reaped", |run| run.has_event("reaped")),
    ];
    for (step, reached) in steps {
        let run = Run::start(REAPER);
        reach(&run, step, reached);
        run.kill_and_check(step);
    }
}

#[test]
fn a_killed_engine_is_the_harness_own_failure_and_leaves_nothing() {
    require_root();
    let mut run = Run::start(LIGHT);
    reach(&run, "cut", |run| run.has_event("fault_applied"));
    let inside: Vec<Identity> = below(run.child.id()).into_iter().filter_map(identity).collect();
    let held = namespaces(inside.iter().map(|p| p.pid));
    let engine = run.descendant("__engine").unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(engine as i32), nix::sys::signal::Signal::SIGKILL).unwrap();
    assert_eq!(run.child.wait().unwrap().code(), Some(5));
    run.check("engine killed", &inside, &held);
    // What was recorded until then is judged all the same.
    assert!(run.read("out/trials.csv").lines().count() == 11);
}

#[test]
fn an_interrupt_cleans_up_and_writes_what_was_measured() {
    require_root();
    let mut run = Run::start(LIGHT);
    reach(&run, "noticed", |run| run.has_event("notice"));
    let inside: Vec<Identity> = below(run.child.id()).into_iter().filter_map(identity).collect();
    let held = namespaces(inside.iter().map(|p| p.pid));
    let outer = nix::unistd::Pid::from_raw(run.child.id() as i32);
    nix::sys::signal::kill(outer, nix::sys::signal::Signal::SIGINT).unwrap();
    assert_eq!(run.child.wait().unwrap().code(), Some(130), "{}", run.read("stderr"));
    run.check("interrupted", &inside, &held);
    let trials = run.read("out/trials.csv");
    assert!(trials.contains(",detected,"), "{trials}");
    assert!(Path::new(&run.out()).join("report.md").exists());
}

#[test]
fn an_interrupt_while_a_broker_does_not_start_is_heard() {
    require_root();
    let place = tempfile::tempdir().unwrap();
    let silent = place.path().join("redis-server");
    std::fs::write(&silent, "#!/bin/sh\nexec sleep 600\n").unwrap();
    std::fs::set_permissions(&silent, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut run = Run::start_in(Place::of_root(), LIGHT, &[("HALFOPEN_REDIS_SERVER", silent.to_str().unwrap())]);
    reach(&run, "silent broker", |run| run.descendant("sleep").is_some());
    let outer = nix::unistd::Pid::from_raw(run.child.id() as i32);
    nix::sys::signal::kill(outer, nix::sys::signal::Signal::SIGINT).unwrap();
    let ended = within(Duration::from_secs(20), || run.child.try_wait().unwrap().is_some());
    assert!(ended, "still waiting for a broker that nobody wants");
    assert_eq!(run.child.wait().unwrap().code(), Some(130));
}

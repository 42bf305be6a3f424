//! The docker lab on the machine's own engine: the same numbers as in namespaces, and nothing left behind.
//!
//! The images are those of scripts/docker-images, built by scripts/test where they are not there.

use crate::common::{below, require_root, within};
use crate::place::Place;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Kernel timers and one real broker, in one run a lab.
const BOTH: &str = r#"# Do containers and namespaces say the same?
[scenario]
name = "both-labs"
horizon = "14s"
trials = 4
seed = 3

[load]
rate = "1/s"

[fault]
profile = "blackhole"
phase_window = "2s"

[[arm]]
name = "keepalive-5-1-3"
subject = "tcp-reader"
keepalive = { idle = "5s", interval = "1s", probes = 3 }

[[arm]]
name = "writer-user-timeout-5"
subject = "tcp-writer"
tcp_user_timeout = "5s"

[[arm]]
name = "writer-retries-3"
subject = "tcp-writer"
sysctl = { tcp_retries2 = 3 }

[[arm]]
name = "reader-without-timers"
subject = "tcp-reader"
expect = "censored"

[[arm]]
name = "lapin-5"
subject = "lapin"
heartbeat = "5s"

[[arm]]
name = "amqp-read-timeout-4"
subject = "amqp-blocking"
read_timeout = "4s"
"#;

fn run(place: &Place, lab: &str) -> Output {
    let scenario = place.path("scenario.toml");
    let out = place.path(lab);
    place.halfopen().arg("run").arg(scenario).args(["--lab", lab, "--out"]).arg(out).output().unwrap()
}

/// A trial's row by its columns.
fn trials(place: &Place, lab: &str) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_path(place.path(lab).join("trials.csv")).unwrap();
    reader.deserialize().map(Result::unwrap).collect()
}

pub fn docker(args: &[&str]) -> String {
    let output = Command::new("docker").args(args).output().unwrap();
    assert!(output.status.success(), "docker {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// All that runs of one place have on the engine: their ids stand in its journal and in their names.
fn left_of(run_id: &str) -> String {
    let filter = format!("label=io.halfopen.run={run_id}");
    let containers = docker(&["ps", "-a", "--filter", &filter, "--format", "{{.Names}}"]);
    containers + &docker(&["network", "ls", "--filter", &filter, "--format", "{{.Name}}"])
}

/// The id of the run that is going on in a place.
pub fn run_id(place: &Place) -> Option<String> {
    let entry = std::fs::read_dir(place.path("state")).ok()?.flatten().next()?;
    Some(entry.file_name().to_str()?.strip_suffix(".run.json")?.to_string())
}

/// Whether there is an engine. In CI there has to be one; elsewhere its absence is said aloud.
pub fn has_engine() -> bool {
    require_root();
    let there = Command::new("docker").arg("version").output().is_ok_and(|output| output.status.success());
    assert!(there || std::env::var_os("CI").is_none(), "no Docker engine answers: start it (systemctl start docker)");
    if !there {
        eprintln!("NOT TESTED: no Docker engine answers, so nothing of the docker lab was tested");
    }
    there
}

#[test]
fn the_same_scenario_says_the_same_in_both_labs() {
    if !has_engine() {
        return;
    }
    let place = Place::of_root();
    std::fs::write(place.path("scenario.toml"), BOTH).unwrap();
    // Side by side: they wait more than they work.
    std::thread::scope(|scope| {
        for lab in ["netns", "docker"] {
            let place = &place;
            scope.spawn(move || {
                let output = run(place, lab);
                assert_eq!(output.status.code(), Some(0), "{lab}: {}", String::from_utf8_lossy(&output.stderr));
            });
        }
    });
    let (namespaces, containers) = (trials(&place, "netns"), trials(&place, "docker"));
    assert_eq!((namespaces.len(), containers.len()), (24, 24));
    for (one, other) in namespaces.iter().zip(&containers) {
        assert_eq!(other["lab"], "docker");
        // The plan, its addresses and its windows are the same ...
        for column in ["trial", "arm", "phase_s", "predicted_lo_s", "predicted_hi_s"] {
            assert_eq!(one[column], other[column], "{column}: {one:?}\n{other:?}");
        }
        // ... and so is what came of them: who noticed, inside of the window that was given beforehand.
        assert_eq!((&one["outcome"], &one["watcher"]), (&other["outcome"], &other["watcher"]), "{one:?}\n{other:?}");
        assert_eq!((one["agrees"].as_str(), other["agrees"].as_str()), ("true", "true"), "{one:?}\n{other:?}");
        // The certificate: dropped at the bridge, nothing passed, nothing was told to the client.
        assert_eq!(
            (other["rst_seen"].as_str(), other["fin_seen"].as_str(), other["icmp_seen"].as_str()),
            ("0", "0", "0")
        );
        assert_eq!((other["passed_to_broker"].as_str(), other["passed_to_client"].as_str()), ("0", "0"), "{other:?}");
    }
    let dropped: u64 = containers.iter().map(|trial| trial["dropped_to_client"].parse::<u64>().unwrap()).sum();
    assert!(dropped > 0);
}

/// Bare TCP and Redis, cut soon after they were opened.
const LIGHT: &str = crate::kill::LIGHT;

/// A run of the docker lab that is under way.
struct Going {
    place: Place,
    child: Child,
}

impl Going {
    fn start() -> Self {
        let place = Place::of_root();
        std::fs::write(place.path("scenario.toml"), LIGHT).unwrap();
        let child = place
            .halfopen()
            .args(["run", "scenario.toml", "--lab", "docker", "--out", "out"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(place.path("stderr")).unwrap())
            .spawn()
            .unwrap();
        Self { place, child }
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.place.path(name)).unwrap_or_default()
    }

    fn engine(&self) -> Option<u32> {
        let is = |pid: &u32| halfopen::host::procfs::command_line(*pid).get(1).is_some_and(|word| word == "__engine");
        below(self.child.id()).into_iter().find(is)
    }

    fn reach(&self, step: &str) -> String {
        let there = within(Duration::from_secs(90), || match step {
            "containers" => run_id(&self.place).is_some_and(|id| left_of(&id).contains("-arm1")),
            "opening" => self.read("stderr").contains("opening"),
            event => self.read("out/events.jsonl").contains(&format!("\"kind\":\"{event}\"")),
        });
        assert!(there, "{step} was not reached: {}", self.read("stderr"));
        run_id(&self.place).unwrap()
    }

    fn clean(&self) -> serde_json::Value {
        let report = self.place.clean();
        assert_eq!(report["errors"], serde_json::json!([]), "{report}");
        assert_eq!(self.place.clean()["runs"], serde_json::json!([]));
        report
    }
}

pub fn signal(pid: u32, signal: nix::sys::signal::Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), signal).unwrap();
}

pub fn tables_of(run_id: &str) -> String {
    let output = Command::new("nft").args(["list", "tables"]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.contains(run_id)).collect()
}

/// Somebody else's things on the same engine, named as ours might be.
struct Decoys {
    container: String,
    network: String,
}

impl Decoys {
    fn start() -> Self {
        let name = format!("halfopen-decoy-{}", std::process::id());
        let label = "io.halfopen.run=somebody-elses";
        docker(&["network", "create", "--label", label, &name]);
        docker(&["run", "-d", "--name", &name, "--label", label, "--network", &name, "halfopen/redis:bookworm"]);
        Self { container: name.clone(), network: name }
    }
}

impl Drop for Decoys {
    fn drop(&mut self) {
        let running = docker(&["inspect", "-f", "{{.State.Running}}", &self.container]);
        docker(&["rm", "-f", &self.container]);
        docker(&["network", "rm", &self.network]);
        assert_eq!(running.trim(), "true", "a decoy was ended");
    }
}

#[test]
fn killed_or_stopped_at_any_step_nothing_is_left_or_clean_removes_it() {
    use nix::sys::signal::Signal::{SIGKILL, SIGSTOP};
    if !has_engine() {
        return;
    }
    let decoys = Decoys::start();
    std::thread::scope(|scope| {
        // The outer process alone: the engine hears of it and puts everything away.
        scope.spawn(|| {
            for step in ["containers", "fault_applied"] {
                let mut run = Going::start();
                let id = run.reach(step);
                run.child.kill().unwrap();
                run.child.wait().unwrap();
                let gone = within(Duration::from_secs(30), || left_of(&id).is_empty() && tables_of(&id).is_empty());
                assert!(gone, "outer killed at {step}: {}{}", left_of(&id), tables_of(&id));
                assert_eq!(run.clean()["runs"][0]["run_id"], id.as_str());
            }
        });
        // The engine alone: the outer process removes what is left.
        scope.spawn(|| {
            for step in ["containers", "fault_applied"] {
                let mut run = Going::start();
                let id = run.reach(step);
                signal(run.engine().unwrap(), SIGKILL);
                assert_eq!(run.child.wait().unwrap().code(), Some(5));
                assert_eq!((left_of(&id).as_str(), tables_of(&id).as_str()), ("", ""), "engine killed at {step}");
                assert_eq!(run.clean()["runs"], serde_json::json!([]));
            }
        });
        // Both, and an engine that hangs: `clean` removes exactly this run's things.
        scope.spawn(|| {
            let mut run = Going::start();
            let id = run.reach("notice");
            let engine = run.engine().unwrap();
            signal(engine, SIGSTOP);
            run.child.kill().unwrap();
            run.child.wait().unwrap();
            assert!(left_of(&id).contains(&format!("halfopen-{id}-arm0")), "a stopped engine puts nothing away");
            let report = run.clean();
            assert_eq!(report["runs"][0]["finding"], "init_killed", "{report}");
            let removed = report["runs"][0]["removed"].to_string();
            assert!(removed.contains(&format!("network halfopen-{id}")) && !removed.contains("decoy"), "{removed}");
            assert_eq!((left_of(&id).as_str(), tables_of(&id).as_str()), ("", ""));
            assert!(!Path::new(&format!("/run/halfopen-{id}")).exists());
        });
    });
    drop(decoys);
}

//! A service of a real compose project as the target: cut, measured, and left as it was, however the harness ends.
//!
//! Each test starts a project of its own name (a Redis and a worker of redis-py on the images of scripts/docker-images)
//! and removes it.

use crate::common::{below, within};
use crate::docker::{docker, has_engine, run_id, signal, tables_of};
use crate::place::Place;
use nix::sys::signal::Signal::{SIGKILL, SIGSTOP};
use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const STACK: &str = r#"version: "3.7"
services:
  redis:
    image: halfopen/redis:bookworm
    command: [redis-server, --save, "", --protected-mode, "no", --bind, "0.0.0.0"]
  worker:
    image: halfopen/subject:bookworm
    entrypoint: [/opt/halfopen/clients/celery/bin/python, -u, -c]
    command:
      - |
        import redis, time
        while True:
            connection = redis.Redis(host="redis", socket_timeout=3, retry=None)
            try:
                while True:
                    connection.blpop("jobs", 1)
            except Exception as error:
                print("connection lost:", error)
                time.sleep(0.2)
    depends_on: [redis]
"#;

/// A compose project that runs, with a worker that is connected.
struct Project {
    place: Place,
    name: String,
    compose: Vec<&'static str>,
}

impl Project {
    /// `None` where this machine has no engine.
    fn start(name: &str) -> Option<Self> {
        if !has_engine() {
            return None;
        }
        let answers = |words: &[&str]| {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).arg("version").stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        let known: [&[&'static str]; 2] = [&["docker", "compose"], &["docker-compose"]];
        let compose = known.into_iter().find(|words| answers(words));
        let Some(compose) = compose else {
            assert!(std::env::var_os("CI").is_none(), "no compose: apt-get install docker-compose");
            eprintln!("NOT TESTED: there is no `docker compose` here, so no target of a compose project was tested");
            return None;
        };
        let place = Place::of_root();
        std::fs::write(place.path("compose.yaml"), STACK).unwrap();
        let this = Self { place, name: format!("{name}{}", std::process::id()), compose: compose.to_vec() };
        this.compose(&["up", "-d"]);
        // The worker has its connection as soon as the broker lists a client that waits.
        let connected = within(Duration::from_secs(60), || {
            let list = docker(&["exec", &this.container("redis"), "redis-cli", "client", "list"]);
            list.contains("cmd=blpop")
        });
        assert!(connected, "the worker does not connect");
        Some(this)
    }

    fn compose(&self, words: &[&str]) {
        let mut command = Command::new(self.compose[0]);
        command
            .args(&self.compose[1..])
            .args(["-p", &self.name, "-f"])
            .arg(self.place.path("compose.yaml"))
            .args(words);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn container(&self, service: &str) -> String {
        let project = format!("label=com.docker.compose.project={}", self.name);
        let service = format!("label=com.docker.compose.service={service}");
        docker(&["ps", "-q", "--filter", &project, "--filter", &service]).trim().to_string()
    }

    /// All that a container is by, which must not change.
    fn state(&self) -> String {
        let of = |service| {
            let format =
                "{{.Id}} {{.State.Running}} {{.State.Pid}} {{.State.StartedAt}} {{json .NetworkSettings.Networks}}";
            docker(&["inspect", "-f", format, &self.container(service)])
        };
        of("worker") + &of("redis")
    }

    fn scenario(&self, service: &str, fault: &str) {
        let text = format!(
            "# Does the worker notice?\n[scenario]\nname = \"target\"\nhorizon = \"8s\"\nsettle = \"1s\"\n[[arm]]\nname = \
             \"as-it-is\"\ntarget = {{ compose = \"{}\", service = \"{service}\", broker = \"redis\", lost = \"connection lost\" \
             }}\n[fault]\nprofile = \"blackhole\"\nphase_window = \"1s\"\n{fault}\n",
            self.name
        );
        std::fs::write(self.place.path("scenario.toml"), text).unwrap();
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = self.place.halfopen();
        command.args(["run", "scenario.toml", "--lab", "docker", "--out", "out"]).args(more);
        command
    }

    fn run(&self, more: &[&str]) -> (Option<i32>, String) {
        let output = self.command(more).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.place.path(name)).unwrap_or_default()
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        self.compose(&["down", "-t", "0"]);
    }
}

#[test]
fn a_service_is_cut_measured_and_left_as_it_was() {
    let Some(project) = Project::start("cut") else { return };
    let before = project.state();
    // Refused, each with one line, and with nothing made.
    let refusals: [(&str, &[&str], i32, &str); 4] = [
        ("worker", &[], 2, "--target-is-disposable"),
        ("worker", &["--target-is-disposable", "--target-max", "1s"], 2, "1s is the most"),
        ("wroker", &["--target-is-disposable"], 3, "it runs redis, worker"),
        ("redis", &["--target-is-disposable"], 3, "no connection to port 6379"),
    ];
    for (service, more, code, words) in refusals {
        project.scenario(service, "duration = \"4s\"");
        let (exit, stderr) = project.run(more);
        assert_eq!(exit, Some(code), "{stderr}");
        assert!(stderr.contains(words) && stderr.lines().count() == 1, "{stderr}");
        assert!(!project.place.path("out").exists());
    }
    project.scenario("worker", "duration = \"4s\"");
    let (exit, stderr) = project.run(&["--target-is-disposable"]);
    assert_eq!(exit, Some(0), "{stderr}");
    assert!(stderr.contains("blackhole (scope flow) for 4s"), "{stderr}");
    let mut rows = csv::Reader::from_path(project.place.path("out/trials.csv")).unwrap();
    let rows: Vec<BTreeMap<String, String>> = rows.deserialize().map(Result::unwrap).collect();
    let [row] = &rows[..] else { panic!("one container, one trial: {rows:?}") };
    assert_eq!((row["lab"].as_str(), row["outcome"].as_str()), ("docker", "detected"), "{row:?}");
    // It waits 3 s for a reply to a command that it sent within the second before the cut or after it.
    let ttd: f64 = row["ttd_s"].parse().unwrap();
    assert!((1.9..4.6).contains(&ttd), "{row:?}");
    let ttr: f64 = row["ttr_s"].parse().unwrap();
    assert!(ttr > ttd && ttr < ttd + 1.5, "{row:?}");
    assert_eq!((row["passed_to_broker"].as_str(), row["passed_to_client"].as_str()), ("0", "0"), "{row:?}");
    assert!(row["dropped_to_broker"].parse::<u32>().unwrap() + row["dropped_to_client"].parse::<u32>().unwrap() > 0);
    assert!(project.read("out/logs/trial-0.log").contains("connection lost"), "its own words are kept");
    assert_eq!(project.read("out/run.json").matches("is as it was").count(), 2);
    assert_eq!(project.state(), before);
}

struct Going<'a> {
    project: &'a Project,
    child: Child,
    id: String,
}

impl<'a> Going<'a> {
    /// A run whose fault is in force.
    fn cutting(project: &'a Project) -> Self {
        let _ = std::fs::remove_dir_all(project.place.path("out"));
        let stderr = std::fs::File::create(project.place.path("stderr")).unwrap();
        let mut command = project.command(&["--target-is-disposable"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn().unwrap();
        let cut =
            within(Duration::from_secs(60), || project.read("out/events.jsonl").contains("\"kind\":\"fault_applied\""));
        assert!(cut, "{}", project.read("stderr"));
        let id = run_id(&project.place).unwrap();
        Self { project, child, id }
    }

    fn engine(&self) -> u32 {
        let is = |pid: &u32| halfopen::host::procfs::command_line(*pid).get(1).is_some_and(|word| word == "__engine");
        below(self.child.id()).into_iter().find(is).unwrap()
    }

    fn clean(&self) {
        let report = self.project.place.clean();
        assert_eq!(report["errors"], serde_json::json!([]), "{report}");
        assert_eq!(self.project.place.clean()["runs"], serde_json::json!([]));
        assert_eq!(tables_of(&self.id), "");
    }
}

/// The elements that drop, of a run's table.
fn dropping(run_id: &str) -> String {
    let of = |set: &str| {
        let table = format!("halfopen-{run_id}");
        let output = Command::new("nft").args(["list", "set", "bridge", &table, set]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.contains("expires")).collect::<String>()
    };
    of("dropped_flow") + &of("dropped_host")
}

#[test]
fn a_service_is_left_as_it_was_by_a_harness_that_is_killed_or_hangs() {
    let Some(project) = Project::start("kill") else { return };
    let before = project.state();
    // Without a duration: the lease is that of the horizon.
    project.scenario("worker", "scope = \"host\"");
    let mut run = Going::cutting(&project);
    signal(run.engine(), SIGKILL);
    run.child.kill().unwrap();
    run.child.wait().unwrap();
    assert!(within(Duration::from_secs(5), || tables_of(&run.id).is_empty()), "the kernel removes the table");
    run.clean();
    // One that hangs: the kernel heals by itself, `clean` ends the rest.
    project.scenario("worker", "duration = \"2s\"");
    let mut run = Going::cutting(&project);
    let engine = run.engine();
    signal(engine, SIGSTOP);
    run.child.kill().unwrap();
    run.child.wait().unwrap();
    assert!(!dropping(&run.id).is_empty(), "the cut is in force");
    assert!(within(Duration::from_secs(8), || dropping(&run.id).is_empty()), "{}", dropping(&run.id));
    assert!(!tables_of(&run.id).is_empty(), "the engine hangs, and its table with it");
    run.clean();
    assert_eq!(project.state(), before);
}

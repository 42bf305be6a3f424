//! The real clients on real brokers, in a PID and network namespace of the test's own, which takes everything with it.
//!
//! Needs `rabbitmq-server` and `redis-server` (`scripts/setup` installs them) and the right to create namespaces; the
//! tests fail without them, they never skip.

#[path = "../support/child.rs"]
#[expect(dead_code, reason = "each test binary uses its own part")]
mod child;

mod blocking;
mod lapin;
mod on_redis;
mod shared_queue;
mod verdict;

use child::{Child, open, settings, some, target};
use halfopen::clients::{self, Message, Program, Where, adapter_of};
use halfopen::events::{How, Kind};
use halfopen::host::clock::Clock;
use halfopen::host::procfs::{self, Identity, RunState};
use halfopen::scenario::{Ack, BrokerKind, HeartbeatThread, Keepalive, Settings, SubjectKind, SyncCall};
use halfopen::subject::protocol::{Command, Report, Routing, Task};
use halfopen::units::{Setting, TrialId};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid};
use std::io::{BufRead, BufReader};
use std::net::SocketAddrV4;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Stdio};
use std::time::Duration;

const INSIDE: &str = "HALFOPEN_TEST_INSIDE";
const RABBITMQ: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
const RABBITMQCTL: &str = "/usr/lib/rabbitmq/bin/rabbitmqctl";

#[expect(clippy::disallowed_methods, reason = "the test starts what it needs and ends it")]
fn command(program: &str) -> process::Command {
    process::Command::new(program)
}

/// Runs the test of this name again, as the body, inside new namespaces. True inside.
fn inside(test: &str) -> bool {
    if let Some(arrived) = std::env::var_os(INSIDE) {
        std::fs::write(arrived, test).unwrap();
        return true;
    }
    let own = std::env::current_exe().unwrap();
    let home = tempfile::tempdir().unwrap();
    let arrived = home.path().join("arrived");
    let mut unshare = command("unshare");
    if !nix::unistd::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.args(["--pid", "--net", "--mount", "--mount-proc", "--fork", "--kill-child", "--", "sh", "-c"]);
    unshare.args(["ip link set lo up && exec \"$0\" --exact \"$1\" --nocapture"]).arg(own).arg(test);
    let status = unshare.env(INSIDE, &arrived).status().unwrap();
    assert!(status.success(), "{test} failed inside its namespaces");
    // A name that matches no test would succeed without running anything.
    assert_eq!(std::fs::read_to_string(&arrived).unwrap(), test);
    false
}

/// A broker with a directory of its own; its process group ends with it.
struct Broker {
    process: process::Child,
    home: tempfile::TempDir,
}

impl Broker {
    fn start(mut command: process::Command, home: tempfile::TempDir, ready: &str) -> Self {
        let mut process = command.process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut lines = output.lines().map_while(Result::ok);
        assert!(lines.by_ref().any(|line| line.contains(ready)), "the broker never said {ready:?}");
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, home }
    }

    fn redis() -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut redis = command("redis-server");
        redis.args(["--port", "6379", "--bind", "127.0.0.1", "--save", "", "--dir"]).arg(home.path());
        Self::start(redis, home, "Ready to accept connections")
    }

    fn rabbitmq() -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut rabbitmq = rabbitmq_tool(RABBITMQ);
        rabbitmq
            .env("HOME", home.path())
            .env("RABBITMQ_MNESIA_BASE", home.path())
            .env("RABBITMQ_LOG_BASE", home.path());
        rabbitmq.env("RABBITMQ_LOGS", "-").env("RABBITMQ_ENABLED_PLUGINS_FILE", home.path().join("plugins"));
        std::fs::write(home.path().join(".erlang.cookie"), "halfopen").unwrap();
        std::fs::set_permissions(home.path().join(".erlang.cookie"), std::fs::Permissions::from_mode(0o400)).unwrap();
        Self::start(rabbitmq, home, "completed with")
    }

    fn group(&self) -> Pid {
        Pid::from_raw(self.process.id().cast_signed())
    }

    fn freeze(&self) {
        killpg(self.group(), Signal::SIGSTOP).unwrap();
        // A signal takes effect when a thread next runs: until then it may still answer what comes.
        let of_group = |p: &Identity| getpgid(Some(Pid::from_raw(p.pid.cast_signed()))) == Ok(self.group());
        let stopped = |p: Identity| procfs::run_state(p) == RunState::Stopped;
        while !procfs::tree(self.process.id()).into_iter().filter(of_group).all(stopped) {
            std::thread::yield_now();
        }
    }

    fn thaw(&self) {
        killpg(self.group(), Signal::SIGCONT).unwrap();
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = killpg(self.group(), Signal::SIGKILL);
        let _ = self.process.wait();
    }
}

fn rabbitmq_tool(program: &str) -> process::Command {
    let mut tool = command(program);
    tool.env("RABBITMQ_NODENAME", "halfopen@localhost").env("RABBITMQ_NODE_PORT", "5672");
    tool
}

fn amqp() -> SocketAddrV4 {
    "127.0.0.1:5672".parse().unwrap()
}

fn redis() -> SocketAddrV4 {
    "127.0.0.1:6379".parse().unwrap()
}

fn publish(trial: TrialId, broker: BrokerKind, interval_ms: u64) -> Command {
    let server = if broker == BrokerKind::Redis { redis() } else { amqp() };
    Command::Publish {
        trial,
        broker,
        target: target(server, trial),
        interval: Duration::from_millis(interval_ms),
        task: None,
        routing: Box::default(),
        second_consumer: false,
        second_from: None,
        untracked: false,
    }
}

fn resident_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

//! A child process of the binary under test, with its reports.

use halfopen::events::{EffectiveOptions, Event, How, Kind};
use halfopen::host::clock::Clock;
use halfopen::scenario::{Settings, SubjectKind};
use halfopen::subject::protocol::{Command, Report, Target, Worker};
use halfopen::units::{Offset, Setting, TrialId};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddrV4;
use std::process::{self, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

/// How long a report may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(45);

pub struct Child {
    process: process::Child,
    input: Option<ChildStdin>,
    reports: Receiver<Report>,
    /// Reports that came and were not asked for yet.
    pub unread: Vec<Report>,
    pub versions: BTreeMap<String, String>,
}

impl Child {
    pub fn start(role: &str, extra: &[&str]) -> Self {
        #[expect(clippy::disallowed_methods, reason = "the test starts the binary under test")]
        let mut command = process::Command::new(env!("CARGO_BIN_EXE_halfopen"));
        command.arg(role).args(["--zero-ns", "0"]).args(extra).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, reports) = mpsc::channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let report = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"));
                if sender.send(report).is_err() {
                    break;
                }
            }
        });
        let mut child = Self { process, input, reports, unread: Vec::new(), versions: BTreeMap::new() };
        child.versions = child.wait("hello", |report| match report {
            Report::Hello { versions } => Some(versions.clone()),
            _ => None,
        });
        child
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    pub fn tell(&mut self, command: &Command) {
        let mut line = serde_json::to_vec(command).unwrap();
        line.push(b'\n');
        self.input.as_mut().unwrap().write_all(&line).unwrap();
    }

    /// The first report for which `want` has an answer; it is taken out of the unread ones.
    pub fn wait<T>(&mut self, what: &str, mut want: impl FnMut(&Report) -> Option<T>) -> T {
        let mut next = 0;
        let clock = Clock::start();
        loop {
            while next < self.unread.len() {
                if let Some(answer) = want(&self.unread[next]) {
                    self.unread.remove(next);
                    return answer;
                }
                next += 1;
            }
            match self.reports.recv_timeout(PATIENCE.saturating_sub(clock.now().since(Offset::ZERO))) {
                Ok(report) => self.unread.push(report),
                Err(error) => panic!("no {what}: {error}; unread: {:#?}", self.unread),
            }
        }
    }

    /// The first event of the trial for which `want` has an answer, with its offset.
    pub fn event<T>(&mut self, trial: TrialId, what: &str, mut want: impl FnMut(&Kind) -> Option<T>) -> (Offset, T) {
        self.wait(what, |report| match report {
            Report::Event { event: Event { offset, trial: Some(of), kind, .. } } if *of == trial => {
                want(kind).map(|answer| (*offset, answer))
            }
            _ => None,
        })
    }

    pub fn ready(&mut self, trial: TrialId, number: u32) -> Offset {
        self.event(trial, "ready", |kind| matches!(kind, Kind::Ready { attempt } if *attempt == number).then_some(())).0
    }

    pub fn notice(&mut self, trial: TrialId) -> (Offset, u32, How, Option<i32>, String) {
        let (at, (attempt, cause)) = self.event(trial, "notice", |kind| match kind {
            Kind::Notice { attempt, cause } => Some((*attempt, cause.clone())),
            _ => None,
        });
        (at, attempt, cause.how, cause.errno, cause.text)
    }

    pub fn connect_failed(&mut self, trial: TrialId) -> (Offset, u32, How, Option<i32>) {
        let (at, (attempt, cause)) = self.event(trial, "failed attempt", |kind| match kind {
            Kind::ConnectFailed { attempt, cause } => Some((*attempt, cause.clone())),
            _ => None,
        });
        (at, attempt, cause.how, cause.errno)
    }

    pub fn connecting(&mut self, trial: TrialId, number: u32) -> Offset {
        let want = |kind: &Kind| matches!(kind, Kind::Connecting { attempt } if *attempt == number).then_some(());
        self.event(trial, "attempt", want).0
    }

    pub fn options(&mut self, trial: TrialId) -> EffectiveOptions {
        let want = |kind: &Kind| match kind {
            Kind::Options { effective, .. } => Some(effective.clone()),
            _ => None,
        };
        self.event(trial, "options", want).1
    }

    pub fn delivered(&mut self, trial: TrialId, number: u64) -> Offset {
        let want = |kind: &Kind| matches!(kind, Kind::Delivered { message, .. } if *message == number).then_some(());
        self.event(trial, "delivery", want).0
    }

    /// Ends the input and waits for the orderly end; all reports that are left.
    pub fn finish(mut self) -> Vec<Report> {
        drop(self.input.take());
        self.wait("bye", |report| (*report == Report::Bye).then_some(()));
        assert!(self.process.wait().unwrap().success());
        std::mem::take(&mut self.unread)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub fn settings(subject: SubjectKind) -> Settings {
    Settings {
        subject,
        connect_timeout: some(10.0),
        read_timeout: Setting::None,
        keepalive: None,
        tcp_user_timeout: Setting::None,
        heartbeat: None,
        prefetch: None,
        ack: None,
        work: None,
        frame_max: None,
        peer_reads: true,
        tls: false,
        ping: None,
        link: None,
        heartbeat_thread: None,
        sync_call: None,
        worker_id: None,
        begins: None,
        effects: None,
        client: serde_json::Map::new(),
        command: None,
        delivery: halfopen::scenario::Delivery::default(),
        sysctl: BTreeMap::new(),
    }
}

pub fn some(seconds: f64) -> Setting {
    Setting::After(Duration::from_secs_f64(seconds))
}

pub fn target(server: SocketAddrV4, trial: TrialId) -> Target {
    Target {
        server,
        vhost: "/".into(),
        db: 0,
        queue: format!("trial-{trial}"),
        durable: false,
        user: String::new(),
        password: String::new(),
        ca_file: None,
        name: None,
    }
}

pub fn open(server: SocketAddrV4, trial: TrialId, settings: Settings, load_interval: Option<Duration>) -> Command {
    Command::Open {
        trial,
        target: target(server, trial),
        settings: Box::new(settings),
        load_interval,
        program: None,
        beats: None,
        jobs: Vec::new(),
        worker: Worker::default(),
        store: None,
        sweeps: None,
    }
}

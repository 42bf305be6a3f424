//! The certificate itself: whatever is not the fault that the plan asks for must void the trial. The packets, the rules and
//! the counters are a real kernel's; only the subject's side of the story is written down here.

use crate::common::{binary, require_root, within};
use crate::support::{Connection, Lab};
use halfopen::events::{Event, Kind, Source, Tuple};
use halfopen::fault::{Applied, Cut, FaultTable, IptablesTable, Layout, Table};
use halfopen::host::clock::Clock;
use halfopen::host::iptables::{Iptables, Kind as Tools};
use halfopen::host::netns::NetNs;
use halfopen::observe::SockDiag;
use halfopen::plan::{Overrides, Plan, build};
use halfopen::scenario::{Directions, Injection, Scope, profile, read};
use halfopen::units::Offset;
use halfopen::verdict::judge;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A plan of one trial under a built-in profile, watched for no longer than the test writes down.
fn plan(profile: &str) -> Plan {
    let text = format!(
        "# Is the certificate to be trusted?\n[scenario]\nname = \"certificate\"\nhorizon = \"100ms\"\ntrials = 1\n\
         [fault]\nprofile = \"{profile}\"\n[[arm]]\nname = \"reader\"\nsubject = \"tcp-reader\"\nexpect = \"censored\"\n\
         [[gate]]\nmetric = \"outcome\"\ncount = \"void\"\nmax = 0\n"
    );
    build(read("certificate.toml", &text).expect("is read"), &Overrides::default()).expect("is planned")
}

fn directions(profile: &str) -> Directions {
    profile::builtin(profile).expect("a built-in profile").drop
}

/// One fault on a real connection: what was really cut, and what the run believes that it did.
struct Case {
    lab: Lab,
    table: FaultTable,
    connection: Connection,
    opened: Offset,
}

impl Case {
    fn new() -> Self {
        let lab = Lab::build();
        let table = FaultTable::install(&lab.router, lab.clock).expect("the table");
        let opened = lab.clock.now();
        let connection = lab.connect(0).expect("a connection");
        Self { lab, table, connection, opened }
    }

    fn cut(&mut self, tuple: Tuple, drop: Directions, lease: Option<Duration>) -> Applied {
        self.table
            .cut(Cut { trial: 0, tuple, scope: Scope::Flow, drop, injection: Injection::Router, lease })
            .expect("the cut")
    }

    /// A packet of data each way; what arrives, arrives.
    fn exchange(&mut self) {
        for stream in [&mut self.connection.near, &mut self.connection.far] {
            // After a reset there is nothing to write to: that is what the case is about.
            let _ = stream.write_all(b"data");
        }
        for stream in [&mut self.connection.near, &mut self.connection.far] {
            stream.set_read_timeout(Some(Duration::from_millis(300))).expect("SO_RCVTIMEO");
            let _ = stream.read(&mut [0; 16]);
        }
    }

    /// The outcome and the code of the reason, as `verdict` judges what the kernel counted.
    fn judged(mut self, profile: &str, applied: Applied, cut: Tuple) -> (String, String) {
        let read = self.table.counters_of(0).expect("the trial's counters");
        let read_at = self.lab.clock.now();
        let connected = Kind::Connected { attempt: 0, tuple: self.connection.tuple };
        let in_force =
            Kind::FaultApplied { tuple: cut, before: applied.before, after: applied.after, age_at_fault_s: Some(0.0) };
        let events = [
            (self.opened, Source::Subject, Kind::Connecting { attempt: 0 }),
            (self.opened, Source::Subject, connected),
            (self.opened, Source::Subject, Kind::Ready { attempt: 0 }),
            (applied.after, Source::Harness, in_force),
            (read_at, Source::Harness, Kind::Certificate { counters: read.counters, intact: read.intact }),
            (read_at, Source::Harness, Kind::TrialEnded { why: "horizon".to_string() }),
        ];
        let plan = plan(profile);
        let trial = plan.trials[0].id;
        let events = events.map(|(offset, source, kind)| Event::of_trial(offset, source, trial, kind));
        let judged = judge(&plan, &events);
        println!("{:?}", read.counters);
        let row = &judged.trials[0];
        let cell = |column: &str| row.cell(column).expect("a column");
        (cell("outcome"), cell("void_reason"))
    }
}

/// A foreign table whose rule comes before the fault's and answers instead of dropping.
fn reject_with(lab: &Lab, with: &str) {
    let rules = format!(
        "table ip elsewhere {{\n chain first {{\n type filter hook forward priority -400\n ip protocol tcp ip daddr 10.128.0.0/10 \
         reject with {with}\n }}\n}}\n"
    );
    let mut nft =
        lab.router.run(|| Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn()).expect("the nft tool");
    nft.stdin.take().expect("a pipe").write_all(rules.as_bytes()).expect("nft reads");
    assert!(nft.wait().expect("nft ends").success());
}

#[test]
fn a_faithful_cut_is_vouched_for() {
    for profile in ["blackhole", "to-broker", "to-client"] {
        let mut case = Case::new();
        let tuple = case.connection.tuple;
        let applied = case.cut(tuple, directions(profile), None);
        case.exchange();
        assert_eq!(case.judged(profile, applied, tuple), ("censored".to_string(), String::new()), "{profile}");
    }
}

#[test]
fn a_wrong_port_voids() {
    let mut case = Case::new();
    let mut wrong = case.connection.tuple;
    wrong.local.set_port(wrong.local.port() ^ 1);
    let applied = case.cut(wrong, directions("blackhole"), None);
    case.exchange();
    let (outcome, reason) = case.judged("blackhole", applied, wrong);
    assert_eq!((outcome.as_str(), reason.split(':').next()), ("void", Some("other_connection")));
}

#[test]
fn a_wrong_direction_voids() {
    for (asked, done, expected) in [
        ("to-client", "to-broker", "passed_to_client"),
        ("to-broker", "to-client", "passed_to_broker"),
        ("blackhole", "to-broker", "passed_to_client"),
        ("to-client", "blackhole", "dropped_outside_fault"),
    ] {
        let mut case = Case::new();
        let tuple = case.connection.tuple;
        let applied = case.cut(tuple, directions(done), None);
        case.exchange();
        let (outcome, reason) = case.judged(asked, applied, tuple);
        assert_eq!((outcome.as_str(), reason.as_str()), ("void", expected), "{asked} asked, {done} done");
    }
}

#[test]
fn a_rule_that_goes_midway_voids() {
    let mut case = Case::new();
    let tuple = case.connection.tuple;
    // Nobody but its owner can take an element out; the kernel does when the lease is over.
    let applied = case.cut(tuple, directions("blackhole"), Some(Duration::from_millis(200)));
    case.connection.near.write_all(b"late").expect("the kernel takes it");
    let mut buffer = [0; 4];
    case.connection.far.read_exact(&mut buffer).expect("retransmitted once the lease is over");
    let (outcome, reason) = case.judged("blackhole", applied, tuple);
    assert_eq!((outcome.as_str(), reason.as_str()), ("void", "rules_not_intact"));
}

#[test]
fn an_answer_instead_of_a_drop_voids() {
    for (with, expected) in [("tcp reset", "rst_reached_client"), ("icmp type host-unreachable", "icmp_reached_client")]
    {
        let mut case = Case::new();
        let tuple = case.connection.tuple;
        reject_with(&case.lab, with);
        let applied = case.cut(tuple, directions("blackhole"), None);
        case.exchange();
        let (outcome, reason) = case.judged("blackhole", applied, tuple);
        assert_eq!((outcome.as_str(), reason.as_str()), ("void", expected), "reject with {with}");
    }
}

#[test]
fn a_fault_that_comes_again_after_a_heal_is_in_force_again_and_counts_on() {
    let mut case = Case::new();
    let tuple = case.connection.tuple;
    let mut buffer = [0; 4];
    let mut dropped = 0;
    case.cut(tuple, directions("to-broker"), Some(Duration::from_secs(30)));
    for time in 1..=3 {
        if time > 1 {
            case.table.again(0).expect("the cut comes again");
        }
        case.connection.near.write_all(b"lost").expect("the kernel takes it");
        case.connection.far.set_read_timeout(Some(Duration::from_millis(300))).expect("SO_RCVTIMEO");
        let silence = case.connection.far.read(&mut buffer).expect_err("nothing gets through");
        assert_eq!(silence.kind(), ErrorKind::WouldBlock, "time {time}");
        let read = case.table.counters_of(0).expect("counters");
        assert!(read.intact && read.counters.dropped_to_broker > dropped, "time {time}: {read:?}");
        assert!(case.table.again(0).is_err(), "it is in force already");
        case.table.heal(0).expect("the heal");
        case.connection.far.set_read_timeout(Some(Duration::from_secs(5))).expect("SO_RCVTIMEO");
        case.connection.far.read_exact(&mut buffer).expect("retransmitted after the heal");
        let healed = case.table.counters_of(0).expect("counters");
        assert!(healed.intact, "what was healed is not missing");
        dropped = healed.counters.dropped_to_broker;
    }
}

#[test]
fn a_forgotten_connection_is_silent_until_its_client_speaks() {
    let mut case = Case::new();
    let tuple = case.connection.tuple;
    let far = Tuple { local: tuple.peer, peer: tuple.local };
    let mut sockets = SockDiag::open(&case.lab.server).expect("sock_diag");
    sockets.can_destroy().expect("CONFIG_INET_DIAG_DESTROY");
    assert!(sockets.get(far).expect("a look").is_some());
    case.cut(tuple, directions("blackhole"), None);
    assert!(sockets.destroy(far).expect("the broker's end goes"));
    let dropped = || case.table.counters_of(0).expect("counters").counters.dropped_to_client > 0;
    assert!(within(Duration::from_secs(5), dropped), "its last word is lost on the way");
    assert!(
        !sockets.destroy(far).expect("asked once more"),
        "there is nothing left, and the listener is not taken for it"
    );
    case.lab.connect(1).expect("the listener lives");
    case.table.heal(0).expect("the heal");
    let mut buffer = [0; 4];
    case.connection.near.set_read_timeout(Some(Duration::from_millis(300))).expect("SO_RCVTIMEO");
    let silence = case.connection.near.read(&mut buffer).expect_err("nobody told it");
    assert_eq!(silence.kind(), ErrorKind::WouldBlock);
    case.connection.near.set_read_timeout(Some(Duration::from_secs(5))).expect("SO_RCVTIMEO");
    case.connection.near.write_all(b"ping").expect("the kernel takes it");
    let reset = case.connection.near.read(&mut buffer).expect_err("a RST answers");
    assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
}

/// Set in a process that cuts this connection, until it is told to read the counters.
const HUNG: &str = "HALFOPEN_TEST_HUNG";

/// Set in that process where it cuts with iptables of this kind.
const TOOLS: &str = "HALFOPEN_TEST_TOOLS";

/// How long the cut of that process is leased.
const LEASE: Duration = Duration::from_secs(1);

/// A table by nftables, or by the tools that are asked for.
fn table_of(tools: Option<&str>) -> Table {
    let (here, clock) = (NetNs::current("router").expect("the namespace"), Clock::start());
    let Some(kind) = tools.map(|name| Tools::ALL.into_iter().find(|kind| kind.name() == name).expect("a kind")) else {
        return Table::Nftables(FaultTable::install(&here, clock).expect("the table"));
    };
    let lock = std::env::temp_dir().join(format!("xtables-{}.lock", std::process::id()));
    let tools = Iptables::open(kind, &here, lock).expect("the tools");
    Table::Iptables(IptablesTable::install(Layout::default(), tools, true, clock).expect("the chains"))
}

#[test]
fn a_hung_harness_heals_by_itself_and_its_certificate_says_so() {
    if let Ok(tuple) = std::env::var(HUNG) {
        let mut table = table_of(std::env::var(TOOLS).ok().as_deref());
        let tuple: Tuple = serde_json::from_str(&tuple).expect("a tuple");
        let drop = directions("blackhole");
        table
            .cut(Cut { trial: 0, tuple, scope: Scope::Flow, drop, injection: Injection::Router, lease: Some(LEASE) })
            .expect("the cut");
        println!("\nintact {}", table.counters_of(0).expect("counters").intact);
        let _ = std::io::stdin().read(&mut [0; 1]);
        println!("\nintact {}", table.counters_of(0).expect("counters").intact);
        return;
    }
    for tools in [None, Some("iptables-nft"), Some("iptables-legacy")] {
        hung(tools);
    }
}

/// A process that cuts and is stopped; with nftables where no tools are named.
fn hung(tools: Option<&str>) {
    let lab = Lab::build();
    let mut connection = lab.connect(0).expect("a connection");
    let test = std::env::current_exe().expect("this test");
    let name = "certificate::a_hung_harness_heals_by_itself_and_its_certificate_says_so";
    let mut harness = lab
        .router
        .run(|| {
            Command::new(test)
                .args(["--exact", name, "--nocapture"])
                .env(HUNG, serde_json::to_string(&connection.tuple).expect("JSON"))
                .envs(tools.map(|tools| (TOOLS, tools)))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
        })
        .expect("this test again");
    let mut lines = BufReader::new(harness.stdout.take().expect("a pipe")).lines().map(|line| line.expect("text"));
    let mut said = || lines.find(|line| line.starts_with("intact ")).expect("the other process reads its counters");
    assert_eq!(said(), "intact true");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(harness.id()).expect("a process id"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).expect("SIGSTOP");
    let mut buffer = [0; 4];
    connection.near.write_all(b"late").expect("the kernel takes it");
    connection.far.set_read_timeout(Some(Duration::from_secs(10))).expect("SO_RCVTIMEO");
    connection.far.read_exact(&mut buffer).expect("nobody healed it, and it lives again");
    connection.far.write_all(b"pong").expect("write");
    connection.near.read_exact(&mut buffer).expect("both ways");
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).expect("SIGCONT");
    harness.stdin.take().expect("a pipe").write_all(b"\n").expect("it reads on");
    assert_eq!(said(), "intact false");
    assert!(harness.wait().expect("its end").success());
}

/// The scenarios of the catalogue hold their gates, side by side and with few trials; and under another fault they don't.
#[test]
fn the_scenarios_of_the_catalogue_hold_their_gates() {
    require_root();
    let dir = tempfile::tempdir().expect("a directory");
    let start = |name: &str| {
        let mut command = Command::new(binary());
        command.current_dir(env!("CARGO_MANIFEST_DIR")).arg("run").arg(format!("scenarios/faults/{name}.toml"));
        command.args(["--trials", "4", "--out"]).arg(dir.path().join(name)).env("HOME", dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program")
    };
    let runs = [
        "healed",
        "phases",
        "frozen-broker",
        "killed-broker",
        "rebooted-host",
        "nat-expired",
        "nat-reset",
        "nat-loose",
        "firewall-forgets",
        "blackhole",
        "directions",
        "lossy-link",
    ]
    .map(|name| (name, start(name)));
    let mut failed = String::new();
    for (name, run) in runs {
        let output = run.wait_with_output().expect("its end");
        if output.status.code() != Some(0) {
            let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            failed += &format!("{name}: {}\n{}\n", output.status, text.concat());
        } else {
            failed += &crate::changed::unnoticed(&dir.path().join(name));
        }
    }
    assert!(failed.is_empty(), "{failed}");
}

//! Middleboxes on a real kernel: what each end sees of a connection that was forgotten, and what the certificate makes of it.

use crate::support::{Connection, Lab};
use halfopen::events::{Event, Kind, Source};
use halfopen::fault::{Applied, Cut, FaultTable, Layout, NAT_OUTSIDE};
use halfopen::host::conntrack::Conntrack;
use halfopen::host::netlink::{Op, apply};
use halfopen::plan::{Overrides, build};
use halfopen::scenario::{Directions, Injection, Middlebox, Scope, profile, read};
use halfopen::verdict::judge;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const NOTHING: Directions = Directions { to_broker: false, to_client: false };

/// A router that is such a box, and one connection through it.
struct Case {
    lab: Lab,
    table: FaultTable,
    tracked: Conntrack,
    connection: Connection,
}

fn middlebox(name: &str) -> Middlebox {
    profile::builtin(name).and_then(|profile| profile.middlebox).expect("a profile of a middlebox")
}

impl Case {
    fn new(middlebox: Middlebox) -> Self {
        let lab = Lab::build();
        let sysctl = Op::Sysctl { name: "netfilter.nf_conntrack_tcp_loose".into(), value: middlebox.loose.into() };
        let outside = Op::Local { to: NAT_OUTSIDE.address, prefix: NAT_OUTSIDE.prefix };
        apply(&lab.router, &[sysctl, outside]).expect("a router that tracks connections");
        let layout = Layout { middlebox: Some(middlebox), ..Layout::default() };
        let table = FaultTable::install_as(layout, &lab.router, lab.clock).expect("the table");
        let tracked = Conntrack::open(&lab.router).expect("ctnetlink");
        let connection = lab.connect(0).expect("a connection through the box");
        Self { lab, table, tracked, connection }
    }

    /// The entry goes, and from then on the packets are counted.
    fn forget(&mut self) -> Applied {
        let tuple = self.connection.tuple;
        let before = self.lab.clock.now();
        assert!(self.tracked.forget(tuple.local, tuple.peer).expect("ctnetlink"), "the box knew the connection");
        self.table
            .cut(Cut { trial: 0, tuple, scope: Scope::Flow, drop: NOTHING, injection: Injection::Router, lease: None })
            .expect("the counts");
        Applied { before, after: self.lab.clock.now() }
    }

    /// Outcome and reason, as `verdict` judges what the kernel counted under the profile that was asked for.
    fn judged(mut self, asked: &str, applied: Applied) -> (String, String) {
        let text = format!(
            "# Is the certificate to be trusted?\n[scenario]\nname = \"certificate\"\nhorizon = \"100ms\"\ntrials = 1\n\
             [fault]\nprofile = \"{asked}\"\n[[arm]]\nname = \"reader\"\nsubject = \"tcp-reader\"\nexpect = \"censored\"\n"
        );
        let plan = build(read("x.toml", &text).expect("is read"), &Overrides::default()).expect("is planned");
        let counted = self.table.counters_of(0).expect("counters");
        println!("{:?}", counted.counters);
        let (tuple, trial) = (self.connection.tuple, plan.trials[0].id);
        let Applied { before, after } = applied;
        let read_at = self.lab.clock.now();
        let events = [
            (before, Source::Subject, Kind::Connecting { attempt: 0 }),
            (before, Source::Subject, Kind::Connected { attempt: 0, tuple }),
            (before, Source::Subject, Kind::Ready { attempt: 0 }),
            (after, Source::Harness, Kind::FaultApplied { tuple, before, after, age_at_fault_s: Some(0.0) }),
            (after, Source::Harness, Kind::Proof { what: "it is forgotten".into(), holds: true }),
            (read_at, Source::Harness, Kind::Certificate { counters: counted.counters, intact: counted.intact }),
            (read_at, Source::Harness, Kind::TrialEnded { why: "horizon".to_string() }),
        ];
        let judged = judge(&plan, &events.map(|(at, source, kind)| Event::of_trial(at, source, trial, kind)));
        let cell = |column: &str| judged.trials[0].cell(column).expect("a column");
        (cell("outcome"), cell("void_reason"))
    }
}

/// What comes of a read within 300 ms.
fn hears(stream: &mut TcpStream) -> Result<usize, ErrorKind> {
    stream.set_read_timeout(Some(Duration::from_millis(300))).expect("SO_RCVTIMEO");
    stream.read(&mut [0; 16]).map_err(|error| error.kind())
}

const SILENCE: Result<usize, ErrorKind> = Err(ErrorKind::WouldBlock);
const RESET: Result<usize, ErrorKind> = Err(ErrorKind::ConnectionReset);

fn say(stream: &mut TcpStream) {
    stream.write_all(b"data").expect("the kernel takes it");
}

#[test]
fn a_connection_passes_a_box_that_knows_it() {
    for name in ["nat-expired", "nat-reset", "nat-loose", "firewall-forgets"] {
        let mut case = Case::new(middlebox(name));
        let Connection { near, far, tuple } = &mut case.connection;
        say(near);
        assert_eq!(hears(far), Ok(4), "{name}");
        say(far);
        assert_eq!(hears(near), Ok(4), "{name}");
        // The broker sees the outer address where there is a NAT, with the client's own port.
        let seen = far.peer_addr().expect("an address");
        let layout = Layout { middlebox: Some(middlebox(name)), ..Layout::default() };
        assert_eq!(seen, layout.outside(tuple.local).into(), "{name}");
        assert!(case.tracked.lives(tuple.local, tuple.peer).expect("ctnetlink").is_some(), "{name}");
    }
}

#[test]
fn each_end_sees_of_a_forgotten_connection_what_its_profile_says() {
    for (name, to_the_client, to_the_broker) in
        [("nat-expired", SILENCE, RESET), ("nat-reset", RESET, RESET), ("firewall-forgets", SILENCE, SILENCE)]
    {
        let mut case = Case::new(middlebox(name));
        let applied = case.forget();
        say(&mut case.connection.far);
        say(&mut case.connection.near);
        assert_eq!(hears(&mut case.connection.near), to_the_client, "{name}");
        assert_eq!(hears(&mut case.connection.far), to_the_broker, "{name}");
        assert!(case.tracked.lives(case.connection.tuple.local, case.connection.tuple.peer).expect("a look").is_none());
        // A new connection passes.
        case.lab.connect(0).expect("a reconnect");
        assert_eq!(case.judged(name, applied), ("censored".to_string(), String::new()), "{name}");
    }
}

#[test]
fn a_loose_box_takes_up_what_the_client_begins_and_resets_what_the_broker_begins() {
    let mut case = Case::new(middlebox("nat-loose"));
    let applied = case.forget();
    say(&mut case.connection.near);
    assert_eq!(hears(&mut case.connection.far), Ok(4));
    say(&mut case.connection.far);
    assert_eq!(hears(&mut case.connection.near), Ok(4));
    assert_eq!(case.judged("nat-loose", applied).0, "survived");

    let mut case = Case::new(middlebox("nat-loose"));
    let applied = case.forget();
    say(&mut case.connection.far);
    assert_eq!(hears(&mut case.connection.far), RESET);
    assert_eq!(hears(&mut case.connection.near), SILENCE);
    say(&mut case.connection.near);
    assert_eq!(hears(&mut case.connection.near), RESET, "the broker's end is gone");
    assert_eq!(case.judged("nat-loose", applied).1, "");
}

/// One box is asked for and another one stands there: no trial counts.
#[test]
fn another_box_than_the_profiles_voids() {
    for (asked, done, reason) in [
        ("nat-expired", "nat-reset", "rst_reached_client"),
        ("firewall-forgets", "nat-reset", "rst_reached_client"),
        ("nat-reset", "nat-expired", "act_not_in_force"),
        ("nat-expired", "nat-loose", "passed_to_broker"),
        ("nat-loose", "nat-expired", "dropped_outside_fault"),
        ("nat-reset", "nat-loose", "passed_to_broker"),
        ("firewall-forgets", "nat-expired", "lost_otherwise"),
    ] {
        let mut case = Case::new(middlebox(done));
        let applied = case.forget();
        if asked == "firewall-forgets" {
            say(&mut case.connection.far);
        } else {
            say(&mut case.connection.near);
        }
        if asked == "firewall-forgets" && done == "nat-reset" {
            say(&mut case.connection.near);
        }
        let _ = (hears(&mut case.connection.near), hears(&mut case.connection.far));
        let (outcome, found) = case.judged(asked, applied);
        let found = found.split(':').next().unwrap_or_default().to_string();
        assert_eq!((outcome.as_str(), found.as_str()), ("void", reason), "{asked} asked, {done} done");
    }
}

#[test]
fn an_entry_lives_for_its_timeout_and_no_look_prolongs_it() {
    let mut case = Case::new(middlebox("nat-expired"));
    let timeout = Op::Sysctl { name: "netfilter.nf_conntrack_tcp_timeout_established".into(), value: 2 };
    apply(&case.lab.router, &[timeout]).expect("the sysctl");
    let Connection { near, far, tuple } = &mut case.connection;
    say(near);
    let sent = case.lab.clock.now();
    assert_eq!(hears(far), Ok(4));
    while case.tracked.lives(tuple.local, tuple.peer).expect("ctnetlink").is_some() {
        assert!(case.lab.clock.now().since(sent) < Duration::from_secs(10), "it never expires");
        std::thread::sleep(Duration::from_millis(2));
    }
    // Jiffies of 4 ms, and the acknowledgement comes a little after the data.
    let lived = case.lab.clock.now().since(sent);
    assert!(lived >= Duration::from_millis(1_992), "{lived:?}");
    say(near);
    assert_eq!(hears(far), SILENCE);
}

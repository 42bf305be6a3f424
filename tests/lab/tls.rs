//! Encrypted connections to both brokers: cut, counted and read back as the plain ones are.

use crate::common::require_root;
use crate::docker::has_engine;
use crate::place::Place;
use crate::written::start;
use halfopen::events::Kind;
use halfopen::store;
use halfopen::verdict::judge;

#[test]
fn behind_tls_the_same_cut_is_proven_and_a_read_timeout_of_py_amqp_is_another() {
    require_root();
    let good = start("tls-timers", |text| text.replace("trials = 3", "trials = 1"));
    // Without half a reply there is none that defeats the plain read timeout.
    let changed = start("tls-timers", |text| {
        let text = text.replace("\n[[fault]]\nprofile = \"blackhole\"\nphase_window = \"2s\"\n", "");
        let text = text.replace("\nfault = \"blackhole\"", "");
        text.replace("withheld-reply", "swallowing-proxy").replace("trials = 3", "trials = 1")
    });
    let (recorded, judged) = good.ends_with(0);
    changed.ends(1);
    for row in &judged.trials {
        let port = match (row.broker.as_str(), row.arm.ends_with("tls")) {
            ("rabbitmq", true) => 5671,
            ("rabbitmq", false) => 5672,
            ("redis", true) => 6380,
            _ => 6379,
        };
        assert_eq!(row.peer.map(|peer| peer.port()), Some(port), "{row:?}");
    }
    // The read timeout is set on the socket, and is not what ends the wait there.
    let arm = |trial: u32| judged.trials.iter().find(|row| row.trial == trial).map_or("", |row| row.arm.as_str());
    let options = recorded.events.iter().filter_map(|event| match &event.kind {
        Kind::Options { attempt: 0, effective } => Some((arm(event.trial?), effective)),
        _ => None,
    });
    let mut seen = 0;
    for (arm, effective) in options {
        match arm {
            "blocking-plain" | "redis-plain" | "redis-tls" => {
                assert_eq!((effective.so_rcvtimeo_ms, effective.nonblocking), (Some(4_000), Some(false)), "{arm}");
            }
            "blocking-tls" => {
                assert_eq!((effective.so_rcvtimeo_ms, effective.nonblocking), (Some(4_000), Some(true)), "{arm}");
            }
            _ => continue,
        }
        seen += 1;
    }
    assert_eq!(seen, 8, "four arms under two faults");
}

#[test]
fn a_handshake_without_an_answer_is_noticed_by_who_has_a_bound_on_it() {
    require_root();
    let few = |text: String| text.replace("trials = 3", "trials = 1");
    let silent = start("silent-tls", few);
    // A broker that answers: everybody consumes.
    let answered = start("silent-tls", |text| few(text).replace("profile = \"silent-tls\"", "profile = \"none\""));
    let late = start("dns-late", few);
    // An answer that comes at once enough.
    let soon = start("dns-late", |text| few(text).replace("\"5s\"", "\"500ms\""));
    let rows = silent.ends(0).trials;
    answered.ends(1);
    let named = late.ends(0).trials;
    soon.ends(1);
    for row in rows.iter().chain(&named) {
        assert_eq!(row.void_reason, None, "{row:?}");
    }
    // Acknowledged all the while: keepalive is of no use.
    let none = rows.iter().find(|row| row.arm == "lapin-none").unwrap();
    assert_eq!((none.watcher.as_str(), none.kernel_end_s), ("none", None), "{none:?}");
    let never = named.iter().find(|row| row.arm == "blocking-connect-3" && row.fault == "never").unwrap();
    assert_eq!((never.local, never.offered_to_broker), (None, Some(0)), "no connection was begun: {never:?}");
}

/// In containers the brokers are images as they are, with certificates and a listener laid in.
#[test]
fn a_docker_network_has_encrypted_connections_too() {
    if !has_engine() {
        return;
    }
    let place = Place::of_root();
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/faults/tls-timers.toml")).unwrap();
    std::fs::write(place.path("scenario.toml"), text.replace("trials = 3", "trials = 1")).unwrap();
    let mut command = place.halfopen();
    command.arg("run").arg(place.path("scenario.toml")).args(["--lab", "docker", "--out"]).arg(place.path("docker"));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let recorded = store::read(&place.path("docker")).unwrap();
    let judged = judge(&recorded.run.plan, &recorded.events);
    let encrypted = judged.trials.iter().filter(|row| row.arm.ends_with("tls"));
    let ports: Vec<_> = encrypted.filter_map(|row| row.peer.map(|peer| peer.port())).collect();
    assert!(!ports.is_empty() && ports.iter().all(|port| [5671, 6380].contains(port)), "{ports:?}");
}

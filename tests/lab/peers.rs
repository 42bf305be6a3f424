//! What becomes of the broker's host: each scenario holds, and the gates of a changed one fail.

use crate::common::require_root;
use crate::written::{Running, start};

#[test]
fn hosts_that_vanish_move_or_come_back_are_told_apart_from_a_black_hole() {
    require_root();
    let as_written = |name| start(name, |text| text);
    // The profile's line alone is changed; names of scenario, arms and gates stay.
    let instead = |name: &'static str, profile: &'static str| {
        start(name, move |text| text.replace(&format!("profile = \"{name}\"\n"), &format!("profile = {profile}\n")))
    };
    let good = ["vanished-host", "failover", "restarted-broker"].map(as_written);
    let black_hole = instead("vanished-host", "\"blackhole\"\nscope = \"host\"");
    let named = instead("failover", "\"blackhole\"\nname = \"failover\"");
    let frozen = instead("restarted-broker", "\"frozen-broker\"");
    let [vanished, moved, restarted] = good.map(|run: Running| run.ends(0).trials);
    black_hole.ends(1);
    named.ends(1);
    frozen.ends(1);

    // docs/timers.md: in a black hole 13.3 to 13.5 s at `tcp_retries2` 5; an ICMP undoes some of the back-off.
    let writers: Vec<_> = vanished.iter().filter(|row| row.arm == "writer-retries-5").collect();
    for row in &writers {
        assert!(row.ttd_s.is_some_and(|ttd| (12.3..18.0).contains(&ttd.as_secs())), "{row:?}");
        assert!(row.error.starts_with("EHOSTUNREACH") && row.icmp_seen > Some(0), "{row:?}");
    }
    let idle = vanished.iter().filter(|row| row.arm == "keepalive-2-1-2");
    for row in idle {
        assert!(row.ttd_s.is_some_and(|ttd| (1.9..4.6).contains(&ttd.as_secs())), "{row:?}");
    }
    assert!(!writers.is_empty() && vanished.iter().all(|row| row.rst_seen == Some(0) && row.fin_seen == Some(0)));
    // Whoever reconnects after a failover finds the other broker, which is a real one.
    let back = moved.iter().filter(|row| row.arm != "no-timer");
    for row in back {
        assert!(row.recovered_s.is_some(), "{row:?}");
    }
    // Three kills within three seconds: at least one more connection dies under its client.
    assert!(restarted.iter().all(|row| row.ttd_s.is_some_and(|ttd| ttd.0 >= 0) && row.scope == "all"), "{restarted:?}");
    assert!(restarted.iter().any(|row| row.attempts > 2), "{restarted:?}");
}

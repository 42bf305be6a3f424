//! The settings that the model is held to: a fixed list, and as many drawn at random as the lab has room for.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::fmt::Write as _;

/// Arms of one lab.
pub const ARMS: usize = 64;
/// The seed of the drawn settings, unless `HALFOPEN_CONFORMANCE_SEED` names another (a nightly run does).
pub const SEED: u64 = 20_260_101;

/// An arm: its name and its options as the scenario file has them.
type Arm = (String, String);

const READER: &str = "subject = \"tcp-reader\"\n";
const QUIET: &str = "subject = \"tcp-reader\"\nload = \"off\"\n";
const WRITER: &str = "subject = \"tcp-writer\"\n";
const CLOSED: &str = "subject = \"tcp-writer\"\npeer_reads = false\n";

fn keepalive(idle: u64, interval: u64, probes: u64) -> String {
    format!("keepalive = {{ idle = \"{idle}s\", interval = \"{interval}s\", probes = {probes} }}\n")
}

fn user_timeout(ms: u64) -> String {
    format!("tcp_user_timeout = \"{ms}ms\"\n")
}

fn retries2(count: u64) -> String {
    format!("sysctl.tcp_retries2 = {count}\n")
}

const NEVER: &str = "expect = \"censored\"\n";

/// The settings that somebody chose. `newer`: the sysctls of 6.15 exist.
fn chosen(newer: bool) -> Vec<Arm> {
    let mut arms = Vec::new();
    let mut add =
        |name: &str, subject: &str, options: String| arms.push((name.to_string(), format!("{subject}{options}")));
    // Silent but for keepalive: the age of the last segment is anything up to a probe's period.
    for (i, n, p) in [(1, 1, 1), (2, 1, 2), (3, 1, 4), (5, 1, 3), (6, 2, 2), (1, 3, 2), (2, 4, 2)] {
        add(&format!("quiet-{i}-{n}-{p}"), QUIET, keepalive(i, n, p));
    }
    for ut in [1_000, 6_000, 6_500, 9_500] {
        add(&format!("quiet-5-1-3-ut-{ut}"), QUIET, keepalive(5, 1, 3) + &user_timeout(ut));
    }
    add("quiet-ut-alone", QUIET, user_timeout(1_000) + NEVER);
    // Idle for the client: messages arrive, it sends nothing.
    for (i, n, p) in [(1, 1, 1), (2, 1, 2), (5, 1, 3), (3, 2, 2), (2, 3, 2)] {
        add(&format!("idle-{i}-{n}-{p}"), READER, keepalive(i, n, p));
    }
    add("idle-5-1-3-ut-6500", READER, keepalive(5, 1, 3) + &user_timeout(6_500));
    for ms in [2_000, 5_000, 10_000] {
        add(&format!("idle-read-timeout-{ms}"), READER, format!("read_timeout = \"{ms}ms\"\n"));
    }
    add("idle-no-timer", READER, NEVER.to_string());
    // Sending.
    for ut in [500, 1_000, 2_000, 5_000, 8_000] {
        add(&format!("send-ut-{ut}"), WRITER, user_timeout(ut));
    }
    for count in [2, 3, 4, 5] {
        add(&format!("send-retries-{count}"), WRITER, retries2(count));
    }
    add("send-retries-4-ka-1-1-1", WRITER, keepalive(1, 1, 1) + &retries2(4));
    add("send-retries-3-no-probe", WRITER, retries2(3) + "sysctl.tcp_early_retrans = 0\n");
    if newer {
        add("send-retries-6-rto-max-1000", WRITER, retries2(6) + "sysctl.tcp_rto_max_ms = 1000\n");
        add("send-retries-4-rto-min-50", WRITER, retries2(4) + "sysctl.tcp_rto_min_us = 50000\n");
    }
    // A closed window.
    for count in [2, 3, 4] {
        add(&format!("zero-retries-{count}"), CLOSED, retries2(count));
    }
    for ut in [8_000, 11_000] {
        add(&format!("zero-ut-{ut}"), CLOSED, user_timeout(ut));
    }
    add("zero-retries-3-ut-9000", CLOSED, retries2(3) + &user_timeout(9_000));
    add("zero-no-limit", CLOSED, NEVER.to_string());
    arms
}

/// Settings that nobody tuned anything to.
fn drawn(seed: u64, count: usize) -> Vec<Arm> {
    let mut generator = ChaCha12Rng::seed_from_u64(seed);
    let mut from = |lo: u64, hi: u64| lo + generator.next_u64() % (hi - lo + 1);
    (0..count)
        .map(|k| {
            let ka = keepalive(from(1, 6), from(1, 3), from(1, 4));
            let (ut, closed_ut, count) =
                (user_timeout(from(200, 9_000)), user_timeout(from(7_500, 12_000)), from(1, 5));
            let limit = format!("read_timeout = \"{}ms\"\n", from(1_000, 9_000));
            let with = from(0, 2);
            match k % 4 {
                0 => (format!("quiet-drawn-{k}"), QUIET.to_string() + &ka + if with == 0 { &ut } else { "" }),
                1 => {
                    let options = [ka.clone() + &ut, ka + &limit, limit][with as usize].clone();
                    (format!("idle-drawn-{k}"), READER.to_string() + &options)
                }
                2 => {
                    let options = [retries2(count), retries2(count) + &ka, ut][with as usize].clone();
                    (format!("send-drawn-{k}"), WRITER.to_string() + &options)
                }
                _ => {
                    let options = if with == 0 { closed_ut } else { retries2(count.clamp(2, 4)) };
                    (format!("zero-drawn-{k}"), CLOSED.to_string() + &options)
                }
            }
        })
        .collect()
}

/// The scenario file.
pub fn scenario(header: &str, seed: u64, trials: u32, newer: bool) -> String {
    let mut arms = chosen(newer);
    let room = ARMS - arms.len();
    arms.extend(drawn(seed, room));
    let mut text = format!(
        "{header}[scenario]\nname = \"conformance\"\nhorizon = \"22s\"\ntrials = {trials}\nseed = {seed}\nsettle = \"4s\"\n\n\
         [load]\nrate = \"2/s\"\n"
    );
    for profile in ["blackhole", "to-broker", "to-client"] {
        let _ = write!(text, "\n[[fault]]\nprofile = \"{profile}\"\nphase_window = \"2s\"\n");
    }
    for (name, options) in arms {
        let _ = write!(text, "\n[[arm]]\nname = \"{name}\"\n{options}");
    }
    text.push_str("\n[[gate]]\nmetric = \"agreement\"\nmin = \"97%\"\n");
    text
}

//! Options of an arm in words: asked for, and as the kernel and the broker say they are.

use super::document::{Block, Section, Table};
use super::summary::Summary;
use super::text::{NOTHING, plain};
use crate::events::EffectiveOptions;
use crate::scenario::Settings;
use crate::store::ArmOptions;
use crate::units::hide_secrets;

/// The table, one row an arm.
pub(super) fn section(summary: &Summary) -> Section {
    let rows = summary.arms.iter().map(|arm| vec![plain(&arm.arm), asked(&arm.asked), effective(arm)]).collect();
    let table = Table::new(&["arm", "asked for", "effective"], rows);
    Section { id: "options", title: "Options asked for and effective", blocks: vec![Block::Table(table)] }
}

/// The distinct sets; with their counts where there are several.
fn effective(arm: &ArmOptions) -> String {
    let one = |set: &crate::store::EffectiveCount| match arm.effective.len() {
        1 => shown(&set.options),
        _ => format!("{}×: {}", set.n, shown(&set.options)),
    };
    let sets: Vec<String> = arm.effective.iter().map(one).collect();
    if sets.is_empty() { NOTHING.to_string() } else { sets.join("; ") }
}

/// Options as the scenario names them.
fn asked(s: &Settings) -> String {
    let mut parts = vec![
        s.subject.name().to_string(),
        format!("connect_timeout {}", s.connect_timeout),
        format!("read_timeout {}", s.read_timeout),
        match s.keepalive {
            Some(k) => format!("keepalive {}/{}/{}", k.idle.as_secs(), k.interval.as_secs(), k.probes),
            None => "keepalive off".to_string(),
        },
        format!("tcp_user_timeout {}", s.tcp_user_timeout),
    ];
    parts.extend(s.heartbeat.map(|h| format!("heartbeat {h}")));
    parts.extend(s.heartbeat_thread.map(|t| format!("heartbeat_thread {}", word(&t))));
    parts.extend(s.sync_call.map(|c| format!("sync_call {}", word(&c))));
    parts.extend(s.prefetch.map(|p| format!("prefetch {p}")));
    parts.extend(s.ack.map(|a| format!("ack {}", word(&a))));
    parts.extend(s.tls.then(|| "tls".to_string()));
    parts.extend((!s.peer_reads).then(|| "peer_reads false".to_string()));
    parts.extend(s.link.map(|l| format!("link {}", serde_json::to_string(&l).unwrap_or_default())));
    parts.extend(s.frame_max.map(|f| format!("frame_max {f}")));
    parts.extend(s.sysctl.iter().map(|(key, value)| format!("sysctl.{key} {value}")));
    parts.extend(s.client.iter().map(|(key, value)| format!("client.{} {}", plain(key), plain(&hidden(key, value)))));
    parts.join(", ")
}

/// The value of a client's own option; of one that names a secret, and of an address, not what it hides.
fn hidden(key: &str, value: &serde_json::Value) -> String {
    let pair = format!("{key}={value}");
    let shown = hide_secrets(&pair);
    shown.strip_prefix(key).and_then(|rest| rest.strip_prefix('=')).unwrap_or_default().to_string()
}

/// A value of a closed list as the scenario writes it.
fn word(value: &impl serde::Serialize) -> String {
    let text = serde_json::to_value(value).ok().and_then(|v| v.as_str().map(String::from));
    text.unwrap_or_default()
}

/// Options as the kernel and the broker say they are.
fn shown(o: &EffectiveOptions) -> String {
    let timeout = |ms: u64| if ms == 0 { "none".to_string() } else { format!("{ms} ms") };
    let mut parts = Vec::new();
    parts.extend(o.so_rcvtimeo_ms.map(|ms| format!("SO_RCVTIMEO {}", timeout(ms))));
    parts.extend(o.keepalive.map(|on| match (on, o.keepalive_idle_s, o.keepalive_interval_s, o.keepalive_probes) {
        (false, ..) => "keepalive off".to_string(),
        (true, Some(idle), Some(interval), Some(probes)) => format!("keepalive {idle}/{interval}/{probes}"),
        (true, ..) => "keepalive on".to_string(),
    }));
    parts.extend(o.tcp_user_timeout_ms.map(|ms| format!("TCP_USER_TIMEOUT {}", timeout(u64::from(ms)))));
    parts.extend(o.nonblocking.map(|on| if on { "non-blocking" } else { "blocking" }.to_string()));
    parts.extend(o.heartbeat_s.map(|s| format!("heartbeat {s} s")));
    parts.extend(o.frame_max.map(|f| format!("frame_max {f}")));
    parts.extend(o.prefetch.map(|p| format!("prefetch {p}")));
    if parts.is_empty() { NOTHING.to_string() } else { parts.join(", ") }
}

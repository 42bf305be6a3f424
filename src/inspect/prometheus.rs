//! An inspection in Prometheus' text format: the worst of each group of connections, so that series stay few. Pure.

use super::judge::Knowledge;
use super::rows::{Inspection, Row};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What series are grouped by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    process: String,
    peer: String,
    protocol: &'static str,
}

impl Group {
    fn of(row: &Row) -> Self {
        let process = row.owner.as_ref().map_or_else(|| "unknown".to_string(), |owner| owner.name.clone());
        Self { process, peer: row.peer.clone(), protocol: row.protocol.name() }
    }

    fn labels(&self) -> String {
        format!(
            "process=\"{}\",peer=\"{}\",protocol=\"{}\"",
            escaped(&self.process),
            escaped(&self.peer),
            self.protocol
        )
    }
}

/// Backslash, quote and line feed, as the format wants it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The text, with `took_s`: how long the look took.
#[must_use]
pub fn exposition(inspection: &Inspection, took_s: f64) -> String {
    let mut detect: BTreeMap<(Group, &str), f64> = BTreeMap::new();
    let mut counts: BTreeMap<(Group, &str), u64> = BTreeMap::new();
    let mut suspicious: BTreeMap<(Group, &str, &str), u64> = BTreeMap::new();
    let mut quiet: BTreeMap<Group, f64> = BTreeMap::new();
    // A server has a peer a client: its connections are those of its clients.
    for row in inspection.rows.iter().filter(|row| !row.server_side) {
        let group = Group::of(row);
        *counts.entry((group.clone(), row.risk.name())).or_default() += 1;
        for answer in row.answers.iter().filter(|a| a.knowledge != Knowledge::Unknown) {
            let worst = detect.entry((group.clone(), answer.class.name())).or_default();
            *worst = worst.max(answer.hi_s.unwrap_or(f64::INFINITY));
        }
        for suspicion in &row.suspicions {
            let sure = match suspicion.sure {
                super::Sure::Possible => "possible",
                super::Sure::Likely => "likely",
                super::Sure::AlmostCertain => "almost_certain",
            };
            *suspicious.entry((group.clone(), suspicion.sign.name(), sure)).or_default() += 1;
        }
        let longest = quiet.entry(group).or_default();
        *longest = longest.max(row.last_data_received_s);
    }
    let number = |value: f64| if value.is_infinite() { "+Inf".to_string() } else { format!("{value}") };
    let mut out = String::new();
    let head = |out: &mut String, name: &str, help: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
    };
    head(
        &mut out,
        "halfopen_connections",
        "Connections by how bad a silent cut would be: covered, slow, unknown, open.",
    );
    for ((group, risk), count) in &counts {
        let _ = writeln!(out, "halfopen_connections{{{},risk=\"{risk}\"}} {count}", group.labels());
    }
    let help = "Seconds until a loss of this class is noticed at the latest, the worst connection; +Inf is never.";
    head(&mut out, "halfopen_detect_seconds", help);
    for ((group, class), seconds) in &detect {
        let _ = writeln!(out, "halfopen_detect_seconds{{{},class=\"{class}\"}} {}", group.labels(), number(*seconds));
    }
    head(
        &mut out,
        "halfopen_suspicious_connections",
        "Connections that look half-open now, by sign and how sure it is.",
    );
    for ((group, sign, sure), count) in &suspicious {
        let _ = writeln!(
            out,
            "halfopen_suspicious_connections{{{},sign=\"{sign}\",sure=\"{sure}\"}} {count}",
            group.labels()
        );
    }
    head(&mut out, "halfopen_quiet_seconds", "Seconds since data last arrived, the longest.");
    for (group, seconds) in &quiet {
        let _ = writeln!(out, "halfopen_quiet_seconds{{{}}} {}", group.labels(), number(*seconds));
    }
    head(&mut out, "halfopen_inspect_seconds", "How long the look took.");
    let _ = writeln!(out, "halfopen_inspect_seconds {took_s}");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let group = Group { process: "a\"b\\c\nd".into(), peer: "10.0.0.1:5672".into(), protocol: "amqp" };
        assert_eq!(group.labels(), "process=\"a\\\"b\\\\c\\nd\",peer=\"10.0.0.1:5672\",protocol=\"amqp\"");
    }

    #[test]
    fn a_look_without_connections_is_still_an_answer() {
        let empty = Inspection {
            format: 1,
            target: "x".into(),
            kernel: "6.18".into(),
            hz: Some(250),
            rows: Vec::new(),
            ended: Vec::new(),
            notes: Vec::new(),
        };
        let text = exposition(&empty, 0.5);
        assert!(
            text.contains("# TYPE halfopen_detect_seconds gauge\n") && text.ends_with("halfopen_inspect_seconds 0.5\n")
        );
    }
}

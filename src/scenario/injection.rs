//! Where and how a black hole is made: in the path, which is faithful, or in one of the ways that come to mind first and that
//! the subject's kernel notices.

use super::error::Findings;
use super::fault::{Fault, Scope};
use super::walk::Fields;
use crate::units::Setting;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Where and how a `blackhole` is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Injection {
    /// Dropped in a router between the ends: what this harness does, and the reference.
    #[default]
    Router,
    /// Dropped in the subject's own OUTPUT chain.
    ClientOutput,
    /// Dropped on the subject's own egress: as a queueing discipline, tc or a netdev egress hook do.
    ClientEgress,
    /// The subject's own link is taken down.
    ClientLink,
    /// The subject's own address is taken away.
    ClientAddress,
    /// The subject's own route to the broker is taken away.
    ClientRoute,
    /// Answered with ICMP host unreachable, and not dropped in silence.
    RejectIcmp,
    /// Answered with a RST.
    RejectReset,
}

impl Injection {
    /// All, in the order of the documentation.
    pub const ALL: [Self; 8] = [
        Self::Router,
        Self::ClientOutput,
        Self::ClientEgress,
        Self::ClientLink,
        Self::ClientAddress,
        Self::ClientRoute,
        Self::RejectIcmp,
        Self::RejectReset,
    ];

    /// The names, as files write them.
    pub const NAMES: [&'static str; 8] = [
        "router",
        "client-output",
        "client-egress",
        "client-link",
        "client-address",
        "client-route",
        "reject-icmp",
        "reject-reset",
    ];

    /// The name in files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The injection of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|injection| injection.name() == name)
    }

    /// Whether what is measured is a half-open connection.
    #[must_use]
    pub fn is_faithful(self) -> bool {
        self == Self::Router
    }

    /// Whether it is done to the subject's own network, where its kernel sees it being done.
    #[must_use]
    pub fn is_local(self) -> bool {
        !matches!(self, Self::Router | Self::RejectIcmp | Self::RejectReset)
    }

    /// Whether it answers instead of dropping.
    #[must_use]
    pub fn rejects(self) -> bool {
        matches!(self, Self::RejectIcmp | Self::RejectReset)
    }

    /// Whether it takes the whole address of the client out of the network, so that reconnects are cut too.
    #[must_use]
    pub fn takes_the_host(self) -> bool {
        matches!(self, Self::ClientLink | Self::ClientAddress | Self::ClientRoute)
    }

    /// What it does, in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Router => "dropped in the router",
            Self::ClientOutput => "dropped in the subject's own OUTPUT chain",
            Self::ClientEgress => "dropped on the subject's own egress",
            Self::ClientLink => "the subject's own link is down",
            Self::ClientAddress => "the subject's own address is gone",
            Self::ClientRoute => "the subject's own route to the broker is gone",
            Self::RejectIcmp => "answered with ICMP host unreachable",
            Self::RejectReset => "answered with a RST",
        }
    }

    /// Why it is no black hole, with numbers of idle keepalive 5/1/3, data in flight, and data in flight with a user timeout of
    /// 30 s, at `tcp_retries2` 5 (`docs/faults.md`); `None` for the faithful one: 8.19 s, 13.44 s and 30.5 s.
    #[must_use]
    pub fn distortion(self) -> Option<&'static str> {
        match self {
            Self::Router => None,
            Self::ClientOutput => Some(
                "the subject's kernel is told that the packet was not sent, so it counts attempts and not time: data in flight \
                 with a user timeout of 30 s ended after 13.2 s instead of 30.5 s, and at a round trip of 500 ms data in flight \
                 took 96.5 s instead of 24.3 s",
            ),
            Self::ClientEgress => Some(
                "to the subject's kernel a drop on its own queue is local congestion: it tries again every 500 ms without backing \
                 off, so data in flight ended after 2.8 s instead of 13.44 s, with a user timeout of 30 s after 2.8 s instead of \
                 30.5 s, and keepalive 5/1/3 took 37 to 59 s or never noticed instead of 8.19 s",
            ),
            Self::ClientLink | Self::ClientAddress | Self::ClientRoute => Some(
                "the subject's kernel knows that it can't send, so it counts attempts and not time: data in flight with a user \
                 timeout of 30 s ended after 13.3 s instead of 30.5 s",
            ),
            Self::RejectIcmp => Some(
                "an answer is no silence: the error becomes EHOSTUNREACH, back-off is undone, and data in flight with a user \
                 timeout of 30 s took 30 to 41 s instead of 30.5 s, depending on the rate limit of ICMP",
            ),
            Self::RejectReset => Some(
                "a RST ends the connection at the next packet, data in flight at once instead of after 13.44 s: a real case, but \
                 not a half-open connection",
            ),
        }
    }
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether an injection is the usual one, which recordings leave out.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
pub(super) fn is_usual(injection: &Injection) -> bool {
    injection.is_faithful()
}

/// The scope that an injection has by its nature.
pub(super) fn scope(injection: Injection) -> Option<Scope> {
    match injection {
        Injection::Router => None,
        other if other.takes_the_host() => Some(Scope::Host),
        _ => Some(Scope::Flow),
    }
}

/// What stands beside an injection that goes with the router alone.
pub(super) fn check(fields: &Fields, fault: &Fault, findings: &mut Findings) {
    let injection = fault.injection;
    if injection.is_faithful() {
        return;
    }
    let place = |key: &str| fields.get(key).map_or(fields.at, |found| found.key_at);
    if fault.profile != "blackhole" {
        let problem = format!(
            "`{injection}` is a way to make a `blackhole`, and `{}` is made in a way of its own; remove it",
            fault.profile
        );
        findings.error(place("injection"), fields.name("injection"), problem);
    }
    if let (Some(written), Some(own)) = (fields.text("scope"), scope(injection))
        && written != own.name()
    {
        let problem = format!("with `injection = \"{injection}\"` it is `{}`; remove it", own.name());
        findings.error(place("scope"), fields.name("scope"), problem);
    }
    if fault.duration != Setting::None {
        let problem =
            format!("`{injection}` stands to the end of the trial: what is shown is how long it takes; remove it");
        findings.error(place("duration"), fields.name("duration"), problem);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{read, refuse_distorted};
    use super::*;

    fn text(fault: &str) -> String {
        format!(
            "# Who?\n[scenario]\nname = \"x\"\nhorizon = \"1h\"\n[fault]\nprofile = \"blackhole\"\n{fault}\n[[arm]]\nname = \
             \"a\"\nsubject = \"tcp-reader\"\nexpect = \"censored\"\n"
        )
    }

    #[test]
    fn names_are_those_of_the_files() {
        for injection in Injection::ALL {
            assert_eq!(Injection::named(injection.name()), Some(injection));
            assert_eq!(serde_json::to_value(injection).unwrap(), injection.name());
            assert_eq!(injection.distortion().is_none(), injection.is_faithful());
        }
        assert_eq!(Injection::named("client"), None);
    }

    #[test]
    fn a_distortion_is_refused_with_its_place_and_its_numbers() {
        let distorted = text("injection = \"client-egress\"");
        let fault = &read("x.toml", &distorted).unwrap().faults[0];
        assert_eq!((fault.injection, fault.scope), (Injection::ClientEgress, Scope::Flow));
        let refused = refuse_distorted("x.toml", &distorted).unwrap_err().to_string();
        assert!(refused.starts_with("x.toml:7:"), "{refused}");
        for part in ["[fault] injection", "2.8 s instead of 30.5 s", "--allow-distorted", "`router`"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        for faithful in ["", "injection = \"router\""] {
            assert!(refuse_distorted("x.toml", &text(faithful)).is_ok());
        }
    }

    #[test]
    fn what_can_not_be_is_refused_with_the_mend() {
        let error = |fault: &str| read("x.toml", &text(fault)).unwrap_err().to_string();
        assert!(error("injection = \"client\"").contains("`client`"));
        assert!(error("injection = \"client-link\"\nscope = \"flow\"").contains("it is `host`"));
        assert!(error("injection = \"client-output\"\nscope = \"host\"").contains("it is `flow`"));
        assert!(error("injection = \"reject-icmp\"\nduration = \"3s\"").contains("to the end of the trial"));
        let other = text("injection = \"client-output\"").replace("\"blackhole\"", "\"to-broker\"");
        assert!(read("x.toml", &other).unwrap_err().to_string().contains("a way to make a `blackhole`"));
    }
}

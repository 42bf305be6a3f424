//! How a trial can end.

use std::fmt;

/// The outcome of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Outcome {
    /// A watcher told the subject within the horizon.
    Detected,
    /// Nobody told the subject within the horizon.
    Censored,
    /// The fault was healed before any watcher, or there was none and no watcher fired.
    Survived,
    /// A watcher fired without the fault, or before it.
    FalseAlarm,
    /// The subject's process ended before any watcher.
    SubjectExited,
    /// Not a measurement; the reason says why.
    #[default]
    Void,
}

impl Outcome {
    /// All outcomes, in the order of the documentation.
    pub const ALL: [Self; 6] =
        [Self::Detected, Self::Censored, Self::Survived, Self::FalseAlarm, Self::SubjectExited, Self::Void];

    /// The name in files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Detected => "detected",
            Self::Censored => "censored",
            Self::Survived => "survived",
            Self::FalseAlarm => "false_alarm",
            Self::SubjectExited => "subject_exited",
            Self::Void => "void",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a trial is not a measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VoidReason {
    /// The harness was stopped before the trial's end.
    Interrupted,
    /// The connection under test was never established.
    NeverConnected(String),
    /// It was established but never consumed.
    NeverReady(String),
    /// The cut came before the subject was consuming.
    CutBeforeReady,
    /// It could not be put in force, taken back, or put in force again.
    FaultFailed(String),
    /// Nothing says that the fault was put in force.
    NoFault,
    /// The rule names another connection than the one under test.
    OtherConnection,
    /// The router's counts were not read while the fault was in force.
    CertificateMissing,
    /// Rules or elements were gone when the counts were read.
    RulesNotIntact,
    /// A RST left the router for the client, in a direction that is cut.
    RstReachedClient,
    /// A FIN left the router for the client, in a direction that is cut.
    FinReachedClient,
    /// An ICMP packet left the router for the client: the cut was not silent.
    IcmpReachedClient,
    /// Packets passed to the broker although that direction is cut.
    PassedToBroker,
    /// Packets passed to the client although that direction is cut.
    PassedToClient,
    /// Packets were dropped in a direction that is not cut.
    DroppedOutsideFault,
    /// Packets came in a direction that is cut and neither the fault dropped them nor did they pass: something else took
    /// them, and the cut is not what was measured.
    LostOtherwise,
    /// What the fault does beyond the path was not seen in force.
    ActNotInForce(String),
}

impl VoidReason {
    /// The code of every reason, in the order of the documentation.
    pub const CODES: [&'static str; 17] = [
        "interrupted",
        "never_connected",
        "never_ready",
        "cut_before_ready",
        "fault_failed",
        "no_fault",
        "other_connection",
        "certificate_missing",
        "rules_not_intact",
        "rst_reached_client",
        "fin_reached_client",
        "icmp_reached_client",
        "passed_to_broker",
        "passed_to_client",
        "dropped_outside_fault",
        "lost_otherwise",
        "act_not_in_force",
    ];

    /// The stable part of the reason, for counting.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Interrupted => "interrupted",
            Self::NeverConnected(_) => "never_connected",
            Self::NeverReady(_) => "never_ready",
            Self::CutBeforeReady => "cut_before_ready",
            Self::FaultFailed(_) => "fault_failed",
            Self::NoFault => "no_fault",
            Self::OtherConnection => "other_connection",
            Self::CertificateMissing => "certificate_missing",
            Self::RulesNotIntact => "rules_not_intact",
            Self::RstReachedClient => "rst_reached_client",
            Self::FinReachedClient => "fin_reached_client",
            Self::IcmpReachedClient => "icmp_reached_client",
            Self::PassedToBroker => "passed_to_broker",
            Self::PassedToClient => "passed_to_client",
            Self::DroppedOutsideFault => "dropped_outside_fault",
            Self::LostOtherwise => "lost_otherwise",
            Self::ActNotInForce(_) => "act_not_in_force",
        }
    }

    /// The words of whoever reported it, where there are any.
    #[must_use]
    pub fn detail(&self) -> &str {
        match self {
            Self::NeverConnected(text)
            | Self::NeverReady(text)
            | Self::FaultFailed(text)
            | Self::ActNotInForce(text) => text,
            _ => "",
        }
    }
}

impl fmt::Display for VoidReason {
    /// `code`, or `code: detail`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())?;
        if self.detail().is_empty() { Ok(()) } else { write!(f, ": {}", self.detail()) }
    }
}

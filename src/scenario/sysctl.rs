//! The sysctls that an arm may set: those of `net.ipv4` that move a timer of TCP and belong to the network namespace.

/// Name without `net.ipv4.`, least, most. Ranges as the kernel's own tables (`net/ipv4/sysctl_net_ipv4.c`) have them
/// where they have any, else what a timer can mean.
pub(super) const SYSCTLS: &[(&str, i64, i64)] = &[
    ("tcp_retries1", 1, 255),
    ("tcp_retries2", 0, 255),
    ("tcp_syn_retries", 1, 127),
    ("tcp_syn_linear_timeouts", 0, 127),
    ("tcp_orphan_retries", 0, 255),
    ("tcp_keepalive_time", 1, 32_767),
    ("tcp_keepalive_intvl", 1, 32_767),
    ("tcp_keepalive_probes", 1, 127),
    ("tcp_rto_max_ms", 1_000, 120_000),
    ("tcp_rto_min_us", 1, 120_000_000),
    ("tcp_fin_timeout", 1, 32_767),
    ("tcp_early_retrans", 0, 4),
    ("tcp_recovery", 0, 7),
    ("tcp_frto", 0, 2),
    ("tcp_thin_linear_timeouts", 0, 1),
    ("tcp_sack", 0, 1),
    ("tcp_timestamps", 0, 2),
];

/// The names.
pub(super) fn names() -> impl Iterator<Item = &'static str> + Clone {
    SYSCTLS.iter().map(|(name, _, _)| *name)
}

/// The range of one.
#[must_use]
pub fn range(name: &str) -> Option<(i64, i64)> {
    SYSCTLS.iter().find(|(known, _, _)| *known == name).map(|(_, min, max)| (*min, *max))
}

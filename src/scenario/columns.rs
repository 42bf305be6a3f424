//! The columns of `trials.csv` as gates see them.

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    /// Seconds: bounds are durations.
    Seconds,
    /// Plain numbers.
    Number,
    /// `true` or `false`.
    Flag,
    /// Any text.
    Text,
    /// One of a few words.
    Words(&'static [&'static str]),
}

const OUTCOMES: &[&str] = &["detected", "censored", "survived", "false_alarm", "subject_exited", "void"];

const WATCHERS: &[&str] = &[
    "read_timeout",
    "send_timeout",
    "connect_timeout",
    "resolver_timeout",
    "syn_retries",
    "amqp_heartbeat",
    "keepalive",
    "user_timeout",
    "retransmit",
    "persist",
    "reset",
    "fin",
    "unreachable",
    "broker_heartbeat",
    "consumer_timeout",
    "visibility_timeout",
    "health_check",
    "liveness_ttl",
    "pending_timeout",
    "processing_timeout",
    "queued_timeout",
    "task_heartbeat",
    "progress",
    "none",
];

/// Every column, in the order of the file.
pub(super) const COLUMNS: &[(&str, Column)] = &[
    ("trial", Column::Number),
    ("arm", Column::Text),
    ("subject", Column::Text),
    ("broker", Column::Text),
    ("lab", Column::Text),
    ("fault", Column::Text),
    ("scope", Column::Words(&["flow", "pair", "host", "all"])),
    ("conn_id", Column::Text),
    ("local", Column::Text),
    ("peer", Column::Text),
    ("phase_s", Column::Seconds),
    ("fault_before_s", Column::Seconds),
    ("fault_applied_s", Column::Seconds),
    ("fault_after_s", Column::Seconds),
    ("age_at_fault_s", Column::Seconds),
    ("first_drop_s", Column::Seconds),
    ("kernel_end_s", Column::Seconds),
    ("kernel_error", Column::Text),
    ("app_notice_s", Column::Seconds),
    ("broker_notice_s", Column::Seconds),
    ("detected_s", Column::Seconds),
    ("ttd_s", Column::Seconds),
    ("outcome", Column::Words(OUTCOMES)),
    ("watcher", Column::Words(WATCHERS)),
    ("error", Column::Text),
    ("predicted_lo_s", Column::Seconds),
    ("predicted_hi_s", Column::Seconds),
    ("agrees", Column::Flag),
    ("recovered_s", Column::Seconds),
    ("ttr_s", Column::Seconds),
    ("queued_s", Column::Seconds),
    ("resolved_s", Column::Seconds),
    ("stuck_s", Column::Seconds),
    ("resolved_by", Column::Text),
    ("horizon_s", Column::Seconds),
    ("offered_to_broker", Column::Number),
    ("offered_to_client", Column::Number),
    ("dropped_to_broker", Column::Number),
    ("dropped_to_client", Column::Number),
    ("rst_seen", Column::Flag),
    ("fin_seen", Column::Flag),
    ("icmp_seen", Column::Flag),
    ("false_alarm", Column::Flag),
    ("void_reason", Column::Text),
    ("predicted_watcher", Column::Text),
    ("watcher_agrees", Column::Flag),
    ("healthy_s", Column::Seconds),
    ("reacted_role", Column::Text),
    ("client_exited_s", Column::Seconds),
    ("messages_published", Column::Number),
    ("messages_unresolved", Column::Number),
    ("messages_duplicated", Column::Number),
    ("messages_overtaken", Column::Number),
    ("messages_missing", Column::Number),
    ("lost_n", Column::Number),
    ("duplicated_n", Column::Number),
    ("duplicated_effects_n", Column::Number),
    ("falsely_killed_n", Column::Number),
    ("zombies_n", Column::Number),
    ("out_of_order_n", Column::Number),
    ("reaped_twice_n", Column::Number),
    ("contradictions_n", Column::Number),
    ("refused_n", Column::Number),
    ("misrouted_n", Column::Number),
    ("retries_n", Column::Number),
    ("wait_p50_s", Column::Seconds),
    ("wait_max_s", Column::Seconds),
    ("peak_load_n", Column::Number),
    ("compensated_n", Column::Number),
    ("resolved_after_s", Column::Seconds),
    ("broker_ttd_s", Column::Seconds),
    ("redelivered_s", Column::Seconds),
    ("redelivery_s", Column::Seconds),
    ("ghosts_n", Column::Number),
    ("user_stuck_s", Column::Seconds),
    ("reissued_n", Column::Number),
    ("second_tasks_n", Column::Number),
    ("beats_per_s", Column::Number),
    ("beats_failed_n", Column::Number),
    ("beats_slowest_s", Column::Seconds),
    ("sweeps_n", Column::Number),
    ("sweeps_gap_s", Column::Seconds),
];

/// The metric that is no column of its own: the share of `true` in the column `agrees`, which takes no measure.
pub(super) const AGREEMENT: &str = "agreement";

/// The metric that is the race against the reaper: it takes no measure either.
pub(super) const BEFORE_REAPER: &str = "detected_before_reaper";

/// Columns of which a mean honours censoring.
pub(super) const TIMES: [&str; 3] = ["ttd_s", "ttr_s", "stuck_s"];

/// The names.
pub(super) fn names() -> impl Iterator<Item = &'static str> + Clone {
    COLUMNS.iter().map(|(name, _)| *name).chain([AGREEMENT, BEFORE_REAPER])
}

/// What the column of this name holds.
pub(super) fn find(name: &str) -> Option<Column> {
    let name = match name {
        AGREEMENT | BEFORE_REAPER => "agrees",
        name => name,
    };
    COLUMNS.iter().find(|(known, _)| *known == name).map(|(_, column)| *column)
}

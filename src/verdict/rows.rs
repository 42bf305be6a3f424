//! The rows of `trials.csv`, `connections.csv` and `messages.csv`: columns are fields, in order.

use super::{Outcome, VoidReason};
use crate::units::{Offset, TrialId};
use std::net::SocketAddrV4;

/// A length of time, exact to the nanosecond, printed as seconds with microseconds like an [`Offset`].
pub type Span = Offset;

/// How a value stands in a cell. Empty is "did not happen" or "not known", never zero.
pub trait Cell {
    /// The text.
    fn cell(&self) -> String;
}

macro_rules! cell_by_display {
    ($($ty:ty),*) => { $(impl Cell for $ty { fn cell(&self) -> String { self.to_string() } })* };
}
cell_by_display!(String, &'static str, bool, u32, u64, Offset, Outcome, VoidReason, SocketAddrV4);

impl Cell for f64 {
    fn cell(&self) -> String {
        format!("{self:.6}")
    }
}

impl<T: Cell> Cell for Option<T> {
    fn cell(&self) -> String {
        self.as_ref().map(Cell::cell).unwrap_or_default()
    }
}

macro_rules! row {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $ty:ty,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct $name { $($(#[$field_meta])* pub $field: $ty,)* }

        impl $name {
            /// The columns, in order. Columns may be appended, never renamed.
            pub const COLUMNS: &'static [&'static str] = &[$(stringify!($field)),*];

            /// The cells, in the order of the columns.
            #[must_use]
            pub fn cells(&self) -> Vec<String> {
                vec![$(self.$field.cell()),*]
            }

            /// The cell of one column; `None` where there is no such column.
            #[must_use]
            pub fn cell(&self, column: &str) -> Option<String> {
                match column {
                    $(stringify!($field) => Some(self.$field.cell()),)*
                    _ => None,
                }
            }
        }
    };
}

row! {
    /// One trial: a row of `trials.csv`. Times are seconds from the start of the run.
    TrialRow {
        /// Its number in plan order.
        trial: TrialId,
        /// The arm's name.
        arm: String,
        /// The subject's kind.
        subject: String,
        /// The broker's kind.
        broker: String,
        /// Where it ran; empty until [`super::Judged::in_lab`] says so.
        lab: String,
        /// The fault profile.
        fault: String,
        /// `flow` or `host`.
        scope: String,
        /// The connection under test, as in `connections.csv`.
        conn_id: String,
        /// The client's end.
        local: Option<SocketAddrV4>,
        /// The broker's end.
        peer: Option<SocketAddrV4>,
        /// The drawn part of the time between "settled" and the cut.
        phase_s: Span,
        /// Clock reading before the rule was sent.
        fault_before_s: Option<Offset>,
        /// The cut: the rule as acknowledged, equal to `fault_after_s`.
        fault_applied_s: Option<Offset>,
        /// Clock reading after the kernel's acknowledgement.
        fault_after_s: Option<Offset>,
        /// Age of the last segment received, at the cut.
        age_at_fault_s: Option<f64>,
        /// The first look at which packets had been dropped.
        first_drop_s: Option<Offset>,
        /// The kernel took the connection out of ESTABLISHED.
        kernel_end_s: Option<Offset>,
        /// The error that the kernel stored; `none` for none.
        kernel_error: String,
        /// The first notice of the subject about this connection, whatever it means.
        app_notice_s: Option<Offset>,
        /// The broker (or the embedded peer) gave the connection up.
        broker_notice_s: Option<Offset>,
        /// The first moment at which the subject could act; only for the outcome `detected`.
        detected_s: Option<Offset>,
        /// Time to detect: `detected_s` − `fault_applied_s`.
        ttd_s: Option<Span>,
        /// The outcome.
        outcome: Outcome,
        /// Who fired; `none` for nobody, empty for "not known".
        watcher: String,
        /// The subject's own words, or the error's name.
        error: String,
        /// Earliest time to detect by the model.
        predicted_lo_s: Option<f64>,
        /// Latest time to detect by the model.
        predicted_hi_s: Option<f64>,
        /// Whether measurement and model agree, within the bracket of the cut.
        agrees: Option<bool>,
        /// The subject consumed again, on a later connection.
        recovered_s: Option<Offset>,
        /// Time to recover: `recovered_s` − `fault_applied_s`.
        ttr_s: Option<Span>,
        /// The oldest message unresolved at the cut or published after it: when it was published.
        queued_s: Option<Offset>,
        /// When that message was resolved.
        resolved_s: Option<Offset>,
        /// `resolved_s` − `queued_s`.
        stuck_s: Option<Span>,
        /// Who resolved it.
        resolved_by: String,
        /// How long the trial was to be watched after its cut.
        horizon_s: Span,
        /// Packets offered to the router, client to broker, since the cut.
        offered_to_broker: Option<u64>,
        /// Packets offered to the router, broker to client.
        offered_to_client: Option<u64>,
        /// Packets dropped, client to broker.
        dropped_to_broker: Option<u64>,
        /// Packets dropped, broker to client.
        dropped_to_client: Option<u64>,
        /// RST segments that reached the client.
        rst_seen: Option<u64>,
        /// FIN segments that reached the client.
        fin_seen: Option<u64>,
        /// ICMP packets that reached the client.
        icmp_seen: Option<u64>,
        /// Whether a watcher fired without the fault or before it.
        false_alarm: bool,
        /// Why the trial is void.
        void_reason: Option<VoidReason>,
        /// Packets that passed to the broker since the cut.
        passed_to_broker: Option<u64>,
        /// Packets that passed to the client since the cut.
        passed_to_client: Option<u64>,
        /// The last look at which nothing had been dropped yet.
        first_drop_not_before_s: Option<Offset>,
        /// The last look that still saw the connection, where `kernel_end_s` comes from polling.
        kernel_end_not_before_s: Option<Offset>,
        /// `tracepoint` or `sock_diag`.
        kernel_end_by: String,
        /// The fault was taken back.
        healed_s: Option<Offset>,
        /// The end of the trial's watch.
        ended_s: Option<Offset>,
        /// Connections and connection attempts, the one under test included.
        attempts: u64,
        /// Who may be the first to notice by the model, the likeliest first, with `|` between; `none` is nobody.
        predicted_watcher: String,
        /// Whether the watcher is one of these; empty where either is not known.
        watcher_agrees: Option<bool>,
        /// Who gave the connection up at the other end, by the broker's or the peer's own words; empty for "not known".
        broker_watcher: String,
        /// How long the connection under test was healthy under watch: from consuming to the cut, the alarm or the end of a
        /// control. What false alarms are counted against.
        healthy_s: Option<Span>,
        /// The first connection that the client gave up after the cut, whichever it was: when.
        reacted_s: Option<Offset>,
        /// Which one, as in `connections.csv`.
        reacted_on: String,
        /// What it was for.
        reacted_role: String,
        /// The client's process ended by itself.
        client_exited_s: Option<Offset>,
        /// How it ended.
        client_exit: String,
        /// User and system time of a client that is a program of somebody else's, in seconds, up to its end.
        client_cpu_s: Option<f64>,
        /// The sum of its processes' peaks of resident memory, in MiB.
        client_rss_mib: Option<f64>,
        /// Messages that were handed to the broker.
        messages_published: Option<u64>,
        /// Messages that were not resolved by the end of the watch.
        messages_unresolved: Option<u64>,
        /// Messages that reached a consumer more than once.
        messages_duplicated: Option<u64>,
        /// Messages that a later one overtook: they waited with a connection that was dead, or are gone.
        messages_overtaken: Option<u64>,
        /// Those of them that were not resolved by the end of the watch: lost, or still with a dead connection.
        messages_missing: Option<u64>,
        /// Messages that nobody has any more and whose work was never done; empty without messages.
        lost_n: Option<u64>,
        /// Messages that reached consumers more than once.
        duplicated_n: Option<u64>,
        /// Messages whose work was done more than once.
        duplicated_effects_n: Option<u64>,
        /// Messages that a reaper failed while a worker was at them that went on to finish.
        falsely_killed_n: Option<u64>,
        /// Messages whose work was done and of which somebody who should know was not told.
        zombies_n: Option<u64>,
        /// Messages that came after one that was published later, where order is promised.
        out_of_order_n: Option<u64>,
        /// Messages that reapers failed more than once.
        reaped_twice_n: Option<u64>,
        /// Messages whose record contradicts itself.
        contradictions_n: Option<u64>,
        /// Messages that their consumers rejected and that are kept among the dead letters.
        refused_n: Option<u64>,
        /// Messages that came out of a queue that their routes do not lead to.
        misrouted_n: Option<u64>,
        /// Times that failed work was handed to the broker again.
        retries_n: Option<u64>,
        /// From the publication to the beginning of the work: the median over the messages of the first `[[job]]`, or over
        /// all where there is none. One that was not begun has waited until the end of the watch.
        wait_p50_s: Option<Span>,
        /// The longest of them.
        wait_max_s: Option<Span>,
        /// Of the trial's reconnects and retried tasks, the one in whose following second most of those of all the arm's
        /// trials under the same fault reached the broker: how many they were.
        peak_load_n: Option<u64>,
        /// Messages of which an effect was taken back at the provider.
        compensated_n: Option<u64>,
        /// From the cut to the resolution of the oldest message: `resolved_s` − `fault_applied_s`.
        resolved_after_s: Option<Span>,
        /// Time to detect at the other end: `broker_notice_s` − `fault_applied_s`; empty where the broker gave the connection
        /// up before the cut, or not at all.
        broker_ttd_s: Option<Span>,
        /// The broker first gave somebody else a message that it had handed to the cut connection, as far as consumers tell.
        redelivered_s: Option<Offset>,
        /// `redelivered_s` − `fault_applied_s`.
        redelivery_s: Option<Span>,
        /// Prefetch ghosts: messages that were given again after the cut, or that nobody had resolved at the end although a
        /// later one was; empty where no consumer tells what is given again.
        ghosts_n: Option<u64>,
        /// For how long the user of the oldest message was stuck: from its publication to the poll that saw the end of it, or
        /// of what was issued in its place.
        user_stuck_s: Option<Span>,
        /// How often users asked for a message's work once more.
        reissued_n: Option<u64>,
        /// Messages that were done beside a second one that their users had asked for.
        second_tasks_n: Option<u64>,
        /// Signs of life that the worker's store took, a second; empty without any.
        beats_per_s: Option<f64>,
        /// Signs of life that it did not take.
        beats_failed_n: Option<u64>,
        /// The slowest of those that it took, in seconds.
        beats_slowest_s: Option<f64>,
        /// Sweeps that this trial's worker carried out; empty where its messages are no sweeps.
        sweeps_n: Option<u64>,
        /// The longest time without a sweep of its, from the first to the end of the watch.
        sweeps_gap_s: Option<Span>,
    }
}

row! {
    /// One connection or connection attempt: a row of `connections.csv`.
    ConnectionRow {
        /// The trial.
        trial: TrialId,
        /// `<trial>.<attempt>`; attempt 0 is the connection under test.
        conn_id: String,
        /// What it is for.
        role: String,
        /// The client's end; empty for an attempt that never connected.
        local: Option<SocketAddrV4>,
        /// The broker's end.
        peer: Option<SocketAddrV4>,
        /// Whether the fault lay on it while it was open or being opened.
        cut: bool,
        /// The handshake was done.
        opened_s: Option<Offset>,
        /// It left ESTABLISHED in the client's kernel.
        kernel_end_s: Option<Offset>,
        /// The subject noticed its end (or the attempt's failure).
        app_end_s: Option<Offset>,
        /// The broker gave it up.
        broker_end_s: Option<Offset>,
        /// Who ended it, by the earliest evidence; empty for "not known" or still open.
        watcher: String,
        /// The arm's name.
        arm: String,
        /// When the attempt began.
        connecting_s: Option<Offset>,
        /// When the subject consumed on it.
        ready_s: Option<Offset>,
        /// The words or the error's name.
        error: String,
        /// Whose word the role is: `traffic`, `rabbitmqctl`, `client_list`; empty where nobody had to say.
        role_from: String,
    }
}

row! {
    /// One numbered message: a row of `messages.csv`, the ledger.
    MessageRow {
        /// The trial.
        trial: TrialId,
        /// Its number within the trial.
        id: u64,
        /// Handed to the broker (by a bare TCP writer: to its kernel).
        published_s: Option<Offset>,
        /// Confirmed by the broker.
        confirmed_s: Option<Offset>,
        /// How often it reached a consumer (of a bare TCP writer: its peer).
        delivered_n: u64,
        /// The consumer began its work.
        started_s: Option<Offset>,
        /// External effects.
        effects: Option<u64>,
        /// Acknowledged, by the consumer's own word.
        acked_s: Option<Offset>,
        /// Failed by a reaper.
        reaped_s: Option<Offset>,
        /// Resolved: acknowledged (delivered, where there is no acknowledgement), or failed by a reaper.
        resolved_s: Option<Offset>,
        /// The first delivery.
        delivered_s: Option<Offset>,
        /// `resolved_s` − `published_s`.
        latency_s: Option<Span>,
        /// How often the broker marked a delivery as repeated.
        redelivered_n: u64,
        /// The rule by which a reaper failed it; empty where none did.
        reaped_by: String,
        /// The work was done, by the task store.
        finished_s: Option<Offset>,
        /// How often a reaper had it queued again.
        requeued_n: u64,
        /// The connection over which it was resolved; empty where it was not, or by a reaper.
        resolved_conn_id: String,
        /// A second consumer took it.
        elsewhere_s: Option<Offset>,
        /// A consumer first got it with the broker's mark that another one had had it.
        given_again_s: Option<Offset>,
        /// What became of it: `done`, `failed`, `lost`, `waiting`, `refused` or `unconfirmed`.
        fate: String,
        /// What went wrong with it, with `|` between.
        anomalies: String,
        /// It reached the queue of dead letters.
        dead_lettered_s: Option<Offset>,
        /// How often its work failed and it was handed to the broker again.
        retried_n: u64,
        /// How many of its effects were taken back at the provider; empty for none.
        compensated: Option<u64>,
        /// The message whose work was asked for once more; empty where it is a request of its own.
        reissue_of: Option<u64>,
        /// A poll of its user saw its end.
        seen_s: Option<Offset>,
        /// From its publication to the poll that saw the end of it, or of what was issued in its place.
        user_stuck_s: Option<Span>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The columns of the contract, word for word. Later columns may follow, these may not move.
    const CONTRACT: &str = "trial, arm, subject, broker, lab, fault, scope, conn_id, local, peer, phase_s, \
        fault_before_s, fault_applied_s, fault_after_s, age_at_fault_s, first_drop_s, kernel_end_s, kernel_error, \
        app_notice_s, broker_notice_s, detected_s, ttd_s, outcome, watcher, error, predicted_lo_s, predicted_hi_s, \
        agrees, recovered_s, ttr_s, queued_s, resolved_s, stuck_s, resolved_by, horizon_s, offered_to_broker, \
        offered_to_client, dropped_to_broker, dropped_to_client, rst_seen, fin_seen, icmp_seen, false_alarm, \
        void_reason";

    #[test]
    fn the_columns_of_the_contract_come_first_and_in_order() {
        let contract: Vec<&str> = CONTRACT.split(", ").collect();
        assert_eq!(&TrialRow::COLUMNS[..contract.len()], contract.as_slice());
    }

    #[test]
    fn what_did_not_happen_is_empty_and_what_is_zero_is_zero() {
        let row = TrialRow { dropped_to_broker: Some(0), detected_s: Some(Offset(0)), ..TrialRow::default() };
        assert_eq!(row.cell("dropped_to_broker").as_deref(), Some("0"));
        assert_eq!(row.cell("detected_s").as_deref(), Some("0.000000"));
        assert_eq!(row.cell("ttd_s").as_deref(), Some(""));
        assert_eq!(row.cell("no_such_column"), None);
        assert_eq!(row.cells().len(), TrialRow::COLUMNS.len());
    }
}

//! A user who waits for a task: what a poll comes to. Pure: states and times in, decisions out.

use super::{Status, Task};
use crate::scenario::{PatienceFrom, User};
use crate::units::Offset;

/// The rule by which a predecessor is failed that is still PENDING when its user asks for it once more.
pub const LAZY_CHECK: &str = "lazy_check";

/// What a poll comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// It goes on.
    Waits,
    /// The user sees its end: `done` or `failed`.
    Over(&'static str),
    /// The user's patience is at its end, and asks for the task once more.
    AsksAgain {
        /// Whether the predecessor is cleaned up first, whatever its age: nobody has begun it. One that is PROCESSING is left
        /// alone: beside a healthy slow task the new one is a second.
        cleans: bool,
    },
}

/// One task under its user's eyes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vigil {
    since: Offset,
    left: u32,
    next: Offset,
}

impl Vigil {
    /// A vigil that begins as the task is published, with so many re-issues left.
    #[must_use]
    pub fn new(user: &User, since: Offset, left: u32) -> Self {
        Self { since, left, next: since + user.poll }
    }

    /// When the next poll is due.
    #[must_use]
    pub fn due(&self) -> Offset {
        self.next
    }

    /// How many re-issues are left.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.left
    }

    /// A poll at `now` that found the task like this; `None`: it could not be asked for. The next one is due a period after
    /// it was due, or after now where that has passed.
    pub fn poll(&mut self, user: &User, now: Offset, task: Option<&Task>) -> Look {
        self.next = self.next + user.poll;
        if self.next < now {
            self.next = now + user.poll;
        }
        let Some(task) = task else { return Look::Waits };
        if task.is_final() {
            return Look::Over(if task.status == Status::Done { "done" } else { "failed" });
        }
        let patience = user.reissue_after.filter(|_| self.left > 0);
        if patience.is_some_and(|patience| now.since(self.counts_from(user, now)) >= patience) {
            self.left -= 1;
            return Look::AsksAgain { cleans: task.status == Status::Pending };
        }
        Look::Waits
    }

    /// From when on the user's patience counts.
    fn counts_from(&self, user: &User, now: Offset) -> Offset {
        let reopens = user.reopens.filter(|_| user.from == PatienceFrom::Dialog);
        reopens.map_or(self.since, |every| {
            let times = now.since(self.since).as_nanos() / every.as_nanos().max(1);
            self.since + every.saturating_mul(u32::try_from(times).unwrap_or(u32::MAX))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::TaskId;
    use super::*;
    use std::time::Duration;

    fn user(from: PatienceFrom, reopens: Option<u64>) -> User {
        let secs = Duration::from_secs;
        User { poll: secs(5), reissue_after: Some(secs(180)), from, reopens: reopens.map(secs), reissues: 1 }
    }

    fn task(status: Status) -> Task {
        Task {
            id: TaskId { trial: 1, message: 0 },
            status,
            worker_id: None,
            error_code: None,
            queued_at: Offset::ZERO,
            updated_at: Offset::ZERO,
            attempts: 1,
            heartbeat_at: None,
            tries: 1,
            retry_at: None,
        }
    }

    /// When the user asks again within 20 minutes.
    fn asks(user: &User, status: Status) -> Option<(f64, bool)> {
        let mut vigil = Vigil::new(user, Offset::ZERO, user.reissues);
        (0..240).find_map(|_| {
            let due = vigil.due();
            match vigil.poll(user, due, Some(&task(status))) {
                Look::AsksAgain { cleans } => Some((due.as_secs(), cleans)),
                _ => None,
            }
        })
    }

    #[test]
    fn three_minutes_of_an_open_dialog_and_the_server_counts_through() {
        assert_eq!(asks(&user(PatienceFrom::Dialog, None), Status::Pending), Some((180.0, true)));
        assert_eq!(
            asks(&user(PatienceFrom::Dialog, Some(60)), Status::Pending),
            None,
            "its timer starts again each time"
        );
        assert_eq!(asks(&user(PatienceFrom::PendingSince, Some(60)), Status::Pending), Some((180.0, true)));
        assert_eq!(asks(&user(PatienceFrom::Dialog, Some(240)), Status::Pending), Some((180.0, true)));
    }

    #[test]
    fn a_healthy_slow_task_gets_a_second_beside_it() {
        assert_eq!(asks(&user(PatienceFrom::PendingSince, None), Status::Processing), Some((180.0, false)));
    }

    #[test]
    fn the_end_is_seen_by_the_next_poll_and_a_retry_is_no_end() {
        let user = user(PatienceFrom::Dialog, None);
        let mut vigil = Vigil::new(&user, Offset::ZERO, 1);
        let again = Task { retry_at: Some(Offset::from_secs(300.0)), ..task(Status::Failed) };
        assert_eq!(vigil.poll(&user, Offset::from_secs(5.0), Some(&again)), Look::Waits);
        assert_eq!(vigil.poll(&user, Offset::from_secs(10.0), None), Look::Waits, "it could not be asked");
        assert_eq!(vigil.due(), Offset::from_secs(15.0));
        assert_eq!(vigil.poll(&user, Offset::from_secs(47.0), Some(&task(Status::Failed))), Look::Over("failed"));
        assert_eq!(vigil.due(), Offset::from_secs(52.0), "missed polls are not made up for");
    }
}

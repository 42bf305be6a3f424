//! Deliberately wrong models: a conformance check that accepts one of them proves nothing.

use super::conditions::Case;
use crate::units::Setting;
use std::time::Duration;

/// A way of being wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Perturbation {
    /// Keepalive starts a second late.
    KeepaliveIdleLate,
    /// `tcp_retries2` counts one more.
    OneRetryMore,
    /// `tcp_retries2` counts one less.
    OneRetryLess,
    /// `TCP_USER_TIMEOUT` does nothing.
    UserTimeoutIgnored,
}

impl Perturbation {
    /// Every perturbation.
    pub const ALL: &'static [Self] =
        &[Self::KeepaliveIdleLate, Self::OneRetryMore, Self::OneRetryLess, Self::UserTimeoutIgnored];

    /// The wrong case.
    #[must_use]
    pub fn apply(self, case: &Case) -> Case {
        let mut case = case.clone();
        match self {
            Self::KeepaliveIdleLate => {
                for k in [&mut case.settings.keepalive, &mut case.settings.peer.keepalive].into_iter().flatten() {
                    k.idle += Duration::from_secs(1);
                }
            }
            Self::OneRetryMore => {
                case.client.tcp_retries2 += 1;
                case.broker.tcp_retries2 += 1;
            }
            Self::OneRetryLess => {
                case.client.tcp_retries2 = case.client.tcp_retries2.saturating_sub(1);
                case.broker.tcp_retries2 = case.broker.tcp_retries2.saturating_sub(1);
            }
            Self::UserTimeoutIgnored => {
                case.settings.tcp_user_timeout = Setting::None;
                case.settings.peer.tcp_user_timeout = Setting::None;
            }
        }
        case
    }
}

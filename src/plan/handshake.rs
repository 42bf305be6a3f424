//! What differs between kernels before a connection is there: which sysctls exist, and how long a SYN goes unanswered.

use super::model::{LeftOut, Plan, Window};
use super::predict::{Forecast, Machine, REACTION};
use crate::scenario::{Act, Arm, BrokerKind, Fault, Scenario, Settings, SubjectKind};
use crate::timers::kernel::blocking::poll_timeout;
use crate::timers::kernel::syn::SynTimer;
use crate::timers::{KernelVersion, Watcher, sysctl_since};
use std::time::Duration;

/// glibc's resolver with one name server: two tries of 5 s.
const RESOLVER: Duration = Duration::from_secs(10);
/// What it takes beside that: it asks for two types, and waits in whole milliseconds each time.
const RESOLVER_LATE: Duration = Duration::from_millis(100);

/// Takes the arms out of a scenario whose sysctls this kernel has not, with the gates that look at them, and says why.
/// An unknown kernel is taken to have them all.
pub fn leave_out(scenario: &mut Scenario, kernel: Option<KernelVersion>) -> Vec<LeftOut> {
    let Some(kernel) = kernel else { return Vec::new() };
    let mut left_out = Vec::new();
    scenario.arms.retain(|arm| {
        let newer = arm.settings.sysctl.keys().find_map(|name| Some((name, sysctl_since(name)?)));
        match newer.filter(|(_, since)| kernel < *since) {
            Some((name, since)) => {
                let why = format!("sysctl {name} is there since Linux {since}, and this is {kernel}");
                left_out.push(LeftOut { arm: arm.name.clone(), why });
                false
            }
            None => true,
        }
    });
    scenario.gates.retain(|gate| !left_out.iter().any(|left| gate.arm.as_ref() == Some(&left.arm)));
    left_out
}

/// How long a connection attempt into the cut takes, for each arm; empty where no fault of the plan meets any.
///
/// Bare TCP only: the broker's clients wait for more than the kernel's handshake.
pub(super) fn unanswered(plan: &Plan, machine: &Machine) -> Vec<Option<Window>> {
    let scenario = &plan.scenario;
    if !scenario.faults.iter().any(|fault| !fault.scope.lets_reconnect() && !fault.is_control()) {
        return Vec::new();
    }
    scenario.arms.iter().map(|arm| attempt(arm, machine)).collect()
}

/// How long a client waits for a server that accepts its connection and never says a word: its connect timeout where it
/// has one that reaches that far, counted from the TCP handshake; else for ever, because the server's kernel acknowledges
/// what it sends, and answers keepalive.
///
/// # Errors
/// Why the model does not know.
pub(super) fn unsaid(arm: &Arm, fault: &Fault) -> Result<Forecast, String> {
    let settings = &arm.settings;
    if fault.act == Some(Act::WithholdAnswer) {
        return unanswered_name(settings, fault.duration.get());
    }
    match (settings.subject, settings.connect_timeout.get()) {
        (SubjectKind::Lapin | SubjectKind::AmqpBlocking, Some(limit)) => {
            let (lo_s, hi_s) = (Some(limit.as_secs_f64() - 0.001), Some((limit + REACTION).as_secs_f64()));
            Ok(Forecast { window: Window { lo_s, hi_s }, watchers: vec![Watcher::ConnectTimeout] })
        }
        (SubjectKind::Lapin | SubjectKind::AmqpBlocking | SubjectKind::RedisBlocking, None) => {
            Ok(Forecast { window: Window { lo_s: None, hi_s: None }, watchers: vec![Watcher::None] })
        }
        (SubjectKind::RedisBlocking, Some(_)) => {
            Err("its library waits for the connect timeout once for each of its set-up commands".to_string())
        }
        (subject, _) => Err(format!("the model knows no whole {subject} worker: how long it waits is its own matter")),
    }
}

/// How long a client waits for the address of its broker. lapin's connect timeout includes that; py-amqp's begins after it,
/// and the redis client of Rust looks at its own only once it has the address. Else the system's resolver gives up: glibc
/// after two tries of 5 s (`resolv.conf(5)`, `timeout` and `attempts`).
fn unanswered_name(settings: &Settings, answer: Option<Duration>) -> Result<Forecast, String> {
    let limit = settings.connect_timeout.get().filter(|limit| *limit < RESOLVER);
    let window = |at: Duration, watchers| {
        let (lo_s, hi_s) = (Some(at.as_secs_f64() - 0.001), Some((at + REACTION + RESOLVER_LATE).as_secs_f64()));
        Ok(Forecast { window: Window { lo_s, hi_s }, watchers })
    };
    match (settings.subject, limit, answer.filter(|late| *late < RESOLVER)) {
        (SubjectKind::Lapin, Some(limit), late) if late.is_none_or(|late| late > limit) => {
            window(limit, vec![Watcher::ConnectTimeout])
        }
        (SubjectKind::RedisBlocking, Some(limit), Some(late)) if late > limit => {
            window(late, vec![Watcher::ConnectTimeout])
        }
        (_, _, Some(_)) => Err("the answer comes before anybody gives up".to_string()),
        // The model has no name for the resolver.
        (_, _, None) => window(RESOLVER, Vec::new()),
    }
}

pub(super) fn attempt(arm: &Arm, machine: &Machine) -> Option<Window> {
    let settings = &arm.settings;
    // A lost SYN is repeated all the same, so the link changes nothing of an attempt that is never answered.
    if settings.subject.broker() != BrokerKind::None {
        return None;
    }
    let env = machine.environment(&settings.sysctl, Duration::ZERO);
    let kernel = SynTimer::new(&env, None, settings.tcp_user_timeout.get()).window().span;
    let (mut lo, mut hi) = (kernel.lo_s, kernel.hi_s);
    if let Some(own) = settings.connect_timeout.get() {
        // The blocking clients poll for what is left of it in whole milliseconds, rounded down.
        let own = poll_timeout(own);
        (lo, hi) = (lo.min(own.lo_s - 0.001), hi.min(own.hi_s));
    }
    Some(Window { lo_s: Some(lo), hi_s: Some(hi + REACTION.as_secs_f64()) })
}

#[cfg(test)]
mod tests {
    use super::super::{Overrides, build, predict};
    use super::*;
    use crate::scenario::read;

    fn scenario(arm: &str, scope: &str) -> Scenario {
        let text = format!(
            "# Who?\n[scenario]\nname = \"x\"\nhorizon = \"1h\"\ntrials = 1\n[load]\nrate = \"4/s\"\n\
             [fault]\nprofile = \"blackhole\"\nscope = \"{scope}\"\n[[arm]]\nname = \"a\"\nsubject = \"tcp-reader\"\n\
             read_timeout = \"1s\"\n{arm}\n[[gate]]\narm = \"a\"\nmetric = \"agreement\"\nmin = \"97%\"\n"
        );
        read("x.toml", &text).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }

    fn window(arm: &str, kernel: &str) -> (f64, f64) {
        let mut plan = build(scenario(arm, "host"), &Overrides::default()).unwrap();
        predict(&mut plan, &Machine { hz: Some(250), kernel: kernel.parse().ok(), ..Machine::default() });
        let window = plan.unanswered[0].unwrap();
        (window.lo_s.unwrap(), window.hi_s.unwrap())
    }

    #[test]
    fn the_kernel_decides_how_long_a_syn_goes_unanswered() {
        let (lo, hi) = window("connect_timeout = \"none\"", "6.1");
        assert!((127.0..131.0).contains(&lo) && hi < 131.6, "{lo} {hi}");
        let (lo, hi) = window("connect_timeout = \"none\"", "6.18");
        assert!((131.0..=134.0).contains(&lo) && hi > 134.0, "{lo} {hi}");
        let (lo, hi) = window("connect_timeout = \"2s\"", "6.1");
        assert!((1.999..2.0).contains(&lo) && hi < 2.2, "{lo} {hi}");
    }

    #[test]
    fn a_fault_of_one_flow_lets_attempts_through() {
        let mut plan = build(scenario("", "flow"), &Overrides::default()).unwrap();
        predict(&mut plan, &Machine::default());
        assert!(plan.unanswered.is_empty());
    }

    #[test]
    fn an_arm_whose_sysctl_is_newer_than_the_kernel_is_left_out_with_its_gate() {
        let mut old = scenario("sysctl.tcp_rto_max_ms = 1000", "flow");
        let left = leave_out(&mut old, "6.1".parse().ok());
        assert!(old.arms.is_empty() && old.gates.is_empty());
        assert_eq!(left[0].why, "sysctl tcp_rto_max_ms is there since Linux 6.15, and this is 6.1");
        let mut new = scenario("sysctl.tcp_rto_max_ms = 1000", "flow");
        assert!(leave_out(&mut new, "6.18".parse().ok()).is_empty() && new.arms.len() == 1);
        assert!(leave_out(&mut new, None).is_empty());
    }
}

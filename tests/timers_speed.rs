//! The model's cost: a table for a person and a matrix for a plan.
//!
//! Optimised, one prediction takes well under a millisecond and a thousand different settings under a second; the
//! limits here are looser where the build is not optimised, and only guard against a change of order.

use halfopen::timers::{
    BrokerKind, Case, Conditions, Environment, Fault, FaultKind, Keepalive, Settings, State, Subject, predict,
};
use halfopen::units::Setting;
use std::hint::black_box;
use std::time::Duration;

#[test]
fn a_thousand_settings_are_a_matter_of_a_second() {
    let kinds = [FaultKind::Both, FaultKind::ToBroker, FaultKind::ToClient, FaultKind::FrozenPeer];
    let states = [State::Idle, State::InFlight, State::ZeroWindow];
    let cases: Vec<Case> = (0..1000u32)
        .map(|n| {
            let subject = Subject::ALL[n as usize % Subject::ALL.len()];
            let mut settings = Settings::stock(subject, BrokerKind::ALL[n as usize % 3]);
            settings.keepalive = Some(Keepalive::from_secs(u64::from(n % 70) + 1, u64::from(n % 20) + 1, n % 9 + 1));
            if n % 2 == 0 {
                settings.tcp_user_timeout = Setting::After(Duration::from_millis(u64::from(n) * 100 + 100));
            }
            let env = Environment { tcp_retries2: n % 15 + 1, ..Environment::default() };
            let conditions = Conditions { state: states[n as usize % 3], ..Conditions::default() };
            Case::new(settings, env, Fault::of(kinds[n as usize % 4]), conditions)
        })
        .collect();
    #[expect(clippy::disallowed_methods, reason = "the cost of the model is what this test measures")]
    let started = std::time::Instant::now();
    for case in &cases {
        black_box(predict(black_box(case)));
    }
    let took = started.elapsed();
    println!("{} predictions in {took:?}", cases.len());
    let limit = if cfg!(debug_assertions) { 30.0 } else { 1.0 };
    assert!(took.as_secs_f64() < limit, "{took:?}");
}

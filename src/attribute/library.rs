//! The timers that stacks have by default, as data: `timers.csv`, each with its source.

use super::timer::Timer;

/// All timers of the library, in the order of the file.
#[must_use]
pub fn library() -> Vec<Timer> {
    let mut reader = csv::Reader::from_reader(include_str!("timers.csv").as_bytes());
    // The file is compiled in, and a test reads every row of it.
    reader.deserialize().filter_map(Result::ok).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timers::application::amqp::Client;
    use crate::timers::{Environment, Keepalive, Watcher, kernel};
    use std::collections::BTreeSet;
    use std::time::Duration;

    fn of(id: &str) -> Timer {
        library().into_iter().find(|t| t.id == id).unwrap_or_else(|| panic!("{id}"))
    }

    #[test]
    fn every_row_is_a_timer_with_a_source() {
        let rows = include_str!("timers.csv").lines().skip(1).filter(|line| !line.is_empty()).count();
        let all = library();
        assert_eq!(all.len(), rows);
        let names: BTreeSet<&str> = all.iter().map(|t| t.id.as_str()).collect();
        assert_eq!(names.len(), rows, "two rows with one name");
        for timer in &all {
            assert!(
                timer.lo_s > 0.0 && timer.hi_s >= timer.lo_s && timer.hi_s + timer.check_s > timer.lo_s,
                "{timer:?}"
            );
            assert!(!timer.source.is_empty() && !timer.says.is_empty() && !timer.own, "{timer:?}");
            assert!(timer.watcher.is_empty() || timer.watcher.parse::<Watcher>().is_ok(), "{timer:?}");
        }
    }

    #[test]
    fn the_windows_are_those_of_the_timer_model() {
        let env = Environment::default();
        for (id, retries2) in [("retries2-5", 5), ("retries2-8", 8), ("retries2-15", 15)] {
            let env = Environment { tcp_retries2: retries2, ..env.clone() };
            let window = kernel::retransmit::Retransmission::new(&env, None, None).window().span;
            let timer = of(id);
            assert!(timer.lo_s <= window.lo_s && window.hi_s <= timer.hi_s, "{id}: {window:?}");
        }
        for (id, idle, interval, probes) in
            [("keepalive-30-5-3", 30, 5, 3), ("keepalive-13-13-3", 13, 13, 3), ("keepalive-60-10-9", 60, 10, 9)]
        {
            let timer = of(id);
            let keepalive = Keepalive::from_secs(idle, interval, probes);
            let nominal = (keepalive.idle + keepalive.interval * probes).as_secs_f64();
            assert!(timer.lo_s <= nominal && nominal <= timer.hi_s, "{id}: {nominal}");
        }
        let minute = Duration::from_secs(60);
        for (id, client, heartbeat) in [
            ("py-amqp-60", Client::CeleryHub, minute),
            ("py-amqp-120", Client::CeleryHub, 2 * minute),
            ("pika-60", Client::Pika, minute),
            ("lapin-60", Client::Lapin, minute),
            ("aiormq-60", Client::Aiormq, minute),
            ("amqp091-go-10", Client::Amqp091Go, Duration::from_secs(10)),
        ] {
            let (timer, window) = (of(id), client.gives_up_after(heartbeat).unwrap());
            assert!(timer.lo_s <= window.lo_s && window.hi_s <= timer.hi_s, "{id}: {window:?}");
        }
    }
}

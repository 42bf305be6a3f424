//! The watchdog: in a guest where computing costs no time, a process that spins stops the clock for ever.
//!
//! The judgement is pure; the samples come from `/proc` of the host and from the beat that init writes every few virtual
//! seconds. A guest is stopped when
//! - one of its processes used processor time and its kernel none (a loop without a system call), or
//! - the beat has not moved while kernel and processes used the stall limit's worth of processor time (a loop that reads
//!   the clock; time hardly moves), or
//! - the run as a whole took longer than it may.
//!
//! What is left out: killing (`boot` does) and naming the process (`mconsole` asks).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Why a guest was stopped.
#[derive(Debug, Clone, PartialEq)]
pub struct Stall {
    /// Which rule.
    pub rule: Rule,
    /// How long, in seconds of this machine.
    pub wall_s: f64,
    /// Virtual seconds at the last beat.
    pub virtual_s: f64,
    /// The process that ran, as far as the guest's kernel could tell: number, name, command line where known.
    pub process: Option<String>,
    /// How the clock moved.
    pub mode: super::command::Mode,
}

/// The watchdog's rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A process computed without a single system call.
    Spin,
    /// The guest's clock stood still.
    ClockStands,
    /// The run took too long.
    WallLimit,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = self.process.as_deref().unwrap_or("a process that its kernel could not name");
        let (wall, at, mode) = (self.wall_s, self.virtual_s, self.mode.name());
        match self.rule {
            Rule::Spin => write!(f, "{who} spun without a system call for {wall:.0} s at {at:.0} virtual s ({mode})"),
            Rule::ClockStands => {
                write!(
                    f,
                    "the clock stood still for {wall:.0} s of processor time at {at:.0} virtual s; {who} ran ({mode})"
                )
            }
            Rule::WallLimit => {
                write!(f, "the limit of {wall:.0} s was reached at {at:.0} virtual s; {who} ran ({mode})")
            }
        }
    }
}

/// The watchdog's patience, in time of this machine.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Processor time of a single process without a system call.
    pub spin: Duration,
    /// Processor time of the whole guest without a beat.
    pub stall: Duration,
    /// The whole run.
    pub wall: Duration,
}

impl Default for Limits {
    /// 15 s, 90 s (RabbitMQ's start moves the clock little and takes 15 to 50 s), 30 min.
    fn default() -> Self {
        Self { spin: Duration::from_secs(15), stall: Duration::from_secs(90), wall: Duration::from_secs(1800) }
    }
}

/// One look at the guest.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample {
    /// Time of this machine since the boot.
    pub at: Duration,
    /// Processor time of the guest's kernel itself.
    pub kernel_cpu: Duration,
    /// Processor time of each of its processes, by number on the host.
    pub process_cpu: BTreeMap<u32, Duration>,
    /// What the beat says.
    pub beat_ns: i64,
}

impl Sample {
    /// Processor time of kernel and processes since an earlier sample; what a process used that came and went between
    /// the two is not known.
    fn used_since(&self, last: &Self) -> Duration {
        let processes = self.process_cpu.iter();
        let used =
            processes.map(|(pid, cpu)| cpu.saturating_sub(last.process_cpu.get(pid).copied().unwrap_or_default()));
        self.kernel_cpu.saturating_sub(last.kernel_cpu) + used.sum::<Duration>()
    }
}

/// Processor time of the kernel that a loop without system calls does not need; a clock tick of `/proc` and some.
const KERNEL_IDLE: Duration = Duration::from_millis(20);

/// The judge. Give it a sample every second or so.
#[derive(Debug)]
pub(super) struct Watchdog {
    limits: Limits,
    /// The sample since which the kernel has done nothing.
    quiet_since: Option<Sample>,
    /// The last beat, and processor time used since.
    beat: (i64, Duration),
    last: Option<Sample>,
}

impl Watchdog {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, quiet_since: None, beat: (-1, Duration::ZERO), last: None }
    }

    /// The rule that this sample breaks, and for how long it has been broken.
    pub(super) fn judge(&mut self, sample: Sample) -> Option<(Rule, Duration)> {
        let now = sample.at;
        let used = self.last.replace(sample.clone()).map_or(Duration::ZERO, |last| sample.used_since(&last));
        self.beat.1 += used;
        if sample.beat_ns != self.beat.0 {
            self.beat = (sample.beat_ns, Duration::ZERO);
            self.quiet_since = None;
        }
        if now >= self.limits.wall {
            return Some((Rule::WallLimit, now));
        }
        if let Some(spun) = self.spinning(sample) {
            return Some((Rule::Spin, spun));
        }
        (self.beat.1 >= self.limits.stall).then_some((Rule::ClockStands, self.beat.1))
    }

    /// One process used the limit's worth of *processor* time while the kernel used none: so it counts the same on a
    /// crowded machine.
    fn spinning(&mut self, sample: Sample) -> Option<Duration> {
        let quiet = self.quiet_since.take().filter(|q| sample.kernel_cpu.saturating_sub(q.kernel_cpu) <= KERNEL_IDLE);
        let since = quiet.unwrap_or_else(|| sample.clone());
        let used =
            |(pid, cpu): (&u32, &Duration)| cpu.saturating_sub(since.process_cpu.get(pid).copied().unwrap_or(*cpu));
        let most = sample.process_cpu.iter().map(used).max().unwrap_or_default();
        let lasted = sample.at.saturating_sub(since.at);
        self.quiet_since = Some(since);
        (most >= self.limits.spin).then_some(lasted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { spin: Duration::from_secs(5), stall: Duration::from_secs(20), wall: Duration::from_secs(60) };

    fn sample(at: f64, kernel: f64, process: f64, beat: i64) -> Sample {
        let s = Duration::from_secs_f64;
        Sample { at: s(at), kernel_cpu: s(kernel), process_cpu: [(7, s(process))].into(), beat_ns: beat }
    }

    fn first_verdict(samples: impl Iterator<Item = Sample>) -> Option<(Rule, u64)> {
        let mut dog = Watchdog::new(LIMITS);
        samples.into_iter().find_map(|s| dog.judge(s)).map(|(rule, d)| (rule, d.as_secs()))
    }

    #[test]
    fn a_loop_without_system_calls_is_caught_by_its_processor_time() {
        let alone = (0..60).map(|t| sample(f64::from(t), 1.0, f64::from(t), 3));
        assert_eq!(first_verdict(alone), Some((Rule::Spin, 5)));
        let crowded = (0..60).map(|t| sample(f64::from(t), 1.0, f64::from(t) * 0.3, 3));
        assert_eq!(first_verdict(crowded), Some((Rule::Spin, 17)));
    }

    #[test]
    fn one_that_begins_later_is_counted_from_its_first_sample() {
        let mut dog = Watchdog::new(LIMITS);
        let other = |t: u32| Sample {
            process_cpu: [(8, Duration::from_secs(100))].into(),
            ..sample(f64::from(t), 1.0, 0.0, 3)
        };
        assert_eq!(dog.judge(other(0)), None);
        assert_eq!(dog.judge(sample(1.0, 1.0, 100.0, 3)), None);
    }

    #[test]
    fn work_with_system_calls_is_given_the_stall_limit() {
        let work = (0..30).map(|t| sample(f64::from(t), f64::from(t) * 0.4, f64::from(t) * 0.5, 3));
        // 0.9 s of processor time a second.
        assert_eq!(first_verdict(work), Some((Rule::ClockStands, 20)));
    }

    #[test]
    fn a_beat_that_moves_is_left_alone_until_the_wall_limit() {
        let work = (0..100).map(|t| sample(f64::from(t), 0.0, f64::from(t), i64::from(t / 4)));
        assert_eq!(first_verdict(work), Some((Rule::WallLimit, 60)));
    }

    #[test]
    fn a_burst_of_work_between_system_calls_is_no_spin() {
        let bursts = (0..18).map(|t| {
            sample(f64::from(t), if t % 3 == 0 { f64::from(t) } else { f64::from(t - t % 3) }, f64::from(t), 3)
        });
        assert_eq!(first_verdict(bursts), None);
    }

    #[test]
    fn the_message_names_process_time_and_mode() {
        let stall = Stall {
            rule: Rule::Spin,
            wall_s: 15.2,
            virtual_s: 120.0,
            process: Some("41 (python3)".into()),
            mode: crate::lab::vm::command::Mode::InfCpu,
        };
        assert_eq!(stall.to_string(), "41 (python3) spun without a system call for 15 s at 120 virtual s (inf-cpu)");
    }
}

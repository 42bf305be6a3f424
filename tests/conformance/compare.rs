//! Judged trials against their windows, by state and direction.

use halfopen::plan::Plan;
use halfopen::scenario::Arm;
use halfopen::store::Recorded;
use halfopen::timers::kernel::wheel::Wheel;
use halfopen::units::TrialId;
use halfopen::verdict::{Outcome, TrialRow, judge};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A trial outside its window: both sides.
#[derive(Debug, Clone)]
pub struct Miss {
    text: String,
    /// How far outside, in seconds; infinite where one side says "never".
    pub beyond_s: f64,
    /// The wheel's step for the longest delay of the chain, in seconds.
    pub step_s: f64,
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:.4} s outside, a step is {:.3} s", self.text, self.beyond_s, self.step_s)
    }
}

#[derive(Debug, Clone)]
struct Judged {
    trial: TrialId,
    group: String,
    agrees: bool,
    watcher_agrees: Option<bool>,
    miss: Option<Miss>,
    wrong_watcher: Option<String>,
}

/// All trials that could be compared.
#[derive(Debug, Clone)]
pub struct Comparison {
    judged: Vec<Judged>,
    left_out: BTreeMap<String, usize>,
}

/// Judges the recorded events against the windows of `plan`.
pub fn compare(recorded: &Recorded, plan: &Plan) -> Comparison {
    let wheel = Wheel::new(recorded.run.machine.hz.unwrap_or(250));
    let rows = judge(plan, &recorded.events).trials;
    let mut comparison = Comparison { judged: Vec::new(), left_out: BTreeMap::new() };
    for row in rows {
        let Some(agrees) = row.agrees else {
            let why = row.void_reason.as_ref().map(ToString::to_string).unwrap_or_default();
            *comparison.left_out.entry(format!("{} {why}", row.outcome)).or_default() += 1;
            continue;
        };
        let arm = plan.scenario.arms.iter().find(|arm| arm.name == row.arm).expect("an arm of the plan");
        let state = row.arm.split('-').next().unwrap_or_default();
        comparison.judged.push(Judged {
            trial: row.trial,
            group: format!("{state:<6} {}", row.fault),
            agrees,
            watcher_agrees: row.watcher_agrees,
            miss: (!agrees).then(|| miss(&row, arm, wheel)),
            wrong_watcher: (row.watcher_agrees == Some(false)).then(|| sides(&row)),
        });
    }
    comparison
}

fn sides(row: &TrialRow) -> String {
    let bound = |bound: Option<f64>| bound.map_or("never".to_string(), |s| format!("{s:.3}"));
    let measured = row.ttd_s.map_or("nobody".to_string(), |ttd| format!("{} at {:.4} s", row.watcher, ttd.as_secs()));
    format!(
        "trial {} {} under {}, phase {}, age {:?}: measured {measured} ({}), predicted {} {} to {}",
        row.trial,
        row.arm,
        row.fault,
        row.phase_s,
        row.age_at_fault_s,
        row.error,
        row.predicted_watcher,
        bound(row.predicted_lo_s),
        bound(row.predicted_hi_s)
    )
}

fn miss(row: &TrialRow, arm: &Arm, wheel: Wheel) -> Miss {
    let beyond_s = match (row.outcome, row.ttd_s, row.predicted_lo_s, row.predicted_hi_s) {
        (Outcome::Detected, Some(ttd), Some(lo), hi) => {
            let ttd = ttd.as_secs();
            (lo - ttd).max(hi.map_or(0.0, |hi| ttd - hi)).max(0.0)
        }
        _ => f64::INFINITY,
    };
    // Half of the time of a chain of doublings is its last delay; keepalive and read timeouts name theirs.
    let s = &arm.settings;
    let doubling = row.ttd_s.map_or(0.0, |ttd| ttd.as_secs() / 2.0);
    let named = [s.keepalive.map(|k| k.idle.max(k.interval)), s.read_timeout.get()];
    let longest = named.into_iter().flatten().map(|d| d.as_secs_f64()).fold(doubling, f64::max);
    let step = wheel.granularity(wheel.jiffies(Duration::from_secs_f64(longest)));
    let options = format!("{:?}, user timeout {:?}, sysctls {:?}", s.keepalive, s.tcp_user_timeout, s.sysctl);
    Miss { text: format!("{} ({options})", sides(row)), beyond_s, step_s: wheel.seconds(step) }
}

impl Comparison {
    /// Only these trials.
    pub fn only(mut self, trials: &[TrialId]) -> Self {
        self.judged.retain(|judged| trials.contains(&judged.trial));
        self
    }

    /// How many.
    pub fn n(&self) -> usize {
        self.judged.len()
    }

    /// The share that agrees.
    pub fn share(&self) -> f64 {
        self.judged.iter().filter(|judged| judged.agrees).count() as f64 / self.n().max(1) as f64
    }

    /// The share whose watcher is one of those predicted, of those that can be told.
    pub fn watcher_share(&self) -> f64 {
        let told: Vec<bool> = self.judged.iter().filter_map(|judged| judged.watcher_agrees).collect();
        told.iter().filter(|agrees| **agrees).count() as f64 / told.len().max(1) as f64
    }

    /// The trials outside their windows.
    pub fn misses(&self) -> impl Iterator<Item = &Miss> {
        self.judged.iter().filter_map(|judged| judged.miss.as_ref())
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut groups: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for judged in &self.judged {
            let (agree, n) = groups.entry(&judged.group).or_default();
            *agree += usize::from(judged.agrees);
            *n += 1;
        }
        for (group, (agree, n)) in groups {
            writeln!(f, "{group:<18} {agree:>4} of {n:>4} agree")?;
        }
        for (why, n) in &self.left_out {
            writeln!(f, "not compared: {n} {why}")?;
        }
        for miss in self.misses() {
            writeln!(f, "miss: {miss}")?;
        }
        for wrong in self.judged.iter().filter_map(|judged| judged.wrong_watcher.as_ref()) {
            writeln!(f, "watcher: {wrong}")?;
        }
        writeln!(
            f,
            "{:.2} % of {} agree, {:.2} % of watchers",
            self.share() * 100.0,
            self.n(),
            self.watcher_share() * 100.0
        )
    }
}

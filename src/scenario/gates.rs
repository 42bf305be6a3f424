//! Gates: a column, what is taken of it, and bounds in the column's own unit.

use super::columns::{self, Column};
use super::error::Findings;
use super::fault::Fault;
use super::keys::mend;
use super::model::{Gate, Measure, NoWorse, Reference};
use super::value::{Bound, Val};
use super::walk::Fields;
use crate::units::print_duration;

/// The keys that say what is taken of a column.
const MEASURES: [&str; 6] = ["quantile", "fraction", "count", "uniform", "mean", "rate"];

/// The reference that is no arm.
const BASELINE: &str = "baseline";

/// What stands around a gate.
pub(super) struct Around<'s> {
    /// The names of the arms.
    pub arms: &'s [&'s str],
    /// The faults.
    pub faults: &'s [Fault],
    /// Whether there is a reaper.
    pub reaper: bool,
}

/// Reads one gate; `None` when anything is wrong with it.
pub(super) fn gate(fields: &Fields, around: &Around<'_>, findings: &mut Findings) -> Option<Gate> {
    let before = findings.count();
    known(fields, "arm", around.arms, findings);
    let mut names: Vec<&str> = Vec::new();
    for fault in around.faults {
        if !names.contains(&fault.name()) {
            names.push(fault.name());
        }
    }
    known(fields, "fault", &names, findings);
    let metric = fields.text("metric")?;
    let column = columns::find(metric)?;
    let measure = match metric {
        columns::AGREEMENT => alone(fields, metric, Measure::Fraction("true".to_string()), findings)?,
        columns::BEFORE_REAPER => {
            if !around.reaper {
                let problem = "there is no reaper to be quicker than; write a section `[reaper]`";
                findings.error(fields.at("metric"), fields.name("metric"), problem);
            }
            alone(fields, metric, Measure::BeforeReaper, findings)?
        }
        _ => measure(fields, metric, column, findings)?,
    };
    let what = Measured { measure: &measure, metric, column };
    let (min, max) = (what.bound("min", fields, findings), what.bound("max", fields, findings));
    let no_worse = no_worse(fields, &what, around, findings);
    if !fields.has("min") && !fields.has("max") && !fields.has("no_worse_than") {
        findings.error(fields.at, fields.label.trim_end(), "no bound; write `min`, `max` or both, or `no_worse_than`");
    }
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        let show = |key: &str, number: f64| match fields.bound(key) {
            Some(Bound::Time(time)) => print_duration(*time),
            Some(Bound::Percent(share)) => format!("{}%", share * 100.0),
            _ => number.to_string(),
        };
        let problem = format!("`{}` is above max `{}`; swap them", show("min", min), show("max", max));
        findings.error(fields.at("min"), fields.name("min"), problem);
    }
    let confidence = confidence(fields, &measure, findings);
    let own = |key: &str| fields.text(key).map(str::to_string);
    (findings.count() == before).then(|| Gate {
        arm: own("arm"),
        fault: own("fault"),
        min,
        max,
        confidence,
        no_worse,
        ..Gate::new(if metric == columns::AGREEMENT { "agrees" } else { metric }, measure)
    })
}

/// How sure the verdict must be: more than a coin, less than certain, and of something that has an interval.
fn confidence(fields: &Fields, measure: &Measure, findings: &mut Findings) -> Option<f64> {
    let level = fields.number("confidence")?;
    let problem = match measure {
        Measure::Count(_) => "a count has no interval; write `fraction = \"…\"` or `rate = true`".to_string(),
        Measure::Uniform { .. } => "a p-value has no interval; write `min = 0.01` alone".to_string(),
        _ if level <= 0.5 || level >= 1.0 => {
            format!("`{}%` is no level; write one above 50% and below 100%, such as `95%`", level * 100.0)
        }
        _ => return Some(level),
    };
    findings.error(fields.at("confidence"), fields.name("confidence"), problem);
    None
}

/// What it must not be worse than, and by how much.
fn no_worse(fields: &Fields, what: &Measured<'_>, around: &Around<'_>, findings: &mut Findings) -> Option<NoWorse> {
    let Some(than) = fields.text("no_worse_than") else {
        if fields.has("margin") && !fields.has("no_worse_than") {
            let problem = "it belongs to `no_worse_than`; write that, or `min` or `max` instead";
            findings.error(fields.at("margin"), fields.name("margin"), problem);
        }
        return None;
    };
    let (at, name) = (fields.at("no_worse_than"), fields.name("no_worse_than"));
    let before = findings.count();
    for key in ["min", "max"].into_iter().filter(|key| fields.has(key)) {
        let problem = "a gate takes a bound or `no_worse_than`; write two gates";
        findings.error(fields.get(key).map_or(fields.at, |found| found.key_at), fields.name(key), problem);
    }
    if let Some(problem) = what.not_comparable() {
        findings.error(at, name.clone(), problem);
    }
    let arm = fields.text("arm");
    let is_arm = around.arms.contains(&than);
    if !is_arm && than != BASELINE {
        let choice = around.arms.iter().copied().filter(|name| Some(*name) != arm).chain([BASELINE]);
        let choice: Vec<&str> = choice.collect();
        let hint = mend(than, "choice", choice.iter().copied());
        findings.error(at, name, format!("no arm of this scenario is named `{than}`; {hint}"));
    } else if arm == Some(than) {
        findings.error(at, name, format!("`{than}` would be compared with itself; name another arm, or `baseline`"));
    } else if arm.is_none() && !fields.has("arm") {
        findings.error(at, name, "name the arm that is held to it; write `arm = \"…\"` too");
    }
    if !fields.has("margin") {
        let problem =
            "missing; write the smallest difference that matters, such as `margin = \"2s\"` or `margin = \"10%\"`";
        findings.error(fields.at, fields.name("margin"), problem);
    }
    let (margin, relative) = what.margin(fields, findings)?;
    let than = if is_arm { Reference::Arm(than.to_string()) } else { Reference::Baseline };
    (findings.count() == before).then_some(NoWorse { than, margin, relative })
}

/// What a gate takes of which column.
struct Measured<'m> {
    measure: &'m Measure,
    metric: &'m str,
    column: Column,
}

impl Measured<'_> {
    fn bound(&self, key: &str, fields: &Fields, findings: &mut Findings) -> Option<f64> {
        match in_unit(fields.bound(key)?, self.measure, self.metric, self.column) {
            Ok(number) => Some(number),
            Err(problem) => {
                findings.error(fields.at(key), fields.name(key), problem);
                None
            }
        }
    }

    /// Why two samples of it are not held against one another; `None` where they are.
    fn not_comparable(&self) -> Option<String> {
        match self.measure {
            Measure::Quantile(_) | Measure::Mean | Measure::Rate | Measure::BeforeReaper => None,
            Measure::Fraction(value) if self.metric == "outcome" && value == "detected" => None,
            _ => Some(
                "it compares times (`mean = true`, `quantile`), `rate = true` of false_alarm, `fraction = \"detected\"` of \
                 outcome or `detected_before_reaper`; write one of these"
                    .to_string(),
            ),
        }
    }

    /// The margin, and whether it is a share of the other side's value.
    fn margin(&self, fields: &Fields, findings: &mut Findings) -> Option<(f64, bool)> {
        let bound = fields.bound("margin")?;
        let share = matches!(self.measure, Measure::Fraction(_) | Measure::BeforeReaper);
        let margin = match bound {
            Bound::Percent(part) if !share => Ok((*part, true)),
            bound => in_unit(bound, self.measure, self.metric, self.column).map(|value| (value, false)),
        };
        match margin {
            Ok((value, _)) if value < 0.0 => {
                findings.error(
                    fields.at("margin"),
                    fields.name("margin"),
                    "a margin is not negative; write `0s` or more",
                );
                None
            }
            Ok(margin) => Some(margin),
            Err(problem) => {
                findings.error(fields.at("margin"), fields.name("margin"), problem);
                None
            }
        }
    }
}

/// A gate on an arm or a fault that the scenario does not have would always hold.
fn known(fields: &Fields, key: &str, names: &[&str], findings: &mut Findings) {
    let Some(name) = fields.text(key).filter(|name| !names.contains(name)) else { return };
    if names.is_empty() {
        return;
    }
    let hint = mend(name, key, names.iter().copied());
    findings.error(fields.at(key), fields.name(key), format!("no {key} of this scenario is named `{name}`; {hint}"));
}

/// A metric that is its own measure.
fn alone(fields: &Fields, metric: &str, measure: Measure, findings: &mut Findings) -> Option<Measure> {
    let Some(key) = MEASURES.into_iter().find(|key| fields.has(key)) else {
        return Some(measure);
    };
    let problem = format!("`{metric}` is a share already; remove it and write `min = \"97%\"`");
    let at = fields.get(key).map_or(fields.at, |found| found.key_at);
    findings.error(at, fields.name(key), problem);
    None
}

fn measure(fields: &Fields, metric: &str, column: Column, findings: &mut Findings) -> Option<Measure> {
    let numeric = matches!(column, Column::Seconds | Column::Number);
    let chosen: Vec<&str> = MEASURES.into_iter().filter(|key| fields.has(key)).collect();
    let [key] = chosen[..] else {
        let (at, name, problem) = match chosen.get(1) {
            Some(second) => (
                fields.get(second).map_or(fields.at, |found| found.key_at),
                fields.name(second),
                format!("a gate takes one measure and has `{}` already; write two gates", chosen[0]),
            ),
            None => {
                let mend = if numeric { "`quantile = 0.99`" } else { "`fraction = \"…\"` or `count = \"…\"`" };
                (fields.at, fields.label.trim_end().to_string(), format!("no measure; write {mend}"))
            }
        };
        findings.error(at, name, problem);
        return None;
    };
    let at = fields.at(key);
    let name = fields.name(key);
    match (key, column, &fields.get(key)?.val) {
        ("quantile", Column::Seconds | Column::Number, Val::Number(q)) => Some(Measure::Quantile(*q)),
        ("quantile", ..) => {
            let problem = format!("`{metric}` is not a number; write `fraction = \"…\"` or `count = \"…\"`");
            findings.error(at, name, problem);
            None
        }
        ("uniform", Column::Seconds, Val::Range(from, to)) => {
            Some(Measure::Uniform { from: from.as_secs_f64(), to: to.as_secs_f64() })
        }
        ("uniform", ..) => {
            findings.error(at, name, format!("`{metric}` is not a time; use it with a column such as `stuck_s`"));
            None
        }
        ("mean" | "rate", _, Val::Flag(false)) => {
            findings.error(
                at,
                name,
                format!("`false` takes nothing of a column; write `{key} = true` or leave it out"),
            );
            None
        }
        ("mean", ..) if columns::TIMES.contains(&metric) => Some(Measure::Mean),
        ("mean", ..) => {
            let problem = format!(
                "a mean of `{metric}` would leave out who was never detected; means are of `ttd_s`, `ttr_s` and `stuck_s`"
            );
            findings.error(at, name, problem);
            None
        }
        ("rate", ..) if metric == "false_alarm" => Some(Measure::Rate),
        ("rate", ..) => {
            findings.error(
                at,
                name,
                format!("`{metric}` has no exposure to be counted against; a rate is of `false_alarm`"),
            );
            None
        }
        ("count", Column::Seconds | Column::Number, Val::Any) => Some(Measure::Count(None)),
        ("count", Column::Flag, Val::Any) => Some(Measure::Count(Some("true".to_string()))),
        ("count", _, Val::Any) => {
            findings.error(
                at,
                name,
                format!("`{metric}` is a text; write the value to count, such as `count = \"…\"`"),
            );
            None
        }
        (_, Column::Seconds | Column::Number, _) => {
            let mend = if key == "count" { "write `count = true` or a quantile" } else { "write `quantile = 0.99`" };
            findings.error(at, name, format!("`{metric}` is a number and has no values to look for; {mend}"));
            None
        }
        (_, column, Val::Text(value)) => {
            let words: &[&str] = match column {
                Column::Words(words) => words,
                Column::Flag => &["true", "false"],
                _ => &[],
            };
            if !words.is_empty() && !words.contains(&value.as_str()) {
                let hint = mend(value, "value", words.iter().copied());
                findings.error(at, name, format!("`{metric}` is never `{value}`; {hint}"));
                return None;
            }
            let value = value.clone();
            Some(if key == "count" { Measure::Count(Some(value)) } else { Measure::Fraction(value) })
        }
        _ => None,
    }
}

/// The bound as a plain number in the unit of what is measured.
fn in_unit(bound: &Bound, measure: &Measure, metric: &str, column: Column) -> Result<f64, String> {
    match (measure, column, bound) {
        (_, _, Bound::Number(number) | Bound::Percent(number)) if !number.is_finite() => {
            Err(format!("`{number}` bounds nothing; write a finite number, or leave the bound out"))
        }
        (Measure::Rate, _, Bound::Rate(rate)) => Ok(*rate),
        (Measure::Rate, ..) => Err("a rate is a number of events over a time; write for example `1/1000h`".to_string()),
        (_, _, Bound::Rate(_)) => Err("a rate bounds `rate = true` of `false_alarm` only".to_string()),
        (Measure::Quantile(_) | Measure::Mean, Column::Seconds, Bound::Time(time)) => Ok(time.as_secs_f64()),
        (Measure::Quantile(_) | Measure::Mean, Column::Seconds, Bound::Number(number)) => {
            Err(format!("`{number}` has no unit; write `{number}s` or `{number}ms`"))
        }
        (Measure::Quantile(_) | Measure::Mean, Column::Seconds, Bound::Percent(_)) => {
            Err(format!("`{metric}` is a time; write a duration such as `30s`"))
        }
        (Measure::Quantile(_), _, Bound::Number(number)) => Ok(*number),
        (Measure::Quantile(_) | Measure::Mean, _, _) => {
            Err(format!("`{metric}` is a plain number; write one without a unit"))
        }
        (Measure::Fraction(_) | Measure::BeforeReaper, _, Bound::Number(share) | Bound::Percent(share))
            if (0.0..=1.0).contains(share) =>
        {
            Ok(*share)
        }
        (Measure::Fraction(_) | Measure::BeforeReaper, _, _) => {
            Err("a fraction is between 0 and 1; write for example `0.95` or `95%` in quotes".to_string())
        }
        (Measure::Uniform { .. }, _, Bound::Number(p) | Bound::Percent(p)) if (0.0..=1.0).contains(p) => Ok(*p),
        (Measure::Uniform { .. }, ..) => Err("a p-value is between 0 and 1; write for example `0.01`".to_string()),
        (Measure::Count(_), _, Bound::Number(number)) if *number >= 0.0 && number.fract() == 0.0 => Ok(*number),
        (Measure::Count(_), _, _) => Err("a count is a whole number; write for example `0`".to_string()),
    }
}

//! Gates: a column, what is taken of it, and bounds in the column's own unit.

use super::columns::{self, Column};
use super::error::Findings;
use super::fault::Fault;
use super::keys::mend;
use super::model::{Gate, Measure};
use super::value::{Bound, Val};
use super::walk::Fields;
use crate::units::print_duration;

/// The keys that say what is taken of a column.
const MEASURES: [&str; 4] = ["quantile", "fraction", "count", "uniform"];

/// Reads one gate; `None` when anything is wrong with it.
pub(super) fn gate(fields: &Fields, arms: &[&str], faults: &[Fault], findings: &mut Findings) -> Option<Gate> {
    let before = findings.count();
    known(fields, "arm", arms, findings);
    let mut names: Vec<&str> = Vec::new();
    for fault in faults {
        if !names.contains(&fault.name()) {
            names.push(fault.name());
        }
    }
    known(fields, "fault", &names, findings);
    let metric = fields.text("metric")?;
    let column = columns::find(metric)?;
    let measure = match metric {
        columns::AGREEMENT => agreement(fields, findings)?,
        _ => measure(fields, metric, column, findings)?,
    };
    let bound = |key: &str, findings: &mut Findings| match fields.bound(key) {
        Some(bound) => match in_unit(bound, &measure, metric, column) {
            Ok(number) => Some(number),
            Err(problem) => {
                findings.error(fields.at(key), fields.name(key), problem);
                None
            }
        },
        None => None,
    };
    let (min, max) = (bound("min", findings), bound("max", findings));
    if !fields.has("min") && !fields.has("max") {
        findings.error(fields.at, fields.label.trim_end(), "no bound; write `min`, `max` or both");
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
    let own = |key: &str| fields.text(key).map(str::to_string);
    (findings.count() == before).then(|| Gate {
        arm: own("arm"),
        fault: own("fault"),
        metric: if metric == columns::AGREEMENT { "agrees" } else { metric }.to_string(),
        measure,
        min,
        max,
    })
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

/// The share of trials on which kernel and model agree is its own measure.
fn agreement(fields: &Fields, findings: &mut Findings) -> Option<Measure> {
    let Some(key) = MEASURES.into_iter().find(|key| fields.has(key)) else {
        return Some(Measure::Fraction("true".to_string()));
    };
    let problem = "`agreement` is a share already; remove it and write `min = \"97%\"`";
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
        (Measure::Quantile(_), Column::Seconds, Bound::Time(time)) => Ok(time.as_secs_f64()),
        (Measure::Quantile(_), Column::Seconds, Bound::Number(number)) => {
            Err(format!("`{number}` has no unit; write `{number}s` or `{number}ms`"))
        }
        (Measure::Quantile(_), Column::Seconds, Bound::Percent(_)) => {
            Err(format!("`{metric}` is a time; write a duration such as `30s`"))
        }
        (Measure::Quantile(_), _, Bound::Number(number)) => Ok(*number),
        (Measure::Quantile(_), _, _) => Err(format!("`{metric}` is a plain number; write one without a unit")),
        (Measure::Fraction(_), _, Bound::Number(share) | Bound::Percent(share)) if (0.0..=1.0).contains(share) => {
            Ok(*share)
        }
        (Measure::Fraction(_), _, _) => {
            Err("a fraction is between 0 and 1; write for example `0.95` or `95%` in quotes".to_string())
        }
        (Measure::Uniform { .. }, _, Bound::Number(p) | Bound::Percent(p)) if (0.0..=1.0).contains(p) => Ok(*p),
        (Measure::Uniform { .. }, ..) => Err("a p-value is between 0 and 1; write for example `0.01`".to_string()),
        (Measure::Count(_), _, Bound::Number(number)) if *number >= 0.0 && number.fract() == 0.0 => Ok(*number),
        (Measure::Count(_), _, _) => Err("a count is a whole number; write for example `0`".to_string()),
    }
}

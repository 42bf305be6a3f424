//! `halfopen compare`: reads two sides and says what differs, how sure that is and what it costs.

use super::args::CompareArgs;
use super::exit::{Exit, Failure};
use super::{pretty, print};
use crate::report::compare::{Comparison, Field, ReaperRule, Request, What};
use crate::stats::{Events, merge_hlogs};
use crate::store::{self, RunDir, RunSamples};
use crate::units::{parse_duration, parse_rate};
use crate::verdict::metric::{Margin, Metric, Unit};
use comfy_table::Table;
use std::path::{Path, PathBuf};

/// Compares.
pub fn compare(args: &CompareArgs) -> Result<Exit, Failure> {
    if args.field {
        return field(args);
    }
    let request = request(args)?;
    let read = |paths: &mut dyn Iterator<Item = PathBuf>| -> Result<Vec<RunSamples>, Failure> {
        paths.map(|path| run(&path)).collect()
    };
    let a = read(&mut std::iter::once(PathBuf::from(&args.a)).chain(args.also_a.iter().cloned()))?;
    let b = read(&mut args.b.iter().map(PathBuf::from).chain(args.also_b.iter().cloned()))?;
    known_arms(&request.arms, &a, if b.is_empty() { &a } else { &b })?;
    let all = Comparison::new(&a, &b, &request);
    if !all.refused.is_empty() {
        let differ: Vec<String> = all.refused.iter().map(ToString::to_string).collect();
        let mut names: Vec<&str> = all.refused.iter().map(|d| d.what.name()).collect();
        names.dedup();
        let text = format!(
            "the runs answer different questions: {}; if that is meant: --allow {}",
            differ.join("; "),
            names.join(",")
        );
        return Err(Failure::new(Exit::Usage, text));
    }
    if let Some(out) = &args.out {
        write(out, &all)?;
        histograms(out, &[("a", &a), ("b", &b)])?;
    }
    if args.json {
        print(&pretty(&all.json()))?;
    } else {
        print(&all.terminal(Table::new().width()))?;
    }
    Ok(match all.exit_code {
        0 => Exit::Held,
        1 => Exit::GateFailed,
        _ => Exit::Inconclusive,
    })
}

fn run(path: &Path) -> Result<RunSamples, Failure> {
    store::read_samples(path).map_err(|e| {
        let mend = match &e {
            store::StoreError::NotARun { missing: "trials.csv", .. } => {
                format!("; `halfopen report {}` makes it from the events", path.display())
            }
            _ => String::new(),
        };
        Failure::new(Exit::Usage, format!("{e}{mend}"))
    })
}

fn write(out: &Path, all: &Comparison) -> Result<(), Failure> {
    let files =
        [("compare.json", pretty(&all.json()) + "\n"), ("compare.md", all.markdown()), ("junit.xml", all.junit())];
    let dir = RunDir::existing(out);
    for (name, text) in files {
        dir.write(name, text.as_bytes()).map_err(|e| Failure::new(Exit::Harness, e.to_string()))?;
    }
    say!("halfopen: compare.md, compare.json and junit.xml are in {}", out.display());
    Ok(())
}

/// The histograms of each side's runs added up, where the runs have them: a quantile of the sum is one of all trials, which a
/// mean of the runs' quantiles is not.
fn histograms(out: &Path, sides: &[(&str, &[RunSamples])]) -> Result<(), Failure> {
    let harness = |e: &dyn std::fmt::Display| Failure::new(Exit::Harness, e.to_string());
    for (side, runs) in sides.iter().filter(|(_, runs)| !runs.is_empty()) {
        for name in ["ttd", "stuck"] {
            let read = |run: &RunSamples| std::fs::read(run.path.join(format!("{name}.hlog"))).ok();
            let Some(logs) = runs.iter().map(read).collect::<Option<Vec<_>>>() else { continue };
            let logs: Vec<&[u8]> = logs.iter().map(Vec::as_slice).collect();
            let comment = format!(
                "{name} of {} runs, microseconds; the tag is the arm; censored trials are not in it",
                runs.len()
            );
            let horizon_s = runs[0].head.plan.scenario.horizon.as_secs_f64();
            let merged = merge_hlogs(&comment, &logs, horizon_s).map_err(|e| harness(&e))?;
            RunDir::existing(out).write(&format!("{name}-{side}.hlog"), &merged).map_err(|e| harness(&e))?;
        }
    }
    Ok(())
}

fn request(args: &CompareArgs) -> Result<Request, Failure> {
    let usage = |text: String| Failure::new(Exit::Usage, text);
    let metric = |name: &str| {
        Metric::ALL.into_iter().find(|m| m.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Metric::ALL.iter().map(|m| m.name()).collect();
            usage(format!("`{name}` is no metric; metrics are {}", names.join(", ")))
        })
    };
    let mut request = Request { allowed: args.allow.clone(), ..Request::default() };
    for pair in &args.arms {
        let (a, b) =
            pair.split_once(',').ok_or_else(|| usage(format!("--arms {pair}: write A,B: two names of arms")))?;
        request.arms.push((a.trim().to_string(), b.trim().to_string()));
    }
    for text in &args.margin {
        let (name, value) = text.split_once('=').ok_or_else(|| {
            usage(format!("--margin {text}: write METRIC=VALUE, for example ttd_mean=2s or detected=3%"))
        })?;
        let metric = metric(name.trim())?;
        let margin = margin(metric, value.trim()).map_err(|why| usage(format!("--margin {text}: {why}")))?;
        request.margins.push((metric, margin));
    }
    for name in &args.gate {
        request.gates.push(metric(name.trim())?);
    }
    if let Some(text) = &args.reaper {
        request.reaper = Some(reaper(text).map_err(|why| usage(format!("--reaper {text}: {why}")))?);
    }
    Ok(request)
}

/// `2s`, `10%`, `1/24h`, `0.5`: what fits the metric.
fn margin(metric: Metric, text: &str) -> Result<Margin, String> {
    let percent = text.strip_suffix('%').and_then(|p| p.trim().parse::<f64>().ok()).map(|p| p / 100.0);
    let margin = match (metric.unit(), percent) {
        (Unit::Share, Some(points)) => Margin::Absolute(points),
        (_, Some(share)) => Margin::Relative(share),
        (Unit::Seconds, None) => Margin::Absolute(
            parse_duration(text).map_err(|e| format!("{e}, or a percentage of A's value"))?.as_secs_f64(),
        ),
        (Unit::PerHour, None) => {
            Margin::Absolute(3600.0 / parse_rate(text).map_err(|e| format!("{e}, or a percentage"))?.as_secs_f64())
        }
        (Unit::Share, None) => return Err("a share's margin is in points: write for example 3%".to_string()),
        (Unit::Number, None) => {
            Margin::Absolute(text.parse().map_err(|_| "write a number, or a percentage of A's value".to_string())?)
        }
    };
    match margin {
        Margin::Absolute(value) | Margin::Relative(value) if value >= 0.0 => Ok(margin),
        _ => Err("a margin is not negative".to_string()),
    }
}

/// `1200s/120s`.
fn reaper(text: &str) -> Result<ReaperRule, String> {
    let (timeout, interval) = text.split_once('/').ok_or("write TIMEOUT/INTERVAL, for example 1200s/120s")?;
    let seconds = |text: &str| parse_duration(text.trim()).map(|d| d.as_secs_f64()).map_err(|e| e.to_string());
    Ok(ReaperRule { timeout_s: seconds(timeout)?, interval_s: seconds(interval)? })
}

fn known_arms(arms: &[(String, String)], a: &[RunSamples], b: &[RunSamples]) -> Result<(), Failure> {
    let check = |name: &str, runs: &[RunSamples]| {
        let names: Vec<&str> =
            runs.iter().flat_map(|r| &r.head.plan.scenario.arms).map(|arm| arm.name.as_str()).collect();
        if names.contains(&name) {
            return Ok(());
        }
        let mut names = names;
        names.dedup();
        Err(Failure::new(Exit::Usage, format!("--arms: no arm is named `{name}`; arms are {}", names.join(", "))))
    };
    arms.iter().try_for_each(|(one, two)| check(one, a).and_then(|()| check(two, b)))
}

/// Counts from the field: `compare --field 3/200000 0/200000`.
fn field(args: &CompareArgs) -> Result<Exit, Failure> {
    let events = |text: &str| {
        let (k, n) = text.split_once('/')?;
        let exposure = n.trim().replace('_', "").parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0)?;
        Some(Events { k: k.trim().parse().ok()?, exposure })
    };
    let wrong = |text: &str| {
        Failure::new(
            Exit::Usage,
            format!("--field: `{text}` is not EVENTS/EXPOSURE; write for example 3/200000 0/200000"),
        )
    };
    let before = events(&args.a).ok_or_else(|| wrong(&args.a))?;
    let b = args.b.as_deref().unwrap_or_default();
    let after = events(b).ok_or_else(|| wrong(b))?;
    let field = Field::new(before, after);
    if args.json { print(&pretty(&serde_json::to_value(&field).unwrap_or_default())) } else { print(&field.text()) }
}

/// The value of `--allow`.
pub(super) fn what(text: &str) -> Result<What, String> {
    What::ALL.into_iter().find(|w| w.name() == text.trim()).ok_or_else(|| {
        let names: Vec<&str> = What::ALL.iter().map(|w| w.name()).collect();
        format!("`{text}` is nothing that runs can differ in; write {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margins_are_in_the_unit_of_their_metric() {
        assert_eq!(margin(Metric::TtdMean, "2s"), Ok(Margin::Absolute(2.0)));
        assert_eq!(margin(Metric::TtdMean, "5%"), Ok(Margin::Relative(0.05)));
        assert_eq!(margin(Metric::Detected, "3%"), Ok(Margin::Absolute(0.03)));
        assert_eq!(margin(Metric::FalseAlarms, "1/1000h"), Ok(Margin::Absolute(0.001)));
        assert_eq!(margin(Metric::Reconnects, "0.5"), Ok(Margin::Absolute(0.5)));
        for (metric, text) in [(Metric::TtdMean, "2"), (Metric::Detected, "0.03"), (Metric::TtdMean, "-5%")] {
            assert!(margin(metric, text).is_err(), "{text}");
        }
        assert_eq!(reaper("1200s/2m"), Ok(ReaperRule { timeout_s: 1200.0, interval_s: 120.0 }));
    }
}

//! What a mean, a median and a share say, where the durations themselves were not published.

use super::layers::percent;
use super::timer::{Timer, short};
use crate::units::parse_duration;
use serde::Serialize;

/// Figures of a report.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Published {
    /// The mean in seconds.
    pub mean_s: Option<f64>,
    /// The median.
    pub median_s: Option<f64>,
    /// The share of durations from a second to another.
    pub share: Option<(f64, f64, f64)>,
}

/// One timer beside the figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PublishedLine {
    /// Which.
    pub timer: Timer,
    /// Mean and median that it gives with the check that is set.
    pub nominal_mean_s: f64,
    /// The reported mean minus that.
    pub mean_above_s: Option<f64>,
    /// The reported median minus that.
    pub median_above_s: Option<f64>,
    /// The check that would give the reported mean.
    pub check_by_mean_s: Option<f64>,
    /// The check that would give the reported median.
    pub check_by_median_s: Option<f64>,
    /// The mean that the durations outside the reported share need for the nominal check to be right.
    pub others_need_mean_s: Option<f64>,
    /// All of it in words.
    pub words: String,
}

/// What the figures say.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PublishedAnswer {
    /// As given.
    pub published: Published,
    /// The timers that could give them, the nearest first.
    pub lines: Vec<PublishedLine>,
    /// What can't be concluded.
    pub caution: &'static str,
}

/// Figures name no timer: they have no shape and no number of durations.
const CAUTION: &str = "A mean and a median have no shape: they can speak against a timer, and they can't name one. Give the \
                       durations themselves for that.";
/// A check that takes this much longer, or shorter, is no longer the same check.
const CHECKS: std::ops::RangeInclusive<f64> = 0.5..=2.1;

impl Published {
    /// Reads `mean=1283.9s,median=1288.4s,share=80%@1100s..1400s`.
    ///
    /// # Errors
    /// A sentence with the mend.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut found = Self::default();
        for part in text.split(',').map(str::trim) {
            let bad = |why: &str| {
                format!("--published `{part}`: {why}; write mean=1283.9s,median=1288.4s,share=80%@1100s..1400s")
            };
            let seconds = |value: &str| parse_duration(value).map(|d| d.as_secs_f64()).map_err(|e| bad(&e.to_string()));
            match part.split_once('=') {
                Some(("mean", value)) => found.mean_s = Some(seconds(value)?),
                Some(("median", value)) => found.median_s = Some(seconds(value)?),
                Some(("share", value)) => {
                    let (share, window) = value.split_once('@').ok_or_else(|| bad("a share has a window"))?;
                    let (from, to) = window.split_once("..").ok_or_else(|| bad("a window is FROM..TO"))?;
                    let share: f64 = share.trim_end_matches('%').trim().parse().map_err(|_| bad("no percentage"))?;
                    let (from, to) = (seconds(from)?, seconds(to)?);
                    if !(0.0..=100.0).contains(&share) || to <= from {
                        return Err(bad("a percentage is 0 to 100, and a window rises"));
                    }
                    found.share = Some((share / 100.0, from, to));
                }
                _ => return Err(bad("not mean=, median= or share=")),
            }
        }
        Ok(found)
    }
}

/// Compares figures with the timers of a list.
#[must_use]
pub fn answer_published(published: Published, timers: &[Timer]) -> PublishedAnswer {
    let mut lines: Vec<PublishedLine> = timers.iter().filter_map(|t| line(&published, t)).collect();
    let off = |l: &PublishedLine| l.mean_above_s.or(l.median_above_s).unwrap_or_default().abs();
    lines.sort_by(|a, b| off(a).total_cmp(&off(b)));
    PublishedAnswer { published, lines, caution: CAUTION }
}

/// A timer that can give the figures at all.
fn line(published: &Published, timer: &Timer) -> Option<PublishedLine> {
    let law = timer.law();
    let nominal = law.mean_s();
    let centre = f64::midpoint(law.lo_s, law.hi_s);
    let check = |figure: f64| (timer.check_s > 0.0).then_some(2.0 * (figure - centre));
    let possible = |figure: f64| match check(figure) {
        Some(check_s) => CHECKS.contains(&(check_s / timer.check_s)),
        None => (law.first_s()..=law.last_s()).contains(&figure),
    };
    let figures: Vec<f64> = published.mean_s.into_iter().chain(published.median_s).collect();
    if figures.is_empty() || !figures.iter().all(|f| possible(*f)) {
        return None;
    }
    let needed = published.share.zip(published.mean_s).and_then(|((share, from, to), mean)| {
        let all_inside = law.first_s() >= from && law.last_s() <= to;
        (all_inside && share < 1.0).then(|| (mean - share * nominal) / (1.0 - share))
    });
    let mut found = PublishedLine {
        timer: timer.clone(),
        nominal_mean_s: nominal,
        mean_above_s: published.mean_s.map(|m| m - nominal),
        median_above_s: published.median_s.map(|m| m - nominal),
        check_by_mean_s: published.mean_s.and_then(check),
        check_by_median_s: published.median_s.and_then(check),
        others_need_mean_s: needed,
        words: String::new(),
    };
    found.words = words(&found, published);
    Some(found)
}

fn words(line: &PublishedLine, published: &Published) -> String {
    let t = &line.timer;
    let mut said = vec![format!("{} ({}): mean and median {} s", t.id, t.name, short(line.nominal_mean_s))];
    let beside = |above: f64| format!("{} s {}", short(above.abs()), if above < 0.0 { "below" } else { "above" });
    for (what, above) in [("mean", line.mean_above_s), ("median", line.median_above_s)] {
        if let Some(above) = above {
            said.push(format!("the reported {what} is {} that", beside(above)));
        }
    }
    if let Some(check) = line.check_by_mean_s.or(line.check_by_median_s) {
        let by_median = line.check_by_median_s.filter(|m| (m - check).abs() >= 0.5);
        let range =
            by_median.map_or_else(|| short(check), |m| format!("{} to {}", short(check.min(m)), short(check.max(m))));
        let late = line.mean_above_s.or(line.median_above_s).is_some_and(|above| above > 0.0);
        let delay = if late { "; so does a constant delay of the difference" } else { "" };
        said.push(format!("a look every {range} s instead of every {} s gives the figures{delay}", short(t.check_s)));
    }
    if let (Some(mean), Some((share, from, to))) = (line.others_need_mean_s, published.share) {
        said.push(format!(
            "with the check as set, the {} outside {} to {} s would need a mean of {} s",
            percent(1.0 - share),
            short(from),
            short(to),
            short(mean)
        ));
    }
    format!("{}.", said.join("; "))
}

#[cfg(test)]
mod tests {
    use super::super::library::library;
    use super::*;

    #[test]
    fn the_published_stall_is_24_s_above_its_timer() {
        let published = Published::parse("mean=1283.9s, median=1288.4s,share=80%@1100s..1400s").unwrap();
        let answer = answer_published(published, &library());
        let first = &answer.lines[0];
        assert_eq!((first.timer.id.as_str(), first.nominal_mean_s), ("airflow-queued-1200", 1260.0));
        assert!((first.mean_above_s.unwrap() - 23.9).abs() < 1e-6);
        assert!((first.check_by_mean_s.unwrap() - 167.8).abs() < 1e-6);
        assert!((first.check_by_median_s.unwrap() - 176.8).abs() < 1e-6);
        assert!((first.others_need_mean_s.unwrap() - 1379.5).abs() < 1e-6);
        assert!(first.words.contains("23.9 s above") && first.words.contains("167.8 to 176.8 s"), "{}", first.words);
    }

    #[test]
    fn figures_are_refused_with_the_mend() {
        for text in ["mean", "mean=12", "p99=3s", "share=80%", "share=80%@3s", "share=180%@1s..2s", "share=x%@1s..2s"] {
            assert!(Published::parse(text).unwrap_err().contains("mean=1283.9s"), "{text}");
        }
    }
}

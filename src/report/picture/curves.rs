//! Times to an event as product-limit curves, one strip an arm and fault below the other on one axis.
//!
//! Each rise of a curve has the colour of who brought it about. A curve that ends below the top has censored trials:
//! each instant at which trials are censored is a tick. No trial is left out: rises that fall on the same tenth of a
//! pixel are drawn as one.

use super::axis::Axis;
use super::palette;
use super::{Anchor, Mark, Picture, Px};
use crate::report::text::{quantile, seconds, whole_seconds};
use crate::stats::{ALPHA, Kaplan, Observation, Spread, curve};
use std::fmt::Write;

/// One arm under one fault.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::report) struct Strip {
    pub arm: String,
    /// `blackhole (flow)`; empty where all strips have the same.
    pub fault: String,
    /// Each time, and who brought the event about; nobody for one that is censored.
    pub points: Vec<(Observation, String)>,
    /// Who, as tables name them.
    pub who: String,
    /// The numbers that tables have.
    pub spread: Spread,
    /// The predicted window; both `None` is never.
    pub predicted: Option<(Option<f64>, Option<f64>)>,
}

/// A time by which somebody acts without looking at the connection.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::report) struct Deadline {
    pub label: String,
    /// The watcher; `None` is a published number.
    pub watcher: Option<&'static str>,
    pub from_s: f64,
    pub to_s: f64,
}

/// What a picture of curves shows.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::report) struct Curves {
    pub id: &'static str,
    pub title: String,
    /// What the axis counts: `seconds since the cut`.
    pub axis: &'static str,
    /// What happened: `noticed`.
    pub verb: &'static str,
    pub horizon_s: f64,
    pub strips: Vec<Strip>,
    pub deadlines: Vec<Deadline>,
}

/// How it is laid out.
#[derive(Debug, Clone, Copy)]
struct Layout {
    width: f64,
    plot: (f64, f64),
    /// Height of a strip, of the text above it (or none: the text stands at its left), and the gap to the next one.
    strip: f64,
    above: f64,
    gap: f64,
    /// Lines of text at the left.
    lines: usize,
}

impl Layout {
    fn new(narrow: bool, strips: usize) -> Self {
        match (narrow, strips) {
            (true, _) => Self { width: 350.0, plot: (34.0, 342.0), strip: 40.0, above: 40.0, gap: 10.0, lines: 0 },
            (false, ..=MANY) => {
                Self { width: 960.0, plot: (236.0, 950.0), strip: 60.0, above: 0.0, gap: 16.0, lines: 4 }
            }
            // Arm and fault stand in one line.
            (false, _) => Self { width: 960.0, plot: (326.0, 950.0), strip: 30.0, above: 0.0, gap: 10.0, lines: 2 },
        }
    }
}

/// From more strips than these on, they are low, and the axis has its numbers at both ends.
const MANY: usize = 8;
const SMALL_LETTER: f64 = 6.0;
const NAME_LETTER: f64 = 8.2;
/// Letters that fit beside a strip.
const LETTERS: usize = 33;
/// Up to so many events each is also a dot.
const DOTS: usize = 60;

impl Curves {
    /// The picture for a page of ordinary width, and the one for a phone.
    pub fn draw(&self, narrow: bool) -> Picture {
        let layout = Layout::new(narrow, self.strips.len());
        let mut p = Picture {
            id: format!("{}{}", self.id, if narrow { "-narrow" } else { "" }),
            title: self.title.clone(),
            description: self.describe(),
            width: Px(layout.width),
            height: Px(0.0),
            marks: Vec::new(),
        };
        let axis = self.axis_of(layout.plot);
        let mut y = self.legend(&mut p, layout) + 10.0;
        if self.strips.is_empty() {
            p.text(layout.width / 2.0, y + 20.0, Anchor::Middle, "muted", "Nothing was measured.");
            p.height = Px(y + 40.0);
            return p;
        }
        let shown: Vec<&Deadline> = self.deadlines.iter().filter(|d| axis.shows(d.from_s)).collect();
        let labels = y;
        y += 14.0 * shown.len() as f64 + if shown.is_empty() { 0.0 } else { 4.0 };
        if self.strips.len() > MANY {
            // Room for the ticks' texts, which stand at both ends.
            y += 12.0;
        }
        let top = y;
        let bottom = top + self.strips.len() as f64 * (layout.above + layout.strip + layout.gap) - layout.gap;
        self.frame(&mut p, layout, &axis, (top, bottom));
        for (i, deadline) in shown.into_iter().enumerate() {
            draw_deadline(&mut p, &axis, deadline, labels + 14.0 * (i as f64 + 1.0), (top, bottom));
        }
        for (i, strip) in self.strips.iter().enumerate() {
            self.strip(&mut p, layout, &axis, strip, y, i == 0);
            y += layout.above + layout.strip + layout.gap;
        }
        p.height = Px(bottom + 42.0);
        p
    }

    /// The words for those who can't see the curves.
    fn describe(&self) -> String {
        if self.strips.is_empty() {
            return "Nothing was measured.".to_string();
        }
        let mut text = String::new();
        for strip in &self.strips {
            let s = &strip.spread;
            let _ = write!(text, "{}: {} of {} {}", strip.label(), s.events, s.n, self.verb);
            if s.events > 0 {
                let _ = write!(text, ", median {}, by {}", with_unit(&quantile(s, s.median_s)), strip.who);
            }
            text.push_str(". ");
        }
        for d in &self.deadlines {
            let _ = write!(text, "{} at {} s. ", d.label, whole_seconds(d.from_s));
        }
        text.trim_end().to_string()
    }

    fn axis_of(&self, px: (f64, f64)) -> Axis {
        let times = || self.strips.iter().flat_map(|s| &s.points).map(|(o, _)| *o).filter(|o| !o.seconds.is_nan());
        let latest = times().map(|o| o.seconds).fold(0.0, f64::max);
        let earliest = times().filter(|o| o.happened && o.seconds > 0.0).map(|o| o.seconds).reduce(f64::min);
        let reach = self.horizon_s.max(latest);
        let windows = self.strips.iter().filter_map(|s| s.predicted?.1).filter(|hi| *hi <= reach);
        let deadlines = self.deadlines.iter().map(|d| d.to_s).filter(|to| *to <= 2.0 * reach);
        let needed = windows.chain(deadlines).fold(latest, f64::max) * 1.04;
        // To the horizon, unless all that matters happens early.
        let whole = needed > 0.5 * self.horizon_s || times().next().is_none();
        Axis::new(px, earliest, if whole { needed.max(self.horizon_s) } else { needed })
    }

    /// Who has which colour, and the signs. Returns the height that it takes.
    fn legend(&self, p: &mut Picture, layout: Layout) -> f64 {
        let mut names: Vec<&str> = Vec::new();
        for (_, who) in self.strips.iter().flat_map(|s| &s.points).filter(|(o, _)| o.happened) {
            if !names.contains(&who.as_str()) {
                names.push(who);
            }
        }
        let mut entries: Vec<(&str, String)> = names.iter().map(|n| (palette::shown(n), palette::class(n))).collect();
        let any = |is: fn(&Strip) -> bool| self.strips.iter().any(is);
        if any(|s| s.predicted.is_some_and(|(lo, _)| lo.is_some())) {
            entries.push(("predicted before the run", "predicted".to_string()));
        }
        if any(|s| s.points.iter().any(|(o, _)| !o.happened)) {
            entries.push(("censored: watched in vain until here", "censored".to_string()));
        }
        let (mut x, mut y) = (0.0, 14.0);
        for (text, class) in entries {
            let width = 26.0 + text.chars().count() as f64 * 6.6 + 16.0;
            if x > 0.0 && x + width > layout.width {
                (x, y) = (0.0, y + 18.0);
            }
            match class.as_str() {
                "predicted" => p.rect((x, y - 10.0), (20.0, 12.0), &class),
                "censored" => p.line((x + 10.0, y - 10.0), (x + 10.0, y + 2.0), &class),
                _ => p.line((x, y - 4.0), (x + 20.0, y - 4.0), &format!("curve {class}")),
            }
            p.text(x + 26.0, y, Anchor::Start, "", text);
            x += width;
        }
        y + 4.0
    }

    /// Grid and axis.
    fn frame(&self, p: &mut Picture, layout: Layout, axis: &Axis, (top, bottom): (f64, f64)) {
        let most = if layout.above > 0.0 { 5 } else { 9 };
        for (at, text) in axis.ticks(most) {
            let x = axis.at(at);
            p.line((x, top), (x, bottom), "grid");
            p.text(x, bottom + 16.0, Anchor::Middle, "muted small", &text);
            if self.strips.len() > MANY {
                p.text(x, top - 4.0, Anchor::Middle, "muted small", &text);
            }
        }
        let middle = f64::midpoint(layout.plot.0, layout.plot.1);
        p.text(middle, bottom + 34.0, Anchor::Middle, "muted", &format!("{}{}", self.axis, axis.kind()));
    }

    fn strip(&self, p: &mut Picture, layout: Layout, axis: &Axis, strip: &Strip, y: f64, first: bool) {
        let (x0, x1) = layout.plot;
        let (top, bottom) = (y + layout.above, y + layout.above + layout.strip);
        self.words(p, layout, strip, y);
        if let Some((Some(lo), hi)) = strip.predicted {
            let (from, to) = (axis.at(lo), hi.map_or(x1, |hi| axis.at(hi)));
            if axis.shows(lo) {
                // A window of a millisecond is still to be seen.
                p.rect((from, top), ((to - from).max(1.0), layout.strip), "predicted");
            }
        }
        p.line((x0, top), (x1, top), "grid");
        p.line((x0, bottom), (x1, bottom), "edge");
        if first {
            p.text(x0 - 5.0, top + 4.0, Anchor::End, "muted small", "100%");
            p.text(x0 - 5.0, bottom + 3.0, Anchor::End, "muted small", "0");
        }
        draw_band(p, axis, strip, (top, bottom));
        draw_curve(p, axis, strip, (top, bottom), x0);
    }

    /// What stands beside a strip, or above it.
    fn words(&self, p: &mut Picture, layout: Layout, strip: &Strip, y: f64) {
        let s = &strip.spread;
        let counts = format!("{} of {} {}", s.events, s.n, self.verb);
        let numbers = match s.events {
            _ if s.n == 0 => "nothing measured".to_string(),
            0 => counts,
            _ => {
                let median = with_unit(&quantile(s, s.median_s));
                let whole = format!("{counts}, median {median}");
                // The median is what must not be cut off.
                let fits = layout.lines == 0 || whole.chars().count() <= LETTERS;
                if fits { whole } else { format!("{} of {}, median {median}", s.events, s.n) }
            }
        };
        let colour = format!("who small {}", palette::class(&strip.main()));
        let who = if s.events == 0 { "" } else { strip.who.as_str() };
        if layout.lines == 0 {
            p.fitted(0.0, y + 12.0, "name", &strip.label(), layout.width, NAME_LETTER);
            let used = numbers.chars().count() as f64 * SMALL_LETTER + 10.0;
            p.text(0.0, y + 28.0, Anchor::Start, "muted small", &numbers);
            p.fitted(used, y + 28.0, &colour, who, layout.width - used, 6.6);
            return;
        }
        let width = layout.plot.0 - 38.0;
        let (named, below) =
            if layout.lines > 2 { (strip.arm.clone(), strip.fault.as_str()) } else { (strip.label(), "") };
        let mut lines = vec![("name", named.as_str(), NAME_LETTER)];
        if !below.is_empty() {
            lines.push(("muted small", below, SMALL_LETTER));
        }
        let together = format!("{} of {}, {}, {who}", s.events, s.n, with_unit(&quantile(s, s.median_s)));
        if layout.lines > 2 {
            lines.push(("muted small", numbers.as_str(), SMALL_LETTER));
            lines.push((colour.as_str(), who, 6.6));
        } else if s.events > 0 {
            lines.push((colour.as_str(), together.as_str(), 6.6));
        } else {
            lines.push(("muted small", numbers.as_str(), SMALL_LETTER));
        }
        for (i, (class, text, letter)) in lines.into_iter().filter(|(_, text, _)| !text.is_empty()).enumerate() {
            // Only the first line has the axis' numbers beside it.
            let room = if i == 0 { width } else { width + 8.0 };
            p.fitted(0.0, y + 12.0 + 15.0 * i as f64, class, text, room, letter);
        }
    }
}

impl Strip {
    fn label(&self) -> String {
        if self.fault.is_empty() { self.arm.clone() } else { format!("{}, {}", self.arm, self.fault) }
    }

    /// Who brought most of the events about.
    fn main(&self) -> String {
        let mut counts: Vec<(usize, &str)> = Vec::new();
        for (_, who) in self.points.iter().filter(|(o, _)| o.happened) {
            match counts.iter_mut().find(|(_, name)| name == who) {
                Some(count) => count.0 += 1,
                None => counts.push((1, who)),
            }
        }
        counts.iter().rev().max_by_key(|(n, _)| *n).map(|(_, name)| (*name).to_string()).unwrap_or_default()
    }
}

fn with_unit(number: &str) -> String {
    if number.starts_with(|c: char| c.is_ascii_digit()) { format!("{number} s") } else { number.to_string() }
}

fn draw_deadline(p: &mut Picture, axis: &Axis, d: &Deadline, y: f64, (top, bottom): (f64, f64)) {
    let (from, to) = (axis.at(d.from_s), axis.at(d.to_s));
    let kind = if d.watcher.is_some() { "deadline" } else { "published" };
    let colour = d.watcher.map(palette::class).unwrap_or_default();
    if to > from {
        p.rect((from, top), (to - from, bottom - top), &format!("{kind}-band {colour}"));
    }
    p.line((from, top), (from, bottom), &format!("{kind} {colour}"));
    let times = if d.to_s > d.from_s {
        format!("{} to {} s", whole_seconds(d.from_s), whole_seconds(d.to_s))
    } else {
        format!("{} s", seconds(d.from_s))
    };
    let text = format!("{} {times}", d.label);
    let class = if d.watcher.is_some() { format!("who small {colour}") } else { "muted small".to_string() };
    // To the left of the line where there is more room.
    let right = from < f64::midpoint(axis.from_px, axis.to_px);
    let (x, anchor) = if right { (from, Anchor::Start) } else { (to.max(from), Anchor::End) };
    p.text(x, y, anchor, &class, &text);
}

/// The pointwise 95 % band of the curve, to the pixel. It begins at the first event and ends with the last one that has a
/// band: where all have had the event there is none.
fn draw_band(p: &mut Picture, axis: &Axis, strip: &Strip, (top, bottom): (f64, f64)) {
    let observations: Vec<Observation> = strip.points.iter().map(|(o, _)| *o).collect();
    let curve = Kaplan::of(&observations);
    let height = |share: f64| bottom - share * (bottom - top);
    let mut steps: Vec<(f64, f64, f64)> = Vec::new();
    let mut end = axis.from_px;
    for (i, point) in curve.points.iter().enumerate() {
        let Some(band) = point.band(ALPHA) else { continue };
        let x = axis.at(point.seconds);
        end = curve.points.get(i + 1).map_or_else(|| axis.at(curve.limit_s()), |next| axis.at(next.seconds));
        // The share that had noticed is one minus the share that had not.
        let step = (x, height(1.0 - band.hi), height(1.0 - band.lo));
        match steps.last_mut() {
            Some(last) if x - last.0 < 1.0 => (last.1, last.2) = (step.1, step.2),
            _ => steps.push(step),
        }
    }
    let Some(first) = steps.first() else { return };
    let mut d = format!("M{} {}", Px(first.0), Px(first.2));
    let until = |i: usize| steps.get(i + 1).map_or(end, |next| next.0);
    for (i, (_, _, high)) in steps.iter().enumerate() {
        let _ = write!(d, "V{}H{}", Px(*high), Px(until(i)));
    }
    for (x, low, _) in steps.iter().rev() {
        let _ = write!(d, "V{}H{}", Px(*low), Px(*x));
    }
    d.push('Z');
    p.marks.push(Mark::Path { d, class: format!("band {}", palette::class(&strip.main())) });
}

/// Rises in the colours of those who brought them about, on a pale line; ticks where trials are censored.
fn draw_curve(p: &mut Picture, axis: &Axis, strip: &Strip, (top, bottom): (f64, f64), x0: f64) {
    let observations: Vec<Observation> = strip.points.iter().map(|(o, _)| *o).collect();
    let steps = curve(&observations);
    let Some(last) = steps.last() else { return };
    let height = |share: f64| bottom - share * (bottom - top);
    // One path a run of rises of one watcher: the flat part that leads to a rise belongs to it.
    let mut runs: Vec<(&str, String, (f64, f64))> = Vec::new();
    let mut pen = (x0, 0.0_f64);
    let mut dots = Vec::new();
    let mut ticks: Vec<(Px, f64, usize)> = Vec::new();
    for (i, step) in steps.iter().enumerate() {
        let x = axis.at(step.seconds);
        if !step.happened {
            match ticks.last_mut() {
                Some(tick) if tick.0.tenths() == Px(x).tenths() => tick.2 += 1,
                _ => ticks.push((Px(x), step.share, 1)),
            }
            continue;
        }
        let who = strip.points[step.index].1.as_str();
        // What follows at the same place by the same watcher makes one rise.
        let next = steps.get(i + 1);
        let goes_on = next.is_some_and(|n| {
            n.happened && Px(axis.at(n.seconds)).tenths() == Px(x).tenths() && strip.points[n.index].1 == who
        });
        if observations.len() <= DOTS {
            dots.push((x, step.share, who));
        }
        if goes_on {
            continue;
        }
        if runs.last().is_none_or(|(name, ..)| *name != who) {
            runs.push((who, format!("M{} {}", Px(pen.0), Px(height(pen.1))), pen));
        }
        if let Some((_, d, _)) = runs.last_mut() {
            let _ = write!(d, "H{}V{}", Px(x), Px(height(step.share)));
        }
        pen = (x, step.share);
    }
    for (who, d, _) in runs {
        p.marks.push(Mark::Path { d, class: format!("curve {}", palette::class(who)) });
    }
    for (x, share, who) in dots {
        let class = format!("dot {}", palette::class(who));
        p.marks.push(Mark::Dot { x: Px(x), y: Px(height(share)), radius: Px(2.4), class });
    }
    let end = axis.at(last.seconds);
    if end > pen.0 {
        let d = format!("M{} {}H{}", Px(pen.0), Px(height(pen.1)), Px(end));
        p.marks.push(Mark::Path { d, class: "flat".to_string() });
    }
    for (x, share, _) in &ticks {
        p.line((x.0, height(*share) - 5.0), (x.0, height(*share) + 5.0), "censored");
    }
    let censored: usize = ticks.iter().map(|(.., n)| n).sum();
    if censored > 0 {
        let y = if last.share > 0.5 { height(last.share) + 15.0 } else { height(last.share) - 8.0 };
        p.text(end - 6.0, y, Anchor::End, "small", &format!("{censored} censored"));
    }
    if strip.predicted == Some((None, None)) {
        p.text(x0 + 6.0, top + 13.0, Anchor::Start, "muted small", "predicted: never");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::spread;

    fn strip(points: Vec<(Observation, &str)>) -> Strip {
        let observations: Vec<Observation> = points.iter().map(|(o, _)| *o).collect();
        Strip {
            arm: "arm".into(),
            fault: String::new(),
            points: points.into_iter().map(|(o, who)| (o, who.to_string())).collect(),
            who: "keepalive".into(),
            spread: spread(&observations),
            predicted: Some((Some(1.0), None)),
        }
    }

    fn curves(strips: Vec<Strip>) -> Curves {
        let deadline =
            Deadline { label: "queued_timeout".into(), watcher: Some("queued_timeout"), from_s: 12.0, to_s: 15.0 };
        Curves {
            id: "ttd",
            title: "t".into(),
            axis: "seconds since the cut",
            verb: "noticed",
            horizon_s: 20.0,
            strips,
            deadlines: vec![deadline],
        }
    }

    fn paths<'p>(p: &'p Picture, class: &str) -> Vec<&'p str> {
        p.marks
            .iter()
            .filter_map(|m| match m {
                Mark::Path { d, class: c } if c == class => Some(d.as_str()),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn a_curve_changes_its_colour_with_the_watcher_and_ends_at_its_censored_share() {
        let points = vec![
            (Observation::event(4.0), "keepalive"),
            (Observation::event(8.0), "retransmit"),
            (Observation::event(8.0), "retransmit"),
            (Observation::censored(20.0), ""),
        ];
        let p = curves(vec![strip(points)]).draw(false);
        assert_eq!(paths(&p, "curve w-keepalive").len(), 1);
        // Two at one instant are one rise.
        assert_eq!(paths(&p, "curve w-retransmit")[0].matches('V').count(), 1);
        assert_eq!(paths(&p, "flat").len(), 1);
        let texts: Vec<&String> =
            p.marks.iter().filter_map(|m| if let Mark::Text { text, .. } = m { Some(text) } else { None }).collect();
        assert!(texts.iter().any(|t| *t == "1 censored"), "{texts:?}");
        assert!(texts.iter().any(|t| *t == "queued_timeout 12 to 15 s"), "{texts:?}");
        assert!(p.description.contains("3 of 4 noticed, median 8.00 s, by keepalive"), "{}", p.description);
    }

    #[test]
    fn many_trials_make_no_more_marks_than_there_is_room_for() {
        let many =
            |n: u32| (0..n).map(|i| (Observation::event(f64::from(i) * 20.0 / f64::from(n)), "keepalive")).collect();
        let length = |n| curves(vec![strip(many(n))]).draw(false).inline().len();
        assert!(length(100_000) < 120_000, "{}", length(100_000));
        let highest = curves(vec![strip(many(100_000))]).draw(false);
        // The curve ends at the top, whatever was merged on the way.
        let d = paths(&highest, "curve w-keepalive")[0];
        let end: f64 = d.rsplit('V').next().unwrap().parse().unwrap();
        let grid = highest.marks.iter().find_map(|m| match m {
            Mark::Line { y1, x1, class, .. } if class == "grid" && x1.0 == 236.0 && y1.0 > 0.0 => Some(y1.0),
            _ => None,
        });
        assert!((end - grid.unwrap()).abs() < 0.2, "{end} {grid:?}");
    }

    #[test]
    fn nothing_is_a_picture_too() {
        let p = curves(Vec::new()).draw(true);
        assert!(p.inline().contains("Nothing was measured."));
        let p = curves(vec![strip(Vec::new())]).draw(true);
        assert!(p.inline().contains("nothing measured"));
    }
}

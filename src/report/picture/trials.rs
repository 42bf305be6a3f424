//! Single trials as lanes: who saw what, when.

use super::axis::Axis;
use super::palette;
use super::{Anchor, Mark, Picture, Px};
use crate::report::lives::{Lane, Life, Moment};

const LANE: f64 = 20.0;
const LETTER: f64 = 6.2;

/// All of them below one another, each on its own axis.
pub(in crate::report) fn draw(lives: &[Life], narrow: bool) -> Picture {
    let (width, plot) = if narrow { (350.0, (62.0, 342.0)) } else { (960.0, (90.0, 950.0)) };
    let described: Vec<String> = lives.iter().map(describe).collect();
    let mut p = Picture {
        id: if narrow { "trials-narrow" } else { "trials" }.to_string(),
        title: "Single trials: who saw what, in seconds from the cut".to_string(),
        description: if described.is_empty() { "No trial was cut.".to_string() } else { described.join(" ") },
        width: Px(width),
        height: Px(0.0),
        marks: Vec::new(),
    };
    let mut y = 4.0;
    for life in lives {
        y = draw_life(&mut p, life, plot, y, narrow) + 22.0;
    }
    if lives.is_empty() {
        p.text(width / 2.0, 24.0, Anchor::Middle, "muted", "No trial was cut.");
        y = 40.0;
    }
    p.height = Px(y);
    p
}

fn describe(life: &Life) -> String {
    let moments: Vec<String> =
        life.moments.iter().map(|m| format!("{} {}", crate::report::lives::signed(m.at_s), m.text)).collect();
    format!("{}: {}.", life.label, moments.join("; "))
}

fn draw_life(p: &mut Picture, life: &Life, plot: (f64, f64), y: f64, narrow: bool) -> f64 {
    p.fitted(0.0, y + 12.0, "name", &life.label, plot.1, 7.4);
    let first = life.moments.first().map_or(0.0, |m| m.at_s).min(0.0);
    let length = (life.until_s - first).max(0.001);
    // A little room before the first moment, so that it does not stand on the edge.
    let axis = Axis::between(plot, first - 0.03 * length, first + 1.02 * length);
    let lanes: Vec<Lane> = Lane::ALL.into_iter().filter(|lane| life.moments.iter().any(|m| m.lane == *lane)).collect();
    let top = y + 22.0;
    let bottom = top + lanes.len() as f64 * LANE;
    for (seconds, text) in axis.ticks(if narrow { 5 } else { 10 }) {
        let x = axis.at(seconds);
        p.line((x, top), (x, bottom), "grid");
        p.text(x, bottom + 14.0, Anchor::Middle, "muted small", &text);
    }
    p.line((axis.at(0.0), top), (axis.at(0.0), bottom), "cut");
    for (i, lane) in lanes.iter().enumerate() {
        let middle = top + (i as f64 + 0.5) * LANE;
        p.text(0.0, middle + 4.0, Anchor::Start, "muted small", lane.name());
        p.line((plot.0, middle), (plot.1, middle), "lane");
        draw_lane(p, &axis, life.moments.iter().filter(|m| m.lane == *lane), middle);
    }
    bottom + 14.0
}

/// Dots, with as many words as there is room for: all of them are in the list beside the picture.
fn draw_lane<'m>(p: &mut Picture, axis: &Axis, moments: impl Iterator<Item = &'m Moment>, y: f64) {
    let mut written_to = f64::NEG_INFINITY;
    let moments: Vec<&Moment> = moments.collect();
    for (i, m) in moments.iter().enumerate() {
        let x = axis.at(m.at_s);
        let colour = m.who.as_deref().map_or_else(|| "moment".to_string(), |w| format!("dot {}", palette::class(w)));
        p.marks.push(Mark::Dot { x: Px(x), y: Px(y), radius: Px(4.0), class: colour });
        let width = m.short.chars().count() as f64 * LETTER;
        let next = moments.get(i + 1).map_or(axis.to_px + 8.0, |n| axis.at(n.at_s));
        let class =
            m.who.as_deref().map_or_else(|| "small".to_string(), |w| format!("who small {}", palette::class(w)));
        if x + 8.0 + width <= next && x > written_to {
            p.text(x + 7.0, y - 4.0, Anchor::Start, &class, &m.short);
            written_to = x + 8.0 + width;
        } else if x - 8.0 - width >= written_to.max(axis.from_px) {
            p.text(x - 7.0, y - 4.0, Anchor::End, &class, &m.short);
            written_to = x + 4.0;
        } else {
            written_to = written_to.max(x + 4.0);
        }
    }
}

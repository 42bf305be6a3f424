//! What has which colour: the same watcher the same one in every picture and table, on light paper and on dark.
//!
//! Hues after Okabe and Ito (2008), which people with any of the usual colour vision deficiencies tell apart,
//! lightened or darkened until each has a contrast of at least 4.5 : 1 on its paper (WCAG 2.2, 1.4.3). There are more
//! watchers than hues: those of one kind share a hue and differ in the dashes of their line, and a name stands at every
//! curve, so that no answer hangs on a colour.

use crate::timers::Watcher;
use std::fmt::Write;

/// A hue on light paper and on dark.
struct Hue(&'static str, &'static str);

const BLUE: Hue = Hue("#0072b2", "#5ab4f0");
const VERMILLION: Hue = Hue("#c85200", "#ff8c42");
const GREEN: Hue = Hue("#00805c", "#3ddba8");
const PURPLE: Hue = Hue("#a8457f", "#e79ac6");
const INDIGO: Hue = Hue("#3f3d9e", "#b3b0ff");
const AMBER: Hue = Hue("#8f6000", "#f2c14e");
const INK: Hue = Hue("#1f2937", "#f3f4f6");
const TEAL: Hue = Hue("#006d77", "#58d0d8");
const GREY: Hue = Hue("#687181", "#98a2b3");

/// Dashes of a line, as `stroke-dasharray`.
const SOLID: &str = "none";
const DASHED: &str = "6 3";
const DOTTED: &str = "2 2.5";

/// What resolved a stuck message without a watcher: it was delivered on another connection.
const RECOVERY: &str = "recovery";
/// Nobody knows who.
const UNKNOWN: &str = "unknown";

fn look(watcher: Watcher) -> (&'static Hue, &'static str) {
    match watcher {
        Watcher::ReadTimeout => (&BLUE, SOLID),
        Watcher::SendTimeout => (&BLUE, DASHED),
        Watcher::ConnectTimeout => (&BLUE, DOTTED),
        Watcher::AmqpHeartbeat => (&VERMILLION, SOLID),
        Watcher::BrokerHeartbeat => (&VERMILLION, DASHED),
        Watcher::TaskHeartbeat => (&VERMILLION, DOTTED),
        Watcher::Keepalive => (&GREEN, SOLID),
        Watcher::UserTimeout => (&GREEN, DASHED),
        Watcher::Retransmit => (&PURPLE, SOLID),
        Watcher::Persist => (&PURPLE, DASHED),
        Watcher::SynRetries => (&PURPLE, DOTTED),
        Watcher::HealthCheck => (&INDIGO, SOLID),
        Watcher::ConsumerTimeout => (&INDIGO, DASHED),
        Watcher::VisibilityTimeout => (&INDIGO, DOTTED),
        Watcher::QueuedTimeout => (&AMBER, SOLID),
        Watcher::PendingTimeout => (&AMBER, DASHED),
        Watcher::ProcessingTimeout => (&AMBER, DOTTED),
        Watcher::Reset => (&INK, SOLID),
        Watcher::Fin => (&INK, DASHED),
        Watcher::Unreachable => (&INK, DOTTED),
        Watcher::LivenessTtl => (&GREY, DASHED),
        Watcher::Progress => (&GREY, DOTTED),
        Watcher::None => (&GREY, SOLID),
    }
}

/// The name that is shown; the evidence does not always tell.
pub(in crate::report) fn shown(name: &str) -> &str {
    if name.is_empty() { UNKNOWN } else { name }
}

/// The class of a name: `w-keepalive`. A name that this version does not know looks like an unknown one.
pub(in crate::report) fn class(name: &str) -> String {
    match name.parse::<Watcher>() {
        Ok(watcher) => format!("w-{watcher}"),
        Err(_) if name == RECOVERY => format!("w-{RECOVERY}"),
        Err(_) => format!("w-{UNKNOWN}"),
    }
}

/// Names, hue and dashes of everything that has a class.
fn all() -> impl Iterator<Item = (&'static str, &'static Hue, &'static str)> {
    let watchers = Watcher::ALL.iter().map(|w| {
        let (hue, dashes) = look(*w);
        (w.name(), hue, dashes)
    });
    watchers.chain([(RECOVERY, &TEAL, SOLID), (UNKNOWN, &GREY, SOLID)])
}

/// The classes with their dashes and variables, without the colours' values.
fn classes() -> String {
    let mut css = String::new();
    for (name, _, dashes) in all() {
        // Writing to a String can't fail.
        let _ = write!(css, ".w-{name}{{--c:var(--w-{name});--dash:{dashes}}}");
    }
    css
}

/// The values of the colours on one paper.
fn colours(dark: bool) -> String {
    let mut css = String::new();
    for (name, Hue(light, night), _) in all() {
        let _ = write!(css, "--w-{name}:{};", if dark { night } else { light });
    }
    css.push_str(if dark { DARK } else { LIGHT });
    css
}

const LIGHT: &str = "--paper:#ffffff;--ink:#1c2430;--muted:#566072;--grid:#e1e5eb;--edge:#c3cad4;\
    --shade:#0072b2;--panel:#f5f7fa;--good:#0b6b4a;--bad:#b3261e;--warn:#7a5600;--link:#0b5cad;";
const DARK: &str = "--paper:#12161c;--ink:#e8ecf2;--muted:#a3adbb;--grid:#2a313b;--edge:#47515f;\
    --shade:#5ab4f0;--panel:#1a2029;--good:#4fd1a5;--bad:#ff8a80;--warn:#f2c14e;--link:#7cc0ff;";

/// How marks look, given the variables.
const MARKS: &str = ".picture{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}\
    .picture text{fill:var(--ink);font-size:12px}\
    .picture .name{font-weight:600;font-size:13px}\
    .picture .muted{fill:var(--muted)}\
    .picture .small{font-size:11px}\
    .picture .who{fill:var(--c);font-weight:600}\
    .picture .grid{stroke:var(--grid);stroke-width:1}\
    .picture .edge{stroke:var(--edge);stroke-width:1}\
    .picture .curve{stroke:var(--c);stroke-dasharray:var(--dash);stroke-width:2;fill:none;stroke-linejoin:round}\
    .picture .band{fill:var(--c);fill-opacity:.12;stroke:none}\
    .picture .flat{stroke:var(--edge);stroke-width:1.5;fill:none}\
    .picture .dot{fill:var(--c)}\
    .picture .censored{stroke:var(--ink);stroke-width:1.5}\
    .picture .predicted{fill:var(--shade);fill-opacity:.13}\
    .picture .deadline{stroke:var(--c);stroke-width:1.5;stroke-dasharray:5 4}\
    .picture .deadline-band{fill:var(--c);fill-opacity:.10}\
    .picture .published{stroke:var(--muted);stroke-width:1.5;stroke-dasharray:1.5 3}\
    .picture .published-band{fill:var(--muted);fill-opacity:.12}\
    .picture .cut{stroke:var(--bad);stroke-width:2}\
    .picture .lane{stroke:var(--edge);stroke-width:1}\
    .picture .moment{fill:var(--ink)}";

/// The style sheet of a page, without the page's own layout.
pub(in crate::report) fn page_style() -> String {
    let (light, dark) = (colours(false), colours(true));
    format!(
        ":root{{color-scheme:light dark;{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}\
         @media print{{:root{{color-scheme:light;{light}}}}}{}{MARKS}",
        classes()
    )
}

/// The style sheet of a picture that stands alone: with its own paper, so that it can be read wherever it is put.
pub(super) fn standalone_style() -> String {
    let (light, dark) = (colours(false), colours(true));
    format!(
        ":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}.paper{{fill:var(--paper)}}{}{MARKS}",
        classes()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance (WCAG 2.2).
    fn luminance(hex: &str) -> f64 {
        let channel = |i: usize| {
            let v = f64::from(u8::from_str_radix(&hex[i..i + 2], 16).unwrap()) / 255.0;
            if v <= 0.04045 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    fn variable(css: &str, name: &str) -> String {
        let start = css.find(&format!("--{name}:")).unwrap() + name.len() + 3;
        css[start..start + 7].to_string()
    }

    #[test]
    fn every_colour_can_be_read_on_its_paper() {
        for dark in [false, true] {
            let css = colours(dark);
            let (paper, panel) = (variable(&css, "paper"), variable(&css, "panel"));
            // Names are written in the watchers' colours, so those have the contrast of text.
            for (name, ..) in all() {
                let colour = variable(&css, &format!("w-{name}"));
                assert!(contrast(&colour, &paper) >= 4.5, "{name} {colour} on {paper}: {}", contrast(&colour, &paper));
            }
            for text in ["ink", "muted", "good", "bad", "warn", "link"] {
                let colour = variable(&css, text);
                assert!(contrast(&colour, &paper) >= 4.5 && contrast(&colour, &panel) >= 4.5, "{text} {colour}");
            }
        }
    }

    #[test]
    fn watchers_of_one_hue_differ_in_their_dashes() {
        let mut looks: Vec<(&str, &str)> = Vec::new();
        for watcher in Watcher::ALL {
            let (hue, dashes) = look(*watcher);
            assert!(!looks.contains(&(hue.0, dashes)), "{watcher} looks like another one");
            looks.push((hue.0, dashes));
        }
        assert_eq!(class("keepalive"), "w-keepalive");
        assert_eq!((class(""), class("\"><script>")), ("w-unknown".to_string(), "w-unknown".to_string()));
    }
}

//! Pictures as data: marks with classes, in pixels. One template turns them into SVG and escapes every text.
//!
//! The colours are not in the marks: a class names what a mark is (`w-keepalive`), and one style sheet gives it its
//! colour, on light paper and on dark. That is why no drawing library is used: those that write SVG write fixed colours.
//! What is left out: which numbers are drawn (`curves`, `trials`).

pub(super) mod axis;
pub(super) mod curves;
pub(super) mod palette;
pub(super) mod trials;

use askama::Template;
use std::fmt;

/// A coordinate, printed with at most one decimal: a tenth of a pixel is finer than any screen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Px(pub f64);

impl Px {
    /// In tenths of a pixel, as it is printed.
    pub fn tenths(self) -> i64 {
        // Pictures are a few thousand pixels wide and high.
        (self.0 * 10.0).round() as i64
    }
}

impl fmt::Display for Px {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.tenths();
        let (whole, rest) = (tenths.abs() / 10, tenths.abs() % 10);
        let sign = if tenths < 0 { "-" } else { "" };
        if rest == 0 { write!(f, "{sign}{whole}") } else { write!(f, "{sign}{whole}.{rest}") }
    }
}

/// Where a text is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl fmt::Display for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        })
    }
}

/// One thing that is drawn.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Mark {
    Rect {
        x: Px,
        y: Px,
        width: Px,
        height: Px,
        class: String,
    },
    Line {
        x1: Px,
        y1: Px,
        x2: Px,
        y2: Px,
        class: String,
    },
    Path {
        d: String,
        class: String,
    },
    Dot {
        x: Px,
        y: Px,
        radius: Px,
        class: String,
    },
    /// `full` is shown on hovering, where the text had to be shortened.
    Text {
        x: Px,
        y: Px,
        class: String,
        anchor: Anchor,
        text: String,
        full: Option<String>,
    },
}

/// A picture with its words for those who can't see it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Picture {
    /// Unique within a page.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// What is to be seen in it.
    pub description: String,
    pub width: Px,
    pub height: Px,
    pub marks: Vec<Mark>,
}

#[derive(Template)]
#[template(path = "picture.svg")]
struct Svg<'p> {
    picture: &'p Picture,
    /// The style sheet of a picture that stands alone.
    style: Option<&'p str>,
}

/// Paper around a picture that stands alone, in pixels.
const MARGIN: u32 = 12;

impl Svg<'_> {
    /// A length with the margins at both ends.
    fn beyond(&self, length: &Px) -> Px {
        Px(length.0 + 2.0 * f64::from(MARGIN))
    }

    /// What is seen of a picture that stands alone.
    fn paper(&self) -> String {
        let (width, height) = (self.beyond(&self.picture.width), self.beyond(&self.picture.height));
        format!("-{MARGIN} -{MARGIN} {width} {height}")
    }
}

impl Picture {
    /// For a page, which has the style sheet.
    pub fn inline(&self) -> String {
        // Writing to memory can't fail, and the template is checked by the compiler.
        Svg { picture: self, style: None }.render().unwrap_or_default()
    }

    /// As a file of its own.
    pub fn standalone(&self) -> String {
        Svg { picture: self, style: Some(&palette::standalone_style()) }.render().unwrap_or_default()
    }

    pub(super) fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, text: &str) {
        let (class, text) = (class.to_string(), text.to_string());
        self.marks.push(Mark::Text { x: Px(x), y: Px(y), class, anchor, text, full: None });
    }

    /// A text that has to fit into a width, shortened where it does not.
    pub(super) fn fitted(&mut self, x: f64, y: f64, class: &str, text: &str, width: f64, letter: f64) {
        let most = ((width / letter) as usize).max(4);
        let long = text.chars().count() > most;
        let shown = if long { text.chars().take(most - 1).chain(['…']).collect() } else { text.to_string() };
        let full = long.then(|| text.to_string());
        let (class, anchor) = (class.to_string(), Anchor::Start);
        self.marks.push(Mark::Text { x: Px(x), y: Px(y), class, anchor, text: shown, full });
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let class = class.to_string();
        self.marks.push(Mark::Line { x1: Px(from.0), y1: Px(from.1), x2: Px(to.0), y2: Px(to.1), class });
    }

    pub(super) fn rect(&mut self, at: (f64, f64), size: (f64, f64), class: &str) {
        let class = class.to_string();
        self.marks.push(Mark::Rect { x: Px(at.0), y: Px(at.1), width: Px(size.0), height: Px(size.1), class });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_have_at_most_one_decimal() {
        let shown: Vec<String> = [0.0, 12.0, 3.26, -0.04, -7.25].map(|v| Px(v).to_string()).into_iter().collect();
        assert_eq!(shown, ["0", "12", "3.3", "0", "-7.3"]);
    }

    #[test]
    fn foreign_text_is_escaped_in_every_place() {
        let evil = "</text><script>alert(\"1\")</script>";
        let mut picture = Picture {
            id: "p".into(),
            title: evil.into(),
            description: evil.into(),
            width: Px(10.0),
            height: Px(10.0),
            marks: Vec::new(),
        };
        picture.text(1.0, 1.0, Anchor::Start, "label", evil);
        picture.fitted(1.0, 1.0, "label", evil, 60.0, 6.0);
        assert!(!picture.inline().contains("<script>"));
        assert!(!picture.standalone().contains("<script>"));
    }
}

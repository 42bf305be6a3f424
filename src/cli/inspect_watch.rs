//! `halfopen inspect --watch`: looks again and again. On a terminal a table that is drawn anew, elsewhere a log of events.

use super::exit::{Exit, Failure};
use super::inspect::{InspectArgs, Watched, failure};
use crate::host::clock::Clock;
use crate::inspect::{Inspection, Order, Shown, follow, render, sort};
use crate::units::Offset;
use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, poll, read};
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{cursor, execute, queue, style};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// Looks until the target is gone, `--looks` are over, or somebody has had enough.
pub fn watch(args: &InspectArgs, watched: &mut Watched) -> Result<Exit, Failure> {
    let mut log = args.log.as_ref().map(open).transpose()?;
    if !args.json && io::stdout().is_terminal() && io::stdin().is_terminal() {
        return Screen::open().and_then(|mut screen| screen.follow(args, watched, &mut log));
    }
    let clock = Clock::start();
    let mut before: Option<Inspection> = None;
    for number in 0u64.. {
        if args.looks.is_some_and(|most| number >= most) {
            break;
        }
        let due = Offset(i64::try_from(args.every.as_nanos()).unwrap_or(i64::MAX).saturating_mul(number.cast_signed()));
        clock.sleep_until(due);
        let (now, _) = watched.look().map_err(failure)?;
        let lines = lines(before.as_ref(), &now, watched.at_s());
        let mut out = io::stdout().lock();
        let written = out.write_all(lines.as_bytes()).and_then(|()| out.flush());
        match written {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => break,
            Err(e) => return Err(Failure::new(Exit::Harness, format!("can't write to standard output: {e}"))),
            Ok(()) => {}
        }
        append(&mut log, &lines)?;
        let over = is_over(&now);
        before = Some(now);
        if over {
            break;
        }
    }
    Ok(before.map_or(Exit::Held, |last| args.verdict(&last)))
}

fn open(path: &std::path::PathBuf) -> Result<File, Failure> {
    let opened = File::options().create(true).append(true).open(path);
    opened.map_err(|e| Failure::new(Exit::Usage, format!("--log {}: {e}", path.display())))
}

fn append(log: &mut Option<File>, lines: &str) -> Result<(), Failure> {
    let Some(file) = log else { return Ok(()) };
    file.write_all(lines.as_bytes()).map_err(|e| Failure::new(Exit::Harness, format!("can't write the log: {e}")))
}

/// Nothing of the target is left.
fn is_over(now: &Inspection) -> bool {
    now.rows.is_empty() && !now.ended.is_empty()
}

/// The events since the last look as JSON lines, each with the seconds since the first one.
fn lines(before: Option<&Inspection>, now: &Inspection, at_s: f64) -> String {
    let line = |event| {
        let mut value = serde_json::to_value(event).unwrap_or_default();
        if let Some(map) = value.as_object_mut() {
            map.insert("at_s".to_string(), at_s.into());
        }
        format!("{value}\n")
    };
    follow::events(before, now).iter().map(line).collect()
}

/// The terminal, given back as it was however this ends.
struct Screen {
    order: Order,
    first: usize,
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(io::stdout(), LeaveAlternateScreen, cursor::Show);
        let _ = disable_raw_mode();
    }
}

fn terminal(error: io::Error) -> Failure {
    Failure::new(Exit::Harness, format!("the terminal: {error}"))
}

impl Screen {
    fn open() -> Result<Self, Failure> {
        enable_raw_mode().map_err(terminal)?;
        let screen = Self { order: Order::Risk, first: 0 };
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide).map_err(terminal)?;
        Ok(screen)
    }

    fn follow(&mut self, args: &InspectArgs, watched: &mut Watched, log: &mut Option<File>) -> Result<Exit, Failure> {
        let clock = Clock::start();
        let mut before: Option<Inspection> = None;
        for number in 1u64.. {
            let (mut now, took_s) = watched.look().map_err(failure)?;
            append(log, &lines(before.as_ref(), &now, watched.at_s()))?;
            sort(&mut now.rows, self.order);
            let due =
                Offset(i64::try_from(args.every.as_nanos()).unwrap_or(i64::MAX).saturating_mul(number.cast_signed()));
            let over = is_over(&now);
            loop {
                self.draw(&now, took_s).map_err(terminal)?;
                let left = Duration::from_nanos(u64::try_from(due.0 - clock.now().0).unwrap_or(0));
                if !poll(left).map_err(terminal)? {
                    break;
                }
                match read().map_err(terminal)? {
                    Event::Key(key) if key.kind != KeyEventKind::Release && self.key(key) => {
                        return Ok(args.verdict(&now));
                    }
                    _ => sort(&mut now.rows, self.order),
                }
            }
            if over || args.looks.is_some_and(|most| number >= most) {
                return Ok(args.verdict(&now));
            }
            before = Some(now);
        }
        Ok(Exit::Held)
    }

    /// Takes a key; whether it means the end.
    fn key(&mut self, key: KeyEvent) -> bool {
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Char('r') => self.order = Order::Risk,
            KeyCode::Char('l') => self.order = Order::Looks,
            KeyCode::Char('a') => self.order = Order::Quiet,
            KeyCode::Char('w') => self.order = Order::Window,
            KeyCode::Char('p') => self.order = Order::Process,
            KeyCode::Down | KeyCode::Char('j') => self.first += 1,
            KeyCode::Up | KeyCode::Char('k') => self.first = self.first.saturating_sub(1),
            _ => {}
        }
        false
    }

    fn draw(&mut self, now: &Inspection, took_s: f64) -> io::Result<()> {
        let (width, height) = size()?;
        let shown = Shown { width: width.into(), colours: true, explain: false };
        let text = render(now, &shown);
        let all: Vec<&str> = text.lines().collect();
        let room = usize::from(height).saturating_sub(1);
        self.first = self.first.min(all.len().saturating_sub(room));
        let mut out = io::stdout().lock();
        queue!(out, Clear(ClearType::All))?;
        for (row, line) in all.iter().skip(self.first).take(room).enumerate() {
            queue!(
                out,
                cursor::MoveTo(0, u16::try_from(row).unwrap_or(u16::MAX)),
                style::Print(cut(line, width.into()))
            )?;
        }
        let keys = format!(
            "sort by [r]isk [l]ooks [a]ge [w]indow [p]rocess: {}   [j]/[k] scroll   [q]uit   look took {took_s:.3} s",
            self.order.name()
        );
        queue!(out, cursor::MoveTo(0, height.saturating_sub(1)), style::Print(cut(&keys, width.into())))?;
        out.flush()
    }
}

/// A line in at most `width` columns; colour codes take none.
fn cut(line: &str, width: usize) -> String {
    let mut out = String::new();
    let (mut columns, mut code, mut coloured) = (0, false, false);
    for c in line.chars() {
        if c == '\x1b' {
            (code, coloured) = (true, true);
        }
        if !code {
            columns += 1;
            if columns > width {
                break;
            }
        }
        out.push(c);
        if code && c == 'm' {
            code = false;
        }
    }
    if coloured {
        out.push_str("\x1b[0m");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_by_what_is_seen_of_it() {
        assert_eq!(cut("abcdef", 3), "abc");
        assert_eq!(cut("\x1b[31mabcdef\x1b[0m", 3), "\x1b[31mabc\x1b[0m");
        assert_eq!(cut("ab", 3), "ab");
    }
}

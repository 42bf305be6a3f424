//! Reads HTML, XML and Markdown as far as the tests on reports need it.

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{BufferQueue, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};
use std::cell::RefCell;

/// What a page consists of.
#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Open(String),
    Close(String),
    Text(String),
    Error(String),
}

#[derive(Default)]
struct Sink(RefCell<Vec<Piece>>);

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let mut pieces = self.0.borrow_mut();
        match token {
            Token::TagToken(tag) => {
                let name = tag.name.to_string();
                let handlers = tag.attrs.iter().filter(|a| a.name.local.starts_with("on"));
                pieces.extend(handlers.map(|a| Piece::Error(format!("{} has {}", name, &*a.name.local))));
                match tag.kind {
                    TagKind::StartTag => {
                        pieces.push(Piece::Open(name.clone()));
                        if tag.self_closing {
                            pieces.push(Piece::Close(name.clone()));
                        }
                        if name == "style" {
                            return TokenSinkResult::RawData(html5ever::tokenizer::states::RawKind::Rawtext);
                        }
                    }
                    TagKind::EndTag => pieces.push(Piece::Close(name)),
                }
            }
            Token::CharacterTokens(text) => match pieces.last_mut() {
                Some(Piece::Text(known)) => known.push_str(&text),
                _ => pieces.push(Piece::Text(text.to_string())),
            },
            Token::ParseError(error) => pieces.push(Piece::Error(error.to_string())),
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

fn pieces(html: &str) -> Vec<Piece> {
    let input = BufferQueue::default();
    input.push_back(StrTendril::from_slice(html));
    let options = TokenizerOpts { exact_errors: true, ..TokenizerOpts::default() };
    let tokenizer = Tokenizer::new(Sink::default(), options);
    let _ = tokenizer.feed(&input);
    tokenizer.end();
    tokenizer.sink.0.into_inner()
}

const VOID: [&str; 6] = ["meta", "br", "hr", "img", "input", "link"];

/// A page without parse errors, in which every element is closed where it was opened, and with no element that could run
/// anything or load something.
pub fn check_page(html: &str) {
    let mut open: Vec<String> = Vec::new();
    for piece in pieces(html) {
        match piece {
            Piece::Error(error) => panic!("{error}"),
            Piece::Open(name) => {
                let forbidden = ["script", "img", "iframe", "object", "embed", "link", "base", "form", "image"];
                assert!(!forbidden.contains(&name.as_str()), "<{name}> in the page");
                if !VOID.contains(&name.as_str()) {
                    open.push(name);
                }
            }
            Piece::Close(name) => assert_eq!(open.pop().as_deref(), Some(name.as_str()), "open: {open:?}"),
            Piece::Text(_) => {}
        }
    }
    assert!(open.is_empty(), "never closed: {open:?}");
    assert!(html.starts_with("<!DOCTYPE html>"));
}

/// Well-formed XML.
pub fn check_xml(name: &str, text: &str) {
    if let Err(error) = roxmltree::Document::parse(text) {
        panic!("{name}: {error}");
    }
}

/// The text of every element of a name, one list a surrounding element of another name.
fn texts(html: &str, around: &str, within: &[&str]) -> Vec<Vec<Vec<String>>> {
    let mut groups: Vec<Vec<Vec<String>>> = Vec::new();
    let mut reading = false;
    for piece in pieces(html) {
        match piece {
            Piece::Open(name) if name == around => groups.push(Vec::new()),
            Piece::Open(name) if name == "tr" => groups.last_mut().unwrap().push(Vec::new()),
            Piece::Open(name) if within.contains(&name.as_str()) => {
                reading = true;
                groups.last_mut().unwrap().last_mut().unwrap().push(String::new());
            }
            Piece::Close(name) if within.contains(&name.as_str()) => reading = false,
            Piece::Text(text) if reading => {
                groups.last_mut().unwrap().last_mut().unwrap().last_mut().unwrap().push_str(&text);
            }
            _ => {}
        }
    }
    groups
}

/// All tables: rows of cells, the header first.
pub fn html_tables(html: &str) -> Vec<Vec<Vec<String>>> {
    texts(html, "table", &["th", "td"])
}

/// All list items.
pub fn html_items(html: &str) -> Vec<String> {
    let mut items = Vec::new();
    let mut reading = false;
    for piece in pieces(html) {
        match piece {
            Piece::Open(name) if name == "li" => {
                reading = true;
                items.push(String::new());
            }
            Piece::Close(name) if name == "li" => reading = false,
            Piece::Text(text) if reading => items.last_mut().unwrap().push_str(&text),
            _ => {}
        }
    }
    items
}

/// Text without what Markdown needed.
fn unescape(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.trim().chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\\' && chars.peek().is_some_and(char::is_ascii_punctuation) {
            plain.extend(chars.next());
        } else {
            plain.push(c);
        }
    }
    let plain = plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    plain.trim_start_matches("**").trim_end_matches("**").to_string()
}

/// The cells of a line, at bars that are not escaped.
fn row(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut escaped = false;
    let inner = line.strip_prefix('|').and_then(|l| l.strip_suffix('|')).unwrap_or(line);
    for c in inner.chars() {
        if c == '|' && !escaped {
            cells.push(String::new());
        } else if let Some(cell) = cells.last_mut() {
            cell.push(c);
        }
        escaped = c == '\\' && !escaped;
    }
    cells.iter().map(|c| unescape(c)).collect()
}

/// All tables of a Markdown text.
pub fn markdown_tables(text: &str) -> Vec<Vec<Vec<String>>> {
    let mut tables: Vec<Vec<Vec<String>>> = Vec::new();
    let mut within = false;
    for line in text.lines() {
        match line.starts_with('|') {
            true if !within => tables.push(vec![row(line)]),
            true if line.starts_with("|---") => {}
            true => tables.last_mut().unwrap().push(row(line)),
            false => {}
        }
        within = line.starts_with('|');
    }
    tables
}

/// All items of lists.
pub fn markdown_items(text: &str) -> Vec<String> {
    text.lines().filter_map(|l| l.strip_prefix("- ")).map(unescape).collect()
}

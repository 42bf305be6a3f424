//! Configuration modules in Python: read, never executed.
//!
//! Understood: `name = literal`, attributes of classes, `app.conf.name = …`, `app.conf["name"] = …`,
//! `app.conf.update(…)`, `broker_transport_options["key"] = …` and `.update(…)`, `Celery(broker=…)`, mappings of
//! settings bound to a name that says CELERY or CONFIG. Left out: everything that is computed. A value under `if`,
//! `for`, `try`, `with` or in a function depends on what happens at run time; it is reported, never guessed.

mod expression;
mod lexer;

pub(super) use expression::Cursor;
pub(super) use lexer::tokens;

use super::celery_names::{self, Name, Style};
use super::entry::Reading;
use super::literal::{Item, Literal};
use super::model::SourceKind;
use expression::flatten;
use lexer::{Spanned, Token};
use std::collections::HashMap;

/// Reads a module.
pub(super) fn read(label: &str, text: &str) -> Reading {
    let mut module =
        Module { reading: Reading::new(label, SourceKind::CeleryModule), names: HashMap::new(), blocks: Vec::new() };
    let all = tokens(text, 1);
    if let Some(line) = unclosed(&all) {
        let why = "the bracket that is opened here is never closed, so what follows it is not read; close it";
        module.reading.refuse(Some(line), "bracket", why);
    }
    let mut at = 0;
    while at < all.len() {
        let (start, mut end) = (at, at + 1);
        while end < all.len() && !matches!(all[end].token, Token::Newline(_)) {
            end += 1;
        }
        module.line(&all[start..end]);
        at = end;
    }
    module.reading
}

/// The line of the outermost bracket that is never closed. Python would refuse the module; everything after it looks like
/// one long line.
fn unclosed(tokens: &[Spanned]) -> Option<u32> {
    let mut open = Vec::new();
    for spanned in tokens {
        match spanned.token {
            Token::Op("(" | "[" | "{") => open.push(spanned.line),
            Token::Op(")" | "]" | "}") => drop(open.pop()),
            _ => {}
        }
    }
    open.first().copied()
}

/// One literal in Python's or JSON's notation, which starts at `first_line`; `None` if anything follows it.
pub(super) fn literal(text: &str, first_line: u32) -> Option<Literal> {
    // A bracket around it joins its lines.
    let wrapped = format!("({text}\n)");
    let all = tokens(&wrapped, first_line);
    let names = HashMap::new();
    let mut cursor = Cursor::new(&all, &names);
    cursor.at = 1;
    let value = cursor.expression();
    (cursor.at + 1 >= all.len()).then_some(value)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    Class,
    Conditional,
}

struct Module {
    reading: Reading,
    names: HashMap<String, Literal>,
    blocks: Vec<(usize, Block)>,
}

/// What stands left of a `=`.
struct Target {
    /// The dotted names, `app.conf` in front removed.
    name: String,
    /// Whether it was an attribute or item of something called `conf`.
    of_conf: bool,
    /// Keys in brackets.
    keys: Vec<String>,
}

impl Module {
    /// One logical line: its `Newline` and what follows, statements separated by `;`.
    fn line(&mut self, tokens: &[Spanned]) {
        let Some(Token::Newline(indent)) = tokens.first().map(|t| &t.token) else { return };
        let body = &tokens[1..];
        let Some(first) = body.first() else { return };
        self.blocks.retain(|(at, _)| at < indent);
        if let Token::Name(word) = &first.token {
            let block = match word.as_str() {
                "class" => Some(Block::Class),
                "if" | "elif" | "else" | "for" | "while" | "try" | "except" | "finally" | "with" | "def" | "async"
                | "match" => Some(Block::Conditional),
                _ => None,
            };
            if let Some(block) = block {
                self.blocks.push((*indent, block));
                // `if x: name = 1` on one line
                if let Some(colon) = last_top_level_colon(body) {
                    self.statements(&body[colon + 1..]);
                    return;
                }
                return;
            }
            if matches!(word.as_str(), "import" | "from" | "return" | "pass" | "raise" | "assert" | "global" | "del") {
                return;
            }
        }
        self.statements(body);
    }

    fn conditional(&self) -> bool {
        self.blocks.iter().any(|(_, block)| *block == Block::Conditional)
    }

    fn statements(&mut self, body: &[Spanned]) {
        let mut depth = 0i32;
        let mut start = 0;
        for (at, spanned) in body.iter().enumerate() {
            match spanned.token {
                Token::Op("(" | "[" | "{") => depth += 1,
                Token::Op(")" | "]" | "}") => depth -= 1,
                Token::Op(";") if depth <= 0 => {
                    self.statement(&body[start..at]);
                    start = at + 1;
                }
                _ => {}
            }
        }
        self.statement(&body[start..]);
    }

    fn statement(&mut self, body: &[Spanned]) {
        let Some(line) = body.first().map(|t| t.line) else { return };
        let names = std::mem::take(&mut self.names);
        let mut cursor = Cursor::new(body, &names);
        let mut targets = Vec::new();
        let mut value = None;
        let mut call = None;
        loop {
            let before = cursor.at;
            match target(&mut cursor) {
                Some(target) if cursor.eat("=") => targets.push(target),
                Some(target) if targets.is_empty() && cursor.is(":") => {
                    cursor.at += 1;
                    cursor.skip();
                    if cursor.eat("=") {
                        targets.push(target);
                        value = Some(cursor.expression());
                    }
                    break;
                }
                Some(target) if targets.is_empty() && cursor.is("(") => {
                    call = Some((target, cursor.arguments()));
                    break;
                }
                Some(target) if in_place(&cursor) => {
                    targets.push(target);
                    value = Some(Literal::Unknown("changed in place (`+=` and the like)".to_string()));
                    break;
                }
                _ => {
                    cursor.at = before;
                    break;
                }
            }
        }
        if !targets.is_empty() && value.is_none() {
            value = Some(cursor.expression());
        }
        // `app = Celery("x", broker="…")`
        let right = cursor_call(body, &names, &targets);
        self.names = names;
        if let Some((path, items)) = right.or_else(|| call.as_ref().map(|(t, items)| (t.name.clone(), items.clone())))
            && path.rsplit('.').next() == Some("Celery")
        {
            self.constructor(&items);
        } else if let Some((target, items)) = call {
            self.update(&target, items, line);
        }
        if let Some(value) = value {
            for target in &targets {
                self.assign(target, &value, line);
            }
        }
    }

    fn assign(&mut self, target: &Target, value: &Literal, line: u32) {
        if let [key, inner @ ..] = &target.keys[..] {
            // conf["name"], conf["broker_transport_options"]["key"], broker_transport_options["key"]
            let (name, rest): (&str, &[String]) =
                if target.of_conf { (key, inner) } else { (&target.name, &target.keys) };
            return match rest {
                [] => self.setting(name, value, line),
                [option] => {
                    let item = Item { key: Some(Literal::text(option.clone())), value: value.clone(), line };
                    if is_transport_options(name) {
                        self.setting(name, &Literal::Dict(vec![item]), line);
                    }
                }
                _ => {}
            };
        }
        if !target.of_conf {
            let kept = if self.conditional() {
                Literal::Unknown("bound under a condition".to_string())
            } else {
                value.clone()
            };
            self.names.insert(target.name.clone(), kept);
        }
        self.setting(&target.name, value, line);
    }

    fn setting(&mut self, name: &str, value: &Literal, line: u32) {
        let bare = name.rsplit('.').next().unwrap_or(name);
        if celery_names::look_up(bare) == Name::Foreign {
            match value {
                Literal::Dict(items) if holds_settings(bare, items) => self.mapping(items),
                _ => self.reading.foreign(bare, value, Some(line)),
            }
            return;
        }
        if self.conditional() {
            if matches!(celery_names::look_up(bare), Name::Setting(..)) {
                self.reading.refuse(
                    Some(line),
                    bare,
                    "set under a condition (if, try, a function …); whether it applies shows only at run time",
                );
            }
            return;
        }
        self.reading.celery(bare, value, Some(line), 0);
    }

    fn mapping(&mut self, items: &[Item]) {
        for item in items {
            match item.key.as_ref().and_then(Literal::as_str) {
                Some(key) => self.setting(key, &item.value, item.line),
                None if item.key.is_none() => {
                    self.reading.refuse(
                        Some(item.line),
                        "settings",
                        "settings taken in from elsewhere (`**…`) are not seen here",
                    );
                }
                None => {}
            }
        }
    }

    fn constructor(&mut self, items: &[Item]) {
        for item in items {
            match item.key.as_ref().and_then(Literal::as_str) {
                Some("broker") => self.setting("broker_url", &item.value, item.line),
                Some("backend") => self.setting("result_backend", &item.value, item.line),
                Some("config_source" | "changes") => {
                    self.reading.refuse(
                        Some(item.line),
                        "config_source",
                        "settings from another module; give that file too",
                    );
                }
                _ => {}
            }
        }
    }

    /// `conf.update(…)`, `broker_transport_options.update(…)`, `config_from_object(…)`.
    fn update(&mut self, target: &Target, items: Vec<Item>, line: u32) {
        let path = target.name.clone();
        let Some((owner, method)) = path.rsplit_once('.').or(target.of_conf.then_some(("conf", path.as_str()))) else {
            return;
        };
        if method != "update" {
            return;
        }
        let owner = owner.rsplit('.').next().unwrap_or(owner);
        let merged = flatten(items);
        if is_transport_options(owner) {
            self.setting(owner, &merged, line);
        } else if (target.of_conf || owner == "conf" || owner.to_ascii_lowercase().contains("celery"))
            && let Literal::Dict(items) = merged
        {
            self.mapping(&items);
        }
    }
}

fn is_transport_options(name: &str) -> bool {
    matches!(celery_names::look_up(name), Name::Setting("broker_transport_options", _))
}

/// Whether a mapping bound to `name` holds Celery settings: its name says so and at least one key is one.
fn holds_settings(name: &str, items: &[Item]) -> bool {
    let name = name.to_ascii_lowercase();
    (name.contains("celery") || name.contains("conf"))
        && items.iter().any(|i| {
            i.key
                .as_ref()
                .and_then(Literal::as_str)
                .is_some_and(|k| matches!(celery_names::look_up(k), Name::Setting(_, Style::New | Style::Old)))
        })
}

/// The call on the right of the last `=`, if the whole right side is one: its path and arguments.
fn cursor_call(body: &[Spanned], names: &HashMap<String, Literal>, targets: &[Target]) -> Option<(String, Vec<Item>)> {
    if targets.is_empty() {
        return None;
    }
    let equals = body.iter().position(|t| t.token == Token::Op("="))?;
    let mut cursor = Cursor::new(&body[equals + 1..], names);
    let path = dotted(&mut cursor)?;
    cursor.is("(").then(|| (path, cursor.arguments()))
}

fn in_place(cursor: &Cursor<'_>) -> bool {
    matches!(cursor.peek(), Some(Token::Op("+=" | "-=" | "*=" | "/=" | "//=" | "%=" | "**=" | "|=" | "&=")))
}

fn dotted(cursor: &mut Cursor<'_>) -> Option<String> {
    let Some(Token::Name(first)) = cursor.peek() else { return None };
    cursor.at += 1;
    let mut path = first.clone();
    while cursor.is(".")
        && let Some(Token::Name(next)) = cursor.ahead(1)
    {
        path.push('.');
        path.push_str(next);
        cursor.at += 2;
    }
    Some(path)
}

fn target(cursor: &mut Cursor<'_>) -> Option<Target> {
    let path = dotted(cursor)?;
    let parts: Vec<&str> = path.split('.').collect();
    let conf = parts.iter().position(|p| *p == "conf");
    let (name, of_conf) = match conf {
        Some(at) if at + 1 < parts.len() || parts.len() > 1 || cursor.is("[") => (parts[at + 1..].join("."), true),
        _ => (path.clone(), false),
    };
    let mut keys = Vec::new();
    while cursor.is("[") {
        let (Some(Token::Text(key)), Some(Token::Op("]"))) = (cursor.ahead(1), cursor.ahead(2)) else { return None };
        keys.push(key.clone());
        cursor.at += 3;
    }
    // conf.broker_transport_options["key"]: the name is the setting, the keys are its items
    if of_conf && !name.is_empty() && !keys.is_empty() {
        keys.insert(0, name.clone());
    }
    // conf["broker_transport_options"].update(…)
    if cursor.is(".") && !keys.is_empty() {
        cursor.at += 1;
        let tail = dotted(cursor)?;
        let owner = keys.join(".");
        return Some(Target { name: format!("{owner}.{tail}"), of_conf, keys: Vec::new() });
    }
    Some(Target { name, of_conf, keys })
}

/// The colon that ends the head of a compound statement, if something follows it on the line.
fn last_top_level_colon(body: &[Spanned]) -> Option<usize> {
    let mut depth = 0i32;
    let mut found = None;
    for (at, spanned) in body.iter().enumerate() {
        match spanned.token {
            Token::Op("(" | "[" | "{") => depth += 1,
            Token::Op(")" | "]" | "}") => depth -= 1,
            Token::Op(":") if depth <= 0 => found = found.or(Some(at)),
            _ => {}
        }
    }
    found.filter(|at| at + 1 < body.len())
}

#[cfg(test)]
mod tests;

//! Literal expressions: constants, containers and arithmetic on numbers. Everything else is [`Literal::Unknown`].

use super::lexer::{Spanned, Token};
use crate::config::literal::{Item, Literal};
use std::collections::HashMap;

/// Deepest nesting that is followed; beyond it a value is not understood. Bounds the recursion on any text.
const MAX_DEPTH: u32 = 40;

/// A reader of tokens.
pub(crate) struct Cursor<'a> {
    tokens: &'a [Spanned],
    /// Index of the next token.
    pub(crate) at: usize,
    /// Names that this module bound to literals.
    pub(crate) names: &'a HashMap<String, Literal>,
    depth: u32,
}

impl<'a> Cursor<'a> {
    /// At the first token.
    pub(crate) fn new(tokens: &'a [Spanned], names: &'a HashMap<String, Literal>) -> Self {
        Self { tokens, at: 0, names, depth: 0 }
    }

    pub(crate) fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at).map(|t| &t.token)
    }

    /// The token `ahead` places after the next one.
    pub(crate) fn ahead(&self, ahead: usize) -> Option<&'a Token> {
        self.tokens.get(self.at + ahead).map(|t| &t.token)
    }

    pub(crate) fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |t| t.line)
    }

    pub(crate) fn eat(&mut self, op: &str) -> bool {
        let found = self.is(op);
        self.at += usize::from(found);
        found
    }

    pub(crate) fn is(&self, op: &str) -> bool {
        matches!(self.peek(), Some(Token::Op(o)) if *o == op)
    }

    fn ends(&self) -> bool {
        match self.peek() {
            None | Some(Token::Newline(_)) => true,
            Some(Token::Op(op)) => matches!(*op, "," | ")" | "]" | "}" | ":" | ";" | "="),
            _ => false,
        }
    }

    /// Skips to the end of the current expression, brackets included.
    pub(crate) fn skip(&mut self) {
        let mut depth = 0u32;
        while let Some(token) = self.peek() {
            match token {
                Token::Op("(" | "[" | "{") => depth += 1,
                Token::Op(")" | "]" | "}") if depth > 0 => depth -= 1,
                Token::Newline(_) => return,
                _ if depth == 0 && self.ends() => return,
                _ => {}
            }
            self.at += 1;
        }
    }

    /// One expression, up to a comma, bracket, colon, `=` or the end of the line.
    pub(crate) fn expression(&mut self) -> Literal {
        if self.depth >= MAX_DEPTH {
            self.skip();
            return Literal::Unknown("nested too deeply".to_string());
        }
        self.depth += 1;
        let mut value = self.sum();
        if !self.ends() {
            self.skip();
            value = Literal::Unknown("an expression, not a literal".to_string());
        }
        self.depth -= 1;
        value
    }

    fn sum(&mut self) -> Literal {
        let mut left = self.product();
        loop {
            let op = match self.peek() {
                Some(Token::Op(op)) if matches!(*op, "+" | "-") => *op,
                _ => return left,
            };
            self.at += 1;
            left = arithmetic(op, &left, &self.product());
        }
    }

    fn product(&mut self) -> Literal {
        let mut left = self.signed();
        loop {
            let op = match self.peek() {
                Some(Token::Op(op)) if matches!(*op, "*" | "/" | "//" | "%" | "**") => *op,
                _ => return left,
            };
            self.at += 1;
            left = arithmetic(op, &left, &self.signed());
        }
    }

    fn signed(&mut self) -> Literal {
        let mut negative = false;
        loop {
            if self.eat("-") {
                negative = !negative;
            } else if !self.eat("+") {
                break;
            }
        }
        let value = self.operand();
        match value {
            Literal::Int(n) if negative => {
                n.checked_neg().map_or_else(|| unknown("a number out of range"), Literal::Int)
            }
            Literal::Float(n) if negative => Literal::Float(-n),
            other => other,
        }
    }

    fn operand(&mut self) -> Literal {
        let Some(token) = self.peek() else { return unknown("an expression that breaks off") };
        match token {
            Token::Int(n) => {
                self.at += 1;
                Literal::Int(*n)
            }
            Token::Float(n) => {
                self.at += 1;
                Literal::Float(*n)
            }
            Token::Text(_) => {
                let mut joined = String::new();
                while let Some(Token::Text(part)) = self.peek() {
                    joined.push_str(part);
                    self.at += 1;
                }
                Literal::text(joined)
            }
            Token::Formatted => {
                self.at += 1;
                unknown("an f-string")
            }
            Token::Op("(") => self.sequence("(", ")"),
            Token::Op("[") => self.sequence("[", "]"),
            Token::Op("{") => self.braces(),
            Token::Name(name) => self.named(name),
            Token::Op("," | ")" | "]" | "}" | ":" | ";" | "=") | Token::Newline(_) => {
                unknown("an expression that breaks off")
            }
            _ => {
                self.at += 1;
                unknown("an expression, not a literal")
            }
        }
    }

    fn sequence(&mut self, open: &str, close: &str) -> Literal {
        self.eat(open);
        let mut items = Vec::new();
        let mut commas = 0;
        while !self.is(close) && self.peek().is_some() {
            let before = self.at;
            items.push(self.expression());
            if self.eat(",") {
                commas += 1;
            } else if !self.is(close) {
                self.skip_to(close);
                return unknown("an expression, not a literal");
            }
            if self.at == before {
                break;
            }
        }
        self.eat(close);
        match (open, items.len(), commas) {
            ("(", 1, 0) => items.remove(0),
            _ => Literal::List(items),
        }
    }

    /// After something unexpected inside brackets: just behind the bracket that closes them, or the end of the line.
    fn skip_to(&mut self, close: &str) {
        while self.peek().is_some_and(|t| !matches!(t, Token::Newline(_))) {
            if self.eat(close) {
                return;
            }
            let before = self.at;
            self.skip();
            if self.at == before {
                self.at += 1;
            }
        }
    }

    fn braces(&mut self) -> Literal {
        self.eat("{");
        let mut items = Vec::new();
        let mut is_set = false;
        while !self.is("}") && self.peek().is_some() {
            let (before, line) = (self.at, self.line());
            if self.eat("**") {
                let value = self.expression();
                items.push(Item { key: None, value, line });
            } else {
                let key = self.expression();
                if self.eat(":") {
                    let value = self.expression();
                    items.push(Item { key: Some(key), value, line });
                } else {
                    is_set = true;
                    items.push(Item { key: None, value: key, line });
                }
            }
            if !self.eat(",") && !self.is("}") {
                self.skip_to("}");
                return unknown("an expression, not a literal");
            }
            if self.at == before {
                break;
            }
        }
        self.eat("}");
        if is_set { Literal::List(items.into_iter().map(|i| i.value).collect()) } else { Literal::Dict(items) }
    }

    fn named(&mut self, first: &str) -> Literal {
        self.at += 1;
        let mut path = first.to_string();
        while self.is(".")
            && let Some(Token::Name(next)) = self.ahead(1)
        {
            path.push('.');
            path.push_str(next);
            self.at += 2;
        }
        if self.is("(") {
            return self.call(&path);
        }
        match path.as_str() {
            "None" | "null" => Literal::None,
            "True" | "true" => Literal::Bool(true),
            "False" | "false" => Literal::Bool(false),
            _ => socket_constant(&path).map(Literal::Int).or_else(|| self.names.get(&path).cloned()).unwrap_or_else(
                || {
                    unknown(if path.contains('.') {
                        "a name from elsewhere"
                    } else {
                        "a name that this file does not bind to a literal"
                    })
                },
            ),
        }
    }

    /// `dict(a=1)`, `timedelta(minutes=5)` and conversions of a literal are literals in disguise; other calls are not.
    fn call(&mut self, path: &str) -> Literal {
        let items = self.arguments();
        match path.rsplit('.').next().unwrap_or(path) {
            "dict" if !path.contains('.') => flatten(items),
            "timedelta" => {
                timedelta(&items).map_or_else(|| unknown("a timedelta that is not made of numbers"), Literal::Float)
            }
            "int" | "float" if items.len() == 1 && items[0].key.is_none() => match (path, items[0].value.number()) {
                ("int", Some(n)) if n.abs() < 9e15 => Literal::Int(n as i64),
                ("float", Some(n)) => Literal::Float(n),
                _ if matches!(items[0].value, Literal::Unknown(_)) => items[0].value.clone(),
                _ => unknown("a call"),
            },
            "get" | "getenv" | "config" | "env" | "int" | "float" | "str" | "bool"
                if path.contains("env") || path == "config" =>
            {
                unknown("read from the environment when the program starts")
            }
            _ => unknown("a call"),
        }
    }

    /// The arguments of a call at its `(`: keywords are items with a text as key, positions and spreads have none.
    pub(crate) fn arguments(&mut self) -> Vec<Item> {
        self.eat("(");
        let mut items = Vec::new();
        while !self.is(")") && self.peek().is_some() {
            let (before, line) = (self.at, self.line());
            if !self.eat("**") {
                self.eat("*");
            }
            let key = match (self.peek(), self.ahead(1)) {
                (Some(Token::Name(name)), Some(Token::Op("="))) => {
                    self.at += 2;
                    Some(Literal::text(name.clone()))
                }
                _ => None,
            };
            let value = self.expression();
            items.push(Item { key, value, line });
            if !self.eat(",") && !self.is(")") {
                self.skip_to(")");
                return items;
            }
            if self.at == before {
                break;
            }
        }
        self.eat(")");
        items
    }
}

fn unknown(why: &str) -> Literal {
    Literal::Unknown(why.to_string())
}

/// `dict({…}, a=1)`: positional mappings are taken in.
pub(crate) fn flatten(items: Vec<Item>) -> Literal {
    let mut all = Vec::new();
    for item in items {
        match item {
            Item { key: None, value: Literal::Dict(inner), .. } => all.extend(inner),
            other => all.push(other),
        }
    }
    Literal::Dict(all)
}

fn timedelta(items: &[Item]) -> Option<f64> {
    const POSITIONS: [&str; 7] = ["days", "seconds", "microseconds", "milliseconds", "minutes", "hours", "weeks"];
    let mut total = 0.0;
    for (position, item) in items.iter().enumerate() {
        let unit = match &item.key {
            Some(key) => key.as_str()?,
            None => POSITIONS.get(position)?,
        };
        let scale = match unit {
            "days" => 86_400.0,
            "seconds" => 1.0,
            "microseconds" => 1e-6,
            "milliseconds" => 1e-3,
            "minutes" => 60.0,
            "hours" => 3_600.0,
            "weeks" => 604_800.0,
            _ => return None,
        };
        total += item.value.number()? * scale;
    }
    total.is_finite().then_some(total)
}

fn arithmetic(op: &str, left: &Literal, right: &Literal) -> Literal {
    let failed = || unknown("arithmetic that does not come to a number");
    if let (Literal::Int(a), Literal::Int(b)) = (left, right) {
        let exact = match op {
            "+" => a.checked_add(*b),
            "-" => a.checked_sub(*b),
            "*" => a.checked_mul(*b),
            "//" => a.checked_div_euclid(*b),
            "%" => a.checked_rem_euclid(*b),
            "**" => u32::try_from(*b).ok().and_then(|b| a.checked_pow(b)),
            _ => None,
        };
        // Python's floor division differs from Euclid's for a negative divisor; no timeout has one.
        match exact {
            Some(n) if *b >= 0 || !matches!(op, "//" | "%") => return Literal::Int(n),
            _ if op != "/" => return failed(),
            _ => {}
        }
    }
    let (Literal::Int(_) | Literal::Float(_), Literal::Int(_) | Literal::Float(_)) = (left, right) else {
        return match (left, right) {
            (Literal::Unknown(why), _) | (_, Literal::Unknown(why)) => unknown(why),
            _ => failed(),
        };
    };
    let (Some(a), Some(b)) = (left.number(), right.number()) else { return failed() };
    let result = match op {
        "+" => a + b,
        "-" => a - b,
        "*" => a * b,
        "/" => a / b,
        "//" => (a / b).floor(),
        "**" => a.powf(b),
        _ => return failed(),
    };
    if result.is_finite() { Literal::Float(result) } else { failed() }
}

/// Linux' numbers of the TCP options (`include/uapi/linux/tcp.h`), as Python's `socket` module names them.
pub(crate) fn socket_constant(path: &str) -> Option<i64> {
    Some(match path.rsplit('.').next()? {
        "TCP_NODELAY" => 1,
        "TCP_KEEPIDLE" => 4,
        "TCP_KEEPINTVL" => 5,
        "TCP_KEEPCNT" => 6,
        "TCP_SYNCNT" => 7,
        "TCP_USER_TIMEOUT" => 18,
        _ => return None,
    })
}

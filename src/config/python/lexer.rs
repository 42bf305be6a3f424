//! Tokens of Python, as far as configuration modules need them. Anything that is not a token becomes [`Token::Other`].

/// A token.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    /// A name or keyword.
    Name(String),
    /// A whole number.
    Int(i64),
    /// Another number.
    Float(f64),
    /// A string without interpolation.
    Text(String),
    /// An f-string: its value depends on names.
    Formatted,
    /// An operator or bracket.
    Op(&'static str),
    /// The end of a logical line; the next one starts with this indentation.
    Newline(usize),
    /// A character that belongs to nothing.
    Other,
}

/// A token with the line it starts on, from 1.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spanned {
    /// The token.
    pub(crate) token: Token,
    /// Its line.
    pub(crate) line: u32,
}

const OPS: [&str; 40] = [
    "**=", "//=", ">>=", "<<=", "**", "//", "+=", "-=", "*=", "/=", "%=", "|=", "&=", "^=", "==", "!=", "<=", ">=",
    "->", ":=", "<<", ">>", "(", ")", "[", "]", "{", "}", ",", ":", ".", ";", "=", "+", "-", "*", "/", "%", "@", "|",
];

/// Splits a text into tokens. Never fails: an unterminated string ends with the text.
pub(crate) fn tokens(text: &str, first_line: u32) -> Vec<Spanned> {
    let chars: Vec<char> = text.chars().collect();
    let mut lexer = Lexer { chars, at: 0, line: first_line, depth: 0, out: Vec::new() };
    lexer.run();
    lexer.out
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    line: u32,
    depth: u32,
    out: Vec<Spanned>,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn push(&mut self, token: Token, line: u32) {
        self.out.push(Spanned { token, line });
    }

    fn run(&mut self) {
        let indent = self.indentation();
        self.push(Token::Newline(indent), self.line);
        while let Some(c) = self.peek(0) {
            let line = self.line;
            match c {
                '\n' => {
                    self.at += 1;
                    self.line += 1;
                    if self.depth == 0 {
                        let indent = self.indentation();
                        self.push(Token::Newline(indent), self.line);
                    }
                }
                '\\' if self.peek(1) == Some('\n') => {
                    self.at += 2;
                    self.line += 1;
                }
                '\\' if self.peek(1) == Some('\r') && self.peek(2) == Some('\n') => {
                    self.at += 3;
                    self.line += 1;
                }
                '#' => self.skip_comment(),
                '"' | '\'' => {
                    let text = self.string(false);
                    self.push(Token::Text(text), line);
                }
                c if c.is_whitespace() || c == '\u{feff}' => self.at += 1,
                c if c.is_ascii_digit() || (c == '.' && self.peek(1).is_some_and(|d| d.is_ascii_digit())) => {
                    let token = self.number();
                    self.push(token, line);
                }
                c if c.is_alphabetic() || c == '_' => self.name(line),
                _ => self.operator(line),
            }
        }
        self.push(Token::Newline(0), self.line);
    }

    fn skip_comment(&mut self) {
        while self.peek(0).is_some_and(|c| c != '\n') {
            self.at += 1;
        }
    }

    fn indentation(&mut self) -> usize {
        let start = self.at;
        while matches!(self.peek(0), Some(' ' | '\t')) {
            self.at += 1;
        }
        self.at - start
    }

    fn name(&mut self, line: u32) {
        let start = self.at;
        while self.peek(0).is_some_and(|c| c.is_alphanumeric() || c == '_') {
            self.at += 1;
        }
        let name: String = self.chars[start..self.at].iter().collect();
        let prefix = name.to_ascii_lowercase();
        let is_prefix = matches!(prefix.as_str(), "r" | "b" | "u" | "rb" | "br" | "f" | "rf" | "fr");
        if is_prefix && matches!(self.peek(0), Some('"' | '\'')) {
            let text = self.string(prefix.contains('r'));
            self.push(if prefix.contains('f') { Token::Formatted } else { Token::Text(text) }, line);
        } else {
            self.push(Token::Name(name), line);
        }
    }

    /// A string at its opening quote; escapes that matter are resolved, others stay as written.
    fn string(&mut self, raw: bool) -> String {
        let quote = self.peek(0).unwrap_or('"');
        let triple = self.peek(1) == Some(quote) && self.peek(2) == Some(quote);
        self.at += if triple { 3 } else { 1 };
        let mut text = String::new();
        while let Some(c) = self.peek(0) {
            if c == quote && (!triple || (self.peek(1) == Some(quote) && self.peek(2) == Some(quote))) {
                self.at += if triple { 3 } else { 1 };
                return text;
            }
            if c == '\n' {
                if !triple {
                    return text; // unterminated: Python would refuse it
                }
                self.line += 1;
            }
            self.at += 1;
            if c == '\\' && !raw {
                let Some(next) = self.peek(0) else { return text };
                self.at += 1;
                match next {
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    '\n' => self.line += 1,
                    '\\' | '\'' | '"' | '/' => text.push(next),
                    other => text.extend(['\\', other]),
                }
            } else {
                text.push(c);
            }
        }
        text
    }

    fn number(&mut self) -> Token {
        let start = self.at;
        while let Some(c) = self.peek(0) {
            let sign = matches!(c, '+' | '-')
                && self.at > start
                && matches!(self.chars[self.at - 1], 'e' | 'E')
                && self.chars.get(start + 1) != Some(&'x');
            if c.is_ascii_alphanumeric() || matches!(c, '_' | '.') || sign { self.at += 1 } else { break }
        }
        let text: String = self.chars[start..self.at].iter().filter(|c| **c != '_').collect();
        let lower = text.to_ascii_lowercase();
        let radix = |prefix: &str, radix| lower.strip_prefix(prefix).and_then(|t| i64::from_str_radix(t, radix).ok());
        if let Some(n) = radix("0x", 16).or_else(|| radix("0o", 8)).or_else(|| radix("0b", 2)) {
            return Token::Int(n);
        }
        if let Ok(n) = text.parse() {
            return Token::Int(n);
        }
        match text.parse::<f64>() {
            Ok(n) if n.is_finite() => Token::Float(n),
            _ => Token::Other,
        }
    }

    fn operator(&mut self, line: u32) {
        let Some(op) = OPS.iter().find(|op| op.chars().enumerate().all(|(i, c)| self.peek(i) == Some(c))) else {
            self.at += 1;
            self.push(Token::Other, line);
            return;
        };
        self.at += op.len();
        match *op {
            "(" | "[" | "{" => self.depth += 1,
            ")" | "]" | "}" => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.push(Token::Op(op), line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_comments_and_continued_lines_keep_their_line_numbers() {
        let text = "a = 'x'  # 'not a string\nb = \"\"\"two\nlines\"\"\"\nc = [1,\n  1_000.5] ; d = \\\n 0x10\n";
        let found = tokens(text, 1);
        let line_of = |name: &str| found.iter().find(|t| t.token == Token::Name(name.into())).unwrap().line;
        assert_eq!([line_of("a"), line_of("b"), line_of("c"), line_of("d")], [1, 2, 4, 5]);
        assert!(found.iter().any(|t| t.token == Token::Float(1000.5) && t.line == 5));
        assert!(found.iter().any(|t| t.token == Token::Int(16) && t.line == 6));
        assert!(found.iter().any(|t| t.token == Token::Text("two\nlines".into())));
    }

    #[test]
    fn an_f_string_is_not_a_literal_and_a_raw_one_keeps_its_backslashes() {
        let found = tokens("f'amqp://{host}' r'a\\n'", 1);
        assert!(found.iter().any(|t| t.token == Token::Formatted));
        assert!(found.iter().any(|t| t.token == Token::Text("a\\n".into())));
    }
}

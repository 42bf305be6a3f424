//! Secrets in texts that are kept: logins in addresses, and the values of keys that say so.

use std::borrow::Cow;

/// What stands for a secret.
const HIDDEN: &str = "***";
/// Keys whose values are secret, however they are written.
const KEYS: [&str; 7] = ["password", "passwd", "passphrase", "secret", "token", "api_key", "apikey"];
/// Where a word of an address ends.
const ENDS: [char; 9] = ['"', '\'', '`', '<', '>', '|', '\\', '{', '}'];

/// The same text with `***` in place of what stands before the `@` of an address, and of the values of keys such as
/// `password`, as they stand in addresses, assignments, TOML and JSON. A text without either is handed back as it is.
#[must_use]
pub fn hide_secrets(text: &str) -> Cow<'_, str> {
    let addresses = if text.contains("://") { Cow::Owned(logins(text)) } else { Cow::Borrowed(text) };
    let lower = addresses.to_ascii_lowercase();
    if KEYS.iter().any(|key| lower.contains(key)) { Cow::Owned(values(&addresses)) } else { addresses }
}

/// `scheme://user:password@host` → `scheme://***@host`. Passwords hold anything but blanks and quotes, `@` and `/` included:
/// everything up to the last `@` of the word goes.
fn logins(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || ENDS.contains(&c)).unwrap_or(after.len());
        // The next address has a login of its own.
        let end = after[..end].find("://").map_or(end, |next| next.min(end));
        let word = &after[..end];
        match word.rfind('@') {
            Some(sign) => {
                shown.push_str(HIDDEN);
                shown.push_str(&word[sign..]);
            }
            None => shown.push_str(word),
        }
        rest = &after[end..];
    }
    shown + rest
}

/// `password=x`, `"password": "x"`, `password = 'x'`; what is no assignment stays.
fn values(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let mut shown = String::with_capacity(text.len());
    let mut done = 0;
    while let Some((_, end)) = next_key(&lower, done) {
        shown.push_str(&text[done..end]);
        done = end;
        let Some(start) = assigned(&text[end..]) else { continue };
        let value = end + start;
        shown.push_str(&text[end..value]);
        let quote = text[..value].chars().next_back().filter(|c| matches!(c, '"' | '\''));
        let stop = |c: char| match quote {
            Some(quote) => c == quote || c == '\n',
            None => c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '&' | ';' | ',' | ')' | '}' | ']'),
        };
        let length = text[value..].find(stop).unwrap_or(text.len() - value);
        if length > 0 {
            shown.push_str(HIDDEN);
        }
        done = value + length;
    }
    shown.push_str(&text[done..]);
    shown
}

/// The first key from a place on: where it begins and ends.
fn next_key(lower: &str, from: usize) -> Option<(usize, usize)> {
    KEYS.iter().filter_map(|key| lower[from..].find(key).map(|at| (from + at, from + at + key.len()))).min()
}

/// Where the value begins, given what follows a key: after a quote, blanks, `=` or `:` and an opening quote.
fn assigned(after: &str) -> Option<usize> {
    let closed = after.trim_start_matches(['"', '\'']);
    let blank = closed.trim_start_matches([' ', '\t']);
    let value = blank.strip_prefix(['=', ':'])?.trim_start_matches([' ', '\t']);
    let value = value.strip_prefix(['"', '\'']).unwrap_or(value);
    Some(after.len() - value.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_secret_stays() {
        for text in [
            "# who notices? mail me@example.org, see https://example.org/a/b",
            "broker = \"amqp://rabbit:5672//\" and a token ring",
            "passwords are secret",
            "",
        ] {
            assert!(matches!(hide_secrets(text), Cow::Borrowed(_)) || hide_secrets(text) == text, "{text}");
            assert_eq!(hide_secrets(text), text);
        }
    }

    #[test]
    fn a_login_goes_wherever_it_stands() {
        for (text, hidden) in [
            ("amqp://u:s3@h:5672//", "amqp://***@h:5672//"),
            ("command = [\"w\", \"redis://:p@ss/x@h/0\"] # a@b", "command = [\"w\", \"redis://***@h/0\"] # a@b"),
            ("a://x:y@h,b://v:w@i", "a://***@h,b://***@i"),
            ("redis://h/0?PASSWORD=s3&x=1", "redis://h/0?PASSWORD=***&x=1"),
            ("password = \"s 3\"\nnext = 1", "password = \"***\"\nnext = 1"),
            ("{\"api_key\": \"abc\", \"n\": 1}", "{\"api_key\": \"***\", \"n\": 1}"),
            ("PGPASSWORD=abc psql", "PGPASSWORD=*** psql"),
        ] {
            assert_eq!(hide_secrets(text), hidden);
        }
    }

    proptest! {
        #[test]
        fn no_password_of_an_address_is_kept(secret in "[A-Za-z0-9@:/?#&=]{0,6}Zq[A-Za-z0-9]{4,12}", before in "[a-z \n]{0,9}") {
            prop_assume!(!secret.contains("://"));
            let core = &secret[secret.find("Zq").unwrap()..];
            for text in [format!("{before}amqp://u:{secret}@h:1//"), format!("{before} [\"redis://:{secret}@h\"]")] {
                prop_assert!(!hide_secrets(&text).contains(core), "{text} → {}", hide_secrets(&text));
            }
        }
    }
}

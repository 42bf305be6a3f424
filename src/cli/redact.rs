//! What was typed is repeated in errors; a password that was typed is not. Pure.

/// Keys whose values are secret, as they stand in addresses and assignments.
const SECRET_KEYS: [&str; 5] = ["password=", "passwd=", "passphrase=", "secret=", "token="];

/// Puts `***` in place of what stands before the `@` of an address, and of the values of secret keys.
///
/// An address that was mistyped can hold anything, so everything up to the last `@` before the next address goes.
pub fn redact(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut pieces = text.split("://");
    shown.push_str(&bare(pieces.next().unwrap_or_default()));
    for piece in pieces {
        shown.push_str("://");
        match piece.rfind('@') {
            Some(at) => {
                shown.push_str("***");
                shown.push_str(&piece[at..]);
            }
            None => shown.push_str(piece),
        }
    }
    keys(&shown)
}

/// `user:password@host` without a scheme, as one word.
fn bare(text: &str) -> String {
    let ends = |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`' | '=');
    text.split_inclusive(ends)
        .map(|word| match (word.find(':'), word.rfind('@')) {
            (Some(colon), Some(at)) if colon < at => format!("***{}", &word[at..]),
            _ => word.to_string(),
        })
        .collect()
}

fn keys(text: &str) -> String {
    let ends = |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`' | '&' | ';' | ',');
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    loop {
        // ASCII only is folded, so positions stay what they are.
        let lower = rest.to_ascii_lowercase();
        let next = SECRET_KEYS.iter().filter_map(|key| Some(lower.find(key)? + key.len())).min();
        let Some(start) = next else { break };
        shown.push_str(&rest[..start]);
        rest = &rest[start..];
        let end = rest.find(ends).unwrap_or(rest.len());
        if end > 0 {
            shown.push_str("***");
        }
        rest = &rest[end..];
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_secret_stays() {
        for text in [
            "runs/x: can't read the scenario; write to me@example.org",
            "`amqp://rabbit:5672//` is not KEY=VALUE; write for example read_timeout=60s",
            "passwords=3 are no secret",
        ] {
            assert_eq!(redact(text), text);
        }
    }

    #[test]
    fn a_password_goes_wherever_it_was_typed() {
        assert_eq!(redact("`broker=amqp://u:s3@h/` is wrong"), "`broker=amqp://***@h/` is wrong");
        assert_eq!(redact("'amqp://u:a b@c@h' and redis://x:y@i"), "'amqp://***@h' and redis://***@i");
        assert_eq!(redact("broker=u:s3@h"), "broker=***@h");
        assert_eq!(redact("redis://h/0?PASSWORD=s3&x=1"), "redis://h/0?PASSWORD=***&x=1");
    }

    proptest! {
        #[test]
        fn no_password_is_ever_repeated(secret in "[A-Za-z0-9@:/?#&=' ]{0,6}Zq[A-Za-z0-9]{4,12}", before in "[a-z `']{0,9}") {
            let core = &secret[secret.find("Zq").unwrap()..];
            for typed in [format!("{before}amqp://u:{secret}@h:1//"), format!("{before}x=redis://:{secret}@h")] {
                prop_assert!(!redact(&typed).contains(core), "{typed} → {}", redact(&typed));
            }
        }
    }
}

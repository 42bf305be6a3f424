//! Broker addresses: `redis://`, `rediss://`, `amqp://`, `amqps://`, `pyamqp://`, `sqla+…`, several joined by `;`.
//!
//! User, password and whatever could be part of them are dropped while reading and never stored. An address whose
//! password contains an unescaped `/`, `?`, `#` or `@` is ambiguous: then neither host nor query are kept.

use super::literal::{Literal, showable_key};

/// What is known of an address, secrets dropped.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Address {
    /// The scheme, in lower case.
    pub(crate) scheme: String,
    /// Host and port, where they are certain.
    pub(crate) host: Option<String>,
    /// Query options, in order; a value that is not a number or switch shows nothing.
    pub(crate) query: Vec<(String, Literal)>,
    /// Whether the address was ambiguous or damaged, so that host and query were dropped.
    pub(crate) ambiguous: bool,
    /// Whether there were others after a `;`.
    pub(crate) alternates: usize,
}

impl Address {
    /// Reads an address; `None` if it is not one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (scheme, rest) = text.split_once("://")?;
        let fits = !scheme.is_empty()
            && scheme.len() <= 32
            && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
        if !fits || text.contains(char::is_whitespace) {
            return None;
        }
        // kombu splits at every `;` (`kombu/connection.py`); the first address is the one that it tries first.
        let (first, others) = rest.split_once(';').map_or((rest, ""), |(a, b)| (a, b));
        let alternates = if others.is_empty() { 0 } else { others.split(';').count() };
        let end = first.find(['/', '?', '#']).unwrap_or(first.len());
        let (authority, tail) = first.split_at(end);
        // What follows a `;` may be the rest of a password with a `;` in it.
        let torn = others.split(';').any(|o| o.contains('@') && !o.contains("://"))
            || (others.contains('@') && !authority.contains('@') && authority.contains(':'));
        let ambiguous = tail.contains('@') || authority.matches('@').count() > 1 || torn;
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let plain = host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']'));
        // `user:password` without a host is no `host:port`.
        let port = host.rsplit_once(':').is_none_or(|(_, p)| p.ends_with(']') || p.chars().all(|c| c.is_ascii_digit()));
        let host = (!ambiguous && plain && port && !host.is_empty()).then(|| host.to_string());
        let query = if ambiguous { Vec::new() } else { query(tail) };
        Some(Self { scheme: scheme.to_ascii_lowercase(), host, query, ambiguous, alternates })
    }

    /// Scheme and host: what may be shown.
    pub(crate) fn shown(&self) -> String {
        format!("{}://{}", self.scheme, self.host.as_deref().unwrap_or("…"))
    }

    /// kombu's transport of the scheme: `kombu/transport/__init__.py` (5.7.0), `TRANSPORT_ALIASES`.
    pub(crate) fn kombu_transport(&self) -> &str {
        let first = self.scheme.split('+').next().unwrap_or(&self.scheme);
        match first {
            "amqp" | "amqps" | "pyamqp" | "librabbitmq" => "pyamqp",
            "redis" | "rediss" | "sentinel" => "redis",
            "sqs" => "sqs",
            "sqla" | "sqlalchemy" => "sqlalchemy",
            other => other,
        }
    }
}

fn query(tail: &str) -> Vec<(String, Literal)> {
    let Some((_, query)) = tail.split_once('?') else { return Vec::new() };
    let query = query.split('#').next().unwrap_or(query);
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .filter_map(|(key, value)| Some((showable_key(key)?.to_string(), Literal::text(value))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_scheme_host_and_query_and_nothing_secret() {
        let a = Address::parse("amqp://user:s3cret@rabbit.example:5672//?heartbeat=30&connect_timeout=7").unwrap();
        assert_eq!(a.shown(), "amqp://rabbit.example:5672");
        assert_eq!(a.kombu_transport(), "pyamqp");
        assert_eq!(a.query.len(), 2);
        assert!(!format!("{a:?}").contains("s3cret"));
    }

    #[test]
    fn an_unescaped_password_makes_host_and_query_unknown() {
        for text in [
            "redis://:s3c/ret@host:6379/0",
            "redis://:s3c?ret=1@host/0",
            "amqp://u:s3@cret@h//",
            "amqp://u:s3;cret@h//",
            "amqp://s3;cret@h//;amqp://u:p@i",
            "amqp://u:s3;x://cret@h",
        ] {
            let a = Address::parse(text).unwrap();
            assert!(a.ambiguous, "{text}");
            assert!(!format!("{a:?}{}", a.shown()).contains("s3"), "{text}");
        }
    }

    #[test]
    fn several_addresses_and_prefixes() {
        let a = Address::parse("amqp://u:p@one//;amqp://u:p@two//").unwrap();
        assert_eq!((a.host.as_deref(), a.alternates), (Some("one"), 1));
        assert_eq!(Address::parse("sqla+postgresql://u:p@db/celery").unwrap().kombu_transport(), "sqlalchemy");
        assert!(Address::parse("not an address").is_none());
        assert!(Address::parse("redis://h with space").is_none());
    }
}

//! Where a message goes: exchanges, bindings and the patterns of task names, as RabbitMQ and Celery read them. Pure.
//!
//! Sources: the AMQP 0-9-1 specification, section 3.1.3 (direct, fanout, topic, headers), RabbitMQ's documentation of
//! alternate exchanges, and Celery's `task_routes` (`celery/app/routes.py`: the first pattern that matches wins; `*` stands
//! for any characters, `?` for one). The real broker does the routing; what is computed here is what it is held to.

use super::delivery::{Delivery, Exchange, Job};
use std::collections::BTreeMap;

/// The queue that takes what no route takes: the trial's own, without a name of its own.
pub const DEFAULT_QUEUE: &str = "";

impl Delivery {
    /// The queues of a trial by their names: its own, then those of the routes, then those that a job names.
    #[must_use]
    pub fn queues<'a>(&'a self, jobs: &'a [Job]) -> Vec<&'a str> {
        let mut all = vec![DEFAULT_QUEUE];
        let routes = self.routes.iter().map(|(_, queue)| queue.as_str());
        for queue in routes.chain(jobs.iter().filter_map(|job| job.queue.as_deref())) {
            if !all.contains(&queue) {
                all.push(queue);
            }
        }
        all
    }

    /// The queues that a job's messages reach, each with one copy.
    #[must_use]
    pub fn destinations<'a>(&'a self, job: &'a Job) -> Vec<&'a str> {
        // Named at the call: past every exchange and every route.
        if let Some(queue) = &job.queue {
            return vec![queue];
        }
        let headers = job.headers();
        let takes = |pattern: &str| match self.exchange {
            Exchange::None => glob(pattern, &job.name),
            Exchange::Direct => pattern == job.name,
            Exchange::Topic => topic(pattern, &job.name),
            Exchange::Fanout => true,
            Exchange::Headers => Match::parse(pattern).is_some_and(|wanted| wanted.takes(&headers)),
        };
        let mut found: Vec<&str> = Vec::new();
        for (_, queue) in self.routes.iter().filter(|(pattern, _)| takes(pattern)) {
            if !found.contains(&queue.as_str()) {
                found.push(queue);
            }
        }
        // Celery's router takes the first; an exchange gives one copy to every queue that is bound.
        if self.exchange == Exchange::None {
            found.truncate(1);
        }
        if found.is_empty() { vec![DEFAULT_QUEUE] } else { found }
    }

    /// Whether there is more than the trial's own queue.
    #[must_use]
    pub fn routes_at_all(&self, jobs: &[Job]) -> bool {
        self.queues(jobs).len() > 1
    }
}

impl Job {
    /// What a headers exchange can go by: the whole name as `task`, its first word as `kind`.
    #[must_use]
    pub fn headers(&self) -> BTreeMap<&str, &str> {
        let kind = self.name.split('.').next().unwrap_or(&self.name);
        BTreeMap::from([("task", self.name.as_str()), ("kind", kind)])
    }
}

/// What a binding to a headers exchange asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match<'a> {
    /// One of them is enough (`x-match: any`); else all of them (`x-match: all`).
    pub any: bool,
    /// Header and value.
    pub wanted: Vec<(&'a str, &'a str)>,
}

impl<'a> Match<'a> {
    /// From `kind=feed`, `kind=feed, task=feed.import` (all) or `any: …`; `None` where it is not of this form.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        let (any, list) = match text.trim().strip_prefix("any:") {
            Some(list) => (true, list),
            None => (false, text),
        };
        let wanted: Option<Vec<_>> =
            list.split(',').map(|pair| pair.split_once('=').map(|(name, value)| (name.trim(), value.trim()))).collect();
        Some(Self { any, wanted: wanted? })
    }

    fn takes(&self, headers: &BTreeMap<&str, &str>) -> bool {
        let mut hits = self.wanted.iter().map(|(name, value)| headers.get(name) == Some(value));
        if self.any { hits.any(|hit| hit) } else { hits.all(|hit| hit) }
    }
}

/// A pattern of task names: `*` for any characters, `?` for one, all else for itself.
#[must_use]
pub fn glob(pattern: &str, name: &str) -> bool {
    fn matches(pattern: &[char], name: &[char]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (Some(('*', rest)), _) => (0..=name.len()).any(|skip| matches(rest, &name[skip..])),
            (Some((one, rest)), Some((own, names))) => (*one == '?' || one == own) && matches(rest, names),
            _ => false,
        }
    }
    let of = |text: &str| text.chars().collect::<Vec<_>>();
    matches(&of(pattern), &of(name))
}

/// A binding key of a topic exchange: words between dots, `*` for one word, `#` for any number of them, none included.
#[must_use]
pub fn topic(pattern: &str, key: &str) -> bool {
    fn matches(pattern: &[&str], key: &[&str]) -> bool {
        match (pattern.split_first(), key.split_first()) {
            (None, None) => true,
            (Some((&"#", rest)), _) => (0..=key.len()).any(|skip| matches(rest, &key[skip..])),
            (Some((one, rest)), Some((own, words))) => (*one == "*" || one == own) && matches(rest, words),
            _ => false,
        }
    }
    let pattern: Vec<&str> = pattern.split('.').collect();
    let key: Vec<&str> = key.split('.').collect();
    matches(&pattern, &key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str) -> Job {
        Job { name: name.into(), ..Job::default() }
    }

    fn delivery(exchange: Exchange, routes: &[(&str, &str)]) -> Delivery {
        let routes = routes.iter().map(|(pattern, queue)| ((*pattern).to_string(), (*queue).to_string())).collect();
        Delivery { exchange, routes, ..Delivery::default() }
    }

    #[test]
    fn topics_are_matched_word_by_word() {
        for (pattern, key, expected) in [
            ("feed.#", "feed", true),
            ("feed.#", "feed.import.rss", true),
            ("feed.*", "feed", false),
            ("feed.*", "feed.import", true),
            ("feed.*", "feed.import.rss", false),
            ("#", "", true),
            ("#.rss", "feed.import.rss", true),
            ("*.import.*", "feed.import.rss", true),
            ("feeds.#", "feed.import", false),
            ("#.#", "a", true),
        ] {
            assert_eq!(topic(pattern, key), expected, "{pattern} × {key}");
        }
    }

    #[test]
    fn names_are_matched_by_globs_and_the_first_route_wins() {
        assert!(glob("feed.tasks.*", "feed.tasks.import") && glob("*", "") && glob("m?il", "mail"));
        assert!(!glob("feed.*", "feeds") && !glob("", "x"));
        let routes = delivery(Exchange::None, &[("feed.*", "feeds"), ("*.import", "imports")]);
        assert_eq!(routes.destinations(&job("feed.import")), ["feeds"]);
        assert_eq!(routes.destinations(&job("mail.import")), ["imports"]);
        assert_eq!(routes.destinations(&job("mail.send")), [DEFAULT_QUEUE]);
        let named = Job { queue: Some("vip".into()), ..job("feed.import") };
        assert_eq!(routes.destinations(&named), ["vip"]);
        assert_eq!(routes.queues(&[named]), ["", "feeds", "imports", "vip"]);
    }

    #[test]
    fn an_exchange_gives_a_copy_to_every_queue_that_is_bound() {
        let bound = [("feed.#", "feeds"), ("#.import", "imports"), ("feed.import", "feeds")];
        assert_eq!(delivery(Exchange::Topic, &bound).destinations(&job("feed.import")), ["feeds", "imports"]);
        assert_eq!(delivery(Exchange::Fanout, &bound).destinations(&job("x")), ["feeds", "imports"]);
        assert_eq!(delivery(Exchange::Direct, &bound).destinations(&job("feed.import")), ["feeds"]);
        assert_eq!(delivery(Exchange::Direct, &bound).destinations(&job("x")), [DEFAULT_QUEUE]);
        let headers =
            [("kind=feed", "feeds"), ("kind=feed, task=feed.x", "both"), ("any: kind=mail, task=feed.y", "any")];
        let headers = delivery(Exchange::Headers, &headers);
        assert_eq!(headers.destinations(&job("feed.x")), ["feeds", "both"]);
        assert_eq!(headers.destinations(&job("feed.y")), ["feeds", "any"]);
        assert_eq!(headers.destinations(&job("mail.x")), ["any"]);
        assert_eq!(headers.destinations(&job("x")), [DEFAULT_QUEUE]);
    }
}

//! What a connection is for, by what its client sends: AMQP 0-9-1 methods and Redis commands. Pure.
//!
//! AMQP frames by the specification's section 2.3 (type, channel, size, payload, end octet), Redis commands by its protocol's
//! description (arrays of bulk strings). Names of Celery's exchanges and channels: `celery/events`, `kombu/pidbox.py`. What
//! is left out: what the broker answers, and everything of a stream of which a part is missing.

use crate::scenario::BrokerKind;

/// `AMQP` and the version, before the first frame.
const PROTOCOL_HEADER: usize = 8;
const FRAME_HEADER: usize = 7;
const METHOD: u8 = 1;
/// Class and method of `basic.consume` and `basic.publish`.
const CONSUME: [u8; 4] = [0, 60, 0, 20];
const PUBLISH: [u8; 4] = [0, 60, 0, 40];
/// As much of a payload as tells class, method, a reserved number and a name.
const KEPT: usize = 4 + 2 + 1 + 255;
/// A command that is longer tells nothing that is worth the memory.
const COMMAND_BYTES: usize = 1 << 20;

/// The uses of a connection, the least telling first: one that has several has the last of them.
const ROLES: [&str; 5] = ["publisher", "subscriber", "event", "control", "consumer"];

/// Reads what a client sends, in pieces of any size.
#[derive(Debug)]
pub struct RoleReader {
    queue: Vec<u8>,
    wire: Wire,
    role: Option<usize>,
}

#[derive(Debug)]
enum Wire {
    Amqp(Frames),
    Redis(Commands),
}

impl RoleReader {
    /// Looks for what goes to and comes from this queue or list; an empty name stands for any that is not the client's own
    /// housekeeping.
    #[must_use]
    pub fn of(broker: BrokerKind, queue: &str) -> Self {
        let wire = match broker {
            BrokerKind::Redis => Wire::Redis(Commands::default()),
            _ => Wire::Amqp(Frames::default()),
        };
        Self { queue: queue.as_bytes().to_vec(), wire, role: None }
    }

    /// Takes the next bytes; its role, where they tell more than what came before.
    pub fn read(&mut self, bytes: &[u8]) -> Option<&'static str> {
        let queue = &self.queue;
        let mut best = self.role;
        let mut seen = |role: &str| best = best.max(ROLES.iter().position(|known| *known == role));
        match &mut self.wire {
            Wire::Amqp(frames) => frames.read(bytes, |method| _ = of_method(method, queue).map(&mut seen)),
            Wire::Redis(commands) => commands.read(bytes, |words| _ = of_command(words, queue).map(&mut seen)),
        }
        let news = best > self.role;
        self.role = best;
        best.filter(|_| news).map(|role| ROLES[role])
    }
}

/// What a consumer of this queue is for, to a client whose own queue is `own`; an empty name stands for any that is not its
/// own housekeeping.
#[must_use]
pub fn role_of_consumer(queue: &[u8], own: &[u8]) -> &'static str {
    match subscriber(queue) {
        _ if queue == own => "consumer",
        "subscriber" if own.is_empty() => "consumer",
        other => other,
    }
}

/// Whether a role tells more than another one; none tells least.
#[must_use]
pub fn tells_more(role: &str, than: Option<&str>) -> bool {
    let rank = |role: &str| ROLES.iter().position(|known| *known == role);
    rank(role) > than.and_then(rank)
}

/// What subscribes to this name.
fn subscriber(name: &[u8]) -> &'static str {
    match (has(name, b"celeryev"), has(name, b"pidbox")) {
        (true, _) => "event",
        (_, true) => "control",
        _ => "subscriber",
    }
}

/// What publishes to this name.
fn publisher(name: &[u8]) -> &'static str {
    if has(name, b"celeryev") { "event" } else { "publisher" }
}

fn has(name: &[u8], part: &[u8]) -> bool {
    name.windows(part.len()).any(|window| window == part)
}

fn of_method(payload: &[u8], queue: &[u8]) -> Option<&'static str> {
    let (method, rest) = payload.split_first_chunk::<4>()?;
    // A reserved number of two octets, then a name with its length before it.
    let [_, _, length, name @ ..] = rest else { return None };
    let name = name.get(..usize::from(*length))?;
    match *method {
        CONSUME => Some(role_of_consumer(name, queue)),
        PUBLISH => Some(publisher(name)),
        _ => None,
    }
}

fn of_command(words: &[&[u8]], queue: &[u8]) -> Option<&'static str> {
    let (command, arguments) = words.split_first()?;
    let names = queue.is_empty() || arguments.contains(&queue);
    match command.to_ascii_uppercase().as_slice() {
        b"BRPOP" | b"BLPOP" | b"BRPOPLPUSH" | b"BLMOVE" | b"BLMPOP" | b"RPOP" | b"LPOP" | b"XREADGROUP" | b"XREAD"
            if names =>
        {
            Some("consumer")
        }
        b"SUBSCRIBE" | b"PSUBSCRIBE" | b"SSUBSCRIBE" => Some(subscriber(arguments.first()?)),
        b"PUBLISH" | b"SPUBLISH" | b"LPUSH" | b"RPUSH" | b"XADD" => Some(publisher(arguments.first()?)),
        _ => None,
    }
}

/// AMQP: the beginnings of its method frames.
#[derive(Debug)]
struct Frames {
    /// Bytes of the protocol header that are still to come.
    preamble: usize,
    header: Vec<u8>,
    /// Bytes of payload and end octet that are still to come.
    left: usize,
    payload: Vec<u8>,
}

impl Default for Frames {
    fn default() -> Self {
        Self { preamble: PROTOCOL_HEADER, header: Vec::new(), left: 0, payload: Vec::new() }
    }
}

impl Frames {
    fn read(&mut self, mut bytes: &[u8], mut method: impl FnMut(&[u8])) {
        let skipped = self.preamble.min(bytes.len());
        self.preamble -= skipped;
        bytes = &bytes[skipped..];
        while !bytes.is_empty() {
            if self.left == 0 {
                let wanted = (FRAME_HEADER - self.header.len()).min(bytes.len());
                self.header.extend_from_slice(&bytes[..wanted]);
                bytes = &bytes[wanted..];
                if let [_, _, _, a, b, c, d] = self.header[..] {
                    self.left = u32::from_be_bytes([a, b, c, d]) as usize + 1;
                    self.payload.clear();
                }
                continue;
            }
            let taken = self.left.min(bytes.len());
            let kept = KEPT.saturating_sub(self.payload.len()).min(taken);
            self.payload.extend_from_slice(&bytes[..kept]);
            self.left -= taken;
            bytes = &bytes[taken..];
            if self.left == 0 {
                if self.header[0] == METHOD {
                    method(&self.payload);
                }
                self.header.clear();
            }
        }
    }
}

/// Redis: whole commands.
#[derive(Debug, Default)]
struct Commands {
    kept: Vec<u8>,
    /// A command was too long: where the next one begins is not known.
    lost: bool,
}

impl Commands {
    fn read(&mut self, bytes: &[u8], mut command: impl FnMut(&[&[u8]])) {
        if self.lost {
            return;
        }
        self.kept.extend_from_slice(bytes);
        let mut from = 0;
        while let Some((words, length)) = whole(&self.kept[from..]) {
            command(&words);
            from += length;
        }
        self.kept.drain(..from);
        if self.kept.len() > COMMAND_BYTES {
            (self.lost, self.kept) = (true, Vec::new());
        }
    }
}

/// The first command, where all of it is there, and its length. A line that is no array has no words.
fn whole(bytes: &[u8]) -> Option<(Vec<&[u8]>, usize)> {
    let line = |at: usize| -> Option<(&[u8], usize)> {
        let length = bytes.get(at..)?.windows(2).position(|two| two == b"\r\n")?;
        Some((&bytes[at..at + length], at + length + 2))
    };
    let number = |text: &[u8]| std::str::from_utf8(text.get(1..)?).ok()?.parse::<usize>().ok();
    let (head, mut at) = line(0)?;
    let Some(count) = head.first().filter(|c| **c == b'*').and_then(|_| number(head)) else {
        return Some((Vec::new(), at));
    };
    let mut words = Vec::new();
    for _ in 0..count {
        let (size, from) = line(at)?;
        let size = number(size)?;
        words.push(bytes.get(from..from.checked_add(size)?)?);
        at = from + size + 2;
    }
    (at <= bytes.len()).then_some((words, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![kind, 0, 1];
        frame.extend(u32::try_from(payload.len()).unwrap().to_be_bytes());
        frame.extend(payload);
        frame.push(0xCE);
        frame
    }

    fn method(method: [u8; 4], name: &str) -> Vec<u8> {
        let mut payload = method.to_vec();
        payload.extend([0, 0, u8::try_from(name.len()).unwrap()]);
        payload.extend(name.bytes());
        payload.extend([0, 0, 0, 0, 0, 0]);
        frame(METHOD, &payload)
    }

    fn command(words: &[&str]) -> Vec<u8> {
        let all: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        format!("*{}\r\n{all}", words.len()).into_bytes()
    }

    fn roles(broker: BrokerKind, stream: &[u8], size: usize) -> Vec<&'static str> {
        let mut reader = RoleReader::of(broker, "q");
        stream.chunks(size).filter_map(|bytes| reader.read(bytes)).collect()
    }

    #[test]
    fn methods_are_found_in_pieces_of_any_size() {
        let mut stream = b"AMQP\x00\x00\x09\x01".to_vec();
        for part in [
            frame(8, b""),
            frame(METHOD, &[0; 5000]),
            method(PUBLISH, "celeryev"),
            method(CONSUME, "trial-1@halfopen.celery.pidbox"),
            method(CONSUME, "celeryev.1"),
            frame(3, &CONSUME),
            method(CONSUME, "q"),
            method(PUBLISH, ""),
            frame(8, b""),
        ] {
            stream.extend(part);
        }
        for size in [1, 2, 3, 7] {
            assert_eq!(
                roles(BrokerKind::Rabbitmq, &stream, size),
                ["event", "control", "consumer"],
                "in pieces of {size}"
            );
        }
        assert_eq!(roles(BrokerKind::Rabbitmq, &stream, stream.len()), ["consumer"]);
    }

    #[test]
    fn another_queue_is_not_ours() {
        let head = b"AMQP\x00\x00\x09\x01".to_vec();
        let other = [head.clone(), method(CONSUME, "qq"), method(CONSUME, "")].concat();
        assert_eq!(roles(BrokerKind::Rabbitmq, &other, 9), ["subscriber"]);
        let publishes = [head, method(PUBLISH, "")].concat();
        assert_eq!(roles(BrokerKind::Rabbitmq, &publishes, 9), ["publisher"]);
    }

    #[test]
    fn commands_are_found_in_pieces_of_any_size() {
        let stream = [
            b"PING\r\n".to_vec(),
            command(&["HELLO", "3", "AUTH", "default", "q"]),
            command(&["PUBLISH", "/1.celery.pidbox", "x"]),
            command(&["PUBLISH", "/1.celeryev/worker.heartbeat", "*1\r\n$4\r\nx"]),
            command(&["PSUBSCRIBE", "/1.celery.pidbox"]),
            command(&["brpop", "q", "q\u{6}\u{16}3", "1"]),
        ]
        .concat();
        for size in [1, 3, 8] {
            assert_eq!(
                roles(BrokerKind::Redis, &stream, size),
                ["publisher", "event", "control", "consumer"],
                "in pieces of {size}"
            );
        }
        assert!(roles(BrokerKind::Redis, &command(&["BRPOP", "other", "0"]), 64).is_empty());
    }

    #[test]
    fn what_is_no_protocol_is_endured() {
        for text in ["*9999999999999999999\r\n", "*1\r\n$x\r\n", "\r\n\r\n", "*1\r\n$18446744073709551615\r\n"] {
            assert!(roles(BrokerKind::Redis, text.as_bytes(), 4).is_empty(), "{text}");
        }
    }
}

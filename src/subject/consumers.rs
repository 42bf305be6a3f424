//! Who subscribes, by what goes over the wire: `basic.consume` among the frames of an AMQP 0-9-1 client. Pure.
//!
//! Frames by the specification's section 2.3: type, channel, size, payload, end octet. What is left out: everything else.

/// `AMQP` and the version, before the first frame.
const PROTOCOL_HEADER: usize = 8;
const FRAME_HEADER: usize = 7;
const METHOD: u8 = 1;
/// Class and method of `basic.consume`.
const CONSUME: [u8; 4] = [0, 60, 0, 20];
/// As much of a payload as tells class, method, a reserved number and the queue's name.
const KEPT: usize = 4 + 2 + 1 + 255;

/// Reads what a client sends, in pieces of any size.
#[derive(Debug)]
pub(super) struct Consumers {
    queue: Vec<u8>,
    /// Bytes of the protocol header that are still to come.
    preamble: usize,
    header: Vec<u8>,
    /// Bytes of payload and end octet that are still to come.
    left: usize,
    payload: Vec<u8>,
}

impl Consumers {
    /// Looks for subscriptions to this queue.
    pub fn of(queue: &str) -> Self {
        let queue = queue.as_bytes().to_vec();
        Self { queue, preamble: PROTOCOL_HEADER, header: Vec::new(), left: 0, payload: Vec::new() }
    }

    /// Takes the next bytes; whether a subscription to the queue was among them.
    pub fn read(&mut self, mut bytes: &[u8]) -> bool {
        let mut found = false;
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
                found |= self.header[0] == METHOD && self.is_ours();
                self.header.clear();
            }
        }
        found
    }

    fn is_ours(&self) -> bool {
        let Some(rest) = self.payload.strip_prefix(&CONSUME) else { return false };
        // A reserved number of two octets, then the name with its length before it.
        matches!(rest, [_, _, length, name @ ..] if name.get(..usize::from(*length)) == Some(&self.queue[..]))
    }
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

    fn consume(queue: &str) -> Vec<u8> {
        let mut payload = CONSUME.to_vec();
        payload.extend([0, 0, u8::try_from(queue.len()).unwrap()]);
        payload.extend(queue.bytes());
        payload.extend([0, 0, 0, 0, 0, 0]);
        frame(METHOD, &payload)
    }

    #[test]
    fn a_subscription_is_found_in_pieces_of_any_size() {
        let mut stream = b"AMQP\x00\x00\x09\x01".to_vec();
        for part in [
            frame(8, b""),
            frame(METHOD, &[0; 5000]),
            consume("pidbox"),
            frame(3, &CONSUME),
            consume("q"),
            frame(8, b""),
        ] {
            stream.extend(part);
        }
        for size in [1, 2, 3, 7, 64, stream.len()] {
            let mut consumers = Consumers::of("q");
            let found = stream.chunks(size).filter(|bytes| consumers.read(bytes)).count();
            assert_eq!(found, 1, "in pieces of {size}");
        }
    }

    #[test]
    fn another_queue_is_not_ours() {
        let mut consumers = Consumers::of("q");
        assert!(!consumers.read(b"AMQP\x00\x00\x09\x01"));
        assert!(!consumers.read(&consume("qq")) && !consumers.read(&consume("")));
        assert!(consumers.read(&consume("q")));
    }
}

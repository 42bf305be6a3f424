//! AMQP 0-9-1 frames over a byte stream: cut out of whatever pieces the segments come in, and put together.
//!
//! Pure: bytes in, frames out. The envelope (type, channel, size, end) is checked here, so that a broken one is told
//! from one that is not complete yet; what is inside is `amq-protocol`'s to read.

use amq_protocol::frame::{AMQPFrame, WriteContext, gen_frame, parse_frame};
use thiserror::Error;

/// Type (1), channel (2), size (4).
const HEADER: usize = 7;
/// What closes every frame.
const END: u8 = 0xce;
/// Method, content header, content body, heartbeat.
const TYPES: [u8; 4] = [1, 2, 3, 8];
/// Envelope around a payload: the header and the end.
const ENVELOPE: usize = HEADER + 1;

/// Bytes that are no frame: the connection can't go on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum Malformed {
    /// An unknown type.
    #[error("a frame of unknown type {0}")]
    Type(u8),
    /// Larger than what both sides agreed on.
    #[error("a frame of {size} bytes; {most} were agreed on")]
    Size {
        /// What it says.
        size: usize,
        /// What is allowed.
        most: usize,
    },
    /// Another end.
    #[error("a frame that ends with {0:#04x} instead of 0xce")]
    End(u8),
    /// An envelope with nonsense inside.
    #[error("a frame that can't be read: {0}")]
    Content(String),
}

/// Cuts frames out of a stream.
#[derive(Debug)]
pub(super) struct Decoder {
    bytes: Vec<u8>,
    /// Where the next frame starts.
    at: usize,
    most: usize,
}

impl Decoder {
    /// A decoder for frames of at most `frame_max` bytes, the envelope included.
    pub fn new(frame_max: u32) -> Self {
        Self { bytes: Vec::new(), at: 0, most: usize::try_from(frame_max).unwrap_or(usize::MAX) }
    }

    /// The size that was agreed on; 0 is no limit.
    pub fn limit(&mut self, frame_max: u32) {
        self.most = if frame_max == 0 { usize::MAX } else { usize::try_from(frame_max).unwrap_or(usize::MAX) };
    }

    /// Takes bytes as they come.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.at > 0 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Whether a header is complete and its payload is not.
    pub fn inside_a_frame(&self) -> bool {
        self.rest().len() >= HEADER
    }

    /// The next whole frame; none until more bytes come.
    ///
    /// # Errors
    /// [`Malformed`]; what follows has no frame boundary any more.
    pub fn next(&mut self) -> Result<Option<AMQPFrame>, Malformed> {
        let rest = self.rest();
        if let Some(kind) = rest.first().filter(|kind| !TYPES.contains(kind)) {
            return Err(Malformed::Type(*kind));
        }
        let Some(&[_, _, _, a, b, c, d]) = rest.first_chunk::<HEADER>() else { return Ok(None) };
        // 64 bits hold every size; on a smaller machine the limit refuses it.
        let size = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX).saturating_add(ENVELOPE);
        if size > self.most {
            return Err(Malformed::Size { size, most: self.most });
        }
        let Some(frame) = rest.get(..size) else { return Ok(None) };
        match frame.last() {
            Some(&END) => {}
            Some(&other) => return Err(Malformed::End(other)),
            None => return Ok(None),
        }
        let (_, parsed) = parse_frame(frame).map_err(|error| Malformed::Content(error.to_string()))?;
        self.at += size;
        Ok(Some(parsed))
    }
}

/// The bytes of a frame.
///
/// # Errors
/// A value that the protocol has no room for, in words.
pub(super) fn encode(frame: &AMQPFrame) -> Result<Vec<u8>, String> {
    let context = gen_frame(frame)(WriteContext::from(Vec::new())).map_err(|error| error.to_string())?;
    Ok(context.into_inner().0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use amq_protocol::frame::AMQPContentHeader;
    use amq_protocol::protocol::basic::{self, AMQPProperties};
    use amq_protocol::protocol::{AMQPClass, channel};
    use proptest::prelude::*;

    fn frames() -> Vec<AMQPFrame> {
        let deliver = basic::Deliver {
            consumer_tag: "trial-1".into(),
            delivery_tag: 7,
            redelivered: true,
            exchange: "".into(),
            routing_key: "halfopen.1".into(),
        };
        let header = AMQPContentHeader { class_id: 60, body_size: 2, properties: AMQPProperties::default() };
        vec![
            AMQPFrame::Method(1, AMQPClass::Channel(channel::AMQPMethod::Open(channel::Open {}))),
            AMQPFrame::Heartbeat,
            AMQPFrame::Method(1, AMQPClass::Basic(basic::AMQPMethod::Deliver(deliver))),
            AMQPFrame::Header(1, header),
            AMQPFrame::Body(1, b"42".to_vec()),
        ]
    }

    fn stream() -> Vec<u8> {
        frames().iter().flat_map(|frame| encode(frame).unwrap()).collect()
    }

    fn all(decoder: &mut Decoder) -> Vec<AMQPFrame> {
        std::iter::from_fn(|| decoder.next().unwrap()).collect()
    }

    #[test]
    fn byte_by_byte_is_the_same_as_at_once() {
        let (mut decoder, mut found) = (Decoder::new(4096), Vec::new());
        for byte in stream() {
            decoder.feed(&[byte]);
            found.extend(all(&mut decoder));
        }
        assert_eq!(found, frames());
        assert!(!decoder.inside_a_frame());
    }

    #[test]
    fn a_frame_is_begun_with_its_whole_header() {
        let mut decoder = Decoder::new(4096);
        let bytes = encode(&AMQPFrame::Body(1, vec![7; 100])).unwrap();
        for (length, inside) in [(0, false), (6, false), (7, true), (107, true)] {
            decoder = Decoder::new(4096);
            decoder.feed(&bytes[..length]);
            assert_eq!((decoder.next(), decoder.inside_a_frame()), (Ok(None), inside), "{length}");
        }
        decoder.feed(&bytes[107..]);
        assert_eq!(decoder.next(), Ok(Some(AMQPFrame::Body(1, vec![7; 100]))));
        assert!(!decoder.inside_a_frame());
    }

    #[test]
    fn what_is_no_frame_is_refused_at_once() {
        let refused = |bytes: &[u8]| {
            let mut decoder = Decoder::new(4096);
            decoder.feed(bytes);
            decoder.next().unwrap_err()
        };
        // A broker of another version answers the protocol header with its own.
        assert_eq!(refused(b"AMQP\0\0\x09\x01"), Malformed::Type(b'A'));
        assert_eq!(refused(&[1, 0, 1, 0, 0, 0x10, 0]), Malformed::Size { size: 4104, most: 4096 });
        assert_eq!(refused(&[1, 0, 1, 0xff, 0xff, 0xff, 0xff]), Malformed::Size { size: 0x1_0000_0007, most: 4096 });
        assert_eq!(refused(&[8, 0, 0, 0, 0, 0, 0, 0xcd]), Malformed::End(0xcd));
        // An envelope without a method inside, and one with too much.
        assert!(matches!(refused(&[1, 0, 1, 0, 0, 0, 0, END]), Malformed::Content(_)));
        assert!(matches!(refused(&[1, 0, 1, 0, 0, 0, 5, 0, 20, 0, 10, 9, END]), Malformed::Content(_)));
        // The limit holds for the whole frame, and 0 is none.
        let mut decoder = Decoder::new(8);
        decoder.limit(0);
        decoder.feed(&encode(&AMQPFrame::Body(1, vec![0; 9000])).unwrap());
        assert_eq!(decoder.next(), Ok(Some(AMQPFrame::Body(1, vec![0; 9000]))));
    }

    proptest! {
        #[test]
        fn any_cut_of_the_stream_gives_the_same_frames(cuts in prop::collection::vec(1usize..40, 1..60)) {
            let (stream, mut decoder, mut found) = (stream(), Decoder::new(4096), Vec::new());
            let mut rest = &stream[..];
            for cut in cuts.into_iter().cycle() {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                decoder.feed(piece);
                found.extend(all(&mut decoder));
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(found, frames());
        }

        #[test]
        fn any_bytes_give_frames_or_an_error_and_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = Decoder::new(4096);
            decoder.feed(&bytes);
            while let Ok(Some(_)) = decoder.next() {}
        }
    }
}

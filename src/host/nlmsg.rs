//! Walking netlink replies: messages, attributes, acknowledgements.
//!
//! Borrowing and allocation-free, for the replies that are read by the thousand (set elements, sockets). What is left
//! out: writing, which the typed packet crates do, and any meaning of a message.

/// Length of `struct nlmsghdr`.
pub const HEADER_LEN: usize = 16;

/// `NLMSG_ERROR`: an error, or with code 0 an acknowledgement.
pub const ERROR: u16 = 2;
/// `NLMSG_DONE`: the end of a dump.
pub const DONE: u16 = 3;
/// `NLM_F_DUMP_INTR`: the dump was interrupted by a change and is not one consistent picture.
pub const FLAG_DUMP_INTERRUPTED: u16 = 0x10;

const FLAG_CAPPED: u16 = 0x100;
const FLAG_ACK_TLVS: u16 = 0x200;
const ACK_ATTRIBUTE_TEXT: u16 = 1;

/// One message of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// `nlmsg_type`.
    pub kind: u16,
    /// `nlmsg_flags`.
    pub flags: u16,
    /// `nlmsg_seq`.
    pub sequence: u32,
    /// What follows the header.
    pub payload: &'a [u8],
}

/// Splits a datagram into its messages; stops at the first malformed one.
pub fn messages(datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = usize::try_from(u32_ne(rest, 0)?).ok()?;
        let whole = rest.get(..length).filter(|whole| whole.len() >= HEADER_LEN)?;
        rest = rest.get(align(length)..).unwrap_or_default();
        Some(Message {
            kind: u16_ne(whole, 4)?,
            flags: u16_ne(whole, 6)?,
            sequence: u32_ne(whole, 8)?,
            payload: &whole[HEADER_LEN..],
        })
    })
}

/// Splits a block of attributes into kind (flags removed) and value; stops at the first malformed one.
pub fn attributes(block: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    const FLAGS: u16 = 0xc000;
    let mut rest = block;
    std::iter::from_fn(move || {
        let length = usize::from(u16_ne(rest, 0)?);
        let kind = u16_ne(rest, 2)? & !FLAGS;
        let value = rest.get(4..length)?;
        rest = rest.get(align(length)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The value of the first attribute of this kind.
#[must_use]
pub fn attribute(block: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(block).find(|(found, _)| *found == kind).map(|(_, value)| value)
}

/// The error number of an `NLMSG_ERROR`, positive, 0 for an acknowledgement; with the kernel's own words, where the
/// socket asked for them (`NETLINK_EXT_ACK`).
#[must_use]
pub fn acknowledgement(message: &Message<'_>) -> Option<(i32, String)> {
    if message.kind != ERROR {
        return None;
    }
    let code = i32::from_ne_bytes(message.payload.get(..4)?.try_into().ok()?);
    let mut text = String::new();
    if message.flags & FLAG_ACK_TLVS != 0 {
        // The header of the request follows the code, and the request itself where it was not capped.
        let request = usize::try_from(u32_ne(message.payload, 4)?).ok()?;
        let skipped = if message.flags & FLAG_CAPPED != 0 { HEADER_LEN } else { align(request) };
        let block = message.payload.get(4 + skipped..).unwrap_or_default();
        if let Some(words) = attribute(block, ACK_ATTRIBUTE_TEXT) {
            text = String::from_utf8_lossy(words).trim_end_matches('\0').to_string();
        }
    }
    Some((-code, text))
}

fn align(length: usize) -> usize {
    (length + 3) & !3
}

/// Two bytes in the machine's order.
#[must_use]
pub fn u16_ne(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Four bytes in the machine's order.
#[must_use]
pub fn u32_ne(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A whole value of four bytes in network order.
#[must_use]
pub fn u32_be(value: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(value.try_into().ok()?))
}

/// A whole value of eight bytes in network order.
#[must_use]
pub fn u64_be(value: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(value.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER_LEN + payload.len()).expect("short");
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(payload);
        bytes.resize(align(bytes.len()), 0);
        bytes
    }

    #[test]
    fn messages_are_split_at_aligned_lengths() {
        let mut datagram = message(7, 1, 10, b"abc");
        datagram.extend(message(8, 0, 11, b"defg"));
        let found: Vec<_> = messages(&datagram).map(|m| (m.kind, m.sequence, m.payload.to_vec())).collect();
        assert_eq!(found, [(7, 10, b"abc".to_vec()), (8, 11, b"defg".to_vec())]);
    }

    #[test]
    fn a_cut_off_message_is_not_read() {
        let datagram = message(7, 1, 10, b"abcd");
        assert_eq!(messages(&datagram[..18]).count(), 0);
        assert_eq!(messages(&[]).count(), 0);
    }

    #[test]
    fn attributes_lose_their_flags() {
        let block = [8, 0, 3, 0x80, 1, 2, 3, 4, 5, 0, 4, 0, 9, 0, 0, 0];
        let found: Vec<_> = attributes(&block).collect();
        assert_eq!(found, [(3, &[1, 2, 3, 4][..]), (4, &[9][..])]);
        assert_eq!(attribute(&block, 4), Some(&[9][..]));
        assert_eq!(attribute(&block, 5), None);
    }

    #[test]
    fn an_error_carries_the_kernels_words() {
        let mut payload = (-2i32).to_ne_bytes().to_vec();
        payload.extend(message(0x0a0c, 0, 4, &[]));
        payload.extend([10, 0, 1, 0]);
        payload.extend(b"gone\0\0");
        let datagram = message(ERROR, FLAG_CAPPED | FLAG_ACK_TLVS, 4, &payload);
        let parsed = messages(&datagram).next().expect("one message");
        assert_eq!(acknowledgement(&parsed), Some((2, "gone".to_string())));
        let plain = message(ERROR, FLAG_CAPPED, 4, &0i32.to_ne_bytes());
        assert_eq!(acknowledgement(&messages(&plain).next().expect("one")), Some((0, String::new())));
    }
}

//! What the kernel answers.

use super::model::Key;
use crate::host::nlmsg::{attribute, attributes, u32_be, u64_be};

/// Length of `struct nfgenmsg`, before the attributes.
const FAMILY_HEADER_LEN: usize = 4;
const LIST_ELEMENT: u16 = 1;
const ELEMENT_LIST_ELEMENTS: u16 = 3;
const ELEMENT_KEY: u16 = 1;
const ELEMENT_EXPRESSION: u16 = 7;
const DATA_VALUE: u16 = 1;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const COUNTER_BYTES: u16 = 1;
const COUNTER_PACKETS: u16 = 2;
const RULE_CHAIN: u16 = 2;
const RULE_HANDLE: u16 = 3;
const GENERATION_ID: u16 = 1;

/// An element as the kernel has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Its key.
    pub key: Key,
    /// Packets that matched it since it was added.
    pub packets: u64,
    /// Bytes of those packets, from the IP header on.
    pub bytes: u64,
}

/// The elements of a `NEWSETELEM` or `DELSETELEM` message; those without a counter are left out.
pub(super) fn elements(payload: &[u8]) -> impl Iterator<Item = Reading> {
    let list = payload.get(FAMILY_HEADER_LEN..).and_then(|block| attribute(block, ELEMENT_LIST_ELEMENTS));
    attributes(list.unwrap_or_default())
        .filter(|(kind, _)| *kind == LIST_ELEMENT)
        .filter_map(|(_, element)| reading(element))
}

fn reading(element: &[u8]) -> Option<Reading> {
    let key = Key::from_wire(attribute(attribute(element, ELEMENT_KEY)?, DATA_VALUE)?)?;
    let expression = attribute(element, ELEMENT_EXPRESSION)?;
    if attribute(expression, EXPRESSION_NAME)? != b"counter\0" {
        return None;
    }
    let counter = attribute(expression, EXPRESSION_DATA)?;
    let packets = u64_be(attribute(counter, COUNTER_PACKETS)?)?;
    let bytes = u64_be(attribute(counter, COUNTER_BYTES)?)?;
    Some(Reading { key, packets, bytes })
}

/// Chain and handle of a `NEWRULE` message.
pub(super) fn rule(payload: &[u8]) -> Option<(String, u64)> {
    let block = payload.get(FAMILY_HEADER_LEN..)?;
    let chain = std::str::from_utf8(attribute(block, RULE_CHAIN)?).ok()?.trim_end_matches('\0');
    Some((chain.to_string(), u64_be(attribute(block, RULE_HANDLE)?)?))
}

/// The generation of a `NEWGEN` message.
pub(super) fn generation(payload: &[u8]) -> Option<u32> {
    u32_be(attribute(payload.get(FAMILY_HEADER_LEN..)?, GENERATION_ID)?)
}

//! Tests on a real kernel: network namespaces joined by veth, real sockets, real rules, real brokers.
//!
//! They need namespaces, and most of them root. Where they can't have them they fail and say so: a privileged test that
//! returns early would count as passed.

mod common;
mod fault;
mod observe;
mod supervisor;
mod support;

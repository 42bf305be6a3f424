//! Tests on a real kernel: network namespaces joined by veth, real sockets, real rules.
//!
//! They need `CAP_SYS_ADMIN` and `CAP_NET_ADMIN`. Where they can't have them they fail and say so: a privileged test
//! that returns early would count as passed.

mod fault;
mod observe;
mod support;

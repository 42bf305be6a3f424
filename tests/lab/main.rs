//! Tests on a real kernel: network namespaces joined by veth, real sockets, real rules, real brokers.
//!
//! They need namespaces, and most of them root. Where they can't have them they fail and say so: a privileged test that
//! returns early would count as passed.

#![expect(clippy::disallowed_methods, reason = "a test times what it waits for and starts the program under test")]

mod again;
mod blocking;
mod certificate;
mod changed;
mod clients;
mod common;
mod compose;
mod deaths;
mod docker;
mod docker_deaths;
mod fault;
mod firewall;
mod inspect;
mod inspect_finds;
mod inspect_harmless;
mod inspect_now;
mod inspect_then_cut;
mod jobs;
mod kill;
mod lab;
mod links;
mod middlebox;
mod observe;
mod own_image;
mod peers;
#[path = "../support/place.rs"]
mod place;
mod proxies;
mod reap;
mod reap_tls;
mod reaper;
mod rootless;
mod scenarios;
mod supervisor;
mod support;
mod tls;
mod vm;
mod written;

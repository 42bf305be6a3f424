//! The real `redis` client in a blocking `BRPOP`, or silent between one `PING` and the next.
//!
//! With a read timeout *r* the server is asked to answer after *r*/2 at the latest, so that a healthy idle link never
//! runs into it; without one, `BRPOP … 0` waits for ever. `BRPOP` removes the message as it delivers it, so there is no
//! acknowledgement, unless `ack` asks for kombu's (`kombu`).
//!
//! Two habits of the library (1.8) that a measurement shows: it sets keepalive and `TCP_USER_TIMEOUT` only after the
//! handshake, which they therefore don't bound; and a server that accepts and then says nothing holds it for the connect
//! timeout once for *each* set-up command (two, three with a password), because its pipeline reads on after an error.

use super::attempts::{End, Trial};
use super::kombu::{self, Envelope};
use super::stop::{Gate, Place};
use super::{causes, socket};
use crate::events::{Cause, EffectiveOptions, How, Kind, Tuple};
use crate::scenario::Ack;
use crate::units::Offset;
use redis::io::tcp::TcpSettings;
use redis::{
    Client, Connection, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, RedisError, RedisResult,
    TlsCertificates,
};
use socket2::SockRef;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Lives until the trial is closed.
pub(super) fn run(trial: &Trial, gate: &Gate) {
    if trial.settings.ack.is_some()
        && let Err(error) = kombu::sweep(Arc::new(trial.clone()))
    {
        trial.reporter.note(format!("trial {}: nobody gives back what is not acknowledged: {error}", trial.id));
    }
    trial.run_blocking(gate, |attempt, place| attempt_once(trial, attempt, place));
}

/// How to log in at `server`.
pub(super) fn login(user: &str, password: &str) -> RedisConnectionInfo {
    let mut info = RedisConnectionInfo::default();
    if !user.is_empty() {
        info = info.set_username(user);
    }
    if !password.is_empty() {
        info = info.set_password(password);
    }
    info
}

fn client(trial: &Trial) -> RedisResult<Client> {
    let mut tcp = TcpSettings::default().set_nodelay(true);
    if let Some(keepalive) = trial.settings.keepalive {
        tcp = tcp.set_keepalive(socket::keepalive(keepalive));
    }
    if let Some(limit) = trial.settings.tcp_user_timeout.get() {
        tcp = tcp.set_user_timeout(limit);
    }
    let server = trial.target.server;
    let host = trial.target.name.clone().unwrap_or_else(|| server.ip().to_string());
    let port = server.port();
    let address = match &trial.target.ca_file {
        None => ConnectionAddr::Tcp(host, port),
        Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
    };
    let info = address.into_connection_info()?;
    let login = login(&trial.target.user, &trial.target.password).set_db(i64::from(trial.target.db));
    let info = info.set_tcp_settings(tcp).set_redis_settings(login);
    match &trial.target.ca_file {
        None => Client::open(info),
        Some(ca) => {
            let root_cert = Some(std::fs::read(ca)?);
            Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert })
        }
    }
}

fn open(trial: &Trial) -> RedisResult<Connection> {
    let client = client(trial)?;
    match trial.settings.connect_timeout.get() {
        Some(limit) => client.get_connection_with_timeout(limit),
        None => client.get_connection(),
    }
}

fn attempt_once(trial: &Trial, attempt: u32, place: &mut Option<Place<'_>>) -> End {
    let failed = |error: RedisError| End::Failed {
        at: trial.reporter.now(),
        cause: causes::of_redis(&error, How::ConnectTimeout),
    };
    let mut connection = match open(trial) {
        Ok(connection) => connection,
        Err(error) => return failed(error),
    };
    let connected = trial.reporter.now();
    let limit = trial.settings.read_timeout.get();
    if let Err(error) = connection.set_read_timeout(limit) {
        return failed(error);
    }
    match identify(&mut connection, trial.target.server) {
        Ok(Some((tuple, effective))) => {
            trial.connected(connected, attempt, tuple);
            trial.event(Kind::Options { attempt, effective });
        }
        Ok(None) => {
            let cause = causes::cause(How::Other, None, "the client's own socket was not found in /proc/self/fd");
            return End::Failed { at: trial.reporter.now(), cause };
        }
        Err(error) => return failed(error),
    }
    place.take();
    trial.event(Kind::Ready { attempt });
    if let Some(every) = trial.settings.ping {
        let (at, cause) = ping_until_it_ends(trial, attempt, &mut connection, every);
        return End::Noticed { at, cause };
    }
    let wait_s = limit.map_or(0.0, |limit| limit.as_secs_f64() / 2.0);
    let (at, cause) = match trial.settings.ack {
        Some(ack) => keep_until_it_ends(trial, attempt, &mut connection, wait_s, ack),
        None => pop_until_it_ends(trial, attempt, &mut connection, wait_s),
    };
    End::Noticed { at, cause }
}

/// The socket behind the library: it hides its descriptor, so it is looked up by its peer among the process's own.
///
/// In the lab each trial has a server address of its own and one look is enough; where several connections share the
/// address, the server is asked which of them this one is.
///
/// Whoever else looks at this moment holds duplicates, which are of the same connection and no reason to ask: behind a proxy or
/// a NAT the server knows it by another name. And one that has just been reset has no peer any more, so that it is not found:
/// then the connection itself says why.
fn identify(connection: &mut Connection, server: SocketAddrV4) -> RedisResult<Option<(Tuple, EffectiveOptions)>> {
    let mut found = connections_to(server);
    if found.is_empty() {
        redis::cmd("PING").query::<String>(connection)?;
        found = connections_to(server);
    }
    if found.len() > 1 {
        let info: String = redis::cmd("CLIENT").arg("INFO").query(connection)?;
        let local = info.split(' ').find_map(|field| field.strip_prefix("addr=")).and_then(|text| text.parse().ok());
        if found.iter().any(|(tuple, _)| Some(tuple.local) == local) {
            found.retain(|(tuple, _)| Some(tuple.local) == local);
        }
    }
    Ok(found.pop().map(|(tuple, own)| (tuple, socket::effective(SockRef::from(&own)))))
}

/// One descriptor for each connection to a server, the one with the highest number last.
fn connections_to(server: SocketAddrV4) -> Vec<(Tuple, OwnedFd)> {
    let mut found: Vec<(Tuple, OwnedFd)> = Vec::new();
    for (tuple, own) in socket::find_all(server) {
        if found.iter().all(|(known, _)| *known != tuple) {
            found.push((tuple, own));
        }
    }
    found
}

fn pop_until_it_ends(trial: &Trial, attempt: u32, connection: &mut Connection, wait_s: f64) -> (Offset, Cause) {
    let mut pop = redis::cmd("BRPOP");
    pop.arg(&trial.target.queue).arg(wait_s);
    loop {
        let result: RedisResult<Option<(String, String)>> = pop.query(connection);
        let at = trial.reporter.now();
        match result {
            Ok(None) => {}
            Ok(Some((_, payload))) => match payload.parse() {
                Ok(message) => {
                    trial.event_at(at, Kind::Delivered { attempt, message, redelivered: false });
                    // The end of the trial ends the work too; the next read finds the socket shut down.
                    let (before, after) = trial.work(message);
                    if trial.begin_work(attempt, message)
                        && !trial.stop.wait(before)
                        && trial.make_effect(attempt, message)
                        && !trial.stop.wait(after)
                    {
                        trial.finish_work(attempt, message);
                    }
                }
                Err(_) => trial.reporter.note(format!("trial {}: a payload that is no number: {payload:?}", trial.id)),
            },
            Err(error) => return (at, causes::of_redis(&error, How::ReadTimeout)),
        }
    }
}

/// As kombu does it: what was popped is written down as not acknowledged until it is.
///
/// Between the pop and that note a message is with nobody but us: a connection that dies there takes it along.
fn keep_until_it_ends(
    trial: &Trial,
    attempt: u32,
    connection: &mut Connection,
    wait_s: f64,
    ack: Ack,
) -> (Offset, Cause) {
    let mut pop = redis::cmd("BRPOP");
    pop.arg(&kombu::lists(&trial.target.queue)[..]).arg(wait_s);
    loop {
        let result: RedisResult<Option<(String, String)>> = pop.query(connection);
        let at = trial.reporter.now();
        let next = match result {
            Ok(None) => continue,
            Ok(Some((_, text))) => Envelope::parse(&text).ok_or(text),
            Err(error) => return (at, causes::of_redis(&error, How::ReadTimeout)),
        };
        let handled = match next {
            Ok(envelope) => handle(trial, attempt, at, connection, &envelope, ack),
            Err(text) => {
                trial.reporter.note(format!("trial {}: a payload that is no task: {text:?}", trial.id));
                Ok(())
            }
        };
        if let Err(error) = handled {
            return (trial.reporter.now(), causes::of_redis(&error, How::ReadTimeout));
        }
    }
}

fn handle(
    trial: &Trial,
    attempt: u32,
    at: Offset,
    link: &mut Connection,
    envelope: &Envelope,
    ack: Ack,
) -> RedisResult<()> {
    let message = envelope.message;
    envelope.keep(link, trial.wall_s())?;
    trial.event_at(at, Kind::Delivered { attempt, message, redelivered: envelope.redelivered });
    if envelope.refused {
        envelope.ack(link)?;
        trial.event(Kind::Refused { attempt, message });
        return Ok(());
    }
    let acknowledge = |link: &mut Connection| -> RedisResult<()> {
        envelope.ack(link)?;
        trial.event(Kind::Acked { attempt, message });
        Ok(())
    };
    if ack == Ack::Early {
        acknowledge(link)?;
    }
    // The end of the trial ends the work too; the next read finds the socket shut down.
    let (before, after) = trial.work(message);
    if trial.begin_work(attempt, message) {
        if trial.stop.wait(before) || !trial.make_effect(attempt, message) || trial.stop.wait(after) {
            return Ok(());
        }
        trial.finish_work(attempt, message);
    }
    if ack == Ack::Late { acknowledge(link) } else { Ok(()) }
}

/// Silence, a PING, its reply: what an application does that keeps a connection for when it needs one.
fn ping_until_it_ends(trial: &Trial, attempt: u32, connection: &mut Connection, every: Duration) -> (Offset, Cause) {
    loop {
        if trial.stop.wait(every) {
            return (trial.reporter.now(), causes::cause(How::Other, None, "closed"));
        }
        trial.event(Kind::Called { attempt, method: "PING".to_string() });
        let result: RedisResult<String> = redis::cmd("PING").query(connection);
        if let Err(error) = result {
            return (trial.reporter.now(), causes::of_redis(&error, How::ReadTimeout));
        }
    }
}

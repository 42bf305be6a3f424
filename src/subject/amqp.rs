//! What the clients share of AMQP: opening a `lapin` connection over a socket of our own.

use super::amqp_stream::{Stream, runtime};
use super::protocol::Target;
use super::{causes, socket, tls};
use crate::events::{Cause, How, Tuple};
use crate::scenario::Settings;
use async_compat::CompatExt;
use lapin::tcp::AsyncTcpStream;
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{Connection, ConnectionProperties};
use socket2::{SockRef, Socket};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;

/// AMQP's smallest frame, and our default: `lapin` zeroes 64 × frame_max for each connection, which at RabbitMQ's
/// 131,072 bytes is 8 MB.
pub(super) const FRAME_MAX: u32 = 4096;

/// AMQP counts heartbeats in whole seconds; a fraction is rounded up, so that asking for some never means none.
pub(super) fn whole_seconds(heartbeat: Duration) -> u16 {
    u16::try_from(heartbeat.as_nanos().div_ceil(1_000_000_000)).unwrap_or(u16::MAX)
}

/// What is asked for when a connection is opened.
#[derive(Debug, Clone)]
pub(super) struct Wishes {
    /// Options on the socket; `None` leaves the system's.
    pub settings: Option<Settings>,
    /// Heartbeat to ask for in seconds; `None` leaves the client's default, which adopts the server's.
    pub heartbeat_s: Option<u16>,
    /// Largest frame in bytes.
    pub frame_max: u32,
    /// Bound on TCP and AMQP handshake together.
    pub connect_timeout: Option<Duration>,
    /// The name in the broker's tables and log.
    pub name: String,
}

/// Called when the TCP handshake is done, at that moment.
pub(super) type OnConnected = Arc<dyn Fn(Tuple) + Send + Sync>;

fn uri(target: &Target, wishes: &Wishes) -> AMQPUri {
    let or_guest = |text: &str| if text.is_empty() { "guest".to_string() } else { text.to_string() };
    AMQPUri {
        scheme: AMQPScheme::AMQP,
        authority: AMQPAuthority {
            userinfo: AMQPUserInfo { username: or_guest(&target.user), password: or_guest(&target.password) },
            host: target.server.ip().to_string(),
            port: target.server.port(),
        },
        vhost: target.vhost.clone(),
        query: AMQPQueryString {
            frame_max: Some(wishes.frame_max),
            heartbeat: wishes.heartbeat_s,
            ..AMQPQueryString::default()
        },
    }
}

/// Opens a connection: TCP with the options set before the handshake, then TLS where the target has it, then AMQP.
///
/// # Errors
/// As a cause: `ConnectTimeout` when the client's own limit ran out, in whichever handshake. The half-finished connection
/// is shut down then, because `lapin`'s thread would go on waiting for the handshake.
pub(super) async fn open(target: &Target, wishes: Wishes, connected: OnConnected) -> Result<Connection, Cause> {
    // A duplicate of the socket while the handshake lasts; dropped with this function at the latest.
    let half_open: Arc<Mutex<Option<Socket>>> = Arc::default();
    let slot = half_open.clone();
    let (server, looked_up) = (SocketAddr::V4(target.server), target.name.clone());
    let uri = uri(target, &wishes);
    let properties = ConnectionProperties::default().with_connection_name(wishes.name.clone().into());
    let limit = wishes.connect_timeout;
    let encrypted = target.ca_file.as_deref().map(tls::config).transpose();
    let encrypted = encrypted.map_err(|error| causes::of_io(&error, How::Other))?.map(TlsConnector::from);
    let name = tls::name_of(target).map_err(|error| causes::of_io(&error, How::Other))?;
    let connector = async move |_, _| {
        // Bounded here too: lapin's thread can't be called back while it waits for the TCP handshake.
        let address = look_up(looked_up.as_deref(), server);
        let connecting = async { connect_tcp(address.await?, wishes.settings.as_ref()).await };
        let stream = within(limit, connecting).await??;
        let reference = SockRef::from(&stream);
        let tuple = socket::tuple_of(reference)?;
        *lock(&slot) = Some(SockRef::from(&stream).try_clone()?);
        connected(tuple);
        let stream = match &encrypted {
            None => Stream::Plain(stream),
            // Bounded by the limit on all of it: a server that stays silent here is as good as one that does so later.
            Some(tls) => Stream::Encrypted(Box::new(within(limit, tls.connect(name.clone(), stream)).await??)),
        };
        Ok(AsyncTcpStream::Plain(stream.compat()))
    };
    let opened = within(limit, Connection::connector(uri, runtime(), connector, properties)).await;
    let half_open = lock(&half_open).take();
    let failure = match opened {
        Ok(Ok(connection)) => return Ok(connection),
        Ok(Err(error)) => causes::of_lapin(&error),
        Err(timeout) => causes::of_io(&timeout, How::ConnectTimeout),
    };
    if let Some(socket) = half_open {
        socket::shut_down(&socket);
    }
    Err(failure)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The server's address, by its name where it has one.
async fn look_up(name: Option<&str>, server: SocketAddr) -> io::Result<SocketAddr> {
    let Some(name) = name else { return Ok(server) };
    let mut found = tokio::net::lookup_host((name, server.port())).await?;
    found.next().ok_or_else(|| io::Error::other("the name has no address"))
}

async fn connect_tcp(server: SocketAddr, settings: Option<&Settings>) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    match settings {
        Some(settings) => socket::apply(SockRef::from(&socket), settings)?,
        None => socket.set_nodelay(true)?,
    }
    socket.connect(server).await
}

/// The future's result, or `TimedOut` without an error number.
async fn within<T>(limit: Option<Duration>, future: impl Future<Output = T>) -> io::Result<T> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, future).await.map_err(|_| io::ErrorKind::TimedOut.into()),
        None => Ok(future.await),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_of_a_heartbeat_is_not_none() {
        assert_eq!(whole_seconds(Duration::from_millis(200)), 1);
        assert_eq!(whole_seconds(Duration::from_secs(60)), 60);
        assert_eq!(whole_seconds(Duration::from_secs(100_000)), u16::MAX);
    }

    #[test]
    fn the_wishes_become_the_query() {
        let target = Target {
            server: "10.128.128.1:5672".parse().unwrap(),
            vhost: "/".into(),
            db: 0,
            queue: "q".into(),
            durable: false,
            user: String::new(),
            password: String::new(),
            ca_file: None,
            name: None,
        };
        let wishes = Wishes {
            settings: None,
            heartbeat_s: Some(10),
            frame_max: FRAME_MAX,
            connect_timeout: None,
            name: "trial 1".into(),
        };
        assert_eq!(
            uri(&target, &wishes).to_string(),
            "amqp://guest:guest@10.128.128.1:5672/%2F?frame_max=4096&heartbeat=10"
        );
        let unasked = Wishes { heartbeat_s: None, ..wishes };
        assert_eq!(uri(&target, &unasked).query.heartbeat, None);
    }
}

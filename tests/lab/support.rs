//! A client, a router and a server namespace, and TCP connections through them.

use halfopen::events::Tuple;
use halfopen::host::clock::Clock;
use halfopen::host::netns::NetNs;
use nix::sys::socket::{SockaddrIn, sockopt};
use rtnetlink::packet_route::route::{RouteScope, RouteType};
use rtnetlink::{Handle, LinkUnspec, LinkVeth, RouteMessageBuilder};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

pub const PORT: u16 = 7000;

/// Three anonymous namespaces: nothing of it outlives the test.
pub struct Lab {
    pub client: NetNs,
    pub router: NetNs,
    pub server: NetNs,
    pub clock: Clock,
    pub listener: TcpListener,
}

/// A connection through the router, both ends in the test's hands.
#[derive(Debug)]
pub struct Connection {
    pub near: TcpStream,
    pub far: TcpStream,
    pub tuple: Tuple,
}

impl Lab {
    pub fn build() -> Lab {
        let new = |name| {
            NetNs::create(name).unwrap_or_else(|e| {
                panic!("lab tests need network namespaces and failed, they were not skipped; run them as root: {e}")
            })
        };
        let (client, router, server) = (new("client"), new("router"), new("server"));
        let sides = [(client.as_fd().as_raw_fd(), "client"), (server.as_fd().as_raw_fd(), "server")];
        with_rtnetlink(&router, |handle| async move {
            up(&handle, "lo").await?;
            for (fd, name) in sides {
                handle.link().add(LinkVeth::new(name, "up").build()).execute().await?;
                handle.link().set(LinkUnspec::new_with_name("up").setns_by_fd(fd).build()).execute().await?;
                up(&handle, name).await?;
            }
            let (to_client, to_server) = (index(&handle, "client").await?, index(&handle, "server").await?);
            address(&handle, to_client, Ipv4Addr::new(10, 0, 1, 1)).await?;
            address(&handle, to_server, Ipv4Addr::new(10, 0, 2, 1)).await
        });
        for (side, own, gateway, local, prefix) in [
            (&client, Ipv4Addr::new(10, 0, 1, 2), Ipv4Addr::new(10, 0, 1, 1), Ipv4Addr::new(10, 64, 0, 0), 10),
            (&server, Ipv4Addr::new(10, 0, 2, 2), Ipv4Addr::new(10, 0, 2, 1), Ipv4Addr::new(10, 128, 0, 0), 10),
        ] {
            with_rtnetlink(side, |handle| async move {
                up(&handle, "lo").await?;
                up(&handle, "up").await?;
                address(&handle, index(&handle, "up").await?, own).await?;
                let lo = index(&handle, "lo").await?;
                let local = RouteMessageBuilder::<Ipv4Addr>::new()
                    .destination_prefix(local, prefix)
                    .output_interface(lo)
                    .kind(RouteType::Local)
                    .scope(RouteScope::Host)
                    .table_id(255)
                    .build();
                handle.route().add(local).execute().await?;
                let default = RouteMessageBuilder::<Ipv4Addr>::new().gateway(gateway).build();
                handle.route().add(default).execute().await
            });
        }
        with_rtnetlink(&router, |handle| async move {
            for (destination, gateway) in [
                (Ipv4Addr::new(10, 64, 0, 0), Ipv4Addr::new(10, 0, 1, 2)),
                (Ipv4Addr::new(10, 128, 0, 0), Ipv4Addr::new(10, 0, 2, 2)),
            ] {
                let route = RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(destination, 10);
                handle.route().add(route.gateway(gateway).build()).execute().await?;
            }
            Ok(())
        });
        router.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")).expect("forwarding in the router");
        let listener = server.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))).expect("a listener");
        Lab { client, router, server, clock: Clock::start(), listener }
    }

    /// The addresses of trial `j`: the client's and the broker's.
    pub fn addresses(j: u32) -> (Ipv4Addr, Ipv4Addr) {
        let (third, fourth) = ((128 + j / 250) as u8, (1 + j % 250) as u8);
        (Ipv4Addr::new(10, 64, third, fourth), Ipv4Addr::new(10, 128, third, fourth))
    }

    /// A connection of trial `j`, from its own client address.
    pub fn connect(&self, j: u32) -> io::Result<Connection> {
        let (client, server) = Self::addresses(j);
        let near = self.client.run(|| {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
            socket.bind(&SocketAddrV4::new(client, 0).into())?;
            socket.connect_timeout(&SocketAddrV4::new(server, PORT).into(), Duration::from_secs(3))?;
            Ok(TcpStream::from(socket))
        })?;
        let (far, _) = self.listener.accept()?;
        let v4 = |address: SockaddrIn| SocketAddrV4::new(address.ip(), address.port());
        let local = v4(nix::sys::socket::getsockname(near.as_raw_fd())?);
        let peer = v4(nix::sys::socket::getpeername(near.as_raw_fd())?);
        for stream in [&near, &far] {
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.set_nodelay(true)?;
        }
        Ok(Connection { near, far, tuple: Tuple { local, peer } })
    }
}

impl Connection {
    /// Keepalive on the client's side, in whole seconds.
    pub fn keepalive(&self, idle_s: u32, interval_s: u32, probes: u32) {
        let fd = self.near.as_fd();
        nix::sys::socket::setsockopt(&fd, sockopt::TcpKeepIdle, &idle_s).expect("TCP_KEEPIDLE");
        nix::sys::socket::setsockopt(&fd, sockopt::TcpKeepInterval, &interval_s).expect("TCP_KEEPINTVL");
        nix::sys::socket::setsockopt(&fd, sockopt::TcpKeepCount, &probes).expect("TCP_KEEPCNT");
        nix::sys::socket::setsockopt(&fd, sockopt::KeepAlive, &true).expect("SO_KEEPALIVE");
    }
}

fn with_rtnetlink<F>(namespace: &NetNs, work: impl FnOnce(Handle) -> F + Send)
where
    F: Future<Output = Result<(), rtnetlink::Error>>,
{
    let done = namespace.run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let (connection, handle, _) = rtnetlink::new_connection()?;
            tokio::spawn(connection);
            work(handle).await.map_err(io::Error::other)
        })
    });
    done.unwrap_or_else(|e| panic!("set up the namespace {}: {e}", namespace.name()));
}

async fn index(handle: &Handle, name: &str) -> Result<u32, rtnetlink::Error> {
    use futures::TryStreamExt;
    let link = handle.link().get().match_name(name).execute().try_next().await?;
    link.map(|l| l.header.index).ok_or(rtnetlink::Error::RequestFailed)
}

async fn up(handle: &Handle, name: &str) -> Result<(), rtnetlink::Error> {
    handle.link().set(LinkUnspec::new_with_name(name).up().build()).execute().await
}

async fn address(handle: &Handle, link: u32, own: Ipv4Addr) -> Result<(), rtnetlink::Error> {
    handle.address().add(link, own.into(), 24).execute().await
}

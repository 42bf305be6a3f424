//! `halfopen inspect --listen` and `--textfile`: the same look as Prometheus reads it.

use super::exit::{Exit, Failure};
use super::inspect::{InspectArgs, Watched, failure};
use crate::host::clock::Clock;
use crate::inspect::exposition;
use crate::units::Offset;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

/// A request that takes longer is nobody's.
const PATIENCE: Duration = Duration::from_secs(5);
/// No request line and headers are longer.
const LONGEST_REQUEST: u64 = 16 * 1024;

/// Answers each request with a look of its own.
pub fn listen(address: SocketAddr, watched: &mut Watched) -> Result<Exit, Failure> {
    let fail = |e: io::Error| Failure::new(Exit::Usage, format!("--listen {address}: {e}"));
    let listener = TcpListener::bind(address).map_err(fail)?;
    say!("halfopen: metrics at http://{}/metrics", listener.local_addr().map_err(fail)?);
    for stream in listener.incoming() {
        // Whoever went away before the answer is no reason to stop.
        if let Ok(stream) = stream
            && let Err(error) = answer(stream, watched)
        {
            say!("halfopen: a request failed: {error}");
        }
    }
    Ok(Exit::Held)
}

fn answer(mut stream: TcpStream, watched: &mut Watched) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new((&stream).take(LONGEST_REQUEST)).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    // Headers end with an empty line; nothing in them matters here.
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let (status, body) = match request.split(' ').collect::<Vec<_>>()[..] {
        ["GET", "/metrics", _] => match watched.look() {
            Ok((now, took_s)) => ("200 OK", exposition(&now, took_s)),
            Err(error) => ("500 Internal Server Error", format!("{error}\n")),
        },
        ["GET", _, _] => ("404 Not Found", "GET /metrics\n".to_string()),
        _ => ("405 Method Not Allowed", "GET /metrics\n".to_string()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: \
         close\r\n\r\n{body}",
        body.len()
    )
}

/// Writes the file of node_exporter's textfile collector: once, or with `--watch` after each look.
pub fn textfile(path: &Path, args: &InspectArgs, watched: &mut Watched) -> Result<Exit, Failure> {
    let clock = Clock::start();
    let most = args.looks.unwrap_or(if args.watch { u64::MAX } else { 1 });
    for number in 0u64..most {
        let due = Offset(i64::try_from(args.every.as_nanos()).unwrap_or(i64::MAX).saturating_mul(number.cast_signed()));
        clock.sleep_until(due);
        let (now, took_s) = watched.look().map_err(failure)?;
        replace(path, &exposition(&now, took_s))
            .map_err(|e| Failure::new(Exit::Usage, format!("--textfile {}: {e}", path.display())))?;
    }
    Ok(Exit::Held)
}

/// A reader never sees half a file.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut partial = path.as_os_str().to_os_string();
    partial.push(".tmp");
    fs::write(&partial, text)?;
    fs::rename(&partial, path)
}

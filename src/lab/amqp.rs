//! As much of AMQP 0-9-1 as it takes to log in: the proof that RabbitMQ is ready.
//!
//! Frames by the specification's section 2.3: type, channel, size, payload, end octet 0xCE.

use std::io::{self, Read, Write};

const METHOD: u8 = 1;
const HEARTBEAT: u8 = 8;
const FRAME_END: u8 = 0xCE;
/// No answer of the handshake is longer; a broken peer must not make us allocate gigabytes.
const MAX_FRAME: usize = 131_072;

/// Class and method numbers of `connection`.
const START: (u16, u16) = (10, 10);
const START_OK: (u16, u16) = (10, 11);
const TUNE: (u16, u16) = (10, 30);
const TUNE_OK: (u16, u16) = (10, 31);
const OPEN: (u16, u16) = (10, 40);
const OPEN_OK: (u16, u16) = (10, 41);
const CLOSE: (u16, u16) = (10, 50);
const CLOSE_OK: (u16, u16) = (10, 51);

/// Logs in to the virtual host `/` up to `connection.open-ok`, then closes in order.
///
/// # Errors
/// What the peer said instead, or the socket's error.
pub(super) fn log_in(stream: &mut (impl Read + Write), user: &str, password: &str) -> io::Result<()> {
    stream.write_all(b"AMQP\x00\x00\x09\x01")?;
    expect(stream, START)?;
    let mut args = vec![0, 0, 0, 0]; // no client properties
    short(&mut args, "PLAIN");
    let response = format!("\0{user}\0{password}");
    args.extend(u32::try_from(response.len()).unwrap_or(0).to_be_bytes());
    args.extend(response.as_bytes());
    short(&mut args, "en_US");
    send(stream, START_OK, &args)?;
    let tune = expect(stream, TUNE)?;
    // channel-max, frame-max and heartbeat as the broker proposes them.
    send(stream, TUNE_OK, tune.get(..8).ok_or(io::ErrorKind::InvalidData)?)?;
    let mut args = Vec::new();
    short(&mut args, "/");
    args.extend([0, 0]);
    send(stream, OPEN, &args)?;
    expect(stream, OPEN_OK)?;
    let mut args = 200u16.to_be_bytes().to_vec();
    short(&mut args, "ready");
    args.extend([0; 4]);
    send(stream, CLOSE, &args)?;
    expect(stream, CLOSE_OK).map(drop)
}

fn short(out: &mut Vec<u8>, text: &str) {
    out.push(u8::try_from(text.len()).unwrap_or(0));
    out.extend(text.as_bytes());
}

fn send(stream: &mut impl Write, method: (u16, u16), args: &[u8]) -> io::Result<()> {
    let size = u32::try_from(args.len() + 4).unwrap_or(u32::MAX);
    let mut frame = vec![METHOD, 0, 0];
    frame.extend(size.to_be_bytes());
    frame.extend(method.0.to_be_bytes());
    frame.extend(method.1.to_be_bytes());
    frame.extend(args);
    frame.push(FRAME_END);
    stream.write_all(&frame)
}

/// The arguments of the next method, which must be the expected one.
fn expect(stream: &mut impl Read, method: (u16, u16)) -> io::Result<Vec<u8>> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    loop {
        let mut head = [0u8; 7];
        stream.read_exact(&mut head)?;
        let size = u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize;
        if size > MAX_FRAME {
            return Err(wrong(format!("not an AMQP frame: {head:?}")));
        }
        let mut payload = vec![0; size + 1];
        stream.read_exact(&mut payload)?;
        if payload.pop() != Some(FRAME_END) {
            return Err(wrong("a frame without its end octet".into()));
        }
        match (head[0], payload.as_slice()) {
            (HEARTBEAT, _) => {}
            (METHOD, [a, b, c, d, args @ ..]) => {
                let got = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
                if got == method {
                    return Ok(args.to_vec());
                }
                let text = String::from_utf8_lossy(args).into_owned();
                return Err(wrong(format!(
                    "method {}.{} instead of {}.{}: {text:?}",
                    got.0, got.1, method.0, method.1
                )));
            }
            (kind, _) => return Err(wrong(format!("a frame of type {kind}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Script {
        input: io::Cursor<Vec<u8>>,
        output: Vec<u8>,
    }
    impl Read for Script {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            self.input.read(buf)
        }
    }
    impl Write for Script {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            self.output.write(buf)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn frames(methods: &[((u16, u16), &[u8])]) -> Script {
        let mut bytes = Vec::new();
        for (method, args) in methods {
            send(&mut bytes, *method, args).unwrap();
        }
        Script { input: io::Cursor::new(bytes), output: Vec::new() }
    }

    #[test]
    fn a_whole_login_sends_the_credentials_and_closes() {
        let tune = [7, 255, 0, 2, 0, 0, 0, 60];
        let mut broker = frames(&[(START, &[0, 9]), (TUNE, &tune), (OPEN_OK, &[0]), (CLOSE_OK, &[])]);
        log_in(&mut broker, "u", "secret").unwrap();
        assert!(broker.output.starts_with(b"AMQP\x00\x00\x09\x01"));
        assert!(broker.output.windows(9).any(|w| w == b"\0u\0secret"));
    }

    #[test]
    fn a_refusal_and_garbage_are_errors() {
        let mut refused = frames(&[(START, &[]), (CLOSE, b"\x01\x93\x0fACCESS_REFUSED")]);
        let error = log_in(&mut refused, "u", "bad").unwrap_err().to_string();
        assert!(error.contains("10.50") && error.contains("ACCESS_REFUSED"), "{error}");
        let mut http = Script { input: io::Cursor::new(b"HTTP/1.1 400 Bad".to_vec()), output: Vec::new() };
        assert!(log_in(&mut http, "u", "p").is_err());
        let mut short_tune = frames(&[(START, &[]), (TUNE, &[1])]);
        assert!(log_in(&mut short_tune, "u", "p").is_err());
    }
}

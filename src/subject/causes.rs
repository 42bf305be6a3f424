//! From a client's own error to a [`Cause`]: which clock or which end ran out, with the error number where there is one.
//!
//! Three timeouts look alike in most libraries and must not be confused: `EAGAIN` is `SO_RCVTIMEO`, `ETIMEDOUT` is the
//! kernel's verdict on the connection, and a `TimedOut` without a number is the client's own connect timeout.

use crate::events::{Cause, How};
use std::error::Error;
use std::io;
use std::sync::Arc;

/// A cause with the client's own words.
pub(super) fn cause(how: How, errno: Option<i32>, text: impl Into<String>) -> Cause {
    Cause { how, errno, text: text.into() }
}

/// End of file.
pub(super) fn eof() -> Cause {
    cause(How::Eof, None, "end of file")
}

/// An I/O error. `eagain` says what an `EAGAIN` means where it happened.
pub(super) fn of_io(error: &io::Error, eagain: How) -> Cause {
    let how = match (error.raw_os_error(), error.kind()) {
        (Some(libc::EAGAIN), _) => eagain,
        (Some(_), _) => How::Errno,
        // std has no kind for what the resolver says.
        (None, _) if error.to_string().starts_with("failed to lookup address") => How::Resolver,
        (None, io::ErrorKind::TimedOut) => How::ConnectTimeout,
        // std and redis say UnexpectedEof; lapin calls a read of nothing ConnectionAborted.
        (None, io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionAborted) => How::Eof,
        (None, _) => How::Other,
    };
    cause(how, error.raw_os_error(), error.to_string())
}

/// An error of the `lapin` client.
pub(super) fn of_lapin(error: &lapin::Error) -> Cause {
    match error.kind() {
        lapin::ErrorKind::MissingHeartbeatError => cause(How::AmqpHeartbeat, None, error.to_string()),
        lapin::ErrorKind::IOError(io) => Cause { text: error.to_string(), ..of_io(io, How::Other) },
        lapin::ErrorKind::ProtocolError(amqp) => {
            cause(How::ClosedByPeer, None, format!("{} {}", amqp.get_id(), amqp.get_message()))
        }
        lapin::ErrorKind::InvalidConnectionState(lapin::ConnectionState::Closed) => {
            cause(How::ClosedByPeer, None, error.to_string())
        }
        _ => cause(How::Other, None, error.to_string()),
    }
}

/// An error of the `redis` client. `eagain` says what an `EAGAIN` means where it happened.
pub(super) fn of_redis(error: &redis::RedisError, eagain: How) -> Cause {
    // The library keeps the I/O error behind a shared pointer and shows only that pointer as the source.
    type Shared = Arc<dyn Error + Send + Sync>;
    let io = error.source().and_then(|source| source.downcast_ref::<Shared>()).and_then(|it| it.downcast_ref());
    if let Some(io) = io {
        return of_io(io, eagain);
    }
    cause(How::Other, None, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn how(error: io::Error) -> (How, Option<i32>) {
        let cause = of_io(&error, How::ReadTimeout);
        (cause.how, cause.errno)
    }

    #[test]
    fn the_three_timeouts_are_told_apart() {
        assert_eq!(how(io::Error::from_raw_os_error(libc::EAGAIN)), (How::ReadTimeout, Some(libc::EAGAIN)));
        assert_eq!(how(io::Error::from_raw_os_error(libc::ETIMEDOUT)), (How::Errno, Some(libc::ETIMEDOUT)));
        assert_eq!(how(io::ErrorKind::TimedOut.into()), (How::ConnectTimeout, None));
        assert_eq!(how(io::ErrorKind::UnexpectedEof.into()), (How::Eof, None));
    }

    #[test]
    fn the_redis_client_is_read_by_error_number_too() {
        let of = |errno| of_redis(&io::Error::from_raw_os_error(errno).into(), How::ReadTimeout);
        assert_eq!((of(libc::EAGAIN).how, of(libc::EAGAIN).errno), (How::ReadTimeout, Some(libc::EAGAIN)));
        assert_eq!((of(libc::ETIMEDOUT).how, of(libc::ETIMEDOUT).errno), (How::Errno, Some(libc::ETIMEDOUT)));
        let eof: io::Error = io::ErrorKind::UnexpectedEof.into();
        assert_eq!(of_redis(&eof.into(), How::ReadTimeout).how, How::Eof);
    }

    #[test]
    fn lapin_errors_keep_their_number_and_their_words() {
        let reset: lapin::Error = io::Error::from_raw_os_error(libc::ECONNRESET).into();
        assert_eq!((of_lapin(&reset).how, of_lapin(&reset).errno), (How::Errno, Some(libc::ECONNRESET)));
        let aborted: lapin::Error = io::Error::from(io::ErrorKind::ConnectionAborted).into();
        assert_eq!(of_lapin(&aborted).how, How::Eof);
        let heartbeat: lapin::Error = lapin::ErrorKind::MissingHeartbeatError.into();
        assert_eq!(of_lapin(&heartbeat).how, How::AmqpHeartbeat);
        let forced = lapin::protocol::AMQPError::from_id(320, "CONNECTION_FORCED - bye".into()).unwrap();
        let forced = of_lapin(&lapin::ErrorKind::ProtocolError(forced).into());
        assert_eq!((forced.how, forced.text.as_str()), (How::ClosedByPeer, "320 CONNECTION_FORCED - bye"));
    }
}

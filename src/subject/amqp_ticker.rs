//! A heartbeat thread of its own: it ticks whatever the consuming thread waits for.

use super::amqp_heartbeat::Heartbeat;
use super::amqp_wire::Line;
use super::causes;
use super::report::Reporter;
use super::socket;
use crate::events::{Cause, How};
use crate::units::Offset;
use amq_protocol::frame::AMQPFrame;
use socket2::Socket;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// A thread that sends a frame now and then and looks at a clock.
const STACK_BYTES: usize = 64 * 1024;

/// The cause when nothing arrived for two heartbeats, in py-amqp's words.
pub(super) fn missed() -> Cause {
    causes::cause(How::AmqpHeartbeat, None, "Too many heartbeats missed")
}

#[derive(Debug, Default)]
struct State {
    stopped: bool,
    verdict: Option<(Offset, Cause)>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread; it ends with this value.
pub(super) struct Ticker {
    shared: Arc<Shared>,
    /// To end a write that waits for room.
    socket: Socket,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Starts to tick on a connection. When it gives the connection up, it shuts the socket down: the consuming thread's
    /// read returns with the end of the stream.
    ///
    /// # Errors
    /// When no thread or descriptor can be had.
    pub fn start(mut heartbeat: Heartbeat, line: Arc<Line>, own: &Socket, reporter: Reporter) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (inside, shut) = (shared.clone(), own.try_clone()?);
        let run = move || {
            loop {
                let wait = heartbeat.due().since(reporter.now());
                let stopped = inside.changed.wait_timeout_while(inside.lock(), wait, |state| !state.stopped);
                if stopped.unwrap_or_else(PoisonError::into_inner).0.stopped {
                    return;
                }
                let now = reporter.now();
                if now < heartbeat.due() {
                    continue;
                }
                let (sent, received) = line.counts();
                let tick = heartbeat.tick(now, sent, received);
                let failed = if tick.send { line.send(&AMQPFrame::Heartbeat).err() } else { None };
                let verdict = match failed {
                    Some(failure) => Some((reporter.now(), failure.cause(How::SendTimeout))),
                    None => tick.expired.then(|| (now, missed())),
                };
                if verdict.is_some() {
                    inside.lock().verdict = verdict;
                    return socket::shut_down(&shut);
                }
            }
        };
        let named = thread::Builder::new().name("heartbeat".into()).stack_size(STACK_BYTES);
        Ok(Self { shared, socket: own.try_clone()?, thread: Some(named.spawn(run)?) })
    }

    /// Why the connection was given up by this thread, where it was.
    pub fn verdict(&self) -> Option<(Offset, Cause)> {
        self.shared.lock().verdict.clone()
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.changed.notify_all();
        socket::shut_down(&self.socket);
        if let Some(thread) = self.thread.take() {
            // A panic of it has been printed; there is nothing to add.
            let _ = thread.join();
        }
    }
}

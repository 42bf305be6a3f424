//! Starts and stops the observers' threads, and says which source each observation comes from.

use super::Message;
use super::registry::Registry;
use super::watch::Watch;
use crate::host::clock::Clock;
use crate::lab::Lab;
use crate::observe::{SockDiag, Tracepoints};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

/// The running observers.
pub struct Observers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    sources: Vec<String>,
}

impl Observers {
    /// Starts everything that this machine allows.
    ///
    /// # Errors
    /// When a thread can't be started; a source that can't be had is no error but named in [`Self::sources`].
    pub fn start(
        clock: Clock,
        registry: &Registry,
        events: &Sender<Message>,
        lab: &Lab,
        sockets: Vec<SockDiag>,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let watch = Watch { clock, registry: registry.clone(), events: events.clone(), stop: stop.clone() };
        let mut this = Self { stop, threads: Vec::new(), sources: Vec::new() };
        let traced = match Tracepoints::open(clock) {
            Ok(tracepoints) => {
                let watch = watch.clone();
                this.thread("tracepoints", move || watch.trace(tracepoints))?;
                this.sources.push("kernel_end: tracepoint".into());
                true
            }
            Err(why) => {
                this.sources.push(format!("kernel_end: sock_diag every 20 ms, because {why}"));
                false
            }
        };
        this.thread("sock_diag", move || watch.sockets(sockets, !traced))?;
        let _ = lab;
        Ok(this)
    }

    fn thread(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.threads.push(std::thread::Builder::new().name(name.into()).spawn(work)?);
        Ok(())
    }

    /// Which observation comes from where.
    pub fn sources(&self) -> Vec<String> {
        self.sources.clone()
    }

    /// Tells all threads to end and waits for them.
    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

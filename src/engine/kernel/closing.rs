//! The end of a run: what was used, the logs that are kept, and the teardown.

use super::*;

impl Run<'_> {
    fn measure_memory(&mut self) {
        let mut roots: Vec<(String, u32)> = self.children.iter().map(|c| (c.name().to_string(), c.pid())).collect();
        roots.extend(self.lab.brokers.iter().map(|b| (b.kind.name().to_string(), b.pid())));
        for (role, pid) in roots {
            let usage = procfs::tree_usage(pid);
            let peak_rss_bytes = usage.peak_rss_kib * 1024;
            self.facts.memory.push(MemoryUse { role, processes: usage.processes, peak_rss_bytes });
        }
        let own = procfs::peak_rss_kib(std::process::id()).unwrap_or(0) * 1024;
        self.facts.memory.push(MemoryUse { role: "engine".into(), processes: 1, peak_rss_bytes: own });
    }

    /// Beside the logs of clients from outside the broker's is kept, its password blotted out.
    fn keep_logs(&self) {
        if self.job.environments.is_empty() {
            return;
        }
        for broker in &self.lab.brokers {
            let text = std::fs::read(&broker.log).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).replace(&broker.password, "********");
            // It is for people only: a run that lacks it is whole.
            let _ = std::fs::write(self.job.out.join(LOGS).join(format!("{}.log", broker.kind)), text);
        }
    }

    /// Tears down in the opposite order, goes on past every error, and returns them all.
    pub(super) fn close(mut self, events: &mut EventLog) -> (Facts, Result<(), EngineError>) {
        let mut errors = Vec::new();
        self.requests = None;
        match self.cutter.take().map(JoinHandle::join) {
            Some(Ok(table)) => errors.extend(table.close().err().map(|e| e.to_string())),
            Some(Err(_)) => errors.push("the cutting thread panicked".to_string()),
            None => {}
        }
        let blind: Vec<String> = self.observers.stop().iter().map(|e| format!("observation: {e}")).collect();
        // A broker that was stopped or killed on purpose answers nobody, the harness included.
        if self.plan.scenario.faults.iter().any(|fault| fault.act.is_some_and(Act::hits_all)) {
            for text in blind {
                let note = Event::of_run(self.clock.now(), Source::Harness, Kind::Note { text });
                errors.extend(events.append(&note).err().map(|e| e.to_string()));
            }
        } else {
            errors.extend(blind);
        }
        self.measure_memory();
        // One that was started again is asked to end like the others.
        let killed = self.kills_brokers() && !self.restarts_brokers();
        let killed_children: Vec<bool> = (0..self.children.len()).map(|index| self.may_be_killed(index)).collect();
        for (mut child, may_be_killed) in std::mem::take(&mut self.children).into_iter().zip(killed_children) {
            if (killed && child.name() == PEER) || (may_be_killed && child.is_gone()) {
                continue;
            }
            let closed = if child.name().starts_with(PROXY) { child.end() } else { child.close() };
            errors.extend(closed.err().map(|e| e.to_string()));
        }
        self.keep_logs();
        if let Err(more) = self.lab.close() {
            errors.extend(more.iter().map(ToString::to_string));
        }
        // What the threads still had to say, the last certificates among it.
        while let Some(message) = self.inbox.try_recv() {
            if let Message::Event(event) = message
                && let Err(error) = events.append(&event)
            {
                errors.push(error.to_string());
                break;
            }
        }
        let result = if errors.is_empty() { Ok(()) } else { Err(EngineError::Harness(errors.join("; "))) };
        (self.facts, result)
    }
}

//! Publishing to RabbitMQ: one connection and one channel with publisher confirms a broker, shared by all trials.

use super::amqp::{self, FRAME_MAX, Wishes};
use super::causes;
use super::message;
use super::protocol::{Target, Task};
use super::report::Reporter;
use super::schedule::Schedule;
use super::stop::Stop;
use super::tasks::TaskLog;
use crate::events::Kind;
use crate::units::{Offset, TrialId};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Confirmation, Connection, PublisherConfirm};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

/// Between two attempts to reach a broker that is gone.
const PAUSE: Duration = Duration::from_secs(1);
/// Between two questions whether a queue is there.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// The link to one broker and virtual host; opened when first needed, opened again when it broke.
#[derive(Default)]
struct Link {
    open: Mutex<Option<(Connection, Channel)>>,
}

pub(super) struct Publisher {
    reporter: Reporter,
    tasks: Option<TaskLog>,
    runtime: Option<Runtime>,
    links: HashMap<(SocketAddrV4, String), Arc<Link>>,
    trials: HashMap<TrialId, Arc<Numbered>>,
}

impl Publisher {
    pub fn start(reporter: Reporter, tasks: Option<TaskLog>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        Ok(Self { reporter, tasks, runtime: Some(runtime), links: HashMap::new(), trials: HashMap::new() })
    }

    /// `tracked`: each message is a task, where there is a task store.
    pub fn publish(&mut self, trial: TrialId, target: Target, interval: Duration, task: Option<Task>, tracked: bool) {
        self.close(trial);
        let link = self.links.entry((target.server, target.vhost.clone())).or_default().clone();
        let (stop, reporter, tasks) = (Stop::default(), self.reporter.clone(), self.tasks.clone().filter(|_| tracked));
        let next = AtomicU64::new(0);
        let numbered = Arc::new(Numbered { trial, target, interval, task, link, stop, reporter, tasks, next });
        self.trials.insert(trial, numbered.clone());
        if let Some(runtime) = &self.runtime {
            runtime.spawn(async move { numbered.run().await });
        }
    }

    /// Publishes a message of a trial once more; nothing where the trial is not one of RabbitMQ's.
    pub fn republish(&self, trial: TrialId, message: u64) {
        if let (Some(numbered), Some(runtime)) = (self.trials.get(&trial).cloned(), &self.runtime) {
            runtime.spawn(async move { numbered.again(message).await });
        }
    }

    /// Publishes a new message because the work of this one was asked for once more; nothing where the trial is not one of
    /// RabbitMQ's.
    pub fn reissue(&self, trial: TrialId, of: u64) {
        if let (Some(numbered), Some(runtime)) = (self.trials.get(&trial).cloned(), &self.runtime) {
            runtime.spawn(async move { numbered.reissue(of).await });
        }
    }

    pub fn close(&mut self, trial: TrialId) {
        if let Some(numbered) = self.trials.remove(&trial) {
            numbered.stop.stop();
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Link {
    /// The channel of the live connection.
    async fn channel(&self, target: &Target, reporter: &Reporter) -> Channel {
        let mut open = self.open.lock().await;
        loop {
            if let Some((_, channel)) = open.as_ref().filter(|(_, channel)| channel.status().connected()) {
                return channel.clone();
            }
            *open = None;
            match connect(target).await {
                Ok(link) => *open = Some(link),
                Err(text) => {
                    reporter.note(format!("producer: no link to {}: {text}", target.server));
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

async fn connect(target: &Target) -> Result<(Connection, Channel), String> {
    let wishes = Wishes {
        settings: None,
        heartbeat_s: None,
        frame_max: FRAME_MAX,
        connect_timeout: Some(Duration::from_secs(10)),
        name: "halfopen producer".into(),
    };
    let connection = amqp::open(target, wishes, Arc::new(|_| {})).await.map_err(|cause| cause.text)?;
    let ready = async {
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok::<_, lapin::Error>(channel)
    };
    let channel = ready.await.map_err(|error| error.to_string())?;
    Ok((connection, channel))
}

/// One trial's messages.
struct Numbered {
    trial: TrialId,
    target: Target,
    interval: Duration,
    task: Option<Task>,
    link: Arc<Link>,
    stop: Stop,
    reporter: Reporter,
    tasks: Option<TaskLog>,
    /// The number of the next new message.
    next: AtomicU64,
}

impl Numbered {
    async fn run(&self) {
        tokio::select! {
            () = self.stop.stopped() => {}
            () = self.publish_for_ever() => {}
        }
    }

    async fn publish_for_ever(&self) {
        // One that could not be handed over is tried again under its number.
        let mut held = None;
        loop {
            let channel = self.link.channel(&self.target, &self.reporter).await;
            if let Err(error) = self.publish(&channel, &mut held).await {
                self.reporter.note(format!("producer: trial {}: {}", self.trial, causes::of_lapin(&error).text));
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    async fn publish(&self, channel: &Channel, held: &mut Option<u64>) -> lapin::Result<()> {
        let queue = self.target.queue.as_str();
        match &self.task {
            None => amqp::declare(channel, queue, false).await?,
            // Clients declare their queues durable, and the first to declare decides.
            Some(task) if task.declare => amqp::declare(channel, queue, true).await?,
            // With arguments of its own, which nobody else has to know.
            Some(_) => self.await_queue(queue).await?,
        }
        let mut schedule = Schedule::staggered(self.reporter.now(), self.interval, self.trial);
        loop {
            // A task with an ETA has to be in the worker's hands before the cut: it goes ahead of the schedule.
            let first = *held == Some(0) || held.is_none() && self.next.load(Ordering::Relaxed) == 0;
            let ahead = first && self.task.as_ref().is_some_and(|task| task.first_due.is_some());
            if !ahead {
                tokio::time::sleep(schedule.wait(self.reporter.now())).await;
                schedule.advance();
            }
            // Before the call: the segment leaves during it. And before the task is written down, whose age counts from
            // here.
            let at = self.reporter.now();
            let message = *held.get_or_insert_with(|| self.next.fetch_add(1, Ordering::Relaxed));
            if let Err(text) = self.queue(message, at).await {
                self.reporter.note(format!("producer: trial {}: {text}", self.trial));
                continue;
            }
            let confirm = self.hand_over(channel, message).await?;
            self.reporter.event(at, self.trial, Kind::Published { message });
            self.await_confirm(message, confirm);
            *held = None;
        }
    }

    /// Waits until the client has declared its queue. Asking for one that is not there costs a channel each time.
    async fn await_queue(&self, queue: &str) -> lapin::Result<()> {
        loop {
            self.link.channel(&self.target, &self.reporter).await;
            let channel = {
                let open = self.link.open.lock().await;
                let Some((connection, _)) = open.as_ref() else { continue };
                connection.create_channel().await?
            };
            let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            let there = channel.queue_declare(queue.into(), options, FieldTable::default()).await.is_ok();
            if there {
                return channel.close(200, "".into()).await;
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// Writes the message's task down, where there is a task store.
    async fn queue(&self, message: u64, at: Offset) -> Result<(), String> {
        let Some(tasks) = self.tasks.clone() else { return Ok(()) };
        let trial = self.trial;
        let queued = tokio::task::spawn_blocking(move || tasks.queue(trial, message, at)).await;
        queued.map_err(|e| e.to_string())?.map_err(|e| e.to_string())
    }

    async fn hand_over(&self, channel: &Channel, message: u64) -> lapin::Result<PublisherConfirm> {
        let (payload, properties) = match &self.task {
            None => (message.to_string(), BasicProperties::default()),
            Some(task) => {
                let due = task.first_due.filter(|_| message == 0).map(|due| self.reporter.wall_of(due));
                let now_ms = self.reporter.wall_of(self.reporter.now()) / 1_000_000;
                message::amqp(&task.message, self.trial, &self.target.queue, message, due, now_ms)
            }
        };
        let (options, queue) = (BasicPublishOptions::default(), self.target.queue.as_str());
        channel.basic_publish("".into(), queue.into(), options, payload.as_bytes(), properties).await
    }

    fn await_confirm(&self, message: u64, confirm: PublisherConfirm) {
        let (reporter, trial) = (self.reporter.clone(), self.trial);
        tokio::spawn(async move {
            if let Ok(Confirmation::Ack(_)) = confirm.await {
                reporter.event(reporter.now(), trial, Kind::Confirmed { message });
            }
        });
    }

    /// The same message once more: its task is in the store already.
    async fn again(&self, message: u64) {
        let channel = self.link.channel(&self.target, &self.reporter).await;
        match self.hand_over(&channel, message).await {
            Ok(confirm) => self.await_confirm(message, confirm),
            Err(error) => {
                self.reporter.note(format!("producer: trial {}: {}", self.trial, causes::of_lapin(&error).text));
            }
        }
    }

    /// A new message, because somebody asked for the work of another one once more.
    async fn reissue(&self, of: u64) {
        let channel = self.link.channel(&self.target, &self.reporter).await;
        let (message, at) = (self.next.fetch_add(1, Ordering::Relaxed), self.reporter.now());
        if let Err(text) = self.queue(message, at).await {
            self.reporter.note(format!("producer: trial {}: {text}", self.trial));
            return;
        }
        match self.hand_over(&channel, message).await {
            Ok(confirm) => {
                self.reporter.event(at, self.trial, Kind::Reissued { message, of });
                self.reporter.event(at, self.trial, Kind::Published { message });
                self.await_confirm(message, confirm);
            }
            Err(error) => {
                self.reporter.note(format!("producer: trial {}: {}", self.trial, causes::of_lapin(&error).text));
            }
        }
    }
}

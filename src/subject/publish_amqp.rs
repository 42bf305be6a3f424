//! Publishing to RabbitMQ: one connection and one channel with publisher confirms a broker, shared by all trials.

use super::amqp::{self, FRAME_MAX, Wishes};
use super::causes;
use super::message;
use super::producer::Wanted;
use super::protocol::{Routing, Target, Task};
use super::report::Reporter;
use super::schedule::Schedule;
use super::stop::Stop;
use super::tasks::TaskLog;
use super::topology;
use crate::clients::Message;
use crate::events::Kind;
use crate::units::{Offset, TrialId};
use futures::StreamExt;
use lapin::options::{BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Confirmation, Connection, PublisherConfirm};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

/// AMQP's delivery mode of a message that is written to disk.
const PERSISTENT: u8 = 2;
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
    /// Those of the second consumers: an alarm of the broker's that blocks publishers must not block them.
    beside: HashMap<(SocketAddrV4, String), Arc<Link>>,
    trials: HashMap<TrialId, Arc<Numbered>>,
}

impl Publisher {
    pub fn start(reporter: Reporter, tasks: Option<TaskLog>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        Ok(Self {
            reporter,
            tasks,
            runtime: Some(runtime),
            links: HashMap::new(),
            beside: HashMap::new(),
            trials: HashMap::new(),
        })
    }

    pub fn publish(&mut self, trial: TrialId, target: Target, wanted: Wanted) {
        self.close(trial);
        let Wanted { interval, task, routing, second, tracked } = wanted;
        let routing = *routing;
        let host = (target.server, target.vhost.clone());
        let beside = second.map(|from| (from, self.beside.entry(host.clone()).or_default().clone()));
        let link = self.links.entry(host).or_default().clone();
        let (stop, reporter, tasks) = (Stop::default(), self.reporter.clone(), self.tasks.clone().filter(|_| tracked));
        let next = AtomicU64::new(0);
        let numbered = Arc::new(Numbered { trial, target, interval, task, routing, link, stop, reporter, tasks, next });
        self.trials.insert(trial, numbered.clone());
        if let Some(runtime) = &self.runtime {
            if let Some((from, link)) = beside {
                let second = Second { numbered: numbered.clone(), link, from };
                runtime.spawn(async move { second.run().await });
            }
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

    /// A further channel of the live connection.
    async fn another_channel(&self, target: &Target, reporter: &Reporter) -> lapin::Result<Channel> {
        loop {
            self.channel(target, reporter).await;
            if let Some((connection, _)) = self.open.lock().await.as_ref() {
                return connection.create_channel().await;
            }
        }
    }
}

#[path = "second_consumer.rs"]
mod second_consumer;
use second_consumer::Second;

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
    routing: Routing,
    link: Arc<Link>,
    stop: Stop,
    reporter: Reporter,
    tasks: Option<TaskLog>,
    /// The number of the next new message.
    next: AtomicU64,
}

impl Numbered {
    async fn run(self: Arc<Self>) {
        tokio::select! {
            () = self.stop.stopped() => {}
            () = self.publish_for_ever() => {}
        }
    }

    async fn publish_for_ever(self: &Arc<Self>) {
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

    async fn publish(self: &Arc<Self>, channel: &Channel, held: &mut Option<u64>) -> lapin::Result<()> {
        self.have_queue(channel).await?;
        if self.routing.delivery.dead_letters {
            self.count_dead_letters().await?;
        }
        let mut schedule = Schedule::staggered(self.reporter.now(), self.interval, self.trial);
        loop {
            if !self.routing.has(held.unwrap_or_else(|| self.next.load(Ordering::Relaxed))) {
                self.stop.stopped().await;
            }
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

    /// Declares the queue, or waits until the client has.
    async fn have_queue(&self, channel: &Channel) -> lapin::Result<()> {
        let queue = self.target.queue.as_str();
        match &self.task {
            None => topology::declare(channel, queue, &self.routing, self.target.durable).await,
            // Clients declare their queues durable, and the first to declare decides.
            Some(task) if task.declare => topology::declare(channel, queue, &self.routing, true).await,
            // With arguments of its own, which nobody else has to know.
            Some(_) => self.await_queue(queue).await,
        }
    }

    /// Waits until the client has declared its queue. Asking for one that is not there costs a channel each time.
    async fn await_queue(&self, queue: &str) -> lapin::Result<()> {
        loop {
            let channel = self.link.another_channel(&self.target, &self.reporter).await?;
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
        let number = Message::Text("{message}".to_string());
        let form = self.task.as_ref().map_or(&number, |task| &task.message);
        let due = self.task.as_ref().and_then(|task| task.first_due).filter(|_| message == 0);
        let due = due.map(|due| self.reporter.wall_of(due));
        let now_ms = self.reporter.wall_of(self.reporter.now()) / 1_000_000;
        let (queue, job) = (self.target.queue.as_str(), self.routing.job_of(message));
        let (payload, mut properties) = message::amqp(form, self.trial, queue, message, due, now_ms, job);
        if self.target.durable {
            properties = properties.with_delivery_mode(PERSISTENT);
        }
        // Whoever else consumes knows the message by this, whatever its form is.
        properties = properties.with_message_id(message.to_string().into());
        let (exchange, key) = topology::address(queue, &self.routing, message);
        let options = BasicPublishOptions::default();
        channel.basic_publish(exchange.into(), key.into(), options, &payload, properties).await
    }

    /// Counts what consumers reject, until the link breaks: it is taken out of its queue and reported.
    async fn count_dead_letters(&self) -> lapin::Result<()> {
        let channel = {
            let open = self.link.open.lock().await;
            let Some((connection, _)) = open.as_ref() else { return Ok(()) };
            connection.create_channel().await?
        };
        let queue = topology::dead_letters(&self.target.queue);
        let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
        let mut dead = channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await?;
        let (reporter, trial) = (self.reporter.clone(), self.trial);
        tokio::spawn(async move {
            // The channel lives as long as its consumer does.
            let _channel = channel;
            while let Some(Ok(letter)) = dead.next().await {
                match message::number_in(&letter) {
                    Some(message) => reporter.event(reporter.now(), trial, Kind::DeadLettered { message }),
                    None => reporter.note(format!("trial {trial}: a dead letter without a number")),
                }
            }
        });
        Ok(())
    }

    fn await_confirm(self: &Arc<Self>, message: u64, confirm: PublisherConfirm) {
        let own = self.clone();
        tokio::spawn(async move {
            let mut confirmed = matches!(confirm.await, Ok(Confirmation::Ack(_)));
            // Whoever means a message to outlive the broker hands it over until it is confirmed. It may come twice then.
            while !confirmed && own.target.durable && !own.stop.is_stopped() {
                let channel = own.link.channel(&own.target, &own.reporter).await;
                confirmed = match own.hand_over(&channel, message).await {
                    Ok(confirm) => matches!(confirm.await, Ok(Confirmation::Ack(_))),
                    Err(_) => false,
                };
                if !confirmed {
                    tokio::time::sleep(PAUSE).await;
                }
            }
            if confirmed {
                own.reporter.event(own.reporter.now(), own.trial, Kind::Confirmed { message });
            }
        });
    }

    /// The same message once more: its task is in the store already.
    async fn again(self: &Arc<Self>, message: u64) {
        let channel = self.link.channel(&self.target, &self.reporter).await;
        match self.hand_over(&channel, message).await {
            Ok(confirm) => self.await_confirm(message, confirm),
            Err(error) => {
                self.reporter.note(format!("producer: trial {}: {}", self.trial, causes::of_lapin(&error).text));
            }
        }
    }

    /// A new message, because somebody asked for the work of another one once more.
    async fn reissue(self: &Arc<Self>, of: u64) {
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

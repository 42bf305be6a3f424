//! RabbitMQ's own tables, asked by its own command line: who consumes from which queue, over which connection.
//!
//! One question for all virtual hosts: each start of `rabbitmqctl` costs more than a second of a processor, and `list_consumers`
//! would want one for each. What is left out: who publishes, which no table of a broker without its statistics says.

use crate::host::process::{Launch, output_of};
use std::io;
use std::net::SocketAddrV4;
use std::time::Duration;

/// An answer takes 1.6 s, and several times that on a busy machine.
const ANSWER: Duration = Duration::from_secs(60);

/// `list_connections`, `list_channels` and `list_consumers`, joined where they lie.
const QUESTION: &str = r#"
    Ends = maps:from_list([{P, E} || [{pid, P} | E] <- rabbit_networking:connection_info_all([pid, peer_host, peer_port, host, port])]),
    Owners = maps:from_list([{C, P} || [{pid, C}, {connection, P}] <- rabbit_channel:info_all([pid, connection])]),
    Tell = fun(Row) ->
        {resource, _, _, Queue} = proplists:get_value(queue_name, Row),
        case maps:find(maps:get(proplists:get_value(channel_pid, Row), Owners, none), Ends) of
            {ok, [{peer_host, A}, {peer_port, B}, {host, C}, {port, D}]} ->
                io:format("~s:~w ~s:~w ~ts~n", [inet:ntoa(A), B, inet:ntoa(C), D, Queue]);
            _ -> ok
        end
    end,
    [Tell(Row) || Vhost <- rabbit_vhost:list_names(), Row <- rabbit_amqqueue:consumers_all(Vhost)],
    ok."#;

/// One consumer by the broker's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consumer {
    /// Its connection's end at the client, as the broker sees it.
    pub client: SocketAddrV4,
    /// The broker's own end.
    pub broker: SocketAddrV4,
    /// What it consumes from.
    pub queue: String,
}

/// The tables of one broker.
#[derive(Debug)]
pub struct Tables {
    /// `rabbitmqctl` with the broker's own environment.
    pub(super) control: Launch,
}

impl Tables {
    /// All consumers that there are now.
    ///
    /// # Errors
    /// When the command line can't be started, or refuses.
    pub fn consumers(&self) -> io::Result<Vec<Consumer>> {
        let question: String = QUESTION.split_whitespace().collect::<Vec<_>>().join(" ");
        let launch = self.control.clone().args(["-q", "eval", &question]);
        let (status, text) = output_of(launch, ANSWER)?;
        if !status.success() {
            let why = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("no word why");
            return Err(io::Error::other(format!("rabbitmqctl eval: {status}: {why}")));
        }
        Ok(read(&text))
    }
}

/// `10.64.128.1:40000 10.128.128.1:5671 queue`; other lines are no consumers.
fn read(text: &str) -> Vec<Consumer> {
    let one = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let (client, broker) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Consumer { client, broker, queue: words.next()?.to_string() })
    };
    text.lines().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consumers_are_read_and_nothing_else_is() {
        let text = "10.64.128.1:40000 10.128.128.1:5671 my queue\n::1:5 10.128.128.1:5671 q\nok\n\n";
        let client = "10.64.128.1:40000".parse().unwrap();
        let broker = "10.128.128.1:5671".parse().unwrap();
        assert_eq!(read(text), [Consumer { client, broker, queue: "my queue".into() }]);
    }
}

//! Which faults the timer model knows nothing of, and why: said before a run and by `predict` alike.

use super::fault::{Act, Fault};

impl Fault {
    /// Why the model has no prediction under this fault, whatever the client; `None` where it has one.
    #[must_use]
    pub fn unknown_to_the_model(&self) -> Option<String> {
        let why = match self.act {
            _ if !self.injection.is_faithful() => {
                return Some(format!("{}: the model knows a cut in the path", self.injection.words()));
            }
            Some(act) if act.tells_at_once() => {
                "the broker's kernel ends the connection, at once or when it is spoken to"
            }
            Some(act) if act.hits_worker() || act.beside_the_connection() => {
                "nothing of the connection is wrong: a process is killed or stopped"
            }
            Some(act) if act.alarms() => "nothing of the connection is wrong: whoever publishes is blocked",
            Some(Act::WithholdReply) => "the next reply begins to arrive; the model knows silence from the fault on",
            Some(Act::VanishHost) => {
                "the router answers with ICMP host unreachable, which undoes back-off; the model knows silence"
            }
            Some(act) if act.forgets() && self.drop.is_none() => {
                "the broker's kernel answers the next segment with a RST; the model knows no connection that is forgotten"
            }
            _ => match self.middlebox.filter(|middlebox| !middlebox.silent()) {
                Some(middlebox) if middlebox.loose => {
                    "who speaks first decides whether the connection lives on, and the model does not know who"
                }
                Some(_) => {
                    "the middlebox answers the next segment with a RST; the model knows no connection that is forgotten"
                }
                None if self.repeat.is_some() => "the fault comes again; the model knows one cut",
                None => return None,
            },
        };
        Some(why.to_string())
    }
}

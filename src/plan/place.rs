//! A description by the place that the run would take: which of the namespaces lab's parts are containers, or a guest's. [`describe`](super::describe) speaks of the namespaces lab; this rewrites what differs.

use super::describe::Description;

/// Where a run would take place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Namespaces of this machine, cut by the named tools of iptables, or by nftables.
    Netns {
        /// `iptables-nft`, say.
        firewall: Option<String>,
    },
    /// Containers.
    Docker {
        /// Whether one of them is a router between the others.
        routed: bool,
        /// The images of the brokers, in the order of their containers.
        images: Vec<String>,
    },
    /// A guest whose clock skips idle time.
    Vm,
}

impl Description {
    /// The same plan in another place.
    #[must_use]
    pub fn at(mut self, place: &Place) -> Self {
        match place {
            Place::Netns { firewall: None } => {}
            Place::Netns { firewall: Some(tool) } => {
                self.table = format!("{tool}: chains of its own in the table mangle of the router's namespace");
                self.needs(&[&format!("root, and {tool} with its matches in the kernel")], 0..2);
            }
            Place::Docker { routed, images } => self.in_containers(*routed, images),
            Place::Vm => {
                self.lab = "vm".to_string();
                self.needs(
                    &["the virtual-time kernel (`halfopen vm build`, once); no root", "all of it inside the guest"],
                    0..2,
                );
                // The time is the guest's.
                self.virtual_time = true;
            }
        }
        self
    }

    fn needs(&mut self, instead: &[&str], of: std::ops::Range<usize>) {
        let of = of.start..of.end.min(self.privileges.len());
        self.privileges.splice(of, instead.iter().map(|need| (*need).to_string()));
    }

    fn in_containers(&mut self, routed: bool, images: &[String]) {
        self.lab = "docker".to_string();
        // The reaper's and the user's processes are on no network, and in no container.
        self.containers = (self.namespaces.drain(..))
            .filter(|role| *role != "reaper" && (routed || *role != "router"))
            .map(|role| format!("{role} (halfopen/subject:bookworm)"))
            .chain(images.iter().map(|image| format!("broker ({image})")))
            .collect();
        self.networks = usize::from(!routed);
        if !routed {
            self.veth_pairs = 0;
        }
        let broker = |line: &String| line.starts_with("rabbitmq-server") || line.starts_with("redis-server");
        self.processes.retain(|line| !line.starts_with("supervisor") && !broker(line));
        self.table = if routed {
            "one nftables table (family ip) in the router's container, owned by the engine's socket".to_string()
        } else {
            "one nftables table (family bridge) at the docker network's bridge, owned by the engine's socket"
                .to_string()
        };
        let needs = [
            "root, and a Docker engine on this machine",
            "nftables for bridges; the images, pulled where they are not there",
        ];
        self.needs(&needs, 0..2);
    }
}

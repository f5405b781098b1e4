//! A network of their own for members, in which any two of them can be cut off from each other, and from nobody else.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

static NETS: AtomicU32 = AtomicU32::new(0);

/// A bridge on this machine, and a network namespace for each member. Gone with it.
pub struct Net {
    ip: PathBuf,
    name: String,
    /// All but the last number of each address.
    subnet: String,
    count: usize,
}

impl Net {
    /// `None`, with a word, where this system does not let us.
    pub fn new(count: usize) -> Option<Self> {
        let ip = super::program("ip", "iproute2", "an etcd whose members are cut off from each other")?;
        let process = std::process::id();
        let number = NETS.fetch_add(1, Ordering::Relaxed);
        let net = Self {
            ip,
            name: format!("sm{process:x}n{number}"),
            // Addresses that are set aside for tests of networks.
            subnet: format!("198.{}.{}", 18 + process / 256 % 2, (process + number) % 256),
            count,
        };
        let bridge = net.bridge();
        if net.run(&["link", "add", &bridge, "type", "bridge"]).is_err() {
            eprintln!(
                "SKIPPED: no networks may be made here; members that are cut off from each other are not tested"
            );
            return None;
        }
        let all = || {
            net.run(&["addr", "add", &format!("{}.1/24", net.subnet), "dev", &bridge])?;
            net.run(&["link", "set", &bridge, "up"])?;
            for at in 0..count {
                let (space, wire) = (net.space(at), format!("{}v{at}", net.name));
                net.run(&["netns", "add", &space])?;
                net.run(&["link", "add", &wire, "type", "veth", "peer", "name", "eth0", "netns", &space])?;
                net.run(&["link", "set", &wire, "master", &bridge, "up"])?;
                net.run(&["-n", &space, "addr", "add", &format!("{}/24", net.host(at)), "dev", "eth0"])?;
                net.run(&["-n", &space, "link", "set", "lo", "up"])?;
                net.run(&["-n", &space, "link", "set", "eth0", "up"])?;
            }
            Ok::<_, String>(())
        };
        all().unwrap();
        Some(net)
    }

    /// A member's address.
    pub fn host(&self, at: usize) -> String {
        format!("{}.{}", self.subnet, at + 2)
    }

    /// A command that runs a program where this member is.
    pub fn command(&self, at: usize) -> Command {
        let mut command = Command::new(&self.ip);
        command.args(["netns", "exec", &self.space(at)]);
        command
    }

    /// Cuts two members off from each other.
    pub fn cut(&self, one: usize, other: usize) {
        self.route("add", one, other);
    }

    /// Lets them reach each other again.
    pub fn heal(&self, one: usize, other: usize) {
        self.route("del", one, other);
    }

    fn route(&self, what: &str, one: usize, other: usize) {
        for (from, to) in [(one, other), (other, one)] {
            let to = format!("{}/32", self.host(to));
            self.run(&["-n", &self.space(from), "route", what, "blackhole", &to]).unwrap();
        }
    }

    fn bridge(&self) -> String {
        format!("{}b", self.name)
    }

    fn space(&self, at: usize) -> String {
        format!("{}m{at}", self.name)
    }

    fn run(&self, args: &[&str]) -> Result<(), String> {
        let output = Command::new(&self.ip).args(args).output().unwrap();
        if output.status.success() {
            return Ok(());
        }
        Err(format!("ip {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr)))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // What was not made cannot be taken away.
        for at in 0..self.count {
            let _ = self.run(&["netns", "del", &self.space(at)]);
        }
        let _ = self.run(&["link", "del", &self.bridge()]);
    }
}

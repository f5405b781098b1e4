//! A wire to a server, that can be cut on either side.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};
use std::thread;

/// What the wire does with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Wire {
    /// Passes them on.
    Whole = 0,
    /// Passes requests on, and swallows replies.
    NoReplies = 1,
    /// Swallows everything.
    Cut = 2,
}

pub struct Proxy {
    port: u16,
    to: Arc<AtomicU16>,
    wire: Arc<AtomicU8>,
}

impl Proxy {
    /// Listens on a port of its own, and leads to this one. Its threads end with the test's process.
    pub fn start(to: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let wire = Arc::new(AtomicU8::new(Wire::Whole as u8));
        let shared = Arc::clone(&wire);
        let to = Arc::new(AtomicU16::new(to));
        let leads_to = Arc::clone(&to);
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let Ok(server) = TcpStream::connect(("127.0.0.1", leads_to.load(Ordering::SeqCst))) else {
                    continue;
                };
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                let there = (client.try_clone().unwrap(), server.try_clone().unwrap());
                pump(there, Arc::clone(&shared), Wire::Cut);
                pump((server, client), Arc::clone(&shared), Wire::NoReplies);
            }
        });
        Self { port, to, wire }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Leads new connections to this port.
    pub fn lead_to(&self, port: u16) {
        self.to.store(port, Ordering::SeqCst);
    }

    pub fn set(&self, wire: Wire) {
        self.wire.store(wire as u8, Ordering::SeqCst);
    }
}

/// Passes bytes on, unless the wire is at `swallows_from` or worse.
fn pump((mut from, mut to): (TcpStream, TcpStream), wire: Arc<AtomicU8>, swallows_from: Wire) {
    thread::spawn(move || {
        let mut buffer = [0; 16 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let swallows = wire.load(Ordering::SeqCst) >= swallows_from as u8;
            if !swallows && to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}

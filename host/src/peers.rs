//! Other regions: whether their stores would make the same IDs as ours.

use std::fmt;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use snowmint_lease::StoreError;
use snowmint_lease::regions::{Clash, Identity, clash};
use snowmint_lease_http::HttpLeases;

/// How long a pause is between two rounds of asking, where nobody chose another. Two stores for one region are a slip of whoever sets one up, and stay.
pub const PEER_PAUSE: Duration = Duration::from_secs(10);

/// A service of another region.
#[derive(Debug)]
pub struct Peer {
    /// How it is named to people.
    pub name: String,
    /// How it is asked.
    pub service: HttpLeases,
}

impl Peer {
    /// Asks it once.
    pub fn compare(&self, own: &Identity) -> PeerNotice {
        match self.service.identity() {
            Ok(identity) => match clash(own, &identity) {
                Some(clash) => PeerNotice::Clashing(clash),
                None => PeerNotice::Apart { region: identity.region },
            },
            Err(error) => PeerNotice::Unreachable(error),
        }
    }
}

/// What was found of a peer; told when it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerNotice {
    /// It answers, and its store makes other IDs.
    Apart {
        /// Its region.
        region: u32,
    },
    /// Its store would make the same IDs.
    Clashing(Clash),
    /// It does not answer. That alone stops nobody: regions do not depend on each other.
    Unreachable(StoreError),
}

impl fmt::Display for PeerNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apart { region } => write!(f, "is region {region}, apart from this one"),
            Self::Clashing(clash) => clash.fmt(f),
            Self::Unreachable(error) => {
                write!(f, "does not answer, so that it is not compared with: {error}")
            }
        }
    }
}

/// Compares our store with those of other regions, in the background, for as long as it lives.
#[derive(Debug)]
pub struct Peers {
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Peers {
    /// Begins to ask, with this pause between two rounds. `own` tells what our store is now; `act` is told whenever it changes whether there is a clash: a peer
    /// that clashed and does not answer any more is believed to clash still. `observer` is told of each peer's news, by
    /// its name. All are called on a thread of their own, and MUST NOT panic.
    pub fn start(
        peers: Vec<Peer>,
        pause: Duration,
        own: impl Fn() -> Option<Identity> + Send + 'static,
        act: impl Fn(Option<Clash>) + Send + 'static,
        observer: impl Fn(&str, &PeerNotice) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("snowmint-peers".into()).spawn(move || {
            let mut known: Vec<Option<PeerNotice>> = vec![None; peers.len()];
            let mut clashes: Vec<Option<Clash>> = vec![None; peers.len()];
            let mut told = None;
            loop {
                for ((peer, known), clashing) in peers.iter().zip(&mut known).zip(&mut clashes) {
                    let Some(own) = own() else { continue };
                    let notice = peer.compare(&own);
                    match &notice {
                        PeerNotice::Clashing(clash) => *clashing = Some(clash.clone()),
                        PeerNotice::Apart { .. } => *clashing = None,
                        PeerNotice::Unreachable(_) => {}
                    }
                    let is_news =
                        known.as_ref().map(std::mem::discriminant) != Some(std::mem::discriminant(&notice));
                    if is_news {
                        observer(&peer.name, &notice);
                    }
                    *known = Some(notice);
                }
                let clash = clashes.iter().flatten().next().cloned();
                if told.as_ref() != Some(&clash) {
                    act(clash.clone());
                    told = Some(clash);
                }
                match stopped.recv_timeout(pause) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        })?;
        Ok(Self { thread: Some((stop, thread)) })
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            // It ends after the request that it is in.
            let _ = thread.join();
        }
    }
}

//! Flags that name the services of other regions.

use std::path::PathBuf;

use clap::Args;
use snowmint::{PEER_PAUSE, Peer, PeerNotice, Peers};
use snowmint_lease::regions::{Clash, Identity};
use snowmint_lease_http::{HttpConfig, HttpLeases, HttpTls};

use super::{CliError, tell};

/// Services of other regions, with whose stores ours is compared.
#[derive(Args, Debug)]
pub(super) struct PeerArgs {
    /// Services of other regions, with commas between: a store for the same region, or another layout, is refused.
    #[arg(long, value_name = "URL,URL", value_delimiter = ',', env = "SNOWMINT_PEER")]
    peer: Vec<String>,

    /// The certificate authorities to trust, for `https` peers: a PEM file. No others are trusted.
    #[arg(long, value_name = "FILE", env = "SNOWMINT_PEER_CA")]
    peer_ca: Option<PathBuf>,
}

impl PeerArgs {
    fn peers(&self) -> Result<Vec<Peer>, CliError> {
        let ca_pem = self.peer_ca.as_deref().map(super::store::read_text).transpose()?;
        let peer = |url: &String| {
            let is_https = url.starts_with("https://");
            let tls = ca_pem.clone().filter(|_| is_https).map(|ca_pem| HttpTls { ca_pem, identity: None });
            let service = HttpLeases::new(HttpConfig { tls, ..HttpConfig::new(vec![url.clone()]) });
            let service = service.map_err(|error| CliError::Usage(format!("`--peer {url}`: {error}")))?;
            Ok(Peer { name: url.clone(), service })
        };
        self.peer.iter().map(peer).collect()
    }

    /// Asks each peer once, refuses a clash, and goes on to ask in the background: `act` is told then. `None`: no peer is
    /// named.
    pub(super) fn start(
        &self,
        own: impl Fn() -> Option<Identity> + Send + 'static,
        act: impl Fn(Option<Clash>) + Send + 'static,
    ) -> Result<Option<Peers>, CliError> {
        self.start_telling(own, act, |name, notice| tell(&format!("the peer {name} {notice}")))
    }

    /// The same: `observer` is told of each peer's news, by its name.
    pub(super) fn start_telling(
        &self,
        own: impl Fn() -> Option<Identity> + Send + 'static,
        act: impl Fn(Option<Clash>) + Send + 'static,
        observer: impl Fn(&str, &PeerNotice) + Send + 'static,
    ) -> Result<Option<Peers>, CliError> {
        let peers = self.peers()?;
        if peers.is_empty() {
            return Ok(None);
        }
        if let Some(own) = own() {
            for peer in &peers {
                if let PeerNotice::Clashing(clash) = peer.compare(&own) {
                    return Err(CliError::Failed(format!("{}: {clash}", peer.name)));
                }
            }
        }
        Peers::start(peers, PEER_PAUSE, own, act, observer).map(Some).map_err(|error| {
            CliError::Failed(format!("the thread that asks peers cannot be started: {error}"))
        })
    }
}

//! The members of one etcd cluster: which to ask, when to ask one again that failed, and what a request is.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{
    Certificate, Client, ConnectOptions, GetOptions, GetResponse, Identity, KvClient, TlsOptions, Txn,
    TxnResponse,
};
use snowmint_lease::StoreError;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::config::{EtcdConfig, EtcdTls};
use crate::fault::{Fault, Then};

/// How often a call asks one member at most: a second time only after authenticating anew.
const TRIES_MAX: u8 = 2;

/// Each member with a client of its own, so that it is this module that decides which of them is asked.
pub(crate) struct Members {
    config: EtcdConfig,
    state: Mutex<State>,
}

struct State {
    members: Vec<Member>,
    /// The one to ask.
    current: usize,
}

struct Member {
    endpoint: String,
    /// `None`: to be made anew.
    client: Option<Client>,
    is_authenticated: bool,
    /// In a row.
    failures: u32,
    not_before: Instant,
}

impl Members {
    /// Makes the clients, and asks nobody anything.
    pub(crate) async fn new(config: EtcdConfig) -> Result<Self, StoreError> {
        config.check()?;
        let mut members = Vec::with_capacity(config.endpoints.len());
        for endpoint in &config.endpoints {
            // Nothing is sent without a user, so that what fails is the configuration.
            let client = Box::pin(connect(endpoint, &config)).await.map_err(|fault| match fault.error {
                StoreError::Unreachable { detail } => {
                    StoreError::Misconfigured { detail: format!("{endpoint}: {detail}") }
                }
                error => error,
            })?;
            members.push(Member {
                endpoint: endpoint.clone(),
                client: Some(client),
                is_authenticated: false,
                failures: 0,
                not_before: Instant::now(),
            });
        }
        let current = usize::try_from(random() % members.len() as u64).unwrap_or_default();
        Ok(Self { config, state: Mutex::new(State { members, current }) })
    }

    pub(crate) const fn config(&self) -> &EtcdConfig {
        &self.config
    }

    /// A linearizable read: of whichever member answers first in turn. It may ask again, since it changes nothing.
    pub(crate) async fn get(&self, key: String, options: GetOptions) -> Result<GetResponse, StoreError> {
        let until = self.call_until();
        let mut tries = vec![0; self.config.endpoints.len()];
        let mut details: Vec<String> = Vec::new();
        while let Some(at) = self.choose(&tries, until).await {
            let get = async |mut kv: KvClient| kv.get(key.clone(), Some(options.clone())).await;
            let fault = match self.attempt(at, until, get).await {
                Ok(response) => return Ok(response),
                Err(fault) => fault,
            };
            if let Some(count) = tries.get_mut(at) {
                *count = if fault.then == Then::Authenticate { *count + 1 } else { TRIES_MAX };
            }
            match fault.error {
                StoreError::Unreachable { detail } => details.push(detail),
                error => return Err(error),
            }
        }
        Err(unreachable(&details))
    }

    /// A transaction: sent once, to one member, whatever comes of it.
    pub(crate) async fn txn(&self, txn: Txn) -> Result<TxnResponse, StoreError> {
        let until = self.call_until();
        let tries = vec![0; self.config.endpoints.len()];
        let Some(at) = self.choose(&tries, until).await else { return Err(unreachable(&[])) };
        let send = async |mut kv: KvClient| kv.txn(txn).await;
        self.attempt(at, until, send).await.map_err(|fault| fault.error)
    }

    fn call_until(&self) -> Instant {
        Instant::now() + ms(self.config.call_ms_max)
    }

    /// The member to ask, once it may be asked. `None`: there is none, or no time is left.
    async fn choose(&self, tries: &[u8], until: Instant) -> Option<usize> {
        let (at, not_before) = self.lock().choose(tries, Instant::now())?;
        if not_before >= until {
            return None;
        }
        sleep_until(not_before).await;
        (Instant::now() < until).then_some(at)
    }

    async fn attempt<T>(
        &self,
        at: usize,
        call_until: Instant,
        send: impl AsyncFnOnce(KvClient) -> Result<T, etcd_client::Error>,
    ) -> Result<T, Fault> {
        let until = call_until.min(Instant::now() + ms(self.config.request_ms_max));
        // Boxed: the client's futures are large, and callers would carry them through every layer.
        let work = Box::pin(async { Ok(send(self.client(at).await?.kv_client()).await?) });
        let result = timeout_at(until, work).await.unwrap_or_else(|_| Err(Fault::no_reply()));
        match result {
            Ok(done) => {
                self.lock().succeeded(at);
                Ok(done)
            }
            Err(mut fault) => {
                let endpoint = self.lock().failed(at, fault.then, &self.config);
                if let StoreError::Unreachable { detail } = &mut fault.error {
                    *detail = format!("{endpoint}: {detail}");
                }
                Err(fault)
            }
        }
    }

    /// The member's client, authenticated where there is a user.
    async fn client(&self, at: usize) -> Result<Client, Fault> {
        let (endpoint, client, is_authenticated) = match self.lock().members.get(at) {
            Some(member) => (member.endpoint.clone(), member.client.clone(), member.is_authenticated),
            None => return Err(Fault::no_reply()),
        };
        let mut client = match client {
            Some(client) => client,
            None => Box::pin(connect(&endpoint, &self.config)).await?,
        };
        let must_authenticate = self.config.user.is_some() && !is_authenticated;
        if must_authenticate && let Some(user) = &self.config.user {
            client.update_user(Some((user.name.clone(), user.password.expose().to_owned()))).await?;
        }
        if let Some(member) = self.lock().members.get_mut(at) {
            member.client = Some(client.clone());
            member.is_authenticated |= must_authenticate;
        }
        Ok(client)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // What is kept is a choice of members, and any choice is allowed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The next to ask of those that have tries left, and from when on: the current one where it is not paused, then
    /// whichever is not, then whose pause ends first.
    fn choose(&self, tries: &[u8], now: Instant) -> Option<(usize, Instant)> {
        let count = self.members.len();
        (0..count)
            .map(|step| (self.current + step) % count)
            .filter(|&at| tries.get(at).is_some_and(|&tries| tries < TRIES_MAX))
            .filter_map(|at| Some((at, self.members.get(at)?.not_before.max(now))))
            .min_by_key(|&(_, not_before)| not_before)
    }

    fn succeeded(&mut self, at: usize) {
        self.current = at;
        if let Some(member) = self.members.get_mut(at) {
            member.failures = 0;
        }
    }

    /// Notes a failure, and returns the member's name.
    fn failed(&mut self, at: usize, then: Then, config: &EtcdConfig) -> String {
        let count = self.members.len();
        let Some(member) = self.members.get_mut(at) else { return String::new() };
        match then {
            Then::Stay => {}
            Then::Authenticate => member.is_authenticated = false,
            Then::Rotate | Then::Reconnect => {
                member.not_before = Instant::now() + pause(member.failures, config);
                member.failures = member.failures.saturating_add(1);
                if then == Then::Reconnect {
                    member.client = None;
                    member.is_authenticated = false;
                }
                if self.current == at {
                    self.current = (at + 1) % count;
                }
            }
        }
        member.endpoint.clone()
    }
}

/// Twice as long after each failure, up to the limit; half of it is random, so that a fleet does not come back at once.
fn pause(failures: u32, config: &EtcdConfig) -> Duration {
    let doubled_ms = u64::from(config.retry_ms_min) << failures.min(16);
    let pause_ms = doubled_ms.min(u64::from(config.retry_ms_max));
    Duration::from_millis(pause_ms - random() % (pause_ms / 2 + 1))
}

/// The keys of the standard library's hash maps are random; nothing here has to be unpredictable.
fn random() -> u64 {
    RandomState::new().hash_one(())
}

fn unreachable(details: &[String]) -> StoreError {
    let detail =
        if details.is_empty() { String::from("no member may be asked yet") } else { details.join("; ") };
    StoreError::Unreachable { detail }
}

const fn ms(ms: u32) -> Duration {
    Duration::from_millis(ms as u64)
}

/// A client of one member. It connects when it is first used.
async fn connect(endpoint: &str, config: &EtcdConfig) -> Result<Client, Fault> {
    let mut options = ConnectOptions::new()
        .with_connect_timeout(ms(config.connect_ms_max))
        .with_timeout(ms(config.request_ms_max))
        // etcd counts pings on connections without a request as abuse; idle ones are probed by TCP.
        .with_keep_alive(ms(config.keep_alive_ms), ms(config.keep_alive_reply_ms_max))
        .with_keep_alive_while_idle(false)
        .with_tcp_keepalive(ms(config.keep_alive_ms))
        .with_require_leader(true)
        // It would send a request a second time.
        .with_auto_token_refresh(false);
    if let Some(tls) = &config.tls {
        options = options.with_tls(tls_options(tls));
    }
    Ok(Client::connect([endpoint], Some(options)).await?)
}

fn tls_options(tls: &EtcdTls) -> TlsOptions {
    let mut options = TlsOptions::new().ca_certificate(Certificate::from_pem(&tls.ca_pem));
    if let Some(identity) = &tls.identity {
        options = options.identity(Identity::from_pem(&identity.cert_pem, identity.key_pem.expose()));
    }
    if let Some(name) = &tls.server_name {
        options = options.domain_name(name);
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> EtcdConfig {
        let endpoints = ["a", "b", "c"].map(|host| format!("http://{host}:2379"));
        EtcdConfig::new(endpoints.to_vec(), 0)
    }

    fn state(now: Instant) -> State {
        let member = |endpoint: &String| Member {
            endpoint: endpoint.clone(),
            client: None,
            is_authenticated: true,
            failures: 0,
            not_before: now,
        };
        State { members: config().endpoints.iter().map(member).collect(), current: 1 }
    }

    #[test]
    fn pauses_double_up_to_the_limit_and_are_half_random() {
        // Shows the bounds of the pause after each failure in a row, and that fleets do not all wait equally long.
        for (failures, longest_ms) in [(0, 50), (1, 100), (2, 200), (4, 800), (5, 1_000), (u32::MAX, 1_000)] {
            let pauses: Vec<_> = (0..200).map(|_| pause(failures, &config()).as_millis()).collect();
            let (least, most) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
            assert!(*least >= longest_ms / 2 && *most <= longest_ms, "{failures}: {least} to {most}");
            assert!(most > least);
        }
    }

    #[test]
    fn a_member_that_failed_is_left_and_asked_again_after_its_pause() {
        // Shows who is asked: the one that answered last, then the others in turn, then whose pause ends first; and that
        // one that was asked enough is not asked again in this call.
        let now = Instant::now();
        let mut state = state(now);
        let whom = |state: &State, tries: [u8; 3]| state.choose(&tries, now).map(|(at, _)| at);
        assert_eq!(whom(&state, [0, 0, 0]), Some(1));
        assert_eq!(whom(&state, [0, 1, 0]), Some(1));
        assert_eq!(whom(&state, [0, 2, 0]), Some(2));
        assert_eq!(whom(&state, [2, 2, 2]), None);

        assert_eq!(state.failed(1, Then::Rotate, &config()), "http://b:2379");
        assert_eq!(whom(&state, [0, 0, 0]), Some(2));
        assert!(state.members[1].is_authenticated);
        state.succeeded(0);
        assert_eq!(whom(&state, [0, 0, 0]), Some(0));
        state.failed(0, Then::Reconnect, &config());
        state.failed(0, Then::Reconnect, &config());
        state.failed(2, Then::Stay, &config());
        assert!(!state.members[0].is_authenticated);
        assert_eq!(whom(&state, [0, 0, 0]), Some(2));
        state.members[1].not_before = now + ms(10);
        state.members[2].not_before = now + ms(5);
        state.members[0].not_before = now + ms(7);
        assert_eq!(state.choose(&[0, 0, 0], now), Some((2, now + ms(5))));
        assert_eq!(state.choose(&[0, 0, 2], now), Some((0, now + ms(7))));
        // A token that ran out is no reason to leave.
        state.succeeded(1);
        state.members[1].not_before = now;
        state.failed(1, Then::Authenticate, &config());
        assert_eq!(whom(&state, [0, 0, 0]), Some(1));
        assert!(!state.members[1].is_authenticated);
    }
}

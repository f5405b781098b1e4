//! Where a store is, and how it is reached.

use std::fmt;

use snowmint_lease::StoreError;

/// The most members that can be named.
const ENDPOINTS_MAX: usize = 32;
/// The longest time that may be chosen for anything: a minute.
const TIME_MS_MAX: u32 = 60_000;
/// etcd closes connections whose HTTP/2 pings come faster (its `--grpc-keepalive-min-time`).
const KEEP_ALIVE_MS_MIN: u32 = 5_000;

/// Where the store is, and how it is reached.
///
/// | time | default | bounds |
/// |---|---|---|
/// | `connect_ms_max` | 1,000 | TCP and TLS to one member |
/// | `request_ms_max` | 1,500 | one request to one member, connecting and authenticating included |
/// | `call_ms_max` | 3,000 | one call of the store: a read may ask several members |
/// | `keep_alive_ms` | 10,000 | an HTTP/2 ping while a request waits, and a TCP probe on an idle connection |
/// | `keep_alive_reply_ms_max` | 2,000 | the answer to that ping |
/// | `retry_ms_min`, `retry_ms_max` | 50, 1,000 | the pause before a member that failed is asked again; half of it is random |
///
/// A call takes less than a third of the fleet's window of 10 s, so that a keeper has its answer before it gives up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdConfig {
    /// The members, as `http://host:port` or `https://host:port`: all of *one* cluster. The first to be asked is chosen
    /// at random, so that a fleet spreads.
    pub endpoints: Vec<String>,
    /// What the store's keys begin with: words of letters, digits, `.`, `_`, `-`, with `/` between.
    pub prefix: String,
    /// The region: part of each key, and compared to the cluster record.
    pub region: u32,
    /// Who to be for etcd, where it asks. Sent in the clear over `http`.
    pub user: Option<EtcdUser>,
    /// Whom to trust, and how to be known, over `https`.
    pub tls: Option<EtcdTls>,
    /// See the table.
    pub connect_ms_max: u32,
    /// See the table.
    pub request_ms_max: u32,
    /// See the table.
    pub call_ms_max: u32,
    /// See the table.
    pub keep_alive_ms: u32,
    /// See the table.
    pub keep_alive_reply_ms_max: u32,
    /// See the table.
    pub retry_ms_min: u32,
    /// See the table.
    pub retry_ms_max: u32,
}

impl EtcdConfig {
    /// These members and this region, under the prefix `snowmint`, without user or TLS, with the default times.
    pub fn new(endpoints: Vec<String>, region: u32) -> Self {
        Self {
            endpoints,
            prefix: String::from("snowmint"),
            region,
            user: None,
            tls: None,
            connect_ms_max: 1_000,
            request_ms_max: 1_500,
            call_ms_max: 3_000,
            keep_alive_ms: 10_000,
            keep_alive_reply_ms_max: 2_000,
            retry_ms_min: 50,
            retry_ms_max: 1_000,
        }
    }

    /// Whether it can be followed, as far as can be told without asking anybody.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let wrong = |detail: String| Err(StoreError::Misconfigured { detail });
        if !(1..=ENDPOINTS_MAX).contains(&self.endpoints.len()) {
            return wrong(format!(
                "{} endpoints are given; give 1 to {ENDPOINTS_MAX} of one cluster",
                self.endpoints.len()
            ));
        }
        for endpoint in &self.endpoints {
            let is_https = match endpoint.split_once("://") {
                Some(("http", host)) if !host.is_empty() => false,
                Some(("https", host)) if !host.is_empty() => true,
                _ => return wrong(format!("{endpoint:?} is no http://host:port or https://host:port")),
            };
            if endpoint.contains('@') {
                return wrong(String::from(
                    "an endpoint contains a user; give user and password apart from the endpoints",
                ));
            }
            if is_https && self.tls.is_none() {
                return wrong(format!("{endpoint} needs the certificate authority to trust"));
            }
            if !is_https && self.tls.is_some() {
                return wrong(format!("{endpoint} is not https, and certificates are given"));
            }
        }
        if let Some(tls) = &self.tls {
            tls.check()?;
        }
        let is_word = |word: &str| {
            !word.is_empty()
                && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
        };
        if self.prefix.len() > 256 || !self.prefix.split('/').all(is_word) {
            return wrong(format!(
                "the prefix {:?} is not made of words of letters, digits, '.', '_', '-' with '/' between",
                self.prefix
            ));
        }
        for (name, time_ms, least_ms) in [
            ("connect_ms_max", self.connect_ms_max, 1),
            ("request_ms_max", self.request_ms_max, 1),
            ("call_ms_max", self.call_ms_max, self.request_ms_max),
            ("keep_alive_ms", self.keep_alive_ms, KEEP_ALIVE_MS_MIN),
            ("keep_alive_reply_ms_max", self.keep_alive_reply_ms_max, 1),
            ("retry_ms_min", self.retry_ms_min, 1),
            ("retry_ms_max", self.retry_ms_max, self.retry_ms_min),
        ] {
            if !(least_ms..=TIME_MS_MAX).contains(&time_ms) {
                return wrong(format!("{name} is {time_ms}; give {least_ms} to {TIME_MS_MAX}"));
            }
        }
        Ok(())
    }
}

/// A user of etcd's own authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdUser {
    /// The name.
    pub name: String,
    /// The password.
    pub password: Secret,
}

/// Whom to trust, and how to be known. All PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdTls {
    /// The certificate authorities that may sign a member's certificate. No others are trusted.
    pub ca_pem: String,
    /// The client's own certificate, where etcd asks for one.
    pub identity: Option<EtcdIdentity>,
    /// The name in the members' certificates, where it is not the endpoint's host.
    pub server_name: Option<String>,
}

impl EtcdTls {
    /// A file without any PEM reads as an empty list, by which nobody is trusted, or known: that is told before.
    fn check(&self) -> Result<(), StoreError> {
        const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";
        let identity = self.identity.as_ref();
        for (whose, what, begin, pem) in [
            ("the authorities to trust", "certificate", CERTIFICATE, Some(self.ca_pem.as_str())),
            ("the client", "certificate", CERTIFICATE, identity.map(|identity| identity.cert_pem.as_str())),
            (
                "the client",
                "private key",
                "PRIVATE KEY-----",
                identity.map(|identity| identity.key_pem.expose()),
            ),
        ] {
            if pem.is_some_and(|pem| !pem.contains(begin)) {
                return Err(StoreError::Misconfigured {
                    detail: format!("what is given as the PEM of {whose} holds no {what}"),
                });
            }
        }
        Ok(())
    }
}

/// A certificate with its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdIdentity {
    /// The certificate, with what leads up to the authority behind it.
    pub cert_pem: String,
    /// Its key.
    pub key_pem: Secret,
}

/// What no log may show: its `Debug` does not.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps it.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> EtcdConfig {
        EtcdConfig::new(vec![String::from("http://127.0.0.1:2379")], 0)
    }

    fn tls() -> EtcdTls {
        EtcdTls { ca_pem: String::new(), identity: None, server_name: None }
    }

    const CERT: &str = "-----BEGIN CERTIFICATE-----";
    const KEY: &str = "-----BEGIN PRIVATE KEY-----";

    fn known_by(cert: &str, key: &str) -> EtcdTls {
        let identity = EtcdIdentity { cert_pem: cert.into(), key_pem: Secret::new(key) };
        EtcdTls { ca_pem: CERT.into(), identity: Some(identity), server_name: None }
    }

    #[test]
    fn what_cannot_be_followed_is_refused_with_the_reason() {
        // Shows each rule of a configuration, broken alone, and the words by which it is told.
        assert_eq!(plain().check(), Ok(()));
        let endpoint = |url: &str| EtcdConfig { endpoints: vec![String::from(url)], ..plain() };
        let prefix = |prefix: &str| EtcdConfig { prefix: String::from(prefix), ..plain() };
        for (config, part) in [
            (EtcdConfig { endpoints: Vec::new(), ..plain() }, "0 endpoints"),
            (endpoint("127.0.0.1:2379"), "is no http://"),
            (endpoint("ftp://a"), "is no http://"),
            (endpoint("http://"), "is no http://"),
            (endpoint("http://me:word@a:2379"), "contains a user"),
            (endpoint("https://a:2379"), "certificate authority"),
            (EtcdConfig { tls: Some(tls()), ..plain() }, "is not https"),
            (EtcdConfig { tls: Some(tls()), ..endpoint("https://a:2379") }, "authorities to trust holds no"),
            (
                EtcdConfig { tls: Some(known_by("none", KEY)), ..endpoint("https://a:2379") },
                "client holds no certificate",
            ),
            (
                EtcdConfig { tls: Some(known_by(CERT, CERT)), ..endpoint("https://a:2379") },
                "client holds no private key",
            ),
            (prefix(""), "prefix"),
            (prefix("/snowmint"), "prefix"),
            (prefix("a//b"), "prefix"),
            (prefix("a/b/"), "prefix"),
            (prefix("a b"), "prefix"),
            (EtcdConfig { request_ms_max: 0, ..plain() }, "request_ms_max is 0"),
            (EtcdConfig { call_ms_max: 1_499, ..plain() }, "call_ms_max is 1499; give 1500"),
            (EtcdConfig { keep_alive_ms: 4_999, ..plain() }, "keep_alive_ms is 4999"),
            (EtcdConfig { retry_ms_max: 60_001, ..plain() }, "retry_ms_max"),
        ] {
            match config.check() {
                Err(StoreError::Misconfigured { detail }) => assert!(detail.contains(part), "{detail}"),
                other => panic!("{part}: {other:?}"),
            }
        }
        for good in ["a", "a/b/c", "Fleet_7.x-y"] {
            assert_eq!(prefix(good).check(), Ok(()), "{good}");
        }
    }

    #[test]
    fn a_secret_is_not_shown() {
        // Shows that neither a password nor a key is in what a log would write.
        let user = EtcdUser { name: String::from("mint"), password: Secret::new("hunter2") };
        let shown = format!("{:?}", EtcdConfig { user: Some(user), ..plain() });
        assert!(shown.contains("mint") && !shown.contains("hunter2"), "{shown}");
    }
}

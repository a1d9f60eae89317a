//! The options in the query of an address. Owns their names and how their values are written.

use quorlock_protocol::ConfigError;

use super::{Address, Tls, Verification};

/// The values of the query's options.
#[derive(Default)]
pub(super) struct Options {
    pub(super) db: Option<u32>,
    username: Option<String>,
    password: Option<String>,
    key_prefix: Option<String>,
    durable: bool,
    authorities: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
    pub(super) verification: Option<Verification>,
}

impl Options {
    pub(super) fn read(query: &str) -> Result<Self, ConfigError> {
        let mut options = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(value)?;
            match name {
                "db" | "database" => options.db = Some(number(&value)?),
                "username" | "user" => options.username = Some(value),
                "password" | "pass" => options.password = Some(value),
                "key_prefix" => options.key_prefix = Some(value),
                "durable" => options.durable = truth(name, &value)?,
                "ssl_ca_certs" => options.authorities = Some(value),
                "ssl_certfile" => options.certificate = Some(value),
                "ssl_keyfile" => options.key = Some(value),
                "ssl_cert_reqs" => options.demand_certificate(&value)?,
                "ssl_check_hostname" => options.demand_hostname(&value)?,
                name if ELSEWHERE.contains(&name) => {}
                // It may be what follows an '&' in a password.
                _ if options.password.is_some() => {
                    return Err(ConfigError::new(
                        "it has an unknown option after the password, in which & is written %26",
                    ));
                }
                name if name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') => {
                    return Err(ConfigError::new(format!("it has the unknown option '{name}'")));
                }
                _ => return Err(ConfigError::new("it has an unknown option")),
            }
        }
        Ok(options)
    }

    fn demand_certificate(&mut self, value: &str) -> Result<(), ConfigError> {
        match value.to_ascii_lowercase().as_str() {
            "none" | "cert_none" => self.verification = Some(Verification::DangerNone),
            "required" | "cert_required" => {
                self.verification = self.verification.or(Some(Verification::Full));
            }
            _ => {
                return Err(ConfigError::new("ssl_cert_reqs must be 'required' or 'none'"));
            }
        }
        Ok(())
    }

    fn demand_hostname(&mut self, value: &str) -> Result<(), ConfigError> {
        match (truth("ssl_check_hostname", value), self.verification) {
            (Ok(true), _) | (_, Some(Verification::DangerNone)) => Ok(()),
            (Ok(false), _) => {
                self.verification = Some(Verification::DangerAnyHost);
                Ok(())
            }
            (Err(error), _) => Err(error),
        }
    }

    pub(super) fn has_tls(&self) -> bool {
        let files = [&self.authorities, &self.certificate, &self.key];
        self.verification.is_some() || files.iter().any(|file| file.is_some())
    }

    pub(super) fn tls(&self) -> Result<Tls, ConfigError> {
        let mut tls = Tls::default().with_verification(self.verification.unwrap_or_default());
        if let Some(path) = &self.authorities {
            tls = tls.with_ca_file(path)?;
        }
        match (&self.certificate, &self.key) {
            (Some(chain), Some(key)) => tls.with_identity_files(chain, key),
            // One file may hold both.
            (Some(both), None) => tls.with_identity_files(both, both),
            (None, Some(_)) => Err(ConfigError::new("ssl_keyfile needs ssl_certfile beside it")),
            (None, None) => Ok(tls),
        }
    }

    pub(super) fn complete(
        self,
        address: Address,
        login: Option<&str>,
    ) -> Result<Address, ConfigError> {
        let (mut username, mut password) = (self.username, self.password);
        if let Some(login) = login {
            match login.split_once(':') {
                Some((user, secret)) => {
                    username = Some(decode(user)?);
                    password = Some(decode(secret)?);
                }
                None => username = Some(decode(login)?),
            }
        }
        Ok(address
            .with_login(username.as_deref(), password.as_deref())
            .with_db(self.db.unwrap_or(0))
            .with_key_prefix(&self.key_prefix.unwrap_or_default())
            .with_durable(self.durable))
    }
}

fn truth(name: &str, value: &str) -> Result<bool, ConfigError> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" => Ok(true),
        "false" | "0" | "no" => Ok(false),
        _ => Err(ConfigError::new(format!("{name} must be 'true' or 'false'"))),
    }
}

pub(super) fn number(text: &str) -> Result<u32, ConfigError> {
    // 2^31 - 1 is the largest number that SELECT takes.
    match text.parse::<u32>() {
        Ok(db) if i32::try_from(db).is_ok() => Ok(db),
        _ => Err(ConfigError::new("the database is not a number from 0 upwards")),
    }
}

pub(super) fn decode(text: &str) -> Result<String, ConfigError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        let digits = digits.filter(|pair| pair.bytes().all(|b| b.is_ascii_hexdigit()));
        // A '%' without digits is kept as it is, as in the clients that these addresses come from.
        let escaped = digits.filter(|_| byte == b'%');
        let escaped = escaped.and_then(|pair| u8::from_str_radix(pair, 16).ok());
        bytes.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8(bytes)
        .map_err(|_| ConfigError::new("it holds percent-encoded bytes that are not UTF-8"))
}

/// Options of other clients that do not say where the node is: accepted and ignored, so that their
/// addresses can be used as they are.
const ELSEWHERE: [&str; 14] = [
    "client_name",
    "decode_responses",
    "encoding",
    "encoding_errors",
    "family",
    "health_check_interval",
    "max_connections",
    "protocol",
    "retry_on_error",
    "retry_on_timeout",
    "socket_connect_timeout",
    "socket_keepalive",
    "socket_timeout",
    "timeout",
];

//! Reads an address from text. Owns the notation; its errors never repeat a login.

use quorlock_protocol::ConfigError;

use super::{Address, Tls, Verification};

/// Reads an address in any of the notations that [`Address`] lists.
pub(super) fn parse(text: &str) -> Result<Address, ConfigError> {
    let text = text.trim();
    let parsed = match split_scheme(text) {
        Some((scheme, rest)) => with_scheme(&scheme.to_ascii_lowercase(), rest),
        None if text.starts_with('/') => unix(text),
        None => bare(text),
    };
    parsed.map_err(|problem| {
        ConfigError::new(format!(
            "cannot use node address '{}': {problem}",
            redacted(text)
        ))
    })
}

fn with_scheme(scheme: &str, rest: &str) -> Result<Address, ConfigError> {
    match scheme {
        "redis" | "valkey" => network(rest, false),
        "rediss" | "valkeys" => network(rest, true),
        "unix" | "redis+unix" | "valkey+unix" => unix(rest),
        "memory" => memory(rest),
        _ => Err(ConfigError::new(
            "its scheme is not one of redis, rediss, valkey, valkeys, unix, redis+unix and memory",
        )),
    }
}

/// A scheme is letters and '+'; anything else before "://" may be a piece of a login.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let is_scheme = scheme
        .bytes()
        .all(|byte| byte.is_ascii_alphabetic() || byte == b'+');
    is_scheme.then_some((scheme, rest))
}

fn bare(text: &str) -> Result<Address, ConfigError> {
    match split_login(split_query(text).0) {
        (Some(login), _) if login.contains('/') => Err(ConfigError::new(
            "write redis:// before a user name and password",
        )),
        _ => network(text, false),
    }
}

/// `[user[:password]@]host[:port][/db][?query]`
fn network(rest: &str, secure: bool) -> Result<Address, ConfigError> {
    let (main, query) = split_query(rest);
    let (login, place) = split_login(main);
    let (place, fragment) = place.split_once('#').unwrap_or((place, ""));
    let (authority, db) = place.split_once('/').unwrap_or((place, ""));
    let (host, port) = split_port(authority)?;
    let mut options = Options::read(query)?;
    if !db.is_empty() && options.db.is_none() {
        options.db = Some(number(db.trim_end_matches('/'))?);
    }
    match fragment {
        "" => {}
        "insecure" => options.verification = Some(Verification::DangerNone),
        _ => return Err(ConfigError::new("only #insecure may follow a '#'")),
    }
    let address = Address::tcp(&host, port)?;
    let address = if secure {
        address.with_tls(options.tls()?)?
    } else if options.has_tls() {
        return Err(ConfigError::new(
            "it has TLS options; write rediss:// to speak TLS",
        ));
    } else {
        address
    };
    options.complete(address, login)
}

/// `[user[:password]@]path[?query]`
fn unix(rest: &str) -> Result<Address, ConfigError> {
    let (main, query) = split_query(rest);
    let (login, path) = match main.split_once('@') {
        // An absolute path may hold an '@' of its own.
        Some((login, path)) if !main.starts_with('/') => (Some(login), path),
        _ => (None, main),
    };
    let options = Options::read(query)?;
    if options.has_tls() {
        return Err(ConfigError::new("there is no TLS on a unix socket"));
    }
    options.complete(Address::unix(decode(path)?)?, login)
}

fn memory(rest: &str) -> Result<Address, ConfigError> {
    let (name, query) = split_query(rest);
    let options = Options::read(query)?;
    options.complete(Address::memory(&decode(name)?)?, None)
}

fn split_query(rest: &str) -> (&str, &str) {
    rest.split_once('?').unwrap_or((rest, ""))
}

fn split_login(main: &str) -> (Option<&str>, &str) {
    match main.rsplit_once('@') {
        Some((login, place)) => (Some(login), place),
        None => (None, main),
    }
}

fn split_port(authority: &str) -> Result<(String, u16), ConfigError> {
    let bracketed = authority
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'));
    let (host, port) = match bracketed {
        Some((host, "")) => (host, None),
        Some((host, rest)) => (host, Some(rest.strip_prefix(':').unwrap_or(rest))),
        // Several colons and no brackets: an IPv6 address without a port.
        None if authority.matches(':').count() > 1 => (authority, None),
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = match port {
        None | Some("") => Address::DEFAULT_PORT,
        // What stands there is not repeated: it may be a password whose host was forgotten.
        Some(port) => port
            .parse()
            .map_err(|_| ConfigError::new("the port is not a number between 1 and 65535"))?,
    };
    Ok((decode(host)?, port))
}

/// What the query says.
#[derive(Default)]
struct Options {
    db: Option<u32>,
    username: Option<String>,
    password: Option<String>,
    key_prefix: Option<String>,
    authorities: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
    verification: Option<Verification>,
}

impl Options {
    fn read(query: &str) -> Result<Self, ConfigError> {
        let mut options = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(value)?;
            match name {
                "db" | "database" => options.db = Some(number(&value)?),
                "username" | "user" => options.username = Some(value),
                "password" | "pass" => options.password = Some(value),
                "key_prefix" => options.key_prefix = Some(value),
                "ssl_ca_certs" => options.authorities = Some(value),
                "ssl_certfile" => options.certificate = Some(value),
                "ssl_keyfile" => options.key = Some(value),
                "ssl_cert_reqs" => options.demand_certificate(&value)?,
                "ssl_check_hostname" => options.demand_hostname(&value)?,
                name if ELSEWHERE.contains(&name) => {}
                name if name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') => {
                    return Err(ConfigError::new(format!(
                        "it has the unknown option '{name}'"
                    )));
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
                return Err(ConfigError::new(
                    "ssl_cert_reqs must be 'required' or 'none'",
                ));
            }
        }
        Ok(())
    }

    fn demand_hostname(&mut self, value: &str) -> Result<(), ConfigError> {
        match (value.to_ascii_lowercase().as_str(), self.verification) {
            ("true" | "1" | "yes", _) | (_, Some(Verification::DangerNone)) => {}
            ("false" | "0" | "no", _) => self.verification = Some(Verification::DangerAnyHost),
            _ => {
                return Err(ConfigError::new(
                    "ssl_check_hostname must be 'true' or 'false'",
                ));
            }
        }
        Ok(())
    }

    fn has_tls(&self) -> bool {
        let files = [&self.authorities, &self.certificate, &self.key];
        self.verification.is_some() || files.iter().any(|file| file.is_some())
    }

    fn tls(&self) -> Result<Tls, ConfigError> {
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

    fn complete(self, address: Address, login: Option<&str>) -> Result<Address, ConfigError> {
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
            .with_key_prefix(&self.key_prefix.unwrap_or_default()))
    }
}

fn number(text: &str) -> Result<u32, ConfigError> {
    // 2^31 - 1 is the largest number that SELECT takes.
    match text.parse::<u32>() {
        Ok(db) if i32::try_from(db).is_ok() => Ok(db),
        _ => Err(ConfigError::new(
            "the database is not a number from 0 upwards",
        )),
    }
}

fn decode(text: &str) -> Result<String, ConfigError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = tail
            .get(..2)
            .and_then(|pair| std::str::from_utf8(pair).ok());
        let digits = digits.filter(|pair| pair.bytes().all(|b| b.is_ascii_hexdigit()));
        // A lone '%' stands for itself, as in the clients that these addresses come from.
        let escaped = digits.filter(|_| byte == b'%');
        let escaped = escaped.and_then(|pair| u8::from_str_radix(pair, 16).ok());
        bytes.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8(bytes)
        .map_err(|_| ConfigError::new("it holds percent-encoded bytes that are not UTF-8"))
}

/// The address without anything that may be a login: for error messages.
fn redacted(text: &str) -> String {
    let (scheme, rest) = split_scheme(text).unwrap_or(("", text));
    let (hidden, place) = match rest.rsplit_once('@') {
        Some((_, place)) => ("***@", place),
        None => ("", rest),
    };
    // Behind the host may stand a password without its '@'; the query may hold one, too.
    let end = if scheme.ends_with("unix") || place.starts_with('/') {
        place.find(['?', '#'])
    } else if let Some(rest) = place.strip_prefix('[') {
        rest.find(']').map(|end| end + 2)
    } else {
        place.find([':', '/', '?', '#'])
    };
    let shown: String = place[..end.unwrap_or(place.len())]
        .chars()
        .take(LONGEST_SHOWN)
        .collect();
    let cut = if shown.len() < place.len() { "..." } else { "" };
    let colon = if scheme.is_empty() { "" } else { "://" };
    let scheme: String = scheme.chars().take(LONGEST_SHOWN).collect();
    format!("{scheme}{colon}{hidden}{shown}{cut}")
}

/// Options of other clients that say nothing about where the node is: taken in silence, so that their
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

const LONGEST_SHOWN: usize = 200;

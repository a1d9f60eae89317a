//! Parses an address from text. Owns the notation; its errors never repeat a login.

use quorlock_protocol::ConfigError;

use super::options::{Options, decode, number};
use super::{Address, Verification};

/// Reads an address in any of the notations that [`Address`] lists.
pub(super) fn parse(text: &str) -> Result<Address, ConfigError> {
    let text = text.trim();
    let parsed = match split_scheme(text) {
        _ if text.starts_with(QUOTES) || text.ends_with(QUOTES) => Err(quoted()),
        _ if is_joined(text) => Err(several()),
        Some((scheme, rest)) => with_scheme(&scheme.to_ascii_lowercase(), rest),
        None if text.starts_with("//") => Err(no_scheme()),
        None if text.starts_with('/') => unix(text),
        None => without_scheme(text),
    };
    parsed.map_err(|problem| {
        ConfigError::new(format!("cannot use node address '{}': {problem}", redacted(text)))
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

/// Whether the text is a joined list of addresses. Without this check, all but the last would be
/// read as a login.
fn is_joined(text: &str) -> bool {
    let separates = |letter: char| letter == ',' || letter == ';' || letter.is_whitespace();
    text.split(separates).skip(1).any(|part| split_scheme(part).is_some())
}

fn quoted() -> ConfigError {
    ConfigError::new("it has quotes around it: write it without")
}

fn no_scheme() -> ConfigError {
    ConfigError::new("write redis: before it, or one slash only before the path of a socket")
}

fn several() -> ConfigError {
    ConfigError::new("it holds several addresses; pass a list, one address each")
}

/// A scheme consists of letters and '+'; anything else before "://" may be part of a login.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let is_scheme = scheme.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'+');
    is_scheme.then_some((scheme, rest))
}

fn without_scheme(text: &str) -> Result<Address, ConfigError> {
    match split_login(split_query(text).0) {
        (Some(login), _) if login.contains('/') => {
            Err(ConfigError::new("write redis:// before a user name and password"))
        }
        // As in a file of settings, whose next word may be a password.
        (None, place) if place.find(':').is_some_and(|at| at + 1 == place.len()) => {
            Err(ConfigError::new("it names no port after the ':'"))
        }
        _ => network(text, false),
    }
}

/// `[user[:password]@]host[:port][/db][?query]`
fn network(rest: &str, secure: bool) -> Result<Address, ConfigError> {
    let (main, query) = split_query(rest);
    let (login, place) = split_login(main);
    let (place, fragment) = place.split_once('#').unwrap_or((place, ""));
    let (authority, db) = place.split_once('/').unwrap_or((place, ""));
    if authority.contains(',') {
        return Err(several());
    }
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
        return Err(ConfigError::new("it has TLS options; write rediss:// to speak TLS"));
    } else {
        address
    };
    options.complete(address, login)
}

/// `[user[:password]@]path[?query]`
fn unix(rest: &str) -> Result<Address, ConfigError> {
    let (main, query) = split_query(rest);
    // A password may hold an '@', and so may an absolute path.
    let (login, path) = match main.find("@/") {
        _ if main.starts_with('/') => (None, main),
        Some(end) => (Some(&main[..end]), &main[end + 1..]),
        None => split_login(main),
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
    let name = decode(name)?;
    let address = if name.is_empty() { Address::own_memory() } else { Address::memory(&name)? };
    options.complete(address, None)
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
    let bracketed = authority.strip_prefix('[').and_then(|rest| rest.split_once(']'));
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
        // The text is not repeated: it may be a password after which the host is missing.
        Some(port) => port
            .parse()
            .map_err(|_| ConfigError::new("the port is not a number between 1 and 65535"))?,
    };
    Ok((decode(host)?, port))
}

/// The address without anything that may be a login, for error messages.
fn redacted(text: &str) -> String {
    let without = if text.starts_with("//") { text.trim_start_matches('/') } else { text };
    let (scheme, rest) = split_scheme(text).unwrap_or(("", without));
    let (hidden, place) = match rest.rsplit_once('@') {
        // The '@' may stand in a password in the query or of a setting, and what follows it as well.
        Some((before, _)) if before.contains(['?', '=']) => ("***", ""),
        Some((_, place)) => ("***@", place),
        None => ("", rest),
    };
    // After the host there may be a password without its '@'; the query may contain one, too.
    let known = place.split(['?', '#']).next().unwrap_or_default();
    let end = if scheme.ends_with("unix") || known.starts_with('/') {
        None
    } else if let Some(rest) = known.strip_prefix('[') {
        rest.find(']').map(|end| end + 2).or_else(|| known.find('/'))
    } else {
        // What stands after a '=' may be the value of a setting: a file of settings is no list of nodes.
        known.find([':', '/', '='])
    };
    let shown: String = known[..end.unwrap_or(known.len())].chars().take(LONGEST_SHOWN).collect();
    let cut = if shown.len() < place.len() { "..." } else { "" };
    let colon = if scheme.is_empty() { "" } else { "://" };
    let scheme: String = scheme.chars().take(LONGEST_SHOWN).collect();
    format!("{scheme}{colon}{hidden}{shown}{cut}")
}

const LONGEST_SHOWN: usize = 200;
const QUOTES: [char; 2] = ['"', '\''];

//! Converts a node as users write it (a text, or a dict of its parts) into an address of the core.
//! Owns the names of the parts.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use quorlock::{Address, ConfigError, Tls, Verification};

use crate::convert::{flag, text, type_name};
use crate::errors::{config, raised, wrong_type};

/// The address of one node.
pub(crate) fn address(node: &Bound<'_, PyAny>) -> PyResult<Address> {
    let py = node.py();
    if node.is_instance_of::<PyString>() {
        let address = text("a node", node)?.parse::<Address>();
        return address.map_err(|error| refused(py, error));
    }
    if let Ok(parts) = node.cast::<PyDict>() {
        return from_parts(&Parts(parts));
    }
    let message = format!(
        "a node is given as a URL, host:port, (host, port), a dict or a redis-py client, not {}",
        type_name(node)
    );
    Err(wrong_type(py, message))
}

/// A dict of connection settings under the names of redis-py; those that are `None` count as absent.
struct Parts<'a, 'py>(&'a Bound<'py, PyDict>);

impl<'py> Parts<'_, 'py> {
    fn py(&self) -> Python<'py> {
        self.0.py()
    }

    fn value(&self, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.0.get_item(name)?.filter(|value| !value.is_none()))
    }

    fn text(&self, name: &str) -> PyResult<Option<String>> {
        self.value(name)?.map(|value| text(name, &value)).transpose()
    }

    fn flag(&self, name: &str) -> PyResult<Option<bool>> {
        self.value(name)?.map(|value| flag(name, &value)).transpose()
    }

    fn number(&self, name: &str, limit: u32) -> PyResult<Option<u32>> {
        let Some(value) = self.value(name)? else {
            return Ok(None);
        };
        // Environment variables are texts, and other clients take them as they are.
        let number = match value.extract::<String>() {
            Ok(text) => text.trim().parse().ok(),
            Err(_) => value.extract::<u32>().ok(),
        };
        number.filter(|number| *number <= limit).map(Some).ok_or_else(|| {
            config(self.py(), format!("{name} of a node must be a number from 0 to {limit}"))
        })
    }

    fn check_names(&self) -> PyResult<()> {
        for name in self.0.keys() {
            let name = text("the name of a node's setting", &name)?;
            if !KNOWN.contains(&name.as_str()) {
                let message = format!(
                    "a node has no setting '{name}'; the settings are {}",
                    KNOWN.join(", ")
                );
                return Err(config(self.py(), message));
            }
        }
        Ok(())
    }
}

fn from_parts(parts: &Parts<'_, '_>) -> PyResult<Address> {
    let py = parts.py();
    let refused = |error| refused(py, error);
    parts.check_names()?;
    let port = parts.number("port", u32::from(u16::MAX))?;
    let port = port.and_then(|port| u16::try_from(port).ok()).unwrap_or(Address::DEFAULT_PORT);
    let address = match (parts.text("path")?, parts.text("host")?) {
        (Some(_), Some(_)) => {
            return Err(config(py, "a node has either a host or the path of a unix socket"));
        }
        (Some(path), None) => Address::unix(path),
        (None, host) => Address::tcp(host.as_deref().unwrap_or("localhost"), port),
    };
    let mut address = address.map_err(refused)?;
    if parts.flag("ssl")?.unwrap_or(false) {
        address = address.with_tls(tls(parts)?).map_err(refused)?;
    }
    let (username, password) = (parts.text("username")?, parts.text("password")?);
    let db = parts.number("db", i32::MAX.unsigned_abs())?.unwrap_or(0);
    Ok(address
        .with_login(username.as_deref(), password.as_deref())
        .with_db(db)
        .with_key_prefix(&parts.text("key_prefix")?.unwrap_or_default())
        .with_durable(parts.flag("durable")?.unwrap_or(false)))
}

fn tls(parts: &Parts<'_, '_>) -> PyResult<Tls> {
    let py = parts.py();
    let refused = |error| refused(py, error);
    let mut tls = Tls::default().with_verification(verification(parts)?);
    if let Some(file) = parts.text("ssl_ca_certs")? {
        tls = tls.with_ca_file(file).map_err(refused)?;
    }
    if let Some(pem) = parts.text("ssl_ca_data")? {
        tls = tls.with_ca_pem(pem.as_bytes()).map_err(refused)?;
    }
    if let Some(name) = parts.text("ssl_server_name")? {
        tls = tls.with_server_name(&name);
    }
    match (parts.text("ssl_certfile")?, parts.text("ssl_keyfile")?) {
        (Some(chain), Some(key)) => tls.with_identity_files(chain, key).map_err(refused),
        // One file may hold both.
        (Some(both), None) => tls.with_identity_files(&both, &both).map_err(refused),
        (None, Some(_)) => Err(config(py, "ssl_keyfile needs ssl_certfile beside it")),
        (None, None) => Ok(tls),
    }
}

fn verification(parts: &Parts<'_, '_>) -> PyResult<Verification> {
    let certificate = parts.text("ssl_cert_reqs")?;
    match certificate.as_deref() {
        Some("none") => Ok(Verification::DangerNone),
        None | Some("required") => match parts.flag("ssl_check_hostname")? {
            Some(false) => Ok(Verification::DangerAnyHost),
            None | Some(true) => Ok(Verification::Full),
        },
        Some(_) => Err(config(parts.py(), "ssl_cert_reqs must be 'required' or 'none'")),
    }
}

fn refused(py: Python<'_>, error: ConfigError) -> PyErr {
    raised(py, &error.into())
}

const KNOWN: [&str; 16] = [
    "host",
    "port",
    "path",
    "db",
    "username",
    "password",
    "key_prefix",
    "durable",
    "ssl",
    "ssl_ca_certs",
    "ssl_ca_data",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_cert_reqs",
    "ssl_check_hostname",
    "ssl_server_name",
];

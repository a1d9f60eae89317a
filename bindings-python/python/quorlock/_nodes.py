"""From what users pass as a node to what the core reads: a text, or a dict of its parts.

Owns what is known of redis-py and valkey-py clients: their connection settings are read, and the
client itself is never used.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ._errors import ConfigTypeError


class Node(NamedTuple):
    """What is known of one node."""

    address: str
    """Where it is, without a password."""
    state: str
    """`connecting` (or not tried yet), `healthy`, `unresponsive`, `quarantined` (it may have
    forgotten locks: its votes do not count yet), `refusing` (it gets no locks, see `detail`) or
    `down`."""
    detail: str | None = None
    """Why it is quarantined, refusing or down."""
    quarantine: float | None = None
    """For how many seconds it is quarantined yet."""


def parts_of(nodes: Iterable[Any]) -> list[str | dict[str, Any]]:
    """Every node as a text or a dict."""
    if isinstance(nodes, (str, bytes, Mapping)) or not isinstance(nodes, Iterable):
        raise ConfigTypeError(
            f"the nodes are given as a list, such as ['redis://localhost:6379'], not as one "
            f"{type(nodes).__name__}"
        )
    return [_parts(node) for node in nodes]


def _parts(node: Any) -> Any:
    if isinstance(node, Mapping):
        return dict(node)
    if isinstance(node, (tuple, list)):
        if len(node) != _PAIR:
            raise ConfigTypeError(f"a node in a tuple is (host, port), not {len(node)} values")
        return {"host": node[0], "port": node[1]}
    if isinstance(node, str) or type(node).__module__ == "builtins":
        return node  # what is none of these is refused by the core's reader
    return _client(node)


def _client(client: Any) -> dict[str, Any]:
    pool = getattr(client, "connection_pool", None)
    name = f"{type(client).__module__}.{type(client).__name__}"
    if hasattr(client, "nodes_manager") or "Cluster" in type(client).__name__:
        raise _underivable(name, "its nodes are not independent masters")
    if pool is None or not isinstance(getattr(pool, "connection_kwargs", None), Mapping):
        raise _underivable(name, "it has no connection settings to read")
    if "Sentinel" in type(pool).__name__:
        raise _underivable(name, "Sentinel decides where it connects to")
    settings = {key: value for key, value in pool.connection_kwargs.items() if value is not None}
    kinds = {base.__name__ for base in getattr(pool, "connection_class", object).__mro__}
    if not kinds & _CONNECTIONS or any(kind.startswith("Fake") for kind in kinds):
        raise _underivable(name, "it does not connect as Redis clients do")
    if "credential_provider" in settings:
        raise _underivable(name, "its credential provider cannot be asked from here")
    if "UnixDomainSocketConnection" in kinds:
        return _pick(settings, ("path", *_LOGIN))
    parts = _pick(settings, ("host", "port", *_LOGIN))
    if "SSLConnection" in kinds:
        parts.update(_tls(name, settings))
    return parts


def _tls(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    for setting, text in _NO_TLS.items():
        if settings.get(setting):
            raise _underivable(name, text)
    parts = _pick(settings, _TLS)
    required = parts.pop("ssl_cert_reqs", "required")
    if isinstance(required, ssl.VerifyMode):
        required = "none" if required is ssl.CERT_NONE else "required"
    parts["ssl_cert_reqs"] = (
        "none" if str(required).lower() in {"none", "cert_none"} else "required"
    )
    return {"ssl": True, **parts}


def _pick(settings: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: _text(settings[name]) for name in names if name in settings}


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _underivable(name: str, reason: str) -> ConfigTypeError:
    return ConfigTypeError(
        f"cannot tell from this {name} where the node is: {reason}; pass its address instead, such "
        f"as redis://user:password@host:6379"
    )


_PAIR = 2
_CONNECTIONS = {"Connection", "AbstractConnection", "SSLConnection", "UnixDomainSocketConnection"}
_LOGIN = ("db", "username", "password")
_TLS = (
    "ssl_ca_certs",
    "ssl_ca_data",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_cert_reqs",
    "ssl_check_hostname",
)
_NO_TLS = {
    "ssl_ca_path": "a directory of authorities (ssl_ca_path) is not supported",
    "ssl_password": "an encrypted key (ssl_password) is not supported",
}

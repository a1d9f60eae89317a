"""Converts what users pass as a node into what the core reads: a text, or a dict of its parts.

Owns everything that is specific to redis-py and valkey-py clients: their connection settings are
read, and the client itself is never used.
"""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Iterable, Mapping
from typing import Any, Callable, NamedTuple, Optional, Union

from ._errors import ConfigError, ConfigTypeError
from ._hints import evaluated
from ._keywords import ELSEWHERE, NOT_FOLLOWED
from ._pools import elsewhere, is_handled, is_theirs, made, place_of, settings_of
from ._selections import is_noticing


@evaluated
class Node(NamedTuple):
    """The state of one node."""

    address: str
    """Where it is, without a password."""
    state: str
    """`connecting` (or not tried yet), `healthy`, `unresponsive`, `quarantined` (it may have
    forgotten locks: its votes do not count yet), `refusing` (it gets no locks, see `detail`) or
    `down`."""
    detail: Optional[str] = None
    """Why it is quarantined, refusing or down; of a healthy one, why it cannot call callers that
    wait."""
    quarantine: Optional[float] = None
    """For how many seconds it is quarantined yet."""


class Hidden:
    """The parts of nodes, passwords included, hidden from `vars()` and debuggers."""

    __slots__ = ("reveal",)

    def __init__(self, parts: list[Union[str, dict[str, Any]]]) -> None:
        self.reveal: Callable[[], list[Union[str, dict[str, Any]]]] = lambda: parts


def listed(nodes: Iterable[Any]) -> list[Any]:
    """The nodes as a list, which they may be given as only once."""
    if isinstance(nodes, (str, bytes, Mapping)) or not isinstance(nodes, Iterable):
        raise ConfigTypeError(
            f"the nodes are given as a list, such as ['redis://localhost:6379'], not as one "
            f"{type(nodes).__name__}"
        )
    return list(nodes)


def parts_of(node: Any) -> Any:
    """A node, converted to a text or a dict."""
    if isinstance(node, Mapping):
        return _of_keywords(node)
    if isinstance(node, (tuple, list)):
        if len(node) != _PAIR:
            raise ConfigTypeError(f"a node in a tuple is (host, port), not {len(node)} values")
        return {"host": node[0], "port": node[1]}
    if isinstance(node, str) or type(node).__module__ == "builtins":
        return node  # the core's reader refuses everything else
    return _client(node)


def _of_keywords(given: Mapping[str, Any]) -> dict[str, Any]:
    """A dict under the names of redis-py's keyword arguments, read as a client made of it would be.

    What says nothing about where the node is and who logs in is dropped; a name that no client
    knows is left for the core to refuse.
    """
    parts = {name: value for name, value in given.items() if value is not None}
    for setting, reason in NOT_FOLLOWED.items():
        if setting in parts:
            raise _underivable("dict", reason)
    if "unix_socket_path" in parts:
        # As in redis-py, which does not look at the host and the port then.
        parts = {name: parts[name] for name in parts if name not in {"path", "host", "port"}}
        parts["path"] = parts.pop("unix_socket_path")
    # Without TLS, what is said of certificates does not count.
    tls = _tls("dict", parts) if parts.get("ssl") is True else {}
    return {name: parts[name] for name in parts if name not in ELSEWHERE} | tls


def _client(client: Any) -> dict[str, Any]:
    pool = getattr(client, "connection_pool", None)
    name = f"{type(client).__module__}.{type(client).__name__}"
    if hasattr(client, "nodes_manager") or "Cluster" in type(client).__name__:
        raise _underivable(name, "its nodes are not independent masters")
    if hasattr(client, "command_stack"):
        raise _underivable(name, "a pipeline collects commands and is no client")
    if pool is None or not isinstance(getattr(pool, "connection_kwargs", None), Mapping):
        raise _underivable(name, "it has no connection settings to read")
    settings = {key: value for key, value in settings_of(pool).items() if value is not None}
    kind = getattr(pool, "connection_class", object)
    bases = [base for it in (type(pool), kind) for base in getattr(it, "__mro__", ())]
    if any("Sentinel" in base.__name__ for base in bases):
        raise _underivable(name, "Sentinel decides where it connects to")
    if not isinstance(kind, type):
        raise _underivable(name, "a function makes its connections, instead of a class")
    kinds = {base.__name__ for base in kind.__mro__}
    if not kinds & _CONNECTIONS or any(it.startswith("Fake") for it in kinds):
        raise _underivable(name, "it does not connect as Redis clients do")
    if "credential_provider" in settings:
        raise _underivable(name, "its credential provider cannot be asked from here")
    _refuse_what_cannot_be_told(name, client, pool, settings)
    if "UnixDomainSocketConnection" in kinds:
        return _pick(settings, ("path", *_LOGIN))
    parts = _pick(settings, ("host", "port", *_LOGIN))
    if "SSLConnection" in kinds:
        parts.update(_tls(name, settings))
    return parts


def _refuse_what_cannot_be_told(
    name: str, client: Any, pool: Any, settings: Mapping[str, Any]
) -> None:
    """Refuse two clients with different databases or key prefixes, which exclude nobody."""
    if not any(is_theirs(base) for base in type(client).__mro__):
        raise _unknown_keys(name, "it is no client of redis-py or valkey-py but wraps one")
    for kind, methods in ((type(client), _COMMANDS), (pool.connection_class, _SENDING)):
        if method := _overridden(kind, methods):
            raise _unknown_keys(name, f"its class {kind.__name__} overrides {method}")
    its = f"its class of connections {pool.connection_class.__name__}"
    if method := _overridden(pool.connection_class, _CONNECTING):
        raise _unknown_database(name, f"{its} overrides {method}")
    if _overridden(pool.connection_class, ["__init__"]) and not _keeps_settings(pool):
        raise _unknown_database(name, f"{its} overrides __init__, and does not keep the settings")
    if method := _overridden(type(pool), (*_POOLING, *_SETTINGS)):
        raise _unknown_database(name, f"its pool {type(pool).__name__} overrides {method}")
    if method := next((it for it in _POOLING if it in vars(pool)), None):
        raise _unknown_database(name, f"the object of its pool overrides {method}")
    if not is_handled(pool):
        its = f"its pool {type(pool).__name__}"
        raise _unknown_database(name, f"{its} does not keep its connections as usual")
    if overridden := overridden_in(client):
        raise _unknown_keys(name, f"the object itself overrides {overridden}")
    if "redis_connect_func" in settings or "valkey_connect_func" in settings:
        raise _unknown_database(name, "a function of yours sets up its connections")
    if getattr(client, "connection", None) is not None:
        raise _unknown_database(name, "it keeps one connection, on which select() may have run")
    database = str(settings.get("db", 0))
    if any(str(getattr(it, "db", None) or 0) != database for it in made(pool)):
        raise _unknown_database(name, "its settings were changed after it had connected")
    usual = place_of(pool)
    if place := next(filter(None, (elsewhere(it, usual) for it in made(pool))), None):
        reason = f"it has a connection to {place}, which is not that of its settings"
        raise _underivable(name, reason)


def _keeps_settings(pool: Any) -> bool:
    """Whether a class with an `__init__` of its own keeps what locks depend on.

    One connection of it and one of its library are made to compare them, and never connected.
    """
    kind, settings = pool.connection_class, pool.connection_kwargs
    usual: Any = next((base for base in kind.__mro__ if is_theirs(base)), object)
    known = {it for base in usual.__mro__ for it in inspect.signature(base.__init__).parameters}
    try:
        theirs = usual(**{name: settings[name] for name in settings if name in known})
        own = kind(**settings)
    except Exception:  # noqa: BLE001 - of a program's own class
        return False
    put = vars(own).keys() - vars(theirs).keys()
    packers = {type(getattr(it, "_command_packer", None)) for it in (own, theirs)}
    is_kept = all(getattr(own, it, None) == getattr(theirs, it, None) for it in _KEPT)
    return is_kept and len(packers) == 1 and not put & {*_CONNECTING, *_SENDING}


def overridden_in(client: Any) -> str | None:
    """The method for commands that was put into the object itself, if there is one."""
    own = vars(client).keys()
    if own.isdisjoint(_COMMANDS):  # as usual, with each lock
        return None
    put = [method for method in _COMMANDS if method in own]
    return next((method for method in put if not _is_traced(client, method)), None)


def _is_traced(client: Any, method: str) -> bool:
    """Whether it is that of the client's class, and OpenTelemetry has put a trace around it."""
    put = vars(client)[method]
    wrapper = getattr(put, "_self_wrapper", None)  # of wrapt, by which they do it
    if not str(getattr(wrapper, "__module__", "")).startswith("opentelemetry."):
        return False
    wrapped, usual = put.__wrapped__, inspect.getattr_static(type(client), method)
    function = getattr(wrapped, "__func__", None)
    is_usual = function is usual or function is getattr(usual, "__wrapped__", usual)
    return is_usual and getattr(wrapped, "__self__", None) is client


def _overridden(kind: type, methods: Iterable[str]) -> str | None:
    """The method that a class overrides which is not of its library, if there is one."""
    own = [it for it in kind.__mro__ if not (is_theirs(it) or is_noticing(it) or it is object)]
    return next((method for method in methods if any(method in vars(it) for it in own)), None)


def _tls(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    for setting, text in _NO_TLS.items():
        if settings.get(setting):
            raise _underivable(name, text)
    parts = _pick(settings, _TLS)
    required = parts.pop("ssl_cert_reqs", "required")
    if isinstance(required, ssl.VerifyMode):
        required = required.name
    required = str(required).lower().replace("cert_", "")
    # To a client, an optional certificate is one that it checks.
    parts["ssl_cert_reqs"] = "required" if required == "optional" else required
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


def _unknown_database(name: str, reason: str) -> ConfigError:
    return ConfigError(
        f"cannot tell which database this {name} uses now: {reason}; pass its address instead, "
        f"with the database, such as redis://host:6379/3"
    )


def _unknown_keys(name: str, reason: str) -> ConfigError:
    return ConfigError(
        f"cannot tell which keys this {name} would use: {reason}, which may put a prefix before "
        f"them; pass its address instead, with the prefix, such as "
        f"redis://host:6379/0?key_prefix=app:"
    )


_PAIR = 2
# : What locks of their libraries are made of, and those of others on top of them.
_COMMANDS = (
    "execute_command",
    "_execute_command",
    "set",
    "get",
    "delete",
    "eval",
    "evalsha",
    "register_script",
    "pipeline",
)
# : What a class of connections may put a prefix before keys in.
_SENDING = ("on_connect", "send_command", "pack_command", "pack_commands")
# : Where it may connect to another server, or select a database.
_CONNECTING = (
    "connect",
    "connect_check_health",
    "_connect",
    "_connection_arguments",
    "on_connect_check_health",
    "host",
    "port",
    "path",
    "db",
)
# : Of a pool: what decides which connections its clients use.
_POOLING = (
    "get_connection",
    "get_available_connection",
    "ensure_connection",
    "make_connection",
    "release",
    "owns_connection",
    "reset",
    "disconnect",
)
_SETTINGS = ("connection_class", "connection_kwargs")
# : Of a connection: where it goes, how it is set up, who logs in, and whom TLS trusts.
_KEPT = (
    "host",
    "port",
    "path",
    "db",
    "redis_connect_func",
    "valkey_connect_func",
    "_connect_callbacks",
    "username",
    "password",
    "credential_provider",
    "keyfile",
    "certfile",
    "cert_reqs",
    "ca_certs",
    "ca_data",
    "ca_path",
    "check_hostname",
)
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
    "ssl_validate_ocsp": "OCSP (ssl_validate_ocsp) is not supported",
    "ssl_validate_ocsp_stapled": "OCSP (ssl_validate_ocsp_stapled) is not supported",
}

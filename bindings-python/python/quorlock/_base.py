"""The parts of managers and locks that blocking code and asyncio share. Owns no waiting."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Callable, Generic, NoReturn, Optional, TypeVar, Union

from ._clients import Clients, is_client
from ._errors import ConfigError, ConfigTypeError, LeaseLost, LockNotHeld
from ._events import EventSource
from ._frames import forget_locals
from ._native import Acquisitions, LeaseState, Manager, Plan
from ._nodes import Hidden, Node, listed, parts_of
from ._notices import warn
from ._options import MANAGERS_OWN, Behaviour, split
from ._owner import owner_of
from ._sequencer import Sequencer, sequencer_of
from ._stats import Stats, stats_of

if TYPE_CHECKING:
    from ._native import Operation

L = TypeVar("L", bound=LeaseState)


class RedlockBase:
    """A set of nodes, and the settings from which its locks start."""

    def __init__(self, nodes: Iterable[Any], options: dict[str, Any]) -> None:
        try:
            self._make(listed(nodes), options)
        except BaseException as error:
            for name in _ATTRIBUTES:
                vars(self).pop(name, None)
            forget_locals(error)
            raise
        finally:
            del nodes, options  # a traceback may show variables, and they may have passwords

    def _make(self, given: list[Any], options: dict[str, Any]) -> None:
        parts = [parts_of(node) for node in given]
        settings = {name: value for name, value in options.items() if name not in MANAGERS_OWN}
        core, behaviour = split(settings)
        owner, has_clients = owner_of(options.get("owner")), any(map(is_client, given))
        self._manager = Manager(parts, core, owner, has_clients)
        self._events = EventSource(self._manager, options.get("on_event"))
        self._clients = Clients(given, self._manager)
        self._behaviour = self._watching(behaviour)
        self._nodes = Hidden(parts)
        self._options = settings
        self._all_options = options
        # : The long ttls that a warning was given for, once each.
        self._long_ttls: set[float] = set()
        self._mind(self._manager.plan_usual("any"))
        # : A plan for each of the first few ttls that locks were given, which other locks copy.
        self._by_ttl: dict[float, Plan] = {}

    @property
    def nodes(self) -> list[Node]:
        """Every node's address (without a password) and state, in the order given."""
        return [Node(*node) for node in self._manager.nodes()]

    def stats(self) -> Stats:
        """What it has counted in this process since it was made. Asks no node and starts nothing.

        >>> from quorlock import Redlock
        >>> locks = Redlock(["memory://", "memory://", "memory://"])
        >>> with locks.lock("invoice:42"):
        ...     locks.stats().held
        1
        >>> stats = locks.stats()
        >>> stats.held, stats.acquisitions["acquired"], stats.hold_seconds.count
        (0, 1, 1)
        """
        return stats_of(self._manager.stats())

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return "_manager" not in vars(self) or self._manager.is_closed

    def _close(self) -> Optional[EventSource]:
        """Give up the connections; returns what tells its events, if it was made."""
        if "_manager" not in vars(self):
            return None
        self._manager.close()
        return vars(self).get("_events")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Say clearly what an object cannot do whose constructor has failed."""
            if name in _ATTRIBUTES:
                raise ConfigError(
                    "this Redlock was refused when it was made, as the error of its constructor "
                    "said: it has no nodes"
                )
            return object.__getattribute__(self, name)  # which raises the usual error

    def _plan_for(
        self,
        resource: Optional[Union[str, Iterable[str]]],
        ttl: object,
        resources: Optional[Iterable[str]],
        options: Any,
    ) -> tuple[Plan, Behaviour]:
        if isinstance(resource, str) and resources is None and not options:
            if ttl is None:
                return self._manager.plan_usual(resource), self._behaviour
            # Exactly these types: True equals one, but is no ttl.
            if type(ttl) is float or type(ttl) is int:
                return self._plan_lasting(resource, ttl), self._behaviour
        return self._plan(names_of(resource, resources), {"ttl": ttl, **options})

    def _plan_lasting(self, resource: str, ttl: float) -> Plan:
        like = self._by_ttl.get(ttl)
        if like is not None:
            return like.on(resource)
        plan = self._plan([resource], {"ttl": ttl})[0]
        if len(self._by_ttl) < _MOST_TTLS:
            self._by_ttl[ttl] = plan
        return plan

    def _plan(self, names: list[Any], options: dict[str, Any]) -> tuple[Plan, Behaviour]:
        given = {name: value for name, value in options.items() if value is not None}
        defaults = self._options
        if given.get("blocking") is False and "timeout" not in given:
            # The manager's timeout is for callers that wait.
            defaults = {name: value for name, value in defaults.items() if name != "timeout"}
        core, behaviour = split({**defaults, **given})
        plan = self._manager.plan(names, core)
        self._mind(plan)
        return plan, self._watching(behaviour)

    def _watching(self, behaviour: Behaviour) -> Behaviour:
        """With the clients that must be looked at before each acquisition, if there are any."""
        return behaviour._replace(clients=self._clients) if self._clients else behaviour

    def _mind(self, plan: Plan) -> None:
        """Warn of a ttl that was probably meant as milliseconds."""
        ttl, told = plan.ttl, self._long_ttls
        is_meant = ttl <= _LONG or self._options.get("max_ttl") is not None
        if is_meant or ttl in told or len(told) == _MOST_TTLS:
            return
        told.add(ttl)
        warn(
            "long-ttl",
            f"a ttl of {ttl:g} s is {ttl / _LONG:.1f} hours (ttls are in seconds): if its holder "
            f"dies, the lock stays for that long; give the Redlock a max_ttl if that is meant",
        )

    def __repr__(self) -> str:
        if "_manager" not in vars(self):
            return f"<{type(self).__name__} refused>"
        closed = " closed" if self.is_closed else ""
        return f"<{type(self).__name__} {', '.join(self._manager.addresses)}{closed}>"

    def __reduce__(self) -> tuple[Any, ...]:
        # For multiprocessing: the other process makes its own connections.
        return _rebuild, (type(self), self._nodes.reveal(), self._all_options)


class LeaseBase(LeaseState):
    """What a lease can tell without waiting."""

    @property
    def sequencer(self) -> Optional[Sequencer]:
        """The lease as a text that can be handed to others; `None` without a fencing token.

        `locks.verify()` can tell once `record_sequencer()` was called. A lease that was taken over
        by its token has none until `check()` or `extend()` has confirmed it, and then perhaps
        another than its first holder's: hand on the holder's. Raises `QuorumUnreachable` for a
        lease that is `degraded`.
        """
        return sequencer_of(self)


class LockBase(Generic[L]):
    """A lock that can be acquired repeatedly, and its leases."""

    def __init__(
        self, planned: tuple[Plan, Behaviour], events: Optional[EventSource] = None
    ) -> None:
        self._fixed = planned
        # : Kept, so that events are told also where nobody keeps the `Redlock`.
        self._events = events
        self._acquisitions: Acquisitions[L] = Acquisitions()

    def _planned(self) -> tuple[Plan, Behaviour]:
        return self._fixed

    @property
    def resources(self) -> tuple[str, ...]:
        """The names of what is locked."""
        return tuple(self._planned()[0].resources)

    @property
    def resource(self) -> str:
        """The name of what is locked; the first of several."""
        return self.resources[0]

    @property
    def lease(self) -> Optional[L]:
        """The lease of the current thread or task, or else the latest; `None` if there is none."""
        return self._acquisitions.current()

    def owned(self) -> bool:
        """Whether there is a `lease` and it is valid, without asking a node."""
        lease = self.lease
        return lease is not None and lease.is_valid

    def _refuse_release(self) -> NoReturn:
        plan = self._planned()[0]
        raise LockNotHeld(
            f"{plan.title} is not held: there is no lease to release", resources=self.resources
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a lock belongs to its process and cannot be pickled or copied: pass the Redlock and "
            "the name, and call its lock(name) there"
        )

    def __repr__(self) -> str:
        lease = self.lease
        standing = "not held" if lease is None else lease.standing()
        return f"<{type(self).__name__} {self._planned()[0].title} {standing}>"


def names_of(resource: object, resources: Optional[Iterable[str]]) -> list[Any]:
    """The names of one or several resources, however they were given."""
    names: list[Any] = []
    for given in (resource, resources):
        if given is None:
            continue
        if isinstance(given, str):
            names.append(given)
        elif isinstance(given, Iterable) and not isinstance(given, (bytes, bytearray)):
            names.extend(given)
        else:
            raise ConfigTypeError(f"a resource name must be a str, not {type(given).__name__}")
    return names


def refuse_to_pickle_a_lease(_lease: object) -> NoReturn:
    """What `pickle` calls for a lease: raises an error."""
    raise TypeError(
        "a lease belongs to its process and cannot be pickled or copied: pass its token, and call "
        "lease(resource, token) of a Redlock there"
    )


def let_go_on(left: Optional[tuple[Any, Optional[Operation]]]) -> None:
    """Let a release that was interrupted, as by Ctrl-C, continue by itself.

    It would do so once its operation is dropped, but an error's traceback can delay that for long.
    """
    if left is not None and left[1] is not None:
        left[1].cancel()


def tell_loss(loss: LeaseLost, behaviour: Behaviour, error: Optional[BaseException]) -> None:
    """At the end of a block: raise the loss, or note it on the error that the body raised."""
    if not behaviour.raise_on_lost:
        return
    if error is None:
        raise loss
    if hasattr(error, "add_note"):
        error.add_note(str(loss))
    else:  # Python 3.10 and older: where tools look for it
        error.__notes__ = [*getattr(error, "__notes__", ()), str(loss)]


def _rebuild(kind: type[Any], nodes: list[Any], options: dict[str, Any]) -> Any:
    try:
        return kind(nodes, **options)
    finally:
        del nodes, options  # a traceback shows them, and they hold passwords


#: What a constructor sets, unless it fails.
_ATTRIBUTES = frozenset(
    [
        "_manager",
        "_events",
        "_clients",
        "_behaviour",
        "_nodes",
        "_options",
        "_all_options",
        "_long_ttls",
        "_by_ttl",
    ]
)
_MOST_TTLS = 16
_LONG = 3600.0  # seconds


def refuse_generators(function: Callable[..., Any]) -> None:
    """Refuse generator functions: their bodies run long after the call that would hold the lock."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigTypeError(
            f"{function.__qualname__} is a generator: it runs after the call; use 'with' inside it"
        )
    if isinstance(function, type) or not callable(function):
        raise ConfigTypeError(f"a lock decorates functions, not {function!r}")

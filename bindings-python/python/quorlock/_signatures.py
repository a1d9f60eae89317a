"""Shows the options in signatures, `help()` and tooltips, where functions only declare `**options`.

Names and defaults come from the core and the tables of `_options`; nothing is defined here.
"""

from __future__ import annotations

import inspect
from typing import Any, Callable, TypeVar

from ._native import OPTIONS
from ._options import OWN

F = TypeVar("F", bound=Callable[..., Any])


def shows(table: Any) -> Callable[[F], F]:
    """Show the options of a `TypedDict` in place of `**options`, in the signature and the text."""

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        kept = [it for it in signature.parameters.values() if it.kind is not it.VAR_KEYWORD]
        named = {it.name for it in kept}
        options = [name for name in table.__annotations__ if name not in named]
        every = [*kept, *(_parameter(name, table.__annotations__[name]) for name in options)]
        vars(function)["__signature__"] = signature.replace(parameters=every)
        lines = [f"    {name}: {_known(name)[1]}." for name in options]
        head = "Options (times in seconds or as a timedelta; None stands for the default):"
        text = [inspect.cleandoc(function.__doc__)] if function.__doc__ else []
        function.__doc__ = "\n".join([*text, *[""] * bool(text), head, "", *lines])
        return function

    return decorate


def returns_coroutine(function: F) -> F:
    """Have a function that returns a coroutine taken for a coroutine function.

    Mocks and frameworks that choose by that then await what it returns.
    """
    mark: Callable[[F], F] | None = getattr(inspect, "markcoroutinefunction", None)
    if mark is not None:
        return mark(function)
    # Before Python 3.12 only asyncio has a mark. Blocking code must not import it.
    from asyncio import coroutines

    vars(function)["_is_coroutine"] = getattr(coroutines, "_is_coroutine", None)
    return function


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    text = getattr(annotation, "__forward_arg__", annotation)
    default = _known(name)[0]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=text)


def _known(name: str) -> tuple[object, str]:
    return OWN[name] if name in OWN else OPTIONS[name]

"""Blocking methods, made of the coroutines of the same names. Signatures and docstrings are those of the coroutines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from penstock.client.blocking.runtime import run_to_end

P = ParamSpec("P")
T = TypeVar("T")


def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """For a class whose `_inner` has the coroutine. It must touch no consumer: no lock is held."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run_to_end(method(self._inner, *args, **kwargs))

    return call


def blocking_iterator(
    method: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """The same for an asynchronous generator."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        steps = cast(Any, method(self._inner, *args, **kwargs))
        try:
            while True:
                try:
                    value = run_to_end(steps.__anext__())
                except StopAsyncIteration:
                    return
                yield value
        finally:
            run_to_end(steps.aclose())

    return call


def settling(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """For messages and consumers. The runtime of their session runs the coroutine: under its lock, or in its loop."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return cast(T, self._session.runtime.run(method(self, *args, **kwargs)))

    return call

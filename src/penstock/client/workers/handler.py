"""A plain function as a handler of messages: its annotations say what it is called with. Without I/O.

def send(order: Order): …                    the payload, as an Order
def send(order: Order, message: Message): …  and the message itself
def send(to: str, subject: str = ""): …      more than one: the fields of a payload that is an object

The same rule the other way round makes a message of a call: `send.publish("a@b.c", subject="hello")`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar, Unpack, get_type_hints

import msgspec

from penstock import limits
from penstock.client.consume.messages import LeasedMessage
from penstock.client.publish.frames import PublishOptions
from penstock.client.units import Duration, milliseconds

Function: TypeAlias = Callable[..., Any]
Reader: TypeAlias = Callable[[LeasedMessage], Any]

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


class Reject(Exception):
    """Raise it in a handler: this message is hopeless. It is a dead letter now, even if retries are left."""


class Retry(Exception):
    """Raise it in a handler: not now. It is delivered again after `delay` seconds, or after the queue's backoff.

    It counts as an attempt, as every delivery does.
    """

    def __init__(self, message: str = "", *, delay: Duration | None = None):
        """Raises InvalidRequest for a delay that no server would take."""
        super().__init__(message)
        if delay is not None:
            milliseconds("delay", delay, limits.DELAY_MS_MAX)
        self.delay = delay


class Handler:
    """A function and how to make its arguments of a message."""

    def __init__(self, function: Function):
        """Raises TypeError if no message could ever be handed to this function."""
        self.function = function
        self.name: str = getattr(function, "__qualname__", repr(function))
        # An object that is called like a function is asynchronous if its __call__ is.
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004
        )
        hints = _hints(function)
        self._message_names: list[str] = []
        wanted: list[inspect.Parameter] = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise TypeError(f"{self.name}: arguments are given by name, {parameter.name!r} cannot be")
            if _is_message(hints.get(parameter.name)):
                self._message_names.append(parameter.name)
            elif parameter.kind is not parameter.KEYWORD_ONLY or parameter.default is parameter.empty:
                wanted.append(parameter)
        self._signature = inspect.Signature(wanted)
        self._payload_name = wanted[0].name if len(wanted) == 1 else None
        self._read_payload: Reader | None = None
        if len(wanted) == 1:
            self._read_payload = _reader(hints.get(wanted[0].name, Any), self.name)
        elif wanted:
            self._read_payload = _reader(_fields(wanted, hints, self.name), self.name)

    def arguments(self, message: LeasedMessage) -> dict[str, Any]:
        """The arguments for the function. Raises Reject for a payload that never fits."""
        arguments: dict[str, Any] = dict.fromkeys(self._message_names, message)
        if self._read_payload is None:
            return arguments
        try:
            payload = self._read_payload(message)
        except (ValueError, RecursionError) as error:  # the errors of the codecs: msgspec, pydantic, text
            raise Reject(f"the payload does not fit {self.name}: {error}") from error
        if self._payload_name is not None:
            arguments[self._payload_name] = payload
        else:
            arguments.update((name, getattr(payload, name)) for name in payload.__struct_fields__)
        return arguments

    def payload(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value to publish, so that the function is called with these arguments. Raises TypeError as a call would.

        Arguments that are left out are those of the function when it runs.
        """
        try:
            given = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}: {error}") from None
        if self._read_payload is None:
            return None
        if self._payload_name is None:
            return {name: _plain(value) for name, value in given.arguments.items()}
        given.apply_defaults()
        return _plain(given.arguments[self._payload_name])


class WorkerFunction(Generic[P, R, S]):
    """A function that was declared with `worker`. Calling it calls the function itself."""

    def __init__(self, handler: Handler, send: Callable[..., S], options: Mapping[str, Any]):
        update_wrapper(self, handler.function)
        self._handler = handler
        self._send = send
        self._options = options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self._handler.function(*args, **kwargs)
        return result

    def publish(self, *args: Any, **kwargs: Any) -> S:
        """Publish a message for which a worker calls the function with these arguments, except the `Message`.

        A coroutine (with the blocking client: a call) that returns what `Queue.publish` returns.
        """
        return self._send(self._handler.payload(args, kwargs), **self._options)

    def options(self, **options: Unpack[PublishOptions]) -> WorkerFunction[P, R, S]:
        """The same with options of `Queue.publish`: `send.options(delay=60, key="user-42").publish(…)`."""
        return WorkerFunction(self._handler, self._send, {**self._options, **options})

    def __repr__(self) -> str:
        return f"<WorkerFunction {self._handler.name}>"


def _plain(value: Any) -> Any:
    """Pydantic models write themselves; anything else is left to the encoder."""
    dump = getattr(type(value), "model_dump", None)
    return value if dump is None else dump(value, mode="json")


def _hints(function: Function) -> dict[str, Any]:
    annotated = function if inspect.isroutine(function) else type(function).__call__
    try:
        return get_type_hints(annotated, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"{getattr(function, '__qualname__', function)}: the annotation {error.name!r} cannot be found; "
            "types of a handler's arguments belong to its module"
        ) from error


def _is_message(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, LeasedMessage)


def _fields(wanted: list[inspect.Parameter], hints: dict[str, Any], name: str) -> type:
    """A struct with one field per parameter."""
    fields: list[Any] = []
    for parameter in wanted:
        kind = hints.get(parameter.name, Any)
        if parameter.default is parameter.empty:
            fields.append((parameter.name, kind))
        else:
            fields.append((parameter.name, kind, msgspec.field(default_factory=_returning(parameter.default))))
    return msgspec.defstruct(name.replace(".", "_"), fields, kw_only=True)


def _returning(value: Any) -> Callable[[], Any]:
    return lambda: value


def _reader(kind: Any, name: str) -> Reader:
    """Reads the payload of a message as this type. The reader raises ValueError if it is something else."""
    if kind is Any or kind is inspect.Parameter.empty:
        return lambda message: message.value
    if kind is bytes:
        return lambda message: message.payload
    # Pydantic models read themselves.
    if (validate := getattr(kind, "model_validate_json", None)) is not None:
        return lambda message: validate(message.payload)
    try:
        decode = msgspec.json.Decoder(kind).decode
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None

    def read(message: LeasedMessage) -> Any:
        if message.is_json:
            return decode(message.payload)
        if kind is str:
            return message.payload.decode()
        raise ValueError("it was published as bytes, not as JSON")

    return read

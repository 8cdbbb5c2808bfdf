"""The table of operations is complete, and the calls of all clients agree with it."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec
import pytest

from penstock.security.scopes import VERBS
from penstock.transports import translate
from penstock.transports.http import routes
from penstock.wire import operations
from penstock.wire.operations import OPERATIONS, Operation, Verb
from penstock.wire.status import STATUS

SOURCE = Path(__file__).parents[3] / "src" / "penstock"
ALL = list(OPERATIONS.values())
each_operation = pytest.mark.parametrize("operation", ALL, ids=lambda each: each.name)
WITHOUT_SCOPE = {
    "health", "readiness", "openapi", "asyncapi", "front_page", "session", "login", "logout", "change_password",
    "create_ticket", "access_limits", "cluster_map",
}  # fmt: skip


def fields_of(operation: Operation) -> dict[str, Any]:
    shapes = [operation.query] if operation.body is None else [operation.query, operation.body]
    return {field.name: field.type for shape in shapes for field in msgspec.structs.fields(shape)}


# -- the table ------------------------------------------------------------------------------------------------------


def test_operation_without_a_scope_is_impossible():
    with pytest.raises(TypeError, match="scope"):
        Operation(name="look", method="GET", path="/v1/look", summary="Look.", reply=None)  # type: ignore[call-arg]
    for name, maker in inspect.getmembers(operations, inspect.isfunction):
        scope = inspect.signature(maker).parameters.get("scope")
        assert scope is None or scope.default is scope.empty, f"{name} would choose a scope"


@each_operation
def test_only_probes_descriptions_and_the_own_identity_need_no_scope(operation):
    assert isinstance(operation.scope, Verb)
    assert (operation.scope is Verb.NONE) == (operation.name in WITHOUT_SCOPE)


def test_verbs_are_those_of_keys():
    assert {*Verb} - {Verb.NONE, Verb.ANY} == {*VERBS}


def test_names_and_places_are_unique():
    assert len({(operation.method, operation.path) for operation in ALL}) == len(ALL)
    assert [operation.name for operation in ALL] == list(OPERATIONS)


@each_operation
def test_error_codes_exist_and_include_those_of_the_body(operation):
    assert set(operation.errors) <= set(STATUS)
    assert operation.codes == sorted(operation.codes, key=list(STATUS).index)
    assert ("unsupported_media_type" in operation.codes) == (operation.body is not None)


@each_operation
def test_get_changes_nothing_and_has_no_body(operation):
    if operation.method == "GET":
        assert operation.idempotent and operation.body is None and not operation.destructive


def test_destructive_operations_take_a_token():
    assert {operation.name for operation in ALL if operation.destructive} == {
        "put_queue", "patch_queue", "delete_queue", "purge_queue", "delete_group", "delete_dead_letters", "erase",
    }  # fmt: skip


NAMES_A_QUEUE = {"queue", "scope", "target", "queues", "receipts", "ack", "namespace", "task"}


@each_operation
def test_fields_that_name_queues_exist_and_none_is_left_out(operation):
    """The authorisation of a request checks these fields: a queue in another field would not be checked."""
    fields = fields_of(operation)
    for path in operation.queues:
        name, _, inner = path.partition("[]")
        assert name in fields
        if inner:
            (shape,) = structs_of(fields[name])
            assert inner.removeprefix(".") in {field.name for field in msgspec.structs.fields(shape)}
    named = {path.partition("[]")[0] for path in operation.queues}
    assert NAMES_A_QUEUE & set(fields) <= named
    for name, kind in fields.items():
        for shape in structs_of(kind):
            if "queue" in {field.name for field in msgspec.structs.fields(shape)}:
                assert f"{name}[].queue" in operation.queues


def structs_of(kind: Any) -> list[Any]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [kind]
    return [shape for argument in get_args(kind) for shape in structs_of(argument)]


@each_operation
def test_path_parameter_is_a_field(operation):
    parameter = operation.path.partition("{")[2].partition("}")[0]
    assert not parameter or {"path": "queue"}.get(parameter, parameter) in operation.query.__struct_fields__


# -- the transports -------------------------------------------------------------------------------------------------


def test_every_operation_has_one_handler():
    calls = {name for name, value in vars(translate).items() if inspect.isfunction(value) and name in OPERATIONS}
    assert set(routes.HANDLERS) <= set(OPERATIONS)
    assert set(OPERATIONS) - set(routes.HANDLERS) <= calls
    shared = {"ack", "nack", "reject", "release", "extend", "events"}
    assert calls & set(routes.HANDLERS) == shared, "a handler of its own makes the shared function dead"


# -- the calls of the SDK, the pipeline and the command line --------------------------------------------------------


class ClientCall(NamedTuple):
    where: str
    function: str
    method: str | None
    path: str
    """With `{}` for each part that is computed."""
    query: set[str]
    body: set[str]


METHODS = {"GET", "POST", "PUT", "PATCH", "DELETE"}
BY_METHOD = {"get", "post", "put", "patch", "delete"}
"""Functions whose keywords are query parameters, as those of `target`."""


def text_of(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return None


def calls_in(path: Path) -> list[ClientCall]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        texts = [text_of(argument) for argument in node.args]
        paths = [text for text in texts if text is not None and text.startswith("/v1/")]
        if not paths:
            continue
        function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        method = function.upper() if function in BY_METHOD else next((text for text in texts if text in METHODS), None)
        place, _, query = paths[0].partition("?")
        names = {pair.partition("=")[0] for pair in query.split("&") if pair}
        if function in BY_METHOD or function == "target":
            names |= {keyword.arg for keyword in node.keywords if keyword.arg}
        bodies = [each for argument in (*node.args, *node.keywords) for each in ast.walk(argument)]
        keys = {text_of(key) for each in bodies if isinstance(each, ast.Dict) for key in each.keys if key is not None}
        where = f"{path.relative_to(SOURCE)}:{node.lineno}"
        found.append(ClientCall(where, function, method, place, names, {key for key in keys if key}))
    return found


CALLS = [
    call
    for folder in ("client", "server", "pipeline")
    for path in sorted((SOURCE / folder).rglob("*.py"))
    for call in calls_in(path)
]


class NamedCall(NamedTuple):
    """A call of the SDK or the CLI: the name of an operation, the type of its answer, and the names of its fields."""

    where: str
    operation: str
    answer: str
    fields: set[str]


def named_calls_in(path: Path) -> list[NamedCall]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        name = text_of(node.args[0])
        if function in ("operation", "call", "ask", "_ask") and name is not None and name not in METHODS:
            fields = {keyword.arg for keyword in node.keywords if keyword.arg} - {"body", "accept"}
            where = f"{path.relative_to(SOURCE)}:{node.lineno}"
            found.append(NamedCall(where, name, "".join(map(ast.unparse, node.args[1:2])), fields))
    return found


NAMED_CALLS = [
    call
    for folder in ("client", "pipeline", "server")
    for path in sorted((SOURCE / folder).rglob("*.py"))
    for call in named_calls_in(path)
]


@pytest.mark.parametrize("call", NAMED_CALLS, ids=lambda call: f"{call.where} {call.operation}")
def test_named_call_has_fields_and_answer_of_its_operation(call):
    operation = OPERATIONS[call.operation]
    assert call.fields <= set(fields_of(operation))
    if call.answer.endswith("Reply"):
        assert call.answer == (operation.reply or operation.created).__name__


def matching(call: ClientCall) -> list[Operation]:
    computed = "[^{}]+"
    pattern = re.compile(re.escape(call.path).replace(re.escape("{}"), computed))
    return [
        operation
        for operation in ALL
        if pattern.fullmatch(re.sub(r"\{\w+\}", "x", operation.path)) and call.method in (operation.method, None)
    ]


def test_calls_are_found():
    assert CALLS
    assert len(NAMED_CALLS) > 90
    assert {call.where.partition("/")[0] for call in NAMED_CALLS} == {"client", "pipeline", "server"}


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.where)
def test_call_of_a_client_is_an_operation(call):
    operations = matching(call)
    assert operations, f"{call.method} {call.path} is not in the contract"
    parameters = {name for operation in operations for name in operation.query.__struct_fields__}
    assert call.query <= parameters
    fields = {name for operation in operations for name in fields_of(operation)}
    assert call.body <= fields

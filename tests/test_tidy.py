"""Rules about the source itself."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from penstock import errors, limits
from penstock.core import records
from penstock.core.lifecycle import TRANSITIONS, diagram
from penstock.server.cli import app
from penstock.wire.status import STATUS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "penstock"
LINES_MAX = 600
IMPURE = {
    "asyncio", "datetime", "logging", "os", "pathlib", "random", "secrets", "socket", "subprocess", "threading", "time",
    "uuid",
}  # fmt: skip
SERVER_ONLY = [
    "uvicorn",
    "uvloop",
    "google_crc32c",
    "typer",
    "rich",
    "structlog",
    "prometheus_client",
    "sortedcontainers",
    "pyspark",
    "cronsim",
    "opentelemetry",
    "aiohttp",
    "cryptography",
    "grpc",
    "google.protobuf",
]
LOADED_BY_NAME = {
    "penstock.client", "penstock.errors", "penstock.protection", "penstock.sync", "penstock.otel", "penstock.__main__",
    "penstock.pipeline.session", "penstock.client.transport.asyncio_pool", "penstock.client.transport.grpc_channel",
    "penstock.client.transport.websocket",
}  # fmt: skip
"""Modules that users, `penstock/__init__.py` and the choice of a transport load; no import statement shows it."""
FOR_TESTS = ("penstock.testing.", "penstock.core.invariants", "penstock.core.lifecycle")
"""Modules for tests. At least one test must import each."""

PRONOUNS = re.compile(r"\b(who|whom|whoever|(?:some|no|any|every)body|(?:some|any|every)one)\b", re.IGNORECASE)
TWIN_CLASSES_MAX = 40
"""Class names that exist in two or more modules: a name should mean one thing in the whole tree."""
LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical"}


def files(*patterns: str) -> list[Path]:
    """Files that are not generated."""
    found = (file for pattern in patterns for file in ROOT.glob(pattern) if file.is_file())
    return sorted(file for file in found if "_pb2" not in file.name)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def imports(tree: ast.Module) -> Iterator[str]:
    """Every module that is imported, wherever in the file; `from a import b` counts as `a` and as `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, "imports are absolute here"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def without_code(markdown: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", markdown, flags=re.DOTALL)


# -- the source ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", files("src/penstock/core/**/*.py"), ids=name_of)
def test_core_is_pure(path):
    """No clock, no chance, no I/O, nothing that waits: replay does the same as the first time, or it is no replay."""
    tree = tree_of(path)
    assert not IMPURE.intersection(name.partition(".")[0] for name in imports(tree))
    waits = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)
    assert not [node.lineno for node in ast.walk(tree) if isinstance(node, waits)]


@pytest.mark.parametrize("path", files("src/penstock/broker/*.py"), ids=name_of)
def test_facade_reads_a_view_and_decides_nothing(path):
    """State is read through `ShardView`. A decision is made by the loop, which applies it before the next one."""
    assert not {"penstock.runtime.loop", "penstock.core.apply", "penstock.core.decide.decide"} & set(
        imports(tree_of(path))
    )
    assert not re.search(r"\bloop\.shard\b", path.read_text())


OPEN_MODULES_OF_THE_CLIENT = {"penstock.client", "penstock.client.lowlevel"}


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in files(
            "src/**/*.py", "sim/**/*.py", "benchmarks/**/*.py", "examples/**/*.py", "fuzz/**/*.py", "torture/**/*.py"
        )
        if not path.is_relative_to(SOURCE / "client") and path not in (SOURCE / "sync.py", SOURCE / "protection.py")
    ],
    ids=name_of,
)
def test_inner_modules_of_the_client_are_imported_by_the_client_alone(path):
    """Other packages use the public names and `penstock.client.lowlevel`, which is the contract with them."""
    modules = {
        f"penstock.client.{'.'.join(module.relative_to(SOURCE / 'client').with_suffix('').parts)}"
        for module in files("src/penstock/client/**/*.py")
    }
    inner = {name.removesuffix(".__init__") for name in modules} - OPEN_MODULES_OF_THE_CLIENT
    packages = {name.rpartition(".")[0] for name in inner} - OPEN_MODULES_OF_THE_CLIENT
    assert not (inner | packages).intersection(imports(tree_of(path)))


@pytest.mark.parametrize(
    "path",
    files("src/**/*.py", "sim/**/*.py", "tests/**/*.py", "benchmarks/**/*.py", "fuzz/**/*.py", "torture/**/*.py"),
    ids=name_of,
)
def test_no_markers_for_unfinished_work(path):
    markers = re.compile(r"\b(TO[D]O|FIX[M]E|X{3})\b")
    assert not [line for line in path.read_text().splitlines() if markers.search(line)]


@pytest.mark.parametrize("path", files("src/**/*.py"), ids=name_of)
def test_no_dangerous_calls(path):
    """Code from data, objects from data, shells, and TLS without its check."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
            assert not names & {"pickle", "marshal", "shelve", "dill"}, f"line {node.lineno}"
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in ("eval", "exec", "os.system", "os.popen", "yaml.load"), f"line {node.lineno}: {called}"
            given = {each.arg: ast.unparse(each.value) for each in node.keywords}
            assert given.get("shell") != "True" and given.get("verify") != "False", f"line {node.lineno}"
        if isinstance(node, ast.Attribute):
            assert node.attr not in ("CERT_NONE", "_create_unverified_context"), f"line {node.lineno}"


@pytest.mark.parametrize("path", files("src/**/*.py"), ids=name_of)
def test_files_have_a_maximum_length(path):
    assert len(path.read_text().splitlines()) <= LINES_MAX


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")


def test_no_module_is_dead():
    modules = set(map(module_of, files("src/penstock/**/*.py")))
    wanted = {*LOADED_BY_NAME, *(reference.module for reference in app.info.cls.references.values())}
    for path in files("src/**/*.py"):
        wanted |= set(imports(tree_of(path)))
    for path in files("tests/**/*.py", "sim/**/*.py"):
        if re.search(r"penstock\.(testing|core)", path.read_text()):
            wanted |= {name for name in imports(tree_of(path)) if name.startswith(FOR_TESTS)}
    packages = {name.rpartition(".")[0] for name in modules}
    assert sorted(modules - wanted - packages) == []


def imports_at_load(path: Path, modules: set[str]) -> set[str]:
    """Modules whose code runs when the module at `path` is loaded; its own packages are being loaded anyway."""
    name = module_of(path)
    body = [node for node in tree_of(path).body if isinstance(node, ast.Import | ast.ImportFrom | ast.Try)]
    found = set(imports(ast.Module(body, [])))
    packages = {".".join(each.split(".")[:end]) for each in found for end in range(1, each.count(".") + 2)}
    return {each for each in packages & modules if each != name and not f"{name}.".startswith(f"{each}.")}


def test_no_imports_in_a_circle():
    """Any module may be the first that is loaded; a circle works for some first modules and fails for others."""
    paths = {module_of(path): path for path in files("src/penstock/**/*.py")}
    graph = {name: imports_at_load(path, set(paths)) for name, path in paths.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"modules import each other in a circle: {' -> '.join(error.args[1])}")


def test_every_limit_is_used():
    words = Counter(word for path in files("src/penstock/**/*.py") for word in re.findall(r"\w+", path.read_text()))
    assert not {name for name in vars(limits) if name.isupper() and words[name] < 2}


def test_the_sdk_alone_loads_nothing_of_the_server():
    program = (
        "import sys, penstock, penstock.sync; penstock.Client, penstock.sync.Client, penstock.Unavailable;"
        f"print([name for name in {SERVER_ONLY} if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout == "[]\n"


# -- plain words --------------------------------------------------------------------------------------------------


def plain_files(*except_for: str) -> list[Path]:
    """The files of `src` that are written in plain words: all but these."""
    others = [SOURCE / name for name in except_for]
    return [file for file in files("src/**/*.py") if not any(map(file.is_relative_to, others))]


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The line number and the text of each comment and each docstring, including docstrings of attributes."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


@pytest.mark.parametrize(
    "path", [*plain_files(), *files("sim/**/*.py", "benchmarks/**/*.py", "fuzz/**/*.py", "tests/**/*.py")], ids=name_of
)
def test_prose_names_its_subject(path):
    """A sentence without a noun as its subject does not say which object of the program it means."""
    assert not [(line, text) for line, text in prose(path) if PRONOUNS.search(text)]


@pytest.mark.parametrize("path", plain_files(), ids=name_of)
def test_prose_does_not_open_with_what(path):
    """No sentence does, except a question."""
    assert not [
        (line, text) for line, text in prose(path) if re.search(r"(^[#\s]*|[.:;] |\n\s*)What\b[^?\n]*$", text, re.M)
    ]


def test_class_names_mean_one_thing():
    modules = Counter(
        name
        for path in files("src/**/*.py")
        for name in {node.name for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef)}
        if not name.startswith("_")
    )
    twins = sorted(name for name, count in modules.items() if count > 1)
    assert len(twins) <= TWIN_CLASSES_MAX, twins


@pytest.mark.parametrize("path", plain_files("client"), ids=name_of)
def test_log_events_are_snake_case(path):
    events = [
        (node.lineno, node.args[0].value)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in LOG_METHODS
        and re.search(r"\b_?log(ger)?$", ast.unparse(node.func.value))
        and node.args
        and isinstance(node.args[0], ast.Constant)
    ]
    assert not [(line, event) for line, event in events if not re.match(r"[a-z0-9]+(_[a-z0-9]+)+(: |$)", event)]


# -- what is promised stands where it is looked for -------------------------------------------------------------------


def error_classes() -> list[type[errors.PenstockError]]:
    kinds = [errors.PenstockError]
    for kind in kinds:
        kinds += [each for each in kind.__subclasses__() if each.__module__ == errors.__name__]
    return kinds[1:]


@pytest.mark.parametrize("kind", error_classes(), ids=lambda kind: kind.__name__)
def test_every_error_has_a_code_a_status_and_a_line_in_the_documentation(kind):
    assert errors.BY_CODE[kind.code] is kind
    assert kind.code in STATUS
    assert f"`{kind.code}`" in (ROOT / "docs/http.md").read_text()
    assert f"{kind.__name__} " in errors.__doc__


def test_every_status_belongs_to_an_error():
    assert set(STATUS) == set(errors.BY_CODE)


@pytest.mark.parametrize("kind", records.KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_of_record_is_documented_and_kept_in_a_fixture(kind):
    tag = kind.__struct_config__.tag
    assert f"`{tag}`" in (ROOT / "docs/formats/journal.md").read_text()
    dumps = [path.read_text() for path in files("tests/compat/journal-v*/dump.txt")]
    assert any(re.search(rf"^ +\+\d+ {tag} at=", dump, re.MULTILINE) for dump in dumps)


def test_lifecycle_table_has_only_records():
    assert {fact for _, fact in TRANSITIONS} <= {kind.__struct_config__.tag for kind in records.KINDS}


def test_lifecycle_diagram_is_current():
    assert f"```mermaid\n{diagram()}\n```" in (ROOT / "docs/guarantees.md").read_text()


# -- documents ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", files("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**/*.md"), ids=name_of)
def test_links_in_documents_exist(path):
    links = re.findall(r"\[[^]]*\]\(([^)\s]+)\)", without_code(path.read_text()))
    inside = [link.partition("#")[0] for link in links if not re.match(r"[a-z]+:", link)]
    assert not [link for link in inside if link and not (path.parent / link).exists()]


@pytest.mark.parametrize("path", files("docs/*.md", "docs/operating/*.md"), ids=name_of)
def test_page_begins_with_its_task(path):
    """A reader learns from the first sentence whether the page is the right one."""
    assert re.match(r"# [^\n]+\n\nThis page (shows|gives|states|defines) ", path.read_text())


def test_words_of_the_glossary_are_unique_and_sorted():
    words = re.findall(r"^\| ([^|]+?) \|", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)[2:]
    assert words == sorted(set(words), key=str.lower)
    assert not [word for word in words if "," in word], "one row defines one word"


@pytest.mark.parametrize("path", files("docs/adr/*"), ids=name_of)
def test_adr_has_context_decision_and_consequences(path):
    assert re.fullmatch(r"\d{4}(-[a-z0-9]+)+\.md", path.name)
    text = path.read_text()
    assert text.startswith(f"# {path.name[:4]}: ")
    assert re.search(r"^- Status: (accepted|superseded( by \d{4})?|rejected)$", text, re.MULTILINE)
    assert re.search(r"^- Date: \d{4}-\d{2}-\d{2}$", text, re.MULTILINE)
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert [name for name in headings if name in ("Context", "Decision", "Consequences")] == [
        "Context",
        "Decision",
        "Consequences",
    ]


def test_every_decision_has_a_number_of_its_own():
    numbers = [path.name[:4] for path in files("docs/adr/*.md")]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("path", files("README.md", "docs/**/*.md"), ids=name_of)
def test_examples_in_python_compile(path):
    for block in re.findall(r"^```python\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL):
        # Many are the inside of an asynchronous function.
        compile(block, str(path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

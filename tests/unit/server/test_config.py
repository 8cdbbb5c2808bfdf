"""Settings: four places, one value, and no misspelled key that goes unnoticed."""

from __future__ import annotations

import asyncio
import errno
import os
import re

import pytest
import typer

from penstock.server.compose import open_node
from penstock.server.config import KEYS, Address, ConfigError, Settings, load_settings, parse_address
from penstock.server.terminal import errors_in_one_line


def test_defaults():
    settings = load_settings({}, {})
    assert settings == Settings()
    assert (settings.listen_address, settings.data_dir, settings.store, settings.fsync) == (
        ("127.0.0.1", 7400), "./penstock-data", "local:", "always",
    )  # fmt: skip
    assert settings.grpc_address == ("127.0.0.1", 7401)


def test_flags_win_over_environment_over_file_over_defaults(tmp_path):
    file = tmp_path / "penstock.toml"
    file.write_text('data_dir = "file"\nfsync = "batch"\nlog_format = "console"\nshutdown_grace_s = 1\n')
    environment = {"PENSTOCK_FSYNC": "interval", "PENSTOCK_LOG_FORMAT": "json", "PENSTOCK_AUTO_CREATE": "false"}
    settings = load_settings({"log_format": "console", "fsync": None}, environment, file)
    assert (settings.data_dir, settings.fsync, settings.log_format) == ("file", "interval", "console")
    assert (settings.shutdown_grace_s, settings.auto_create, settings.listen) == (1, False, "127.0.0.1:7400")
    assert load_settings({}, {**environment, "PENSTOCK_CONFIG": str(file)}).data_dir == "file"


@pytest.mark.parametrize("key", KEYS)
def test_every_key_has_words_and_a_variable(key):
    assert KEYS[key].words
    value = getattr(Settings(), key)
    text = ",".join(value) if isinstance(value, tuple) else str(value)
    text = text.lower() if isinstance(value, bool) else text
    assert getattr(load_settings({}, {f"PENSTOCK_{key.upper()}": text}), key) == value


def test_origins():
    assert Settings().access.origins == frozenset()
    settings = load_settings({}, {"PENSTOCK_ALLOWED_ORIGIN": "http://localhost:8000, NULL,https://tools.example"})
    assert settings.access.origins == {"http://localhost:8000", "null", "https://tools.example"}


def test_hosts(tmp_path):
    assert Settings().access.hosts == frozenset()
    file = tmp_path / "penstock.toml"
    file.write_text('allowed_host = ["Penstock", "penstock.shop.svc.cluster.local", "10.0.0.7", "[fd00::7]"]')
    names = {b"penstock", b"penstock.shop.svc.cluster.local", b"10.0.0.7", b"fd00::7"}
    assert load_settings({}, {}, file).access.hosts == names
    assert load_settings({}, {"PENSTOCK_ALLOWED_HOST": "a, b"}).access.hosts == {b"a", b"b"}
    assert load_settings({"allowed_host": ["c"]}, {"PENSTOCK_ALLOWED_HOST": "a"}, file).access.hosts == {b"c"}


@pytest.mark.parametrize("text", ["*", "", "penstock:7400", "http://penstock", ".example", "a b", "a/b", "[fd00"])
def test_what_is_not_a_host(text):
    with pytest.raises(ConfigError, match="allowed_host"):
        load_settings({"allowed_host": [text]}, {})


@pytest.mark.parametrize(
    "text", ["*", "localhost:8000", "http://localhost/page", "ws://x", "http://*.example", "http://"]
)
def test_what_is_not_an_origin(text):
    with pytest.raises(ConfigError, match="allowed_origin"):
        load_settings({"allowed_origin": [text]}, {})


def test_a_setting_may_be_a_list(tmp_path):
    file = tmp_path / "penstock.toml"
    file.write_text('dialect = ["queen"]')
    assert load_settings({}, {}, file).dialect == ("queen",)
    environment = {"PENSTOCK_DIALECT": "queen, disheap"}
    assert load_settings({}, environment, file).dialect == ("queen", "disheap")
    assert load_settings({"dialect": ["epochqueue"]}, environment, file).dialect == ("epochqueue",)
    with pytest.raises(ConfigError, match=r"PENSTOCK_DIALECT: dialect: .*is not one of"):
        load_settings({}, {"PENSTOCK_DIALECT": "queen,rabbit"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('listne = "127.0.0.1:1"', "did you mean 'listen'?"),
        ('fsync = "sometimes"', "is not one of always, batch"),
        ("data_dir = 5", "data_dir"),
        ("[server]\nport = 5", "unknown key 'server'"),
        ("listen =", "not TOML"),
        ("shutdown_grace_s = -1", "shutdown_grace_s"),
        ("auto_create = 'yes'", "auto_create"),
    ],
)
def test_a_bad_file_is_refused_by_name(tmp_path, text, words):
    file = tmp_path / "penstock.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings({}, {}, file)
    assert words in str(caught.value) and str(file) in str(caught.value)


def test_a_file_that_is_not_there_or_not_text(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        load_settings({}, {}, tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not TOML"):
        load_settings({}, {}, tmp_path / "bytes.toml")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("PENSTOCK_DATADIR", "x", "did you mean 'data_dir'?"),
        ("PENSTOCK_FSYNC", "x", "PENSTOCK_FSYNC"),
        ("PENSTOCK_SHUTDOWN_GRACE_S", "soon", "PENSTOCK_SHUTDOWN_GRACE_S"),
        ("PENSTOCK_LISTEN", "7400", "HOST:PORT"),
    ],
)
def test_a_bad_variable_is_refused_by_name(name, value, words):
    with pytest.raises(ConfigError) as caught:
        load_settings({}, {name: value})
    assert words in str(caught.value)


def test_unrelated_environment_variables_are_ignored():
    platform = {
        "PENSTOCK_SERVICE_HOST": "10.0.0.1",
        "PENSTOCK_PORT_7400_TCP_ADDR": "10.0.0.1",
        "PENSTOCK_URL": "http://x",
    }
    assert load_settings({}, platform) == Settings()


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:65535", ("::1", 65535)), ("localhost:80", ("localhost", 80))],
)
def test_addresses(text, address):
    assert parse_address("listen", text) == address
    assert str(parse_address("listen", text)) == text


@pytest.mark.parametrize(
    "text", ["", ":", "localhost", ":80", "h:", "h:x", "h:-1", "h:65536", "::1:80", "[::1]", "h:１"]
)
def test_what_is_not_an_address(text):
    with pytest.raises(ConfigError, match="HOST:PORT"):
        parse_address("listen", text)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("example.org", False), ("127.0.0.1.example.org", False), ("::ffff:10.0.0.1", False)],
)  # fmt: skip
def test_which_addresses_stay_on_this_machine(host, loopback):
    assert Address(host, 1).is_loopback is loopback


def test_a_disk_that_cannot_be_read_at_the_start_ends_with_74(tmp_path, monkeypatch, capsys):
    def failing(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    settings = load_settings({"data_dir": str(tmp_path)}, {}, None)
    monkeypatch.setattr(os, "pread", failing)

    async def start() -> None:
        await open_node(settings)

    with pytest.raises(typer.Exit) as ended, errors_in_one_line():
        asyncio.run(start())
    assert ended.value.exit_code == 74
    assert re.search(rf"{tmp_path}/\S+, offset 0: Input/output error", capsys.readouterr().err)

"""Settings of a server: defaults < file < environment < flags, ending in one frozen value.

Every option of `penstock serve` is a key here, a key of the TOML file and a variable `PENSTOCK_<KEY>`. An unknown key
is refused, and the error names the nearest known key: a misspelled setting must not be ignored.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from penstock import limits
from penstock.choices import with_choices
from penstock.errors import InvalidRequest, Unavailable
from penstock.security.addresses import TrustedProxies
from penstock.security.buckets import parse_rate
from penstock.security.quotas import AccessLimits
from penstock.transports.access import Access
from penstock.transports.webhooks.guard import parse_networks

ENVIRONMENT_PREFIX = "PENSTOCK_"
_NOT_SETTINGS = frozenset(("PENSTOCK_CONFIG", "PENSTOCK_KEY", "PENSTOCK_URL"))


class ConfigError(Exception):
    """The settings are invalid; the message names the key and its source."""


class StoreRefused(Unavailable):
    """The store is in use, damaged, or of a newer version; the message names the directory, or the file and offset."""


class DiskFailed(Unavailable):
    """The disk refused to read or to write while the store was opened."""


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


GRPC_DEFAULT = Address("127.0.0.1", 7401)


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a server. The description of each field is also its help text on the command line."""

    data_dir: Annotated[str, Meta(min_length=1, description="Directory of the journals, snapshots and messages.")] = (
        "./penstock-data"
    )
    listen: Annotated[str, Meta(description="Address of HTTP. Port 0 takes a free one.")] = "127.0.0.1:7400"
    grpc: Annotated[
        str,
        Meta(description="Address of gRPC; auto: 127.0.0.1:7401, or a free port if that is taken; off: none."),
    ] = "auto"
    store: Annotated[
        str,
        Meta(
            description="Storage engine of the journals: local: (inside the data directory), memory: or postgres://…."
        ),
    ] = "local:"
    fsync: Annotated[
        Literal["always", "interval", "batch", "never"],
        Meta(description="When a write is acknowledged: always means after the data is on disk."),
    ] = "always"
    shards: Annotated[
        int,
        Meta(
            ge=0,
            le=limits.SHARDS_MAX,
            description="Shards of a new store, which never change; 0: as many as the store has, 1 in a new one.",
        ),
    ] = 0
    processes: Annotated[
        int,
        Meta(
            ge=1,
            le=limits.PROCESSES_MAX,
            description="Processes that divide the shards of the store among them; a new store has one shard for each.",
        ),
    ] = 1
    lake: Annotated[
        str,
        Meta(description="Directory of the lake that `penstock pipeline analyze` fills, to serve /v1/analytics from."),
    ] = ""
    auto_create: Annotated[bool, Meta(description="Create a queue when something is first published to it.")] = True
    dialect: Annotated[
        tuple[Literal["queen", "pulsar-proxy", "disheap", "epochqueue"], ...],
        Meta(description="Also serve the interface of this system; may be given more than once."),
    ] = ()
    webhook_allow: Annotated[
        str,
        Meta(
            description="Networks that webhooks may reach although they are not public, like 10.0.0.0/8,127.0.0.1/32."
        ),
    ] = ""
    log_format: Annotated[
        Literal["auto", "json", "console"],
        Meta(description="Log lines on standard error; auto: console on a terminal, otherwise json."),
    ] = "auto"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="Log lines from this level up.")
    ] = "info"
    environment: Annotated[
        str,
        Meta(max_length=40, description="Name of this environment, in a bar on top of every page of the dashboard."),
    ] = ""
    environment_color: Annotated[
        Literal["red", "amber", "green", "blue", "violet"], Meta(description="Colour of that bar.")
    ] = "red"
    mask: Annotated[
        tuple[str, ...],
        Meta(
            description="Field of payloads and header whose value the dashboard never shows, like password; upper and "
            "lower case are equal; may be given more than once."
        ),
    ] = ()
    trace: Annotated[
        str,
        Meta(description="URL of an OpenTelemetry collector (OTLP over HTTP) for spans, like http://127.0.0.1:4318."),
    ] = ""
    trace_sample: Annotated[
        float, Meta(ge=0, le=1, description="Share of requests without a trace of their own that are traced.")
    ] = 0.01
    allowed_host: Annotated[
        tuple[str, ...],
        Meta(
            description="Name that clients reach this server by, through a proxy or a sidecar, without the port; may "
            "be given more than once. Names of this machine are always allowed."
        ),
    ] = ()
    allowed_origin: Annotated[
        tuple[str, ...],
        Meta(
            description="Origin of web pages that may use this server, besides its own: http://localhost:8000, say; "
            "null for pages of local files; may be given more than once."
        ),
    ] = ()
    auth: Annotated[
        Literal["off", "keys"],
        Meta(
            description="keys: every request needs an API key, a token or a client certificate; off: on loopback only."
        ),
    ] = "off"
    jwt_issuer: Annotated[str, Meta(description="Also accept JWTs of this issuer (their iss).")] = ""
    jwt_audience: Annotated[str, Meta(description="The audience that JWTs must name (their aud).")] = ""
    jwks: Annotated[str, Meta(description="Public keys of the issuer of JWTs: a file, or an https URL.")] = ""
    tls_cert: Annotated[str, Meta(description="Certificate chain of the server (PEM), read again when it changes.")] = (
        ""
    )
    tls_key: Annotated[str, Meta(description="Key of the certificate (PEM).")] = ""
    tls_client_ca: Annotated[
        str, Meta(description="Require client certificates that this CA signed (PEM; may contain revocation lists).")
    ] = ""
    tls_client_crl: Annotated[
        str, Meta(description="Revocation lists of the CAs of client certificates (PEM), read again when they change.")
    ] = ""
    limit_address_requests: Annotated[
        str, Meta(description="Most requests of one address, before its credential is checked, like 500/s.")
    ] = ""
    limit_address_failures: Annotated[
        int, Meta(ge=1, le=100_000, description="Wrong credentials of one address a minute; then it has to wait.")
    ] = limits.FAILURES_PER_MINUTE
    limit_key_requests: Annotated[
        str, Meta(description="Most requests of one key, token subject or person, like 1000/s; a key's own rate wins.")
    ] = ""
    limit_key_messages: Annotated[str, Meta(description="Most messages that one key publishes, like 10k/s.")] = ""
    limit_key_bytes: Annotated[str, Meta(description="Most payload bytes that one key publishes, like 50M/s.")] = ""
    limit_key_streams: Annotated[
        int, Meta(ge=0, description="Most WebSockets, gRPC streams and event streams of one key at once; 0: no limit.")
    ] = 0
    limit_key_in_flight: Annotated[
        int, Meta(ge=0, description="Most messages that one key has leased and not settled; 0: no limit.")
    ] = 0
    limit_namespace_requests: Annotated[
        str, Meta(description="Most publishes and changes of the queues of one namespace, of all keys, like 1000/s.")
    ] = ""
    limit_namespace_messages: Annotated[
        str, Meta(description="Most messages published to one namespace, like 10k/s.")
    ] = ""
    limit_namespace_bytes: Annotated[
        str, Meta(description="Most payload bytes published to one namespace, like 50M/s.")
    ] = ""
    limit_queue_streams: Annotated[
        int, Meta(ge=0, description="Most subscriptions and streams of one queue at once; 0: no limit.")
    ] = 0
    limit_queue_in_flight: Annotated[
        int, Meta(ge=0, description="Most messages of one queue that are leased and not settled; 0: no limit.")
    ] = 0
    trusted_proxy: Annotated[
        tuple[str, ...],
        Meta(
            description="Address or network of reverse proxies, like 10.0.0.0/8, whose X-Forwarded-For or Forwarded "
            "names the client; may be given more than once. From others the headers are ignored."
        ),
    ] = ()
    log_mask: Annotated[
        tuple[str, ...],
        Meta(
            description="Field of log events that is shown as ***, as a path like request.headers.x-token, with * for "
            "any name; may be given more than once. Credentials are always masked."
        ),
    ] = ()
    insecure_plaintext_listen: Annotated[
        bool,
        Meta(
            description="Listen on other addresses than loopback without TLS: keys and messages can be read and "
            "changed on the way. Only for a private network, behind a proxy that has TLS."
        ),
    ] = False
    encryption_key: Annotated[
        str,
        Meta(description="File with the key of encrypted queues, or env:NAME (`penstock encryption new-key FILE`)."),
    ] = ""
    encrypt_all: Annotated[bool, Meta(description="Encrypt every new queue, unless its settings say otherwise.")] = (
        False
    )
    shutdown_grace_s: Annotated[
        int, Meta(ge=0, le=3600, description="Seconds that requests in flight get when the server stops.")
    ] = 25

    @property
    def listen_address(self) -> Address:
        return parse_address("listen", self.listen)

    @property
    def grpc_address(self) -> Address | None:
        """None if gRPC is off."""
        if self.grpc == "off":
            return None
        return GRPC_DEFAULT if self.grpc == "auto" else parse_address("grpc", self.grpc)

    @property
    def access(self) -> Access:
        return Access(
            parse_hosts(self.allowed_host),
            parse_origins(self.allowed_origin),
            self.auth != "off",
            "https" if self.tls_cert else "http",
        )

    @property
    def proxies(self) -> TrustedProxies:
        """Raises ConfigError."""
        try:
            return TrustedProxies.parse(self.trusted_proxy)
        except ValueError as error:
            raise ConfigError(f"trusted_proxy: {error}") from None

    @property
    def access_limits(self) -> AccessLimits:
        """Raises ConfigError."""
        values: dict[str, Any] = {}
        for name in AccessLimits._fields:
            given = getattr(self, f"limit_{name}")
            try:
                values[name] = given if isinstance(given, int) else parse_rate(given) if given else None
            except InvalidRequest as error:
                raise ConfigError(f"limit_{name}: {error.message}") from None
        return AccessLimits(**values)


class Key(NamedTuple):
    """The description, the choices (if any) and the default of a setting."""

    words: str
    choices: tuple[str, ...]
    default: Any


def _keys() -> dict[str, Key]:
    fields = {}
    for field in msgspec.inspect.type_info(Settings).fields:  # type: ignore[attr-defined]
        kind, words = field.type, ""
        if isinstance(kind, msgspec.inspect.Metadata):
            words, kind = (kind.extra_json_schema or {}).get("description", ""), kind.type
        if isinstance(kind, msgspec.inspect.VarTupleType):
            kind = kind.item_type
        choices = kind.values if isinstance(kind, msgspec.inspect.LiteralType) else ()
        fields[field.name] = Key(words, tuple(map(str, choices)), field.default)
    return fields


KEYS = _keys()


def load_settings(
    flags: Mapping[str, Any], environment: Mapping[str, str], config_file: Path | str | None = None
) -> Settings:
    """Merge the settings of all four sources; a flag of None was not given. Raises ConfigError."""
    config_file = config_file or environment.get("PENSTOCK_CONFIG")
    values: dict[str, Any] = {}
    if config_file:
        values.update(_from_file(Path(config_file)))
    values.update(_from_environment(environment))
    values.update({key: value for key, value in flags.items() if value is not None})
    settings = _converted(values)
    _ = settings.listen_address, settings.grpc_address, settings.access, settings.access_limits, settings.proxies
    check_security(settings)
    if settings.trace and not re.fullmatch(r"https?://[^\s/]+(/\S*)?", settings.trace):
        raise ConfigError(f"trace: {settings.trace!r} is not a URL like http://127.0.0.1:4318")
    try:
        parse_networks(settings.webhook_allow)
    except ValueError as error:
        raise ConfigError(f"webhook_allow: {error}") from None
    return settings


def check_security(settings: Settings) -> None:
    """Refuse settings that contradict each other, and listeners that other machines reach without protection."""
    if settings.encrypt_all and not settings.encryption_key:
        raise ConfigError("encrypt_all: encryption needs a key; add --encryption-key FILE")
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise ConfigError("tls_cert and tls_key belong together: give both, or neither")
    if settings.tls_client_ca and not settings.tls_cert:
        raise ConfigError("tls_client_ca: client certificates need TLS; give tls_cert and tls_key too")
    if settings.tls_client_crl and not settings.tls_client_ca:
        raise ConfigError("tls_client_crl: revocation lists are for client certificates; give tls_client_ca too")
    if settings.auth == "off" and settings.access_limits != AccessLimits():
        given = [f"limit_{name}" for name, (mine, none) in _limits_of(settings) if mine != none]
        raise ConfigError(f"{', '.join(given)}: limits are for a server that knows its clients; add --auth keys")
    jwt = (settings.jwt_issuer, settings.jwt_audience, settings.jwks)
    if any(jwt) and not all(jwt):
        raise ConfigError("jwt_issuer, jwt_audience and jwks belong together: give all three, or none")
    if settings.auth == "off" and (any(jwt) or settings.tls_client_ca):
        raise ConfigError("jwt_issuer and tls_client_ca identify clients, which needs --auth keys")
    for name, address in (("listen", settings.listen_address), ("grpc", settings.grpc_address)):
        if address is None or address.is_loopback:
            continue
        exposed = f"{name}: {address} can be reached from other machines"
        if settings.auth == "off":
            raise ConfigError(f"{exposed}; add --auth keys, so that every request needs a key, or listen on 127.0.0.1")
        if not settings.tls_cert and not settings.insecure_plaintext_listen:
            raise ConfigError(
                f"{exposed}, and without TLS its keys and messages can be read and changed on the way; add --tls-cert "
                "and --tls-key (`penstock tls dev` makes some to try), or listen on 127.0.0.1. Behind a proxy that has "
                "TLS, on a private network: --insecure-plaintext-listen"
            )


def _limits_of(settings: Settings) -> Iterable[tuple[str, tuple[Any, Any]]]:
    return zip(AccessLimits._fields, zip(settings.access_limits, AccessLimits(), strict=True), strict=True)


def parse_address(name: str, text: str) -> Address:
    """Parse `HOST:PORT`; an IPv6 host is written in brackets."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ConfigError(f"{name}: {text!r} is not HOST:PORT (an IPv6 host in brackets, a port from 0 to 65535)")
    return Address(host, int(port))


def parse_origins(origins: Iterable[str]) -> frozenset[str]:
    """Normalise origins as browsers send them: scheme, host, and port unless it is the scheme's default."""
    for origin in origins:
        if origin.lower() != "null" and not re.fullmatch(r"https?://[^/\s*@,]+", origin, re.IGNORECASE):
            raise ConfigError(f"allowed_origin: {origin!r} is not an origin like http://localhost:8000, nor null")
    return frozenset(origin.lower() for origin in origins)


def parse_hosts(hosts: Iterable[str]) -> frozenset[bytes]:
    """Normalise host names and addresses without ports; an IPv6 address may be in brackets."""
    names = [host[1:-1] if host.startswith("[") and host.endswith("]") else host for host in hosts]
    for host, name in zip(hosts, names, strict=True):
        if not re.fullmatch(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?", name, re.IGNORECASE) and not _is_ipv6(name):
            raise ConfigError(f"allowed_host: {host!r} is not a host name or an address (leave out scheme and port)")
    return frozenset(name.lower().encode() for name in names)


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def _from_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    for key in values:
        if key not in KEYS:
            raise ConfigError(f"{path}: unknown key {key!r}{_nearest(key)}")
    _converted(values, f"{path}: ")
    return values


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, text in environment.items():
        if not name.startswith(ENVIRONMENT_PREFIX) or name in _NOT_SETTINGS:
            continue
        key = name.removeprefix(ENVIRONMENT_PREFIX).lower()
        if key in KEYS:
            values[key] = _from_text(name, key, text)
        elif nearest := _nearest(key):
            # Container platforms set variables like PENSTOCK_SERVICE_HOST, which are ignored. A variable close to a
            # known key is a misspelling, which is refused.
            raise ConfigError(f"unknown variable {name}{nearest}")
    return values


def _from_text(name: str, key: str, text: str) -> Any:
    """Convert the text of an environment variable to a number, a boolean or a comma-separated list."""
    value = [part.strip() for part in text.split(",") if part.strip()] if isinstance(KEYS[key].default, tuple) else text
    try:
        return getattr(msgspec.convert({key: value}, Settings, strict=False), key)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}: {_reason(error)}") from None


def _converted(values: dict[str, Any], source: str = "") -> Settings:
    try:
        return msgspec.convert(values, Settings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}{_reason(error)}") from None


def _reason(error: msgspec.ValidationError) -> str:
    reason, _, path = str(error).partition(" - at `$.")
    key = path.rstrip("`").partition("[")[0]
    return f"{key}: {with_choices(reason, key, Settings)}" if key else reason


def _nearest(key: str) -> str:
    """` (did you mean 'x'?)`, or an empty string if no key is close."""
    close = difflib.get_close_matches(key, KEYS, n=1, cutoff=0.7)
    return f" (did you mean {close[0]!r}?)" if close else ""

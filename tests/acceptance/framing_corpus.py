"""Raw HTTP/1.1 that tries to make a server, or a proxy and a server, disagree on where a request ends.

Every case is bytes for one connection. Publishes that are requests of their own store `v1`, `v2`, … in the queue of the
case, in this order. A publish of `hidden` stands where a correct parser sees a part of a body, or bytes
behind the end of the connection: if it is stored, a request was smuggled. A publish of `inner` stands where the server
has to refuse, but a proxy in front may read, and pass on, a request of its own. A case ends with a request that closes
the connection, so that the answers have an end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

QUEUE = b"QQQQQQ"
"""Stands for the name of the queue, which has as many characters."""
HOST = b"Host: localhost\r\n"
LAST = b"GET /healthz HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
REFUSED = ((400,), (501,))


class Case(NamedTuple):
    name: str
    data: bytes
    answers: tuple[tuple[int, ...], ...] = ()
    """The statuses that a server on its own may answer with; empty: any, as far as the rules for all cases allow."""
    half_close: bool = False
    """The last request is incomplete: the client closes its side."""
    only_alone: bool = False
    """Not for proxies."""
    first_is_head: bool = False
    """The first answer has no body, whatever its headers say."""


def body_of(marker: str) -> bytes:
    return b'{"queue":"%b","messages":[{"payload":"%b"}]}' % (QUEUE, marker.encode())


def head(*lines: bytes, line: bytes = b"POST /v1/publish HTTP/1.1") -> bytes:
    return b"\r\n".join((line, b"Host: localhost", *lines, b"", b""))


def sized(body: bytes, *lines: bytes, line: bytes = b"POST /v1/publish HTTP/1.1") -> bytes:
    return head(*lines, b"Content-Length: %d" % len(body), line=line) + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def chunked(body: bytes, *lines: bytes, line: bytes = b"POST /v1/publish HTTP/1.1") -> bytes:
    return head(*lines, b"Transfer-Encoding: chunked", line=line) + chunk(body) + b"0\r\n\r\n"


def publish(marker: str, *lines: bytes) -> bytes:
    return sized(body_of(marker), *lines)


HIDDEN = publish("hidden")
INNER = publish("inner")
HIDDEN_HEAD = head(b"Content-Length: 1000")
NEXT = publish("v2") + LAST


# -- upgrades -----------------------------------------------------------------------------------------------------

KEY = b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
VERSION = b"Sec-WebSocket-Version: 13"
WEBSOCKET = (b"Connection: Upgrade", b"Upgrade: websocket")
OFFERS: dict[str, tuple[bytes, ...]] = {
    "h2c": (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQAAP__"),
    "h2c alone": (b"Connection: Upgrade", b"Upgrade: h2c"),
    "H2C": (b"CONNECTION: UPGRADE", b"UPGRADE: H2C"),
    "keep-alive": (b"Connection: keep-alive, Upgrade", b"Upgrade: h2c"),
    "two connection headers": (b"Connection: keep-alive", b"Connection: Upgrade", b"Upgrade: h2c"),
    "spaces": (b"Connection:   upgrade  ", b"Upgrade:  h2c  "),
    "tabs": (b"Connection:\tupgrade\t", b"Upgrade:\th2c\t"),
    "unknown": (b"Connection: Upgrade", b"Upgrade: foo"),
    "version": (b"Connection: Upgrade", b"Upgrade: foo/2"),
    "tls": (b"Connection: Upgrade", b"Upgrade: TLS/1.2"),
    "list": (b"Connection: Upgrade", b"Upgrade: h2c, foo, IRC/6.9"),
    "twice": (b"Connection: Upgrade", b"Upgrade: h2c", b"Upgrade: foo"),
    "empty": (b"Connection: Upgrade", b"Upgrade:"),
    "no connection header": (b"Upgrade: h2c",),
    "no upgrade header": (b"Connection: Upgrade",),
    "websocket": WEBSOCKET,
    "websocket and h2c": (b"Connection: Upgrade", b"Upgrade: websocket, h2c", KEY, VERSION),
    "websocket handshake": (*WEBSOCKET, KEY, VERSION),
    "websocket of version 8": (*WEBSOCKET, KEY, b"Sec-WebSocket-Version: 8"),
    "websocket without key": (*WEBSOCKET, VERSION),
}
BODIES = {"json": (body_of("v1"), 201), "hidden request": (HIDDEN, 400), "hidden head": (HIDDEN_HEAD, 400)}


def upgrades() -> Iterator[Case]:
    for offer, lines in OFFERS.items():
        for framed in (sized, chunked):
            for kind, (body, status) in BODIES.items():
                name = f"{offer}, {framed.__name__}, {kind}"
                yield Case(name, framed(body, *lines) + NEXT, ((status, 201, 200),))
        # A handshake has no body, and belongs to one path.
        for framed in (sized, chunked):
            data = framed(HIDDEN, *lines, line=b"GET /v1/ws HTTP/1.1")
            yield Case(f"{offer}, GET, {framed.__name__}", data + NEXT, ((404, 201, 200),))
        yield Case(f"{offer}, another path", head(*lines, line=b"GET /healthz HTTP/1.1") + NEXT, ((200, 201, 200),))
        old = sized(body_of("v1"), *lines, line=b"POST /v1/publish HTTP/1.0")
        kept = any(b"keep-alive" in line for line in lines)  # by proxies, which are right
        yield Case(f"{offer}, HTTP/1.0", old + (INNER if kept else HIDDEN), ((201,),))
        closing = (lines[0].replace(b": ", b": close, ", 1), *lines[1:])
        if lines[0].lower().startswith(b"connection: "):
            yield Case(f"{offer}, close", sized(body_of("v1"), *closing) + HIDDEN, ((201,),))
    for offer, status in (("websocket of version 8", 426), ("websocket without key", 400), ("websocket", 400)):
        refused = head(*OFFERS[offer], line=b"GET /v1/ws HTTP/1.1")
        yield Case(f"{offer}, refused", refused + INNER, ((status,),))


# -- lengths and transfer codings ---------------------------------------------------------------------------------

CODINGS: dict[str, bytes] = {
    "plain": b"Transfer-Encoding: chunked",
    "upper case": b"TRANSFER-ENCODING: CHUNKED",
    "space behind": b"Transfer-Encoding: chunked ",
    "spaces before": b"Transfer-Encoding:    chunked",
    "tab before": b"Transfer-Encoding:\tchunked",
    "no space": b"Transfer-Encoding:chunked",
    "x": b"Transfer-Encoding: xchunked",
    "quoted": b'Transfer-Encoding: "chunked"',
    "parameter": b"Transfer-Encoding: chunked;q=1",
    "identity": b"Transfer-Encoding: identity",
    "identity, chunked": b"Transfer-Encoding: identity, chunked",
    "chunked, identity": b"Transfer-Encoding: chunked, identity",
    "gzip, chunked": b"Transfer-Encoding: gzip, chunked",
    "chunked, chunked": b"Transfer-Encoding: chunked, chunked",
    "comma": b"Transfer-Encoding: ,chunked",
    "comma behind": b"Transfer-Encoding: chunked,",
    "empty": b"Transfer-Encoding:",
    "twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "identity twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "space before colon": b"Transfer-Encoding : chunked",
    "tab before colon": b"Transfer-Encoding\t: chunked",
    "folded": b"Transfer-Encoding:\r\n chunked",
    "folded behind": b"X: y\r\n Transfer-Encoding: chunked",
    "vertical tab": b"Transfer-Encoding: \x0bchunked",
    "form feed": b"Transfer-Encoding: chunked\x0c",
    "zero byte": b"Transfer-Encoding: chunked\0",
    "high byte": b"Transfer-Encoding: chunked\xff",
    "line feed": b"X: y\nTransfer-Encoding: chunked",
    "carriage return": b"X: y\rTransfer-Encoding: chunked",
    "leading space": b" Transfer-Encoding: chunked",
}
UNDERSTOOD = ("plain", "upper case", "space behind", "spaces before", "tab before", "no space")


def codings() -> Iterator[Case]:
    ended = b"0\r\n\r\n" + INNER
    for name, coding in CODINGS.items():
        yield Case(
            f"coding {name}", head(coding) + chunk(body_of("v1")) + b"0\r\n\r\n" + NEXT,
            ((201, 201, 200),) if name in UNDERSTOOD else (),
        )  # fmt: skip
        yield Case(
            f"length, coding {name}, ends early", head(b"Content-Length: %d" % len(ended), coding) + ended + LAST
        )
        if name.startswith(("folded behind", "line feed", "carriage return", "leading space")):
            continue  # where this is no header, the length counts, and what stands behind it is a request
        inside = chunk(INNER) + b"0\r\n\r\n"
        for lines in ((b"Content-Length: 4", coding), (coding, b"Content-Length: 4")):
            yield Case(f"{lines.index(coding)} coding {name}, in a chunk", head(*lines) + inside + LAST, REFUSED)
    old = head(b"Transfer-Encoding: chunked", line=b"POST /v1/publish HTTP/1.0")
    yield Case("chunked in HTTP/1.0", old + chunk(body_of("v1")) + b"0\r\n\r\n" + HIDDEN, REFUSED)


def lengths() -> Iterator[Case]:
    body = body_of("v1")
    size = b"%d" % len(body)
    for name, value in {
        "plain": size, "leading zero": b"0" + size, "leading zeros": b"00000000000000" + size, "tab": b"\t" + size,
        "spaces": b"   " + size + b"  ",
    }.items():  # fmt: skip
        yield Case(f"length {name}", head(b"Content-Length: " + value) + body + NEXT, ((201, 201, 200),))
    for name, value in {
        "plus": b"+" + size, "minus": b"-" + size, "hexadecimal": b"0x%x" % len(body), "list": size + b"," + size,
        "list with space": size + b", " + size, "list that differs": size + b",0", "fraction": size + b".0",
        "exponent": size + b"e0", "letter": size + b"x", "underscore": b"_".join((size[:1], size[1:])),
        "space inside": b" ".join((size[:1], size[1:])), "semicolon": size + b";", "empty": b"",
        "quoted": b'"%b"' % size,
        "zero byte": size + b"\0", "high byte": size + b"\xb2", "huge": b"9" * 30, "2^64": b"%d" % (2**64 + len(body)),
        "2^32": b"%d" % (2**32 + len(body)),
        "unicode digits": "".join(chr(0xFF10 + int(digit)) for digit in size.decode()).encode(),
        "vertical tab": b"\x0b" + size, "comma": size + b",",
    }.items():  # fmt: skip
        refused = ((413,),) if name == "2^32" else REFUSED
        yield Case(f"length {name}", head(b"Content-Length: " + value) + body + NEXT, refused)
    for name, lines in {
        "twice": (b"Content-Length: " + size,) * 2,
        "twice, zero first": (b"Content-Length: 0", b"Content-Length: " + size),
        "twice, zero last": (b"Content-Length: " + size, b"Content-Length: 0"),
        "space before colon": (b"Content-Length : " + size,),
        "folded": (b"Content-Length:\r\n " + size,),
        "folded on": (b"Content-Length: " + size + b"\r\n 0",),
    }.items():
        yield Case(f"length {name}", head(*lines) + body + NEXT, REFUSED)
    for method in (b"GET", b"HEAD", b"DELETE", b"OPTIONS", b"PUT", b"PATCH"):
        for framed in (sized, chunked):
            data = framed(HIDDEN, line=method + b" /healthz HTTP/1.1")
            name = f"{method.decode()} with a body, {framed.__name__}"
            yield Case(name, data + publish("v1") + LAST, first_is_head=method == b"HEAD")
    yield Case("shorter than announced", head(b"Content-Length: 1000") + body, ((),), half_close=True)


# -- chunks -------------------------------------------------------------------------------------------------------


def chunks() -> Iterator[Case]:
    begin = head(b"Transfer-Encoding: chunked")
    body = body_of("v1")
    size, end = b"%x" % len(body), b"0\r\n\r\n"
    for name, data in {
        "one": chunk(body) + end,
        "of one byte": chunk(body[:20]) + b"".join(chunk(body[at : at + 1]) for at in range(20, len(body))) + end,
        "upper case": size.upper() + b"\r\n" + body + b"\r\n" + end,
        "leading zeros": b"0000" + size + b"\r\n" + body + b"\r\n" + end,
        "extension": size + b";a=b;c\r\n" + body + b"\r\n" + end,
        "quoted extension": size + b';a="b c"\r\n' + body + b"\r\n" + end,
        "extension of the last": chunk(body) + b"0;a=b\r\n\r\n",
        "last of many zeros": chunk(body) + b"00000\r\n\r\n",
        "trailer": chunk(body) + b"0\r\nA: b\r\n\r\n",
        "trailers": chunk(body) + b"0\r\nA: b\r\nC: d\r\n\r\n",
    }.items():
        yield Case(f"chunks {name}", begin + data + NEXT, ((201, 201, 200),))
    for name, trailer in {
        "length": b"Content-Length: 1000", "coding": b"Transfer-Encoding: identity", "host": b"Host: evil.example",
        "upgrade": b"Upgrade: h2c\r\nConnection: Upgrade", "origin": b"Origin: https://evil.example",
        "type": b"Content-Type: text/plain",
    }.items():  # fmt: skip
        # A parser may refuse a length in a trailer; none may act by it.
        yield Case(f"trailer {name}", begin + chunk(body) + b"0\r\n" + trailer + b"\r\n\r\n" + NEXT)
    for name, data in {
        "plus": b"+" + size + b"\r\n" + body + b"\r\n" + end,
        "minus": b"-" + size + b"\r\n" + body + b"\r\n" + end,
        "0x": b"0x" + size + b"\r\n" + body + b"\r\n" + end,
        "underscore": b"0_" + size + b"\r\n" + body + b"\r\n" + end,
        "space before": b" " + size + b"\r\n" + body + b"\r\n" + end,
        "space behind": size + b" \r\n" + body + b"\r\n" + end,
        "tab behind": size + b"\t\r\n" + body + b"\r\n" + end,
        "no size": b"\r\n" + body + b"\r\n" + end,
        "no size but an extension": b";a\r\n" + body + b"\r\n" + end,
        "letter": b"g\r\n" + body + b"\r\n" + end,
        "comma": size + b",\r\n" + body + b"\r\n" + end,
        "2^64": b"1000000000000000" + size + b"\r\n" + body + b"\r\n" + end,
        "many digits": b"f" * 100 + b"\r\n" + body + b"\r\n" + end,
        "line feed": size + b"\n" + body + b"\n0\n\n",
        "line feed behind the size": size + b"\n" + body + b"\r\n" + end,
        "line feed behind the data": size + b"\r\n" + body + b"\n" + end,
        "line feed in an extension": size + b";a\nb\r\n" + body + b"\r\n" + end,
        "carriage return behind the size": size + b"\r" + body + b"\r\n" + end,
        "carriage return in an extension": size + b";a\rb\r\n" + body + b"\r\n" + end,
        "zero byte in the size": size + b"\0\r\n" + body + b"\r\n" + end,
        "no end of the data": size + b"\r\n" + body + end,
        "longer than its size": size + b"\r\n" + body + b"xx\r\n" + end,
        "shorter than its size": b"%x\r\n" % (len(body) + 2) + body + b"\r\n" + end,
        "line feeds at the end": chunk(body) + b"0\n\n",
        "broken trailer": chunk(body) + b"0\r\nA\r\n\r\n",
        "folded trailer": chunk(body) + b"0\r\nA: b\r\n c\r\n\r\n",
        "request for a trailer": chunk(body) + b"0\r\n" + INNER,
    }.items():
        yield Case(f"chunks {name}", begin + data + NEXT)
    yield Case("chunks without a last one", begin + chunk(body), ((),), half_close=True)
    yield Case("chunks without the last line", begin + chunk(body) + b"0\r\n", ((),), half_close=True)


# -- heads --------------------------------------------------------------------------------------------------------


def heads() -> Iterator[Case]:
    body = body_of("inner")
    rest = b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    good = b"POST /v1/publish HTTP/1.1\r\n" + HOST
    for name, data in {
        "empty line first": b"\r\n" + publish("v1"),
        "empty lines first": b"\r\n\r\n" + publish("v1"),
        "absolute target": sized(body_of("v1"), line=b"POST http://localhost/v1/publish HTTP/1.1"),
        "many headers": publish("v1", *(b"X-%d: y" % number for number in range(90))),
        "empty value": publish("v1", b"X:"),
        "long header": publish("v1", b"X: " + b"x" * 4000),
    }.items():
        yield Case(f"head {name}", data + NEXT, ((201, 201, 200),))
    for name, data in {
        "space first": b" " + good + rest,
        "tab between": good.replace(b" ", b"\t") + rest,
        "space behind the version": good.replace(b"1.1", b"1.1 ") + rest,
        "no target": good.replace(b" /v1/publish", b"") + rest,
        "space in the target": good.replace(b"/v1/", b"/v1 /") + rest,
        "version 1.2": good.replace(b"1.1", b"1.2") + rest,
        "version 2.0": good.replace(b"1.1", b"2.0") + rest,
        "version 3": good.replace(b"1.1", b"3") + rest,
        "version 1.10": good.replace(b"1.1", b"1.10") + rest,
        "version in lower case": good.replace(b"HTTP/", b"http/") + rest,
        "another protocol": good.replace(b"HTTP/", b"HTTQ/") + rest,
        "no version": good.replace(b" HTTP/1.1", b"") + rest,
        "lower case method": good.replace(b"POST", b"post") + rest,
        "unknown method": good.replace(b"POST", b"BREW") + rest,
        "method with a zero byte": good.replace(b"POST", b"PO\0ST") + rest,
        "zero byte in the target": good.replace(b"publish", b"pub\0lish") + rest,
        "high byte in the target": good.replace(b"publish", b"pub\xfflish") + rest,
        "no host": good.replace(HOST, b"") + rest,
        "two hosts": good + HOST + rest,
        "foreign host": good.replace(b"localhost", b"evil.example") + rest,
        "foreign absolute target": good.replace(b"/v1", b"http://evil.example/v1") + rest,
        "no colon": good + b"X\r\n" + rest,
        "no name": good + b": y\r\n" + rest,
        "space in a name": good + b"X Y: z\r\n" + rest,
        "space before a colon": good + b"X : z\r\n" + rest,
        "zero byte in a name": good + b"X\0: z\r\n" + rest,
        "zero byte in a value": good + b"X: \0\r\n" + rest,
        "high byte in a name": good + b"X\xff: z\r\n" + rest,
        "bracket in a name": good + b"X(: z\r\n" + rest,
        "folded header": good + b"X: y\r\n z\r\n" + rest,
        "folded first header": good.replace(HOST, b" X: y\r\n" + HOST) + rest,
        "line feeds": (good + rest).replace(b"\r\n", b"\n"),
        "line feed in the middle": good + b"X: y\n" + rest,
        "line feed at the end": good + rest.replace(b"\r\n\r\n", b"\r\n\n"),
        "carriage returns": (good + rest).replace(b"\r\n", b"\r"),
        "carriage return in a value": good + b"X: y\rz\r\n" + rest,
        "two carriage returns": good.replace(b"\r\n", b"\r\r\n") + rest,
        "huge header": good + b"X: " + b"x" * 70_000 + b"\r\n" + rest,
        "huge target": good.replace(b"/publish", b"/publish?" + b"x" * 70_000) + rest,
        "thousands of headers": good + b"X: y\r\n" * 12_000 + rest,
        "connect": good.replace(b"POST /v1/publish", b"CONNECT localhost:1") + rest,
        "preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + good + rest,
        "foreign origin": good + b"Origin: https://evil.example\r\n" + rest,
        "form of another port": good + b"Origin: http://localhost:3000\r\nContent-Type: text/plain\r\n" + rest,
        "encoded body": good + b"Content-Encoding: gzip\r\n" + rest,
        "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40) + good + rest,
    }.items():
        # A proxy may use HTTP/2, or HTTP/0.9, with a client that begins like this.
        yield Case(f"head {name}", data + LAST, only_alone=name in ("preface of HTTP/2", "no version"))
    for name, line in {
        "trace": b"TRACE / HTTP/1.1",
        "star": b"OPTIONS * HTTP/1.1",
        "post": b"POST /healthz HTTP/1.1",
    }.items():
        yield Case(f"head {name}", sized(b"", line=line) + publish("v1") + LAST)


# -- one behind the other -----------------------------------------------------------------------------------------


def pipelines() -> Iterator[Case]:
    wait = sized(b'{"queue":"%b","wait_ms":100,"group":"waiting"}' % QUEUE, line=b"POST /v1/lease HTTP/1.1")
    fronts = {
        "one": (publish("v1"), (201,)),
        "five": (b"".join(publish(f"v{number}") for number in range(1, 6)), (201,) * 5),
        "chunked": (chunked(body_of("v1")) + publish("v2"), (201, 201)),
        # The first lease takes what is there, the second one waits.
        "long poll": (publish("v1") + wait + wait + publish("v2"), (201, 200, 200, 201)),
        "expecting": (
            publish("v1", b"Expect: 100-continue") + chunked(body_of("v2"), b"expect: 100-Continue"), (201, 201),
        ),
        "upgrade": (publish("v1", *OFFERS["h2c"]) + publish("v2", *OFFERS["websocket"]), (201, 201)),
    }  # fmt: skip
    for front, (data, statuses) in fronts.items():
        yield Case(f"{front}, in order", data + LAST, ((*statuses, 200),))
        for name, rest in {
            "letter": b"X", "zero byte": b"\0", "space": b" ", "high bytes": b"\xff" * 100, "brace": b"}",
            "end of chunks": b"0\r\n\r\n", "words": b"nonsense\r\n\r\n", "response": b"HTTP/1.1 200 OK\r\n\r\n",
            "tls": b"\x16\x03\x01\x02\x00", "bad length": head(b"Content-Length: x"),
            "bad version": b"GET / HTTP/9.9\r\n\r\n",
            "both": head(b"Content-Length: 5", b"Transfer-Encoding: chunked"), "line feed": b"GET / HTTP/1.1\n\n",
        }.items():  # fmt: skip
            # `XPOST` is a method that is not known, where it is known that a request begins there.
            refused = ((*statuses, 400), (*statuses, 501)) if name == "letter" else ((*statuses, 400),)
            yield Case(f"{front}, then {name}", data + rest + INNER, refused)
        yield Case(
            f"{front}, then unknown method", data + b"BREW / HTTP/1.1\r\n\r\n", ((*statuses, 400), (*statuses, 501))
        )
        yield Case(f"{front}, then empty lines", data + b"\r\n\r\n" + LAST, ((*statuses, 200),))
        yield Case(f"{front}, then a part", data + head(b"Content-Length: 9") + b"x", (statuses,), half_close=True)
        yield Case(f"{front}, then nothing", data, (statuses,), half_close=True)
        huge = data + head(b"X: " + b"x" * 70_000)
        yield Case(f"{front}, then a huge head", huge, ((*statuses, 431),))
    for name, closing in {
        "close": publish("v1", b"Connection: close"),
        "close, chunked": chunked(body_of("v1"), b"Connection: close"),
        "close in a list": publish("v1", b"Connection: foo, Close"),
        "HTTP/1.0": sized(body_of("v1"), line=b"POST /v1/publish HTTP/1.0"),
        "HTTP/1.0, keep-alive": sized(body_of("v1"), b"Connection: keep-alive", line=b"POST /v1/publish HTTP/1.0"),
    }.items():
        # Proxies may keep such a connection, and are right.
        request = INNER if name == "HTTP/1.0, keep-alive" else HIDDEN
        for behind, rest in {"a request": request, "garbage": b"\0\0", "a head": HIDDEN_HEAD}.items():
            yield Case(f"{name}, then {behind}", closing + rest, ((201,),))
    for name, value in {"other": b"foo", "list": b"100-continue, foo", "empty": b""}.items():
        yield Case(f"expect {name}", publish("v1", b"Expect: " + value) + NEXT)
    late = head(b"Expect: 100-continue", b"Content-Length: 100000000")
    yield Case("expecting, too large", publish("v1") + late + INNER, ((201, 413),))


GROUPS = {
    "upgrades": tuple(upgrades()),
    "codings": tuple(codings()),
    "lengths": tuple(lengths()),
    "chunks": tuple(chunks()),
    "heads": tuple(heads()),
    "pipelines": tuple(pipelines()),
}

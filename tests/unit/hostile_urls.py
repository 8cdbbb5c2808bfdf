"""URLs that try to make the server send requests to addresses that are not allowed.

`LISTENING` stands for the port of a listener on loopback that must never be reached.
"""

from __future__ import annotations

LISTENING = "LISTENING"

_LOOPBACK_SPELLINGS = [
    "127.0.0.1", "127.0.0.2", "127.1", "127.0.1", "127.255.255.254", "2130706433", "017700000001", "0177.0.0.1",
    "0x7f000001", "0x7f.0.0.1", "0x7f.1", "0X7F.0X0.0X0.0X1", "00000177.0.0.1", "127.0.0.01", "127.000.000.001", "0",
    "0.0.0.0", "00", "0x0", "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[0000::0001]", "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]", "[::127.0.0.1]", "[::7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]", "[64:ff9b::127.0.0.1]",
    "[64:ff9b::7f00:1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[2002:7f00:0001::1]",
    "[2001:0:4136:e378:8000:63bf:80ff:fffe]", "[fe80::1]", "[fe80::1%25eth0]", "[fe80::1%eth0]", "[::1%251]",
    "[2606:4700::5efe:127.0.0.1]", "[2606:4700::200:5efe:7f00:1]",
]  # fmt: skip
LOOPBACK = [
    *(f"{scheme}://{host}:{LISTENING}/hook" for host in _LOOPBACK_SPELLINGS for scheme in ("http", "https")),
    *(f"https://{host}/hook" for host in _LOOPBACK_SPELLINGS),
]

NOT_PUBLIC = [
    f"https://{host}/"
    for host in (
        "10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.255.255",
        "169.254.169.254", "169.254.170.2", "100.64.0.1", "100.127.255.255", "100.100.100.200", "192.0.0.1",
        "192.0.0.170", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.9",
        "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "0.1.2.3",
        "[fc00::1]", "[fd00:ec2::254]", "[fec0::1]", "[ff02::1]", "[ff0e::1]", "[2001:db8::1]", "[2001::1]",
        "[2001:2::1]", "[2001:10::1]", "[2001:20::1]", "[2002:a00:1::]", "[2002:c0a8:101::1]", "[3fff::1]", "[5f00::1]",
        "[100::1]", "[64:ff9b::a9fe:a9fe]", "[::ffff:169.254.169.254]", "[::ffff:10.0.0.1]", "[::a9fe:a9fe]",
    )
]  # fmt: skip

TRICKS = [
    # URLs in which parsers disagree about the host.
    f"https://user@127.0.0.1:{LISTENING}/", f"https://user:pw@127.0.0.1:{LISTENING}/", "https://@example.com/",
    f"https://example.com@127.0.0.1:{LISTENING}/", f"https://example.com:443@127.0.0.1:{LISTENING}/",
    f"https://127.0.0.1:{LISTENING}@example.com/", f"https://example.com%40127.0.0.1:{LISTENING}/",
    f"https://127.0.0.1:{LISTENING}\\@example.com/", f"https://example.com\\@127.0.0.1:{LISTENING}/",
    f"https://example.com#@127.0.0.1:{LISTENING}/", f"https://127.0.0.1:{LISTENING}#@example.com/",
    f"https://127.0.0.1:{LISTENING}#.example.com", f"https://example.com\\.127.0.0.1:{LISTENING}/",
    f"https:\\\\127.0.0.1:{LISTENING}\\", f"https:/127.0.0.1:{LISTENING}/", f"https:127.0.0.1:{LISTENING}/",
    f"https:///127.0.0.1:{LISTENING}/", f"//127.0.0.1:{LISTENING}/", f"127.0.0.1:{LISTENING}/", "", "/", "https://",
    "https:///", "https://:443/", "https://?", "https://.", "https://..", "https://-a.example/", "https://a-.example/",
    "https://a..example/", "https://.example.com/", "https://example.com./", f"https://{'a' * 64}.example/",
    f"https://{'.'.join(['abc'] * 70)}.example/", "https://exa mple.com/", "https://example.com /",
    " https://example.com/", "https://example.com/ ", "https://example.com/\n", "https://example.com\t/",
    "https://example.com/\r\nhost: 127.0.0.1", "https://example.com/%0d%0a\x00", "https://exam\x00ple.com/",
    "https://[::1/", "https://::1/", "https://[]/", "https://[127.0.0.1]/", "https://[::1]x/", "https://x[::1]/",
    "https://[v1.x]/", "https://1.2.3/", "https://1.2.3.4.5/", "https://1.2.3.256/", "https://a.1/", "https://a.0x1/",
    "https://example.com_/", "https://ex_ample.com/", "https://%31%32%37.0.0.1/", "https://127%2e0%2e0%2e1/",
    # Letters that look like ASCII or are normalized to ASCII.
    "https://ⓔxample.com/", "https://１２７.０.０.１/", "https://127。0。0。1/", "https://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/", "https://exämple.com/",
    "https://examplе.com/", "https://example.com/ü", "https://ﬀ.example/", "https://①②⑦.⓪.⓪.①/", "https://a\u200bb.example/",
    "https://example.com\u2028/", "https://example\u3002com/", "https://127.0.0.1\uff0fexample.com/",
    # Schemes.
    "http://example.com/", "HTTP://example.com/", "HTTPS://example.com/", "hTTps://example.com/", "ftp://example.com/",
    "file:///etc/passwd", "file://127.0.0.1/etc/passwd", "gopher://127.0.0.1:6379/_INFO", "dict://127.0.0.1:11211/stats",
    "ldap://127.0.0.1/", "ws://example.com/", "wss://example.com/", "unix:///var/run/docker.sock",
    "http+unix://%2Fvar%2Frun%2Fdocker.sock/", "data:text/plain,hi", "javascript:alert(1)", "jar:https://example.com!/",
    "https+x://example.com/", "view-source:https://example.com/", "netdoc:///etc/passwd", "s3://bucket/",
    # Ports.
    "https://example.com:80/", "https://example.com:22/", "https://example.com:25/", "https://example.com:6379/",
    "https://example.com:5432/", "https://example.com:0/", "https://example.com:65536/", "https://example.com:99999/",
    "https://example.com:-1/", "https://example.com:+443/", "https://example.com:0443/", "https://example.com:4 43/",
    "https://example.com:/", "https://example.com:443:443/", "https://example.com:443x/", "https://example.com:0x1bb/",
    "https://example.com:４４３/", "http://example.com:443/", "http://example.com:8443/", "https://93.184.216.34:8080/",
    "http://93.184.216.34/",
    # Names that some resolvers map to this machine or its network.
    "https://localhost/", f"https://localhost:{LISTENING}/", f"http://localhost:{LISTENING}/", "https://LOCALHOST/",
    "https://redis/", "https://metadata/", "https://kubernetes/", "https://broadcasthost/", "https://ip6-localhost/",
]  # fmt: skip

NAMES = {
    # Valid names that resolve to disallowed addresses.
    "loopback.example": ["127.0.0.1"],
    "localtest.example": ["::1"],
    "both.example": ["93.184.216.34", "127.0.0.1"],
    "both-the-other-way.example": ["10.0.0.1", "93.184.216.34"],
    "six-and-four.example": ["2606:4700::1111", "192.168.1.1"],
    "metadata.example": ["169.254.169.254"],
    "metadata6.example": ["fd00:ec2::254"],
    "mapped.example": ["::ffff:127.0.0.1"],
    "nat64.example": ["64:ff9b::7f00:1"],
    "sixtofour.example": ["2002:7f00:1::"],
    "teredo.example": ["2001:0:4136:e378:8000:63bf:80ff:fffe"],
    "linklocal.example": ["fe80::1%1"],
    "multicast.example": ["224.0.0.251"],
    "broadcast.example": ["255.255.255.255"],
    "unspecified.example": ["0.0.0.0"],
    "shared.example": ["100.64.0.1"],
    "isatap.example": ["2606:4700::5efe:7f00:1"],
    "localhost.localdomain": ["127.0.0.1"],
    "a.localhost": ["127.0.0.1"],
    "127.0.0.1.nip.example": ["127.0.0.1"],
    "printer.local": ["192.168.0.9"],
    "metadata.google.internal": ["169.254.169.254"],
}

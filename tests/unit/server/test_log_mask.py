from __future__ import annotations

import pytest

from penstock.server.log_mask import CREDENTIAL_FIELDS, FieldMask


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("user", {"user": "***", "request": {"user": "x", "headers": [["X-Token", "x"]]}}),
        ("request.user", {"user": "x", "request": {"user": "***", "headers": [["X-Token", "x"]]}}),
        ("*.user", {"user": "x", "request": {"user": "***", "headers": [["X-Token", "x"]]}}),
        ("**.user", {"user": "***", "request": {"user": "***", "headers": [["X-Token", "x"]]}}),
        ("request.headers.x-token", {"user": "x", "request": {"user": "x", "headers": [["X-Token", "***"]]}}),
        ("request", {"user": "x", "request": "***"}),
    ],
)
def test_fields_are_masked_by_path(path, shown):
    event = {"user": "x", "request": {"user": "x", "headers": [("X-Token", "x")]}}
    assert FieldMask([path])(None, "", event) == shown


@pytest.mark.parametrize("path", CREDENTIAL_FIELDS)
def test_credentials_are_masked_wherever_they_are(path):
    name = path.removeprefix("**.")
    event = {name: "CANARY", "a": {"b": [{name.upper(): "CANARY"}, (name.title().encode(), b"CANARY")]}}
    assert "CANARY" not in repr(FieldMask(CREDENTIAL_FIELDS)(None, "", event))

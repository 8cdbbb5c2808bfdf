from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.errors import Forbidden, InvalidRequest, QueueNotFound
from penstock.runtime.view import queue_not_found
from penstock.security.principal import Principal
from penstock.security.scopes import QUEUE_VERBS, VERBS, not_covered, parse_scope_text, parse_scopes

segments = st.sampled_from(["a", "ab", "abc", "b", "default"])
queues = st.tuples(segments, segments, segments).map("/".join)
patterns = st.one_of(
    st.just("*"),
    st.lists(segments, min_size=1, max_size=3).map("/".join),
    st.lists(segments, min_size=1, max_size=2).map(lambda parts: "/".join(parts) + "/*"),
    st.lists(segments, min_size=1, max_size=3).map(lambda parts: "/".join(parts) + "*"),
)
scopes = st.builds("{}:{}".format, st.sampled_from(QUEUE_VERBS), patterns).map(parse_scope_text)


@pytest.mark.parametrize(
    ("text", "allowed", "refused"),
    [
        ("publish:orders", ["default/default/orders"], ["default/default/orders2", "shop/default/orders"]),
        ("publish:shop/orders", ["shop/default/orders"], ["shop/mail/orders", "shop2/default/orders"]),
        ("publish:shop/*", ["shop/default/orders", "shop/mail/high"], ["shop2/default/orders", "default/default/shop"]),
        ("publish:shop/mail/*", ["shop/mail/high"], ["shop/mail2/high", "shop/default/mail"]),
        ("publish:shop/orders-*", ["shop/default/orders-eu", "shop/default/orders-"], ["shop/default/orders"]),
        ("publish:shop/mail/h*", ["shop/mail/high", "shop/mail/h"], ["shop/mail/low"]),
        ("publish:*", ["default/default/orders", "shop/mail/high"], []),
    ],
)
def test_patterns(text, allowed, refused):
    scope = parse_scope_text(text)
    assert all(scope.allows("publish", queue) for queue in allowed)
    assert not any(scope.allows("publish", queue) for queue in refused)
    assert not any(scope.allows("consume", queue) for queue in allowed)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "publish",
        "publish:",
        "Publish:orders",
        "write:orders",
        "*",
        "*:*",
        "publish:**",
        "publish:*/orders",
        "publish:sh*p/orders",
        "publish:/orders",
        "publish:shop//*",
        "publish:a/b/c/d",
        "publish:a/b/c/*",
        "publish:shop/",
        "publish:shop/../x",
        "publish:shop/or ders",
        "publish:shop/*\n",
        "publish:shop/*,consume:shop/*",
        "metrics:shop/*",
        "cluster.admin:shop",
        "publish:" + "a" * 65,
        "publish:shop/*:x",
        "publish:%73hop/*",
        "publish:ѕhop/*",
    ],
)
def test_other_texts_are_refused(text):
    with pytest.raises(InvalidRequest, match="scope"):
        parse_scope_text(text)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_scope_for_everything(verb):
    assert str(parse_scope_text(f"{verb}:*")) == f"{verb}:*"


def test_verbs_of_the_server_need_no_pattern():
    assert parse_scope_text("metrics") == parse_scope_text("metrics:*")


@given(scopes)
def test_text_of_a_scope_is_parsed_again(scope):
    assert parse_scope_text(str(scope)) == scope


@given(scopes, scopes, queues, st.sampled_from(QUEUE_VERBS))
def test_covering_scope_allows_everything_that_the_covered_one_allows(wide, narrow, queue, verb):
    if wide.covers(narrow) and narrow.allows(verb, queue):
        assert wide.allows(verb, queue)


@given(st.lists(scopes, min_size=1, max_size=4), st.lists(scopes, min_size=1, max_size=4), queues)
def test_no_more_than_the_creator(held, wanted, queue):
    """A key whose scopes are all covered can do nothing that its creator could not."""
    if not not_covered(wanted, held):
        creator, created = Principal("key", "a", "a", held), Principal("key", "b", "b", wanted)
        assert not [verb for verb in VERBS if created.may(verb, queue) and not creator.may(verb, queue)]


@given(scopes)
def test_scope_covers_itself(scope):
    assert scope.covers(scope)


def test_covered_scopes_are_dropped():
    assert [str(scope) for scope in parse_scopes(["publish:shop/orders", "publish:shop/*", "consume:shop/orders"])] == [
        "publish:shop/*", "consume:shop/default/orders",
    ]  # fmt: skip


def test_number_of_scopes_is_bounded():
    texts = [f"publish:q{number}" for number in range(limits.KEY_SCOPES_MAX + 1)]
    assert len(parse_scopes(texts[:-1])) == limits.KEY_SCOPES_MAX
    for wrong in (texts, []):
        with pytest.raises(InvalidRequest, match="1 to 64"):
            parse_scopes(wrong)


def test_refusal_hides_other_namespaces_and_explains_in_the_own():
    principal = Principal("key", "a", "a", parse_scopes(["publish:shop/orders", "metrics"]))
    with pytest.raises(Forbidden, match="consume:shop/default/orders"):
        principal.demand("consume", "shop/default/orders")
    with pytest.raises(Forbidden):
        principal.demand("publish", "shop/mail/other")
    with pytest.raises(QueueNotFound) as hidden:
        principal.demand("publish", "bank/default/orders")
    absent = queue_not_found("bank/default/orders")
    assert (hidden.value.message, hidden.value.details) == (absent.message, absent.details)


@given(st.lists(scopes, min_size=1, max_size=4), queues)
def test_visible_queues_are_never_answered_as_absent(held, queue):
    principal = Principal("key", "a", "a", held)
    if principal.may_see(queue):
        assert isinstance(principal.refusal("publish", queue), Forbidden)


def test_decisions_that_a_principal_remembers_are_bounded():
    principal = Principal("key", "a", "a", parse_scopes(["publish:shop/*"]))
    assert all(principal.may("publish", f"shop/default/q{number}") for number in range(3000))
    assert len(principal._decided) <= 1024

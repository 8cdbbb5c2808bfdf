"""Connections of the pipeline: kept while they are in the cache, closed when they are dropped from it."""

from __future__ import annotations

import gc

from penstock.pipeline import connect
from penstock.pipeline.connect import BrokerCalls


def test_connections_that_are_dropped_from_the_cache_are_closed():
    connect._calls.cache_clear()
    pool = connect._calls(BrokerCalls("http://127.0.0.1:1", None, 1.0), 0)._pool
    gc.collect()
    assert not pool._closed
    connect._calls.cache_clear()
    gc.collect()
    assert pool._closed

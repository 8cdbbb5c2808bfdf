"""Connections of the pipeline: kept while they may be needed, closed when they are put aside."""

from __future__ import annotations

import gc

from penstock.pipeline import connect
from penstock.pipeline.connect import Broker


def test_a_pool_that_is_put_aside_is_closed():
    connect._carrier.cache_clear()
    pool = connect._carrier(Broker("http://127.0.0.1:1", None, 1.0), 0)[0]
    gc.collect()
    assert not pool._closed
    connect._carrier.cache_clear()
    gc.collect()
    assert pool._closed

"""The data pipeline on Spark: queues, their log and every message's history as tables. Guide: docs/spark.md.

    source      what Spark calls: the data source `penstock`
    options     what a user may set                    schema     the tables and their columns
    batch       bounded reads                          stream     unbounded ones
    offsets     pure: which ranges, cut how            columns    frames -> Arrow      happenings  records -> Arrow
    rows        small tables, row by row               ulids      ids by the million
    sink        what Spark calls to write              staging    exactly once
    connect     connections of this process            java       where a JVM is
    session     a Spark session that works             lake/      the archive
    seam        archive and live tail as one

Of ours it stands on `client`, `wire` and `batch` alone.
"""

from penstock.pipeline.seam import union

__all__ = ["union"]

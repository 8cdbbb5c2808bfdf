"""The data pipeline on Spark: queues, their log and every message's history as tables. Guide: docs/spark.md.

    source         the data source `penstock`            options          its options
    schema         tables and columns                    offset_options   the text of offsets
    batch          bounded reads                         stream           unbounded reads
    offsets        ranges of offsets, cut into tasks     ranges           positions, and the read of a range
    columns        frames -> Arrow                       event_rows       records -> Arrow
    rows           small tables, row by row              ulids            columns of message ids
    sink           the writers                           staging          exactly-once commits
    outgoing       Arrow -> frames                       connect          connections of this process
    session        a Spark session                       java, spark_home, background: its environment
    union          archive and live tail in one table    lake/            the archive

    queue_catalog  queues and groups, from events        history          events of messages as arrays
    timelines      events in order per message and group lifecycle_rules  allowed transitions
    slots          Spark tasks over ranges of offsets    lifecycle_table  one row per message and group
    audit          recount against the broker            audit_counts     its counts per slot
    analytics      numbers per minute                    tallies, analytics_rows

It imports `client`, `wire`, `batch`, `analytics` and the modules below them.
"""

from penstock.pipeline.union import union

__all__ = ["union"]

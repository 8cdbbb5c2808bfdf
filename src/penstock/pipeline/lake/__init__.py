"""The lake: Delta tables of every message and every event, copied once, and a recount. Guide: docs/lake.md.

    layout         the two tables, their columns and directories
    spans          pure: file names, and whether the spans of files fit together
    subject        pure: incarnations of queues, and the positions that are committed for them
    parquet_files  tasks write Parquet files
    tables         the driver commits them to Delta
    log            transaction identifiers and removed files of Delta's log
    sink           the writer that Spark calls
    archive        the queries, and the hold (`hold`) that follows them
    archived_rows  messages that a reader takes from the lake instead of the broker
    verify         recount everything
    compact        merge small files
    redrive        publish archived messages again; `redrive_table` keeps a record of it
    lock           one process at a time

Only `sink`, `archive` and `redrive` use Spark.
"""

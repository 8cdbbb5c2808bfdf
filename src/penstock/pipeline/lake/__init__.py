"""The lake: Delta tables of every message and every event, copied once and able to prove it. Guide: docs/lake.md.

    layout    the tables, their columns and directories      spans     pure: what a file holds, and whether spans fit
    shelf     tasks write Parquet files                      tables    the driver commits them to Delta
    sink      what Spark calls                               archive   queries, the hold, progress
    verify    recount everything                             compact   few large files from many small ones

Only `sink` and `archive` know Spark.
"""

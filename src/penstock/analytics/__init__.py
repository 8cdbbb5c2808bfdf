"""The tables of the analytics: written by the pipeline with Spark, read by the server without it.

tables      the tables, their columns, and how batches are committed to them
sketch      durations as counts of buckets that add up
reader      queries on the tables
time_span   the time span of a query
directory   the directory of a lake
"""

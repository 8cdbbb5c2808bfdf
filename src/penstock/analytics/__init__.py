"""What the pipeline has found out about the past, as tables: written by Spark, read by the server without it.

tables      which tables there are, and how they are committed
sketch      how long things took, in buckets that add up
reading     what is asked of the tables
directory   the directory of a lake, or why it is none
"""

"""Penstock next to real peers, in the same run on the same machine. How to read it: docs/benchmarks.md.

python -m benchmarks --list
python -m benchmarks publish_b100_200B --quick
python -m benchmarks --save

stats       samples, medians, ratios, percentiles: the arithmetic
rounds      peers take turns, so that a noisy machine is noisy for all of them
targets     what we want, in one table
report      rows and the result file
table       the same rows for people
peers/      one server product each: start it, publish, drain, listen, stop it
workloads/  what is measured, the same calls for every peer
"""

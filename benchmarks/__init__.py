"""Penstock beside other products, in the same run on the same machine. docs/benchmarks.md explains the figures.

python -m benchmarks --list
python -m benchmarks publish_b100_200B --quick
python -m benchmarks --save

stats       samples, medians, ratios, percentiles
rounds      peers take turns, so that noise of the machine affects all of them
targets     the bounds of figures, in one table
report      rows and the result file
table       the rows as a table
peers/      one server product each: start, publish, drain, listen, stop
growth*     rows of the workload `growth`
workloads/  the measurements, with the same calls for every peer
"""

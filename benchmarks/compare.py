"""Compare two result files: changes that exceed the spread of the rounds."""

from __future__ import annotations

from benchmarks.report import Report, Row


def compare(old: Report, new: Report) -> list[Row]:
    """New over old for every figure that both files have.

    Only ratios (`x`) and CPU times can be compared across days and machines: a rate that changed while its ratio did
    not is a change of the machine. A change is reported if the two spreads do not overlap.
    """
    before = {(row.workload, row.figure, row.system): row for row in old.rows if row.median}
    rows = []
    for row in new.rows:
        was = before.get((row.workload, row.figure, row.system))
        if was is None or row.median is None or was.median is None:
            continue
        assert row.low is not None and row.high is not None and was.low is not None and was.high is not None
        apart = row.low > was.high or row.high < was.low
        quotient = row.median / was.median
        note = f"{was.median:.4g} → {row.median:.4g} {row.unit}" + ("; spreads apart" if apart else "")
        rows.append(Row(row.workload, row.figure, row.system, "x", quotient, quotient, quotient, note=note))
    return rows

"""The arithmetic behind the benchmark table, and the file that results are kept in. Nothing here starts a server."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec
import pytest

# The suite is a folder beside the package, not a part of it, so nothing has installed it.
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from benchmarks import growth, rounds, table
from benchmarks.compare import compare
from benchmarks.payload import number_of, payload
from benchmarks.peers import PEERS
from benchmarks.report import Report, Row, decode, encode, failure, figure, save
from benchmarks.stats import Sample, Spread, percentile, percentile_by_parts, ratio
from benchmarks.targets import TARGETS, at_least, at_most
from benchmarks.workloads import WORKLOADS, spark
from benchmarks.workloads.lease_ack import by_age


def report_of(*rows: Row) -> Report:
    return Report("2026-01-02T03:04:05+00:00", "abc1234", {"rounds": 5}, {"cpu": "a | b"}, {"valkey": "9"}, list(rows))


# -- arithmetic -----------------------------------------------------------------------------------------------------


def test_a_sample_knows_its_rate_and_what_a_message_cost():
    sample = Sample(messages=2000, seconds=0.5, server_cpu_seconds=0.01)
    assert (sample.rate, sample.cpu_us) == (4000, pytest.approx(5))


@pytest.mark.parametrize(
    ("published", "young", "grown"),
    [
        ([400_000] * 10, [0, 1, 2], [4, 5, 6, 7, 8, 9]),  # the fourth round is both
        ([100_000] * 4, [0, 1, 2, 3], None),
        ([2_000_000] * 3, None, [1, 2]),
        ([], [], None),
    ],
)
def test_rounds_of_growing_and_grown_journals_are_separated(published, young, grown):
    ages = {age: list(range(len(published)))[rounds] for age, rounds in by_age(published).items()}
    assert (ages.get("young"), ages.get("grown")) == (young, grown)


def test_a_ratio_is_taken_round_by_round():
    # The machine halved its speed in the second round: every quotient is 2, though the medians would say otherwise.
    assert ratio([200, 100, 300], [100, 50, 150]) == Spread(2, 2, 2)
    assert ratio([10, 20, 90], [10, 10, 10]) == Spread(2, 1, 9)


def test_rounds_that_do_not_match_are_not_compared():
    with pytest.raises(ValueError, match="whole rounds"):
        ratio([1, 2], [1])


@pytest.mark.parametrize(("percent", "expected"), [(0, 1), (50, 50), (99, 99), (99.5, 100), (100, 100)])
def test_a_percentile_is_always_a_measured_value(percent, expected):
    assert percentile(list(range(100, 0, -1)), percent) == expected


def test_one_value_is_every_percentile():
    assert percentile([7.5], 50) == percentile([7.5], 99) == 7.5


def test_a_bad_moment_is_seen_and_does_not_stand_for_the_whole():
    quiet = [float(n % 10) for n in range(100)]
    assert percentile_by_parts([*quiet[:60], *[50.0] * 20, *quiet[80:]], 99) == Spread(9.0, 9.0, 50.0)
    assert percentile_by_parts([1.0, 2.0], 99) == Spread(1.5, 1.0, 2.0)


@pytest.mark.parametrize("size", [40, 200])
def test_payloads_have_their_size_and_carry_their_number(size):
    content = payload(123456, size)
    assert len(content) == size and number_of(content) == 123456
    assert msgspec.json.decode(content)["n"] == 123456


# -- turns ----------------------------------------------------------------------------------------------------------


def test_turns_alternate_and_the_first_of_each_is_warm_up():
    order = []

    def turn(name):
        async def one():
            order.append(name)
            return len(order)

        return one

    results, errors = asyncio.run(rounds.take_turns({"a": turn("a"), "b": turn("b")}, 2, settle=int))
    assert order == ["a", "b"] * 3
    assert (results, errors) == ({"a": [3, 5], "b": [4, 6]}, {})


def test_a_peer_that_fails_sits_out_and_the_others_go_on():
    async def good():
        return 1

    async def bad():
        raise ConnectionError("gone\naway")

    results, errors = asyncio.run(rounds.take_turns({"bad": bad, "good": good}, 2, settle=int))
    assert (results, errors) == ({"good": [1, 1]}, {"bad": "ConnectionError: gone away"})


# -- targets and rows -----------------------------------------------------------------------------------------------


def test_bounds_include_themselves():
    assert at_least(2).met_by(2) and not at_least(2).met_by(1.99)
    assert at_most(10).met_by(10) and not at_most(10).met_by(10.01)
    assert str(at_most(10)) == "≤ 10"


def test_every_target_names_a_workload_and_peers_that_exist():
    parties = {*PEERS, spark.SYSTEM, spark.PEER}
    for workload, _, system in TARGETS:
        assert workload in WORKLOADS
        assert all(party in parties for party in system.split(" / "))


def test_the_median_is_judged_and_the_spread_is_shown():
    row = figure("cpu_b100", "publish+lease+ack cpu", "penstock-http", "µs/msg", Spread(9.0, 8.0, 12.0))
    assert (row.met, row.target) == (True, "≤ 18")
    assert table.cells(row) == (
        "publish+lease+ack cpu",
        "penstock-http",
        "9.00 µs/msg",
        "8.00 - 12.0",
        "≤ 18",
        "met",
        "",
    )


def test_a_figure_without_a_target_has_no_verdict():
    row = figure("cpu_b100", "publish cpu", "valkey-always", "µs/msg", 3.0)
    assert row.met is None and table.cells(row)[3:6] == ("", "", "")


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0.00"), (1.234, "1.23"), (12.34, "12.3"), (-0.5, "-0.50"), (1234567.8, "1,234,568")]
)
def test_numbers_have_three_digits_that_mean_something(value, text):
    assert table.number(value) == text


# -- the result file ------------------------------------------------------------------------------------------------


def test_a_report_reads_back_as_it_was_written(tmp_path):
    report = report_of(
        figure("w", "publish", "valkey-always", "msg/s", Spread(2.0, 1.0, 3.0), "on disk"),
        failure("w", "rabbitmq", "not installed: rabbitmq-server"),
    )
    path = save(report, table.markdown(report), tmp_path)
    assert path.name == "2026-01-02-abc1234.json"
    assert decode(path.read_bytes()) == report
    written = msgspec.json.decode(path.read_bytes())
    assert written["format"] == 1
    assert written["rows"][1] == {
        "workload": "w",
        "figure": "",
        "who": "rabbitmq",
        "error": "not installed: rabbitmq-server",
    }


def test_markdown_has_every_row_and_no_broken_cells():
    text = table.markdown(report_of(figure("w", "publish", "nats", "msg/s", 5.0), failure("w", "postgres", "gone")))
    assert "| cpu | a \\| b |" in text
    assert "| publish | nats | 5.00 msg/s |" in text
    assert "| not measured | gone |" in text


def test_a_file_of_another_format_is_refused():
    report = report_of()
    report.format = 2
    with pytest.raises(ValueError, match="format 2"):
        decode(encode(report))


def test_comparing_reports_shows_what_changed_and_whether_spreads_are_apart():
    old = report_of(figure("w", "f", "a", "x", Spread(2, 1.9, 2.1)), figure("w", "f", "b", "x", Spread(2, 1, 3)))
    new = report_of(
        figure("w", "f", "a", "x", Spread(3, 2.9, 3.1)),
        figure("w", "f", "b", "x", Spread(3, 2, 4)),
        figure("w", "f", "new", "x", 1.0),
        failure("w", "c", "gone"),
    )
    first, second = compare(old, new)
    assert (first.system, first.median, first.note) == ("a", 1.5, "2 → 3 x; spreads apart")
    assert (second.system, second.median, second.note) == ("b", 1.5, "2 → 3 x")


# -- growth -----------------------------------------------------------------------------------------------------------


def test_growth_is_the_ratio_of_the_largest_size_to_the_smallest():
    async def never(_size: int) -> dict[str, float]:
        raise AssertionError("measured in a process of its own")

    bounds = {"cpu": growth.Bound("us/msg"), "memory": growth.Bound("B", 200, "largest")}
    row = growth.GrowthRow("letters", (10, 100, 1_000), never, bounds)
    cpu = growth._row(row, "cpu", row.sizes, [2.0, 2.5, 4.0])
    assert (cpu.median, cpu.unit, cpu.target, cpu.met) == (2.0, "x", "≤ 1.5", False)
    assert cpu.note == "10: 2.00, 100: 2.50, 1,000: 4.00 us/msg"
    memory = growth._row(row, "memory", row.sizes, [900.0, 300.0, 150.0])
    assert (memory.median, memory.unit, memory.met) == (150.0, "B", True)


def test_growth_rows_are_found_by_name_and_have_the_figures_they_promise():
    names = [row.name for row in growth.rows()]
    assert len(set(names)) == len(names) >= 15
    assert all(list(row.sizes) == sorted(row.sizes) and row.bounds for row in growth.rows())
    (row,) = (row for row in growth.rows() if row.name == "partitions")
    assert asyncio.run(row.measure(2)).keys() == row.bounds.keys()

"""Options of the data source: Kafka's names work, unknown names are refused with the nearest one."""

from __future__ import annotations

import pytest

from penstock.pipeline.options import Options, PipelineError

NOON_MS = 1_795_003_200_000
"""2026-11-18T12:00:00Z"""


def test_unknown_option_is_refused_with_the_nearest_name():
    with pytest.raises(PipelineError, match="unknown option 'startingofset'; did you mean 'startingOffset'"):
        Options({"startingofset": "earliest"})
    with pytest.raises(PipelineError, match="unknown option 'maxrecords'; did you mean 'maxRecordsPerTrigger'"):
        Options({"maxRecords": "5"})
    with pytest.raises(PipelineError, match="unknown option 'colour'; the options are url, token"):
        Options({"colour": "red"})


@pytest.mark.parametrize(
    ("name", "meant"),
    [("subscribe", "queue"), ("topic", "queue"), ("path", "queue"), ("kafka.bootstrap.servers", "url")],
)
def test_names_that_other_sources_use_are_explained(name, meant):
    with pytest.raises(PipelineError, match=f"unknown option '{name}'; did you mean '{meant}'"):
        Options({name: "x"})


def test_options_of_spark_itself_are_let_through():
    Options({"checkpointLocation": "/tmp/c", "queryName": "q"})


def test_option_names_have_no_case():
    assert Options({"QUEUE": "orders", "MAXRecordsperTrigger": "7"}).max_records_per_trigger == 7


def test_kafka_names_are_aliases():
    options = Options(
        {"queue": "orders", "startingOffsets": "latest", "endingOffsets": '{"0": 5}', "maxOffsetsPerTrigger": "9",
         "includeHeaders": "false", "minPartitions": "3"}
    )  # fmt: skip
    assert (options.starting_offset, options.ending_offset) == ("latest", {0: 5})
    assert (options.max_records_per_trigger, options.min_partitions) == (9, 3)
    assert options.include_headers is False


@pytest.mark.parametrize(
    ("one", "other"),
    [("startingOffset", "startingOffsets"), ("startingOffsets", "startingTimestamp"),
     ("maxRecordsPerTrigger", "maxOffsetsPerTrigger"), ("endingOffset", "endingTimestamp")],
)  # fmt: skip
def test_option_under_two_names_is_refused(one, other):
    with pytest.raises(PipelineError, match=f"{one} and {other} are the same option: give one of them"):
        Options({one: "1", other: "1"})


def test_kafka_offsets_by_topic_are_understood():
    options = Options({"queue": "orders", "startingOffsets": '{"orders": {"0": 23, "1": -1, "2": -2}}'})
    assert options.starting_offset == {0: 23, 1: -1, 2: -2}
    with pytest.raises(PipelineError, match=r"startingOffsets: .* is about queue 'mail'"):
        Options({"queue": "orders", "startingOffsets": '{"mail": {"0": 23}}'})


@pytest.mark.parametrize("name", ["startingTimestamp", "endingTimestamp"])
@pytest.mark.parametrize(
    "text",
    [str(NOON_MS), "2026-11-18T12:00:00Z", "2026-11-18T12:00", "2026-11-18 12:00:00", "2026-11-18T13:00:00+01:00"],
)
def test_timestamps_are_milliseconds_or_iso_times(name, text):
    options = Options({name: text})
    assert (options.starting_offset if name.startswith("start") else options.ending_offset) == f"at:{NOON_MS}"


@pytest.mark.parametrize("text", [f"at:{NOON_MS}", "at:2026-11-18T12:00Z", "2026-11-18T12:00Z"])
def test_offsets_may_be_times(text):
    assert Options({"startingOffset": text}).starting_offset == f"at:{NOON_MS}"


def test_date_is_its_first_moment():
    assert Options({"startingTimestamp": "2026-11-18"}).starting_offset == f"at:{NOON_MS - 12 * 3_600_000}"


@pytest.mark.parametrize(
    ("name", "text"),
    [("startingOffset", '{"0": -3}'), ("startingOffset", "-1"), ("startingOffset", "soon"), ("startingOffset", "[]"),
     ("startingOffset", '{"a": 1}'), ("startingOffset", '{"0": true}'), ("startingOffset", '{"0": 1.5}'),
     ("startingTimestamp", "soon"), ("startingTimestamp", "-5"), ("startingOffset", "at:"),
     ("startingOffset", "at:soon"),
     ("endingOffset", '{"0": -2}')],
)  # fmt: skip
def test_offsets_that_mean_nothing_are_refused(name, text):
    with pytest.raises(PipelineError, match=name):
        Options({"queue": "orders", name: text})

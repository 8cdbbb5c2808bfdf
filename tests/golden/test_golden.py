"""Stories of the machine, as `penstock.testing.script` tells them.

Regenerate with `pytest tests/golden --rewrite`, then read the diff.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.testing.script import BadScript, Script

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.stem)
def test_the_story_is_still_true(story: Path, rewrite: bool):
    told = story.read_text()
    happened = Script().run(told)
    assert "DIFFERS" not in happened
    if rewrite:
        story.write_text(happened)
    assert happened == story.read_text()


@pytest.mark.parametrize("line", ["dance", "publish", "publish nowhere a", "ack 1", "restart hopefully", "time soon"])
def test_a_line_that_means_nothing_is_shown(line: str):
    with pytest.raises(BadScript, match=line.split()[0]):
        Script().run(line)

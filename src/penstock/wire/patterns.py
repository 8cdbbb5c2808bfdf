"""Regular expressions of text fields for decoders, and the description of each for error messages.

`$` alone also matches before a final line feed, hence the lookahead before it.
"""

from __future__ import annotations

READ_OFFSET = r"^(earliest|latest|kept|[0-9]{1,18}|at:[0-9]{1,16}|(id|after):[0-9A-Za-z]{26})(?!\n)$"
PLACE = r"^(earliest|latest|[0-9]{1,18}|at:[0-9]{1,16})(?!\n)$"
GROUP_PLACE = r"^(earliest|latest|at:[0-9]{1,16})(?!\n)$"
EVENT_POSITION = r"^(earliest|latest|at:[0-9]{1,16}|[0-9]{1,18}(\.[0-9]{1,9})?)(?!\n)$"
PARTITION = r"^[0-9]{1,3}(?!\n)$"
POSITION = r"^[0-9]{1,3}:[0-9]{1,18}(?!\n)$"
UUID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(?!\n)$"
SUBSCRIPTION = r"^[A-Za-z0-9][A-Za-z0-9._:/-]*(?!\n)$"

WORDS = {
    READ_OFFSET: "a number, earliest, latest, at:<epoch ms>, id:<message id>, after:<message id> or kept",
    PLACE: "a number, earliest, latest or at:<epoch ms>",
    GROUP_PLACE: "earliest, latest, at:<epoch ms>, or an offset per partition",
    EVENT_POSITION: "a position from `next`, earliest, latest or at:<epoch ms>",
    PARTITION: "the number of a partition",
    POSITION: "a position from `next`",
    UUID: "a uuid from GET /v1/queues",
    SUBSCRIPTION: "letters, digits, '.', '_', ':', '/' or '-', starting with a letter or digit",
}

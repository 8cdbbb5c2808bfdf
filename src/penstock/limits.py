"""Every bound of the system, with its unit, its reason and its relation to its neighbours.

No other module defines bounds. Relations are asserted at import, at the end of the file.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

# -- names ------------------------------------------------------------------------------------------------------

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""One segment of a queue path. Names are kept as they are and compared exactly."""
EPOCHQUEUE_NAME_PATTERN = r"[a-z0-9][a-z0-9-]{0,63}"
"""The rule of the system whose dialect this is."""

GROUP_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}"
CONSUMER_CHARS_MAX = 128
MEMBER_PATTERN = GROUP_PATTERN

# -- messages ---------------------------------------------------------------------------------------------------

PAYLOAD_BYTES_MAX = 1 * MIB
"""Default and hard ceiling of one payload. Raising it raises the memory of one request by the same factor."""

KEY_BYTES_MAX = 256
CLIENT_ID_BYTES_MAX = 128
TENANT_BYTES_MAX = 128
HEADERS_BYTES_MAX = 16 * KIB
HEADERS_COUNT_MAX = 64
PRODUCER_ID_CHARS_MAX = 128
ERROR_CHARS_MAX = 2048
"""Error text of a nack: longer text is cut, so that a failure report is never refused."""

# -- batches and requests ---------------------------------------------------------------------------------------

BATCH_MESSAGES_MAX = 10_000
BATCH_BYTES_MAX = 8 * MIB
"""One frame. Bounds the memory of one publish and the size of one lease reply."""

REQUEST_BYTES_MAX = 12 * MIB
"""One HTTP body: a full frame as JSON with base64 payloads is a third larger than its bytes."""

JSON_DEPTH_MAX = 32
LEASE_MESSAGES_MAX = 10_000
LEASE_REPLY_BYTES_MAX = 8 * MIB
"""A lease stops collecting at this size, so that `max` counts messages and never megabytes."""
RECEIPTS_MAX = 10_000
READ_MESSAGES_MAX = 10_000
READ_SLICE_BYTES = 256 * KIB
"""Bytes of a bulk read between two turns of the event loop."""
EVENTS_MAX = 10_000
EVENTS_BYTES_MAX = 4 * MIB
"""One bulk answer of events; a single record may be larger."""
EVENT_READS_MAX = 16
"""Readers of events that may be in line; one reads the journal at a time."""
ANALYTICS_READS_MAX = 16
"""Questions to the tables of a lake that may be in line; one is answered at a time."""
PEEK_MESSAGES_MAX = 1_000
PAGE_LIMIT_MAX = 500
HISTORY_EVENTS_MAX = 1_000
"""Transitions in the history of one message; the latest if there are more."""
HISTORY_SEARCHES_MAX = 16
"""Searches of a journal that may be in line; one runs at a time."""
WORKERS_MAX = 1_000
"""Default upper bound of a suggested number of workers."""

# -- time -------------------------------------------------------------------------------------------------------

WAIT_MS_MAX = 60_000
LEASE_MS_MIN = 100
LEASE_MS_MAX = 12 * 3_600_000
DELAY_MS_MAX = 100 * 366 * 86_400_000
"""A century. There is no wheel to run out of; the bound only keeps arithmetic inside 64 bits."""
TTL_MS_MAX = DELAY_MS_MAX
TIME_MS_MAX = 2**52
"""Latest moment a message may name (far beyond year 100,000): exact also where JSON numbers are doubles."""
DELIVER_AT_PAST_MS_MAX = 10 * 365 * 24 * 3_600_000
"""A moment that is longer past is a mistake: seconds for milliseconds. Anything later may be a publish that is sent
again after a clock was set."""
WINDOW_MS_MAX = 24 * 3_600_000
"""A queue that is not left alone for a day is not a buffer but a delay."""
DEDUP_WINDOW_MS = 24 * 3_600_000
SESSION_MS_MIN = 500
SESSION_MS_MAX = 3_600_000
"""A member of a group that is not heard for its session has left. Below half a second a busy machine would do that."""
DRAIN_MS_MAX = LEASE_MS_MAX
"""Time that a member gets to settle messages of a reassigned partition."""
HEARTBEATS_PER_SESSION = 10
"""Heartbeats per session. They cost no disk; a busy member learns from them which partitions to release, and a few lost
heartbeats do not end a session."""

# -- queues -----------------------------------------------------------------------------------------------------

PARTITIONS_MAX = 256
QUEUES_MAX = 10_000
SHARDS_MAX = 1_024
"""Of a store. A message id has 12 bits for the shard."""
GROUPS_PER_QUEUE_MAX = 1_000
MEMBERS_PER_GROUP_MAX = PARTITIONS_MAX
"""More members than partitions would have nothing to do."""
RETRIES_MAX = 1_000_000
BACKOFF_STEPS_MAX = 100
PRIORITY_MAX = 2**63 - 1
TOP_K_MAX = 1_000
WEIGHT_MAX = 1_000
TENANT_WEIGHTS_MAX = 1_000
BLOCKED_KEYS_MAX = 100_000
"""Ordered keys of one group with messages that wait behind one that failed, or was given up and parked its key. Above
it publishes are refused: a hundred thousand blocked keys are a failure for the operator."""
READERS_PER_QUEUE_MAX = 10_000
"""Names under which positions in one queue are kept."""
READER_FORGOTTEN_MS = 30 * 86_400_000
HOLDS_MAX = 32
"""Names under which archives hold back retention."""
HOLD_BYTES_DEFAULT = 10 * 1024 * MIB
"""Default size above which the broker releases a hold."""
FORMER_QUEUES_KEPT = 1_000
"""Deleted queues whose names are kept for later readers of the journal."""
FORMER_GROUPS_KEPT = 1_000
"""Deleted groups of a queue whose names are kept for later readers of the journal."""
SCOPES_KEPT = 256
"""Scopes, each with a group, for which it is remembered which queues may have something; others are looked up anew."""
PRODUCER_PUBLISHES_KEPT = 64
"""Recent publishes of a producer whose answers can be repeated word for word, unless that takes too many runs."""
PRODUCER_RANGES_MAX = 10_000
"""Stretches of accepted numbers of a producer. With more gaps than this the lowest ones are closed: what was left out
there, and comes after all, is refused."""
PRODUCER_RUNS_MAX = BATCH_MESSAGES_MAX
"""A batch whose keys go separate ways is stored as up to this many runs. The latest publish is always remembered."""

TRANSACTIONS_KEPT = 100_000
TRANSACTION_WINDOW_MS = 3_600_000
"""So many of the latest transactions, of the last hour, can be repeated without happening again."""

# -- schedules --------------------------------------------------------------------------------------------------

SCHEDULES_MAX = 1_000
SCHEDULE_NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
SCHEDULE_BYTES_MAX = 64 * KIB
"""A schedule as JSON, its message included: all of them are in every snapshot."""
SCHEDULE_FIRES_MAX = 100
"""Fire times that one decision makes messages of: a schedule that makes up for a night lets others have their turn."""
SCHEDULE_NEXT_SHOWN = 5
CRON_CHARS_MAX = 256

# -- keys and tokens -----------------------------------------------------------------------------------------------

KEYS_MAX = 10_000
"""All of them are in every snapshot, and in memory."""
KEY_SCOPES_MAX = 64
ERASED_KEYS_MAX = 1_000
"""Message keys that one erasure names. Each adds up to 7 KB to the keyring of the shard, which is rewritten as a
whole."""
KEY_SECRETS_MAX = 2
"""A key that is being rotated has two."""
KEY_NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._:@/-]{0,255}"
"""Also the names of client certificates."""
KEY_OVERLAP_MS = 24 * 3_600_000
KEY_OVERLAP_MS_MAX = 30 * 86_400_000
"""After a rotation, how long the former secret is accepted: by default, and at most."""
RATE_MAX = 10**12
"""Of a rate: requests, messages or bytes per second, minute or hour."""
JWT_BYTES_MAX = 8 * KIB
JWT_LIFETIME_S_MAX = 900
"""From `iat` to `exp`: a token cannot be revoked, so it must not live long."""
JWT_LEEWAY_S = 30
JWT_CACHED_MAX = 4_096
"""Verified tokens that are not verified again."""
CERTIFICATES_CACHED_MAX = 4_096
"""Client certificates whose keys are not looked up again."""
JWKS_BYTES_MAX = 256 * KIB
JWKS_KEYS_MAX = 64
JWKS_REFRESH_S = 600
JWKS_REFRESH_S_MIN = 60
"""Between two fetches of a key set: as a rule, and at least, if a token names an unknown key."""
USERS_MAX = 1_000
EMAIL_PATTERN = r"[^@\s\x00-\x1f\x7f]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,188}[A-Za-z0-9])?"
PASSWORD_CHARS_MIN = 12
PASSWORD_CHARS_MAX = 256
"""A longer text would cost time before it is hashed."""
PASSWORD_CHECKS_MAX = 2
"""Passwords that are hashed at once: each takes 19 MiB and a core for 20 ms."""
PASSWORD_CHECKS_WAITING_MAX = 16
SESSION_S_MAX = 12 * 3_600
SESSION_IDLE_S_MAX = 3_600
"""A login ends after so long, and after so long without a request."""
DEVICE_TOKEN_S = 90 * 86_400
SESSIONS_MAX = 10_000
TICKET_MS = 30_000
TICKETS_MAX = 100_000
TICKETS_EACH_MAX = 1_000
"""One-use tickets of WebSockets that are not used yet; the oldest are forgotten."""
FAILURES_PER_MINUTE = 10
"""Wrong credentials of one address; then each failure is answered 429, for a time that doubles."""
FAILURE_BACKOFF_S_MAX = 900
ADDRESSES_TRACKED_MAX = 10_000
"""Addresses with recent failures; the oldest are forgotten."""

# -- webhooks ---------------------------------------------------------------------------------------------------

WEBHOOKS_MAX = 1_000
"""Each waits for messages of its group, and has a few connections."""
WEBHOOK_BYTES_MAX = 16 * KIB
"""A registration as JSON."""
WEBHOOK_URL_CHARS_MAX = 2_048
WEBHOOK_DESCRIPTION_CHARS_MAX = 256
WEBHOOK_RETRIES_MAX = 100
WEBHOOK_DELAY_MS_MAX = 30 * 86_400_000
WEBHOOK_CONCURRENCY_MAX = 64
WEBHOOK_TIMEOUT_MS_MIN = 100
WEBHOOK_TIMEOUT_MS_MAX = 60_000
WEBHOOK_SECRETS_MAX = 4
"""Secrets of one webhook that sign at the same time, because it was rotated again during an overlap."""
WEBHOOK_OVERLAP_MS = 24 * 3_600_000
WEBHOOK_OVERLAP_MS_MAX = 30 * 86_400_000
WEBHOOK_RETRY_AFTER_MS_MAX = 24 * 3_600_000
"""An endpoint that asks for more patience than this is asked again sooner."""
WEBHOOK_ANSWER_BYTES_MAX = 4 * KIB
"""Of an endpoint's answer, read and thrown away so that the connection can be used again; with more it is closed."""
WEBHOOK_ATTEMPTS_KEPT = 100
"""The latest attempts of one webhook that can be looked at."""
WEBHOOK_TESTS_MAX = 8
"""Concurrent test deliveries; each holds a request open."""

# -- dead letters -----------------------------------------------------------------------------------------------

FILTER_CHARS_MAX = 2_048
FILTER_DEPTH_MAX = 16
"""Brackets and `not` inside each other, and names in a path."""
SCAN_LETTERS_MAX = 20_000
"""Dead letters that one page of a filtered list looks at; the answer then says where to go on."""
REDRIVES_KEPT = 100
"""Redrives of a queue whose id and outcome are remembered."""
REDRIVES_RUNNING_MAX = 4
REDRIVE_ID_CHARS_MAX = 128
REDRIVE_RATE_MAX = 100_000
REDRIVE_STEP_MESSAGES = 500
REDRIVE_STEP_BYTES = 2 * MIB
"""One step of a redrive is one decision: it goes into one frame with everything else."""
PRUNE_STEP = 1_000

# -- the shard --------------------------------------------------------------------------------------------------

COMMIT_BYTES_MAX = 16 * MIB
"""One journal frame. A frame is read whole at recovery, so this also bounds what a damaged length can cost."""
PENDING_BYTES_MAX = 32 * MIB
"""Decided but not yet durable. Above it new publishes are refused with `unavailable`; acks are not."""
PENDING_COMMANDS_MAX = 20_000
WAITERS_MAX = 5_000
"""Parked long-polls of one shard."""
GC_THRESHOLDS = (5_000, 5, 10_000)
"""Of the cyclic collector: requests leave few cycles, so that the number of looks matters less than how long one look
stops the event loop, 7 ms at most beside the upkeep of 9,000 queues."""
HOT_BYTES_MAX = 16 * MIB
"""Memory of recent messages of a node; everything older is read from the log."""
LAST_READ_BYTES_MAX = 16 * MIB
"""Bytes of the log that a node read last and keeps for the next read at the same position."""
KEY_PRINTS_BYTES_MAX = 16 * MIB
"""Keys that a node indexes with four bytes each: of delayed messages, and of all others after the first lookup by
key."""
FAR_ENTRIES_MIN = 16_384
"""Delays and expiries far in the future that stay in memory: fewer than this are not worth a file."""
SNAPSHOT_SLICE_QUEUES = 10
"""Small queues that a snapshot captures between two turns of the event loop."""
STORED_IDS_MIN = 4_096
"""Client ids of a queue that are written to a blob together: fewer than this are part of each snapshot."""
STORED_LETTERS_MIN = 128
"""Dead letters that are written to a blob together: fewer than this are part of each snapshot."""

# -- local engine -----------------------------------------------------------------------------------------------

JOURNAL_SEGMENT_BYTES = 64 * MIB
JOURNAL_SEGMENTS_KEPT = 2
"""Closed journal segments that stay before their living messages are sealed into partition segments."""
SCATTERED_RECORD_BYTES = 8 * KIB
"""Of a stored record of a queue that is not read in order: for each message a whole record is read and checked."""
SEALED_SCATTERED_BYTES = 3 * KIB
"""The same where it is sealed: there it costs no publish anything, and one of about a page is read faster."""
SPARSE_INDEX_BYTES = 4 * KIB
DISK_RESERVE_BYTES = 16 * MIB
"""Given back to the file system when it is full, so that acks can still be written while publishes are refused."""

# -- the edges --------------------------------------------------------------------------------------------------

CONNECTIONS_MAX = 10_000
LISTEN_BACKLOG = 2_048
"""Connections that were opened and not accepted yet."""
HEADER_BYTES_MAX = 64 * KIB
"""Request line and headers of one HTTP request."""
HEADER_WAIT_MS = 10_000
"""From the first byte of a request (or from connecting) to the end of its headers."""
BODY_STALL_MS = 30_000
"""A body that makes no progress for this long is given up."""
LINGER_MS = 2_000
"""For this long a refused connection's input is read and dropped, so that the refusal is not overtaken by a reset."""
WRITE_STALL_MS = 30_000
"""A client that takes nothing of its answer for this long is cut off, so that it cannot hold our memory."""
KEEP_ALIVE_MS = 75_000
"""Above the 60 s that load balancers keep a connection, so that they close first and never meet a closed one."""
CONNECTIONS_BYTES_MAX = 128 * MIB
"""Unfinished bodies and unread answers of all connections together. More: fewer refusals under bursts of large
requests; less: less memory under attack."""
DISCARD_BYTES_MAX = 64 * MIB
"""Of a body that is too large, read and thrown away so that the sender gets to see the refusal."""
CONFIG_BYTES_MAX = 64 * KIB
RECEIPT_CHARS_MAX = 256
METRIC_QUEUES_MAX = 500
METRIC_GROUPS_MAX = 2_000
"""Queues with metrics of their own; the rest are added up as `_other`."""
METRIC_TRAFFIC_MAX = 20_000
"""Queues, former ones included, of which it is known how busy they were."""

# -- links between processes of one store -------------------------------------------------------------------------

PROCESSES_MAX = 64
LINK_FRAME_BYTES_MAX = 64 * MIB
"""One call or reply. The largest one is a page of events or of messages, below a third of this."""
LINK_UNSENT_BYTES_MAX = 32 * MIB
"""Replies that a process has not taken yet: above it no further calls are taken from it."""
LINK_RETRY_S = 0.02
LINK_RETRY_S_MAX = 1.0
"""Pause before another try to connect, doubled from the first to the second."""
LINK_HELD_S = 10.0
"""A call to a process without a connection waits for so long: a process that ended is replaced meanwhile."""
PEER_ANSWER_S = 1.0
"""A process that says nothing for so long is left out of metrics and lists of all processes."""

# -- gRPC -------------------------------------------------------------------------------------------------------

CALLS_MAX = 10_000
"""Calls under way at once, streams included; further ones are refused."""
CALLS_PER_CONNECTION_MAX = 1_000
"""Beyond it HTTP/2 makes the client wait."""
GRPC_REPLY_BYTES_MAX = 4 * MIB - 64 * KIB
"""A gRPC client that was told nothing else refuses messages over 4 MiB, which would lose a lease reply."""
METADATA_BYTES_MAX = 16 * KIB
ERROR_BYTES_MAX = 3 * KIB
"""An error as trailing metadata. Clients that were told nothing else begin to refuse metadata at 8 KiB."""
KEEPALIVE_MS = 60_000
KEEPALIVE_WAIT_MS = 20_000
"""A connection that is silent is asked, and ended if it does not answer: then its streams have ended, too."""
PING_MS_MIN = 10_000
"""A client that asks more often is sent away."""
STREAM_CREDITS_MAX = 10_000
"""Messages that a lease stream may be sent and has not been sent yet."""
STREAM_REQUESTS_MAX = 64
STREAM_BYTES_MAX = 16 * MIB
"""Requests of one stream that are not answered yet: above either bound the client has to wait with the next one."""
STREAM_DRAIN_MS = 5_000
"""A consumer on a stream has this long to settle what it holds, once the server stops."""

# -- event streams ----------------------------------------------------------------------------------------------

EVENT_STREAMS_MAX = 200
EVENT_STREAM_RATE = 200
"""Events a second that one stream gets; the rest are counted."""
EVENT_STREAM_BUFFER_BYTES = 64 * KIB
"""Unsent bytes of a stream. Beyond it events are counted and not sent."""

# -- WebSockets -------------------------------------------------------------------------------------------------

WEBSOCKETS_MAX = 10_000
"""Counted apart from CONNECTIONS_MAX, so that many readers do not exclude producers."""
WEBSOCKET_TEXT_BYTES_MAX = 1 * MIB
"""One message from a client that speaks JSON. Larger messages go as binary batches, up to REQUEST_BYTES_MAX."""
WEBSOCKET_PAGE_BYTES = 128 * KIB
WEBSOCKET_PAGE_MESSAGES = 500
"""Bounds of one frame of messages; a larger message is sent alone."""
WEBSOCKET_OUTPUT_PAUSE_BYTES = 256 * KIB
"""Unsent output of a connection above which it is delivered nothing more, and nothing more is read from it."""
WEBSOCKET_OUTPUT_RESUME_BYTES = 64 * KIB
WEBSOCKET_OUTPUT_BYTES_MAX = 1 * MIB
"""Unsent pushed output of a connection; the pause comes earlier, and one page more fits."""
WEBSOCKET_ANSWERS_BYTES_MAX = 16 * MIB
"""Unsent replies of a connection. A client that sends requests and reads no replies is disconnected."""
WEBSOCKET_TOGETHER_BYTES = 32 * KIB
"""Frames of one turn of the event loop that wait for each other; more than this leaves at once."""
WEBSOCKET_KERNEL_BYTES = 128 * KIB
"""Unsent bytes that the kernel takes off our hands before it says wait."""
WEBSOCKET_SLOW_MS = 20_000
WEBSOCKET_CLOSE_MS = 5_000
"""A connection whose output stays above the pause for the first is closed, and cut off after the second."""
WEBSOCKET_PING_MS = 30_000
"""Interval between pings. A connection without input from one ping to the next is closed."""
WEBSOCKET_REQUESTS_MAX = 256
"""Requests of one connection under way; the next are read when one of them is answered."""
WEBSOCKET_SUBSCRIPTIONS_MAX = 256
WEBSOCKET_DRAIN_MS = 5_000
"""At shutdown, to settle what was delivered. Connections that hold nothing are closed at once."""

assert PAYLOAD_BYTES_MAX < BATCH_BYTES_MAX
assert WEBHOOKS_MAX < WAITERS_MAX
assert SCHEDULE_FIRES_MAX * (SCHEDULE_BYTES_MAX + HEADERS_BYTES_MAX) < BATCH_BYTES_MAX
assert BATCH_BYTES_MAX < REQUEST_BYTES_MAX < COMMIT_BYTES_MAX <= PENDING_BYTES_MAX
assert BATCH_BYTES_MAX < 2**32, "offsets inside a frame are 32 bits"
assert LEASE_REPLY_BYTES_MAX >= PAYLOAD_BYTES_MAX
assert COMMIT_BYTES_MAX < JOURNAL_SEGMENT_BYTES
assert DISK_RESERVE_BYTES >= COMMIT_BYTES_MAX
assert TIME_MS_MAX > DELAY_MS_MAX
assert WAIT_MS_MAX < KEEP_ALIVE_MS
assert REDRIVE_STEP_BYTES + PAYLOAD_BYTES_MAX < BATCH_BYTES_MAX and REDRIVE_STEP_MESSAGES <= BATCH_MESSAGES_MAX
assert REDRIVES_RUNNING_MAX < REDRIVES_KEPT
assert REQUEST_BYTES_MAX < DISCARD_BYTES_MAX
assert 4 * REQUEST_BYTES_MAX < CONNECTIONS_BYTES_MAX
assert PAYLOAD_BYTES_MAX + HEADERS_BYTES_MAX + 16 * KIB < GRPC_REPLY_BYTES_MAX, "one message always fits"
assert BATCH_BYTES_MAX < STREAM_BYTES_MAX <= PENDING_BYTES_MAX
assert CALLS_PER_CONNECTION_MAX <= CALLS_MAX
assert LEASE_REPLY_BYTES_MAX * 4 // 3 < WEBSOCKET_ANSWERS_BYTES_MAX
assert WEBSOCKET_OUTPUT_PAUSE_BYTES + 4 * WEBSOCKET_PAGE_BYTES < WEBSOCKET_OUTPUT_BYTES_MAX
assert WEBSOCKET_SLOW_MS + WEBSOCKET_CLOSE_MS <= WRITE_STALL_MS

from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Form(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGES: _ClassVar[Form]
    FRAMES: _ClassVar[Form]
MESSAGES: Form
FRAMES: Form

class Error(_message.Message):
    __slots__ = ("code", "message", "retryable", "details", "retry_after_ms")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    retryable: bool
    details: _struct_pb2.Struct
    retry_after_ms: int
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., retryable: bool = ..., details: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class NewMessage(_message.Message):
    __slots__ = ("payload", "json", "key", "priority", "delay_ms", "deliver_at_ms", "ttl_ms", "id", "headers", "tenant", "max_retries", "queue")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRIES_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    json: str
    key: str
    priority: int
    delay_ms: int
    deliver_at_ms: int
    ttl_ms: int
    id: str
    headers: _containers.ScalarMap[str, str]
    tenant: str
    max_retries: int
    queue: str
    def __init__(self, payload: _Optional[bytes] = ..., json: _Optional[str] = ..., key: _Optional[str] = ..., priority: _Optional[int] = ..., delay_ms: _Optional[int] = ..., deliver_at_ms: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., id: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., tenant: _Optional[str] = ..., max_retries: _Optional[int] = ..., queue: _Optional[str] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("id", "receipt", "queue", "partition", "offset", "payload", "json", "key", "priority", "headers", "tenant", "attempt", "published_at_ms", "deadline_at_ms")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    receipt: str
    queue: str
    partition: int
    offset: int
    payload: bytes
    json: str
    key: str
    priority: int
    headers: _containers.ScalarMap[str, str]
    tenant: str
    attempt: int
    published_at_ms: int
    deadline_at_ms: int
    def __init__(self, id: _Optional[str] = ..., receipt: _Optional[str] = ..., queue: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., payload: _Optional[bytes] = ..., json: _Optional[str] = ..., key: _Optional[str] = ..., priority: _Optional[int] = ..., headers: _Optional[_Mapping[str, str]] = ..., tenant: _Optional[str] = ..., attempt: _Optional[int] = ..., published_at_ms: _Optional[int] = ..., deadline_at_ms: _Optional[int] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("queue", "partition", "offset", "count", "id", "published_at_ms", "attempt", "receipt", "deadline_at_ms", "batch", "lease_ms")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    partition: int
    offset: int
    count: int
    id: str
    published_at_ms: int
    attempt: int
    receipt: str
    deadline_at_ms: int
    batch: bytes
    lease_ms: int
    def __init__(self, queue: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., count: _Optional[int] = ..., id: _Optional[str] = ..., published_at_ms: _Optional[int] = ..., attempt: _Optional[int] = ..., receipt: _Optional[str] = ..., deadline_at_ms: _Optional[int] = ..., batch: _Optional[bytes] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class Producer(_message.Message):
    __slots__ = ("id", "epoch", "seq")
    ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    id: str
    epoch: int
    seq: int
    def __init__(self, id: _Optional[str] = ..., epoch: _Optional[int] = ..., seq: _Optional[int] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("queue", "batch", "messages", "producer", "atomic")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    ATOMIC_FIELD_NUMBER: _ClassVar[int]
    queue: str
    batch: bytes
    messages: _containers.RepeatedCompositeFieldContainer[NewMessage]
    producer: Producer
    atomic: bool
    def __init__(self, queue: _Optional[str] = ..., batch: _Optional[bytes] = ..., messages: _Optional[_Iterable[_Union[NewMessage, _Mapping]]] = ..., producer: _Optional[_Union[Producer, _Mapping]] = ..., atomic: bool = ...) -> None: ...

class PublishedMessage(_message.Message):
    __slots__ = ("id", "queue", "partition", "offset", "duplicate")
    ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    id: str
    queue: str
    partition: int
    offset: int
    duplicate: bool
    def __init__(self, id: _Optional[str] = ..., queue: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., duplicate: bool = ...) -> None: ...

class PublishedRun(_message.Message):
    __slots__ = ("queue", "partition", "offset", "count", "id", "duplicate", "rows")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    partition: int
    offset: int
    count: int
    id: str
    duplicate: bool
    rows: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, queue: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., count: _Optional[int] = ..., id: _Optional[str] = ..., duplicate: bool = ..., rows: _Optional[_Iterable[int]] = ...) -> None: ...

class PublishResult(_message.Message):
    __slots__ = ("published", "error")
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    published: PublishedMessage
    error: Error
    def __init__(self, published: _Optional[_Union[PublishedMessage, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class PublishReply(_message.Message):
    __slots__ = ("messages", "runs", "results", "durable", "ignored")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    IGNORED_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[PublishedMessage]
    runs: _containers.RepeatedCompositeFieldContainer[PublishedRun]
    results: _containers.RepeatedCompositeFieldContainer[PublishResult]
    durable: bool
    ignored: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, messages: _Optional[_Iterable[_Union[PublishedMessage, _Mapping]]] = ..., runs: _Optional[_Iterable[_Union[PublishedRun, _Mapping]]] = ..., results: _Optional[_Iterable[_Union[PublishResult, _Mapping]]] = ..., durable: bool = ..., ignored: _Optional[_Iterable[str]] = ...) -> None: ...

class PublishStreamRequest(_message.Message):
    __slots__ = ("publish", "credential")
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    publish: PublishRequest
    credential: str
    def __init__(self, publish: _Optional[_Union[PublishRequest, _Mapping]] = ..., credential: _Optional[str] = ...) -> None: ...

class PublishStreamReply(_message.Message):
    __slots__ = ("published", "error", "renewed")
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RENEWED_FIELD_NUMBER: _ClassVar[int]
    published: PublishReply
    error: Error
    renewed: StreamRenewed
    def __init__(self, published: _Optional[_Union[PublishReply, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., renewed: _Optional[_Union[StreamRenewed, _Mapping]] = ...) -> None: ...

class StreamRenewed(_message.Message):
    __slots__ = ("expires_at_ms",)
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    expires_at_ms: int
    def __init__(self, expires_at_ms: _Optional[int] = ...) -> None: ...

class LeaseRequest(_message.Message):
    __slots__ = ("queue", "scope", "group", "max", "wait_ms", "lease_ms", "consumer", "ack", "member", "generation", "form")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    queue: str
    scope: str
    group: str
    max: int
    wait_ms: int
    lease_ms: int
    consumer: str
    ack: _containers.RepeatedScalarFieldContainer[str]
    member: str
    generation: int
    form: Form
    def __init__(self, queue: _Optional[str] = ..., scope: _Optional[str] = ..., group: _Optional[str] = ..., max: _Optional[int] = ..., wait_ms: _Optional[int] = ..., lease_ms: _Optional[int] = ..., consumer: _Optional[str] = ..., ack: _Optional[_Iterable[str]] = ..., member: _Optional[str] = ..., generation: _Optional[int] = ..., form: _Optional[_Union[Form, str]] = ...) -> None: ...

class LeaseReply(_message.Message):
    __slots__ = ("messages", "runs", "results", "generation")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    runs: _containers.RepeatedCompositeFieldContainer[Run]
    results: _containers.RepeatedCompositeFieldContainer[Settled]
    generation: int
    def __init__(self, messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., runs: _Optional[_Iterable[_Union[Run, _Mapping]]] = ..., results: _Optional[_Iterable[_Union[Settled, _Mapping]]] = ..., generation: _Optional[int] = ...) -> None: ...

class Settled(_message.Message):
    __slots__ = ("receipt", "status", "due_at_ms", "deadline_at_ms")
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DUE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    receipt: str
    status: str
    due_at_ms: int
    deadline_at_ms: int
    def __init__(self, receipt: _Optional[str] = ..., status: _Optional[str] = ..., due_at_ms: _Optional[int] = ..., deadline_at_ms: _Optional[int] = ...) -> None: ...

class SettleReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[Settled]
    def __init__(self, results: _Optional[_Iterable[_Union[Settled, _Mapping]]] = ...) -> None: ...

class AckRequest(_message.Message):
    __slots__ = ("receipts",)
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, receipts: _Optional[_Iterable[str]] = ...) -> None: ...

class NackRequest(_message.Message):
    __slots__ = ("receipts", "delay_ms", "error", "max_retries")
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRIES_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    delay_ms: int
    error: str
    max_retries: int
    def __init__(self, receipts: _Optional[_Iterable[str]] = ..., delay_ms: _Optional[int] = ..., error: _Optional[str] = ..., max_retries: _Optional[int] = ...) -> None: ...

class RejectRequest(_message.Message):
    __slots__ = ("receipts", "error")
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    error: str
    def __init__(self, receipts: _Optional[_Iterable[str]] = ..., error: _Optional[str] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("receipts",)
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, receipts: _Optional[_Iterable[str]] = ...) -> None: ...

class ExtendRequest(_message.Message):
    __slots__ = ("receipts", "lease_ms")
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    lease_ms: int
    def __init__(self, receipts: _Optional[_Iterable[str]] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class LeaseStreamRequest(_message.Message):
    __slots__ = ("open", "credits", "number", "ack", "nack", "reject", "extend", "release", "generation", "credential")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    NACK_FIELD_NUMBER: _ClassVar[int]
    REJECT_FIELD_NUMBER: _ClassVar[int]
    EXTEND_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    open: LeaseStreamOpen
    credits: int
    number: int
    ack: AckRequest
    nack: _containers.RepeatedCompositeFieldContainer[NackRequest]
    reject: _containers.RepeatedCompositeFieldContainer[RejectRequest]
    extend: _containers.RepeatedCompositeFieldContainer[ExtendRequest]
    release: ReleaseRequest
    generation: int
    credential: str
    def __init__(self, open: _Optional[_Union[LeaseStreamOpen, _Mapping]] = ..., credits: _Optional[int] = ..., number: _Optional[int] = ..., ack: _Optional[_Union[AckRequest, _Mapping]] = ..., nack: _Optional[_Iterable[_Union[NackRequest, _Mapping]]] = ..., reject: _Optional[_Iterable[_Union[RejectRequest, _Mapping]]] = ..., extend: _Optional[_Iterable[_Union[ExtendRequest, _Mapping]]] = ..., release: _Optional[_Union[ReleaseRequest, _Mapping]] = ..., generation: _Optional[int] = ..., credential: _Optional[str] = ...) -> None: ...

class LeaseStreamOpen(_message.Message):
    __slots__ = ("queue", "scope", "group", "lease_ms", "consumer", "member", "generation", "form", "max")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    queue: str
    scope: str
    group: str
    lease_ms: int
    consumer: str
    member: str
    generation: int
    form: Form
    max: int
    def __init__(self, queue: _Optional[str] = ..., scope: _Optional[str] = ..., group: _Optional[str] = ..., lease_ms: _Optional[int] = ..., consumer: _Optional[str] = ..., member: _Optional[str] = ..., generation: _Optional[int] = ..., form: _Optional[_Union[Form, str]] = ..., max: _Optional[int] = ...) -> None: ...

class LeaseStreamReply(_message.Message):
    __slots__ = ("messages", "runs", "settled", "generation", "draining", "renewed")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    RENEWED_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    runs: _containers.RepeatedCompositeFieldContainer[Run]
    settled: _containers.RepeatedCompositeFieldContainer[StreamSettled]
    generation: int
    draining: bool
    renewed: StreamRenewed
    def __init__(self, messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., runs: _Optional[_Iterable[_Union[Run, _Mapping]]] = ..., settled: _Optional[_Iterable[_Union[StreamSettled, _Mapping]]] = ..., generation: _Optional[int] = ..., draining: bool = ..., renewed: _Optional[_Union[StreamRenewed, _Mapping]] = ...) -> None: ...

class StreamSettled(_message.Message):
    __slots__ = ("number", "results", "error")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    number: int
    results: _containers.RepeatedCompositeFieldContainer[Settled]
    error: Error
    def __init__(self, number: _Optional[int] = ..., results: _Optional[_Iterable[_Union[Settled, _Mapping]]] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class TransactRequest(_message.Message):
    __slots__ = ("ack", "publish")
    ACK_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    ack: _containers.RepeatedScalarFieldContainer[str]
    publish: _containers.RepeatedCompositeFieldContainer[NewMessage]
    def __init__(self, ack: _Optional[_Iterable[str]] = ..., publish: _Optional[_Iterable[_Union[NewMessage, _Mapping]]] = ...) -> None: ...

class TransactReply(_message.Message):
    __slots__ = ("acked", "messages", "durable", "ignored")
    ACKED_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    IGNORED_FIELD_NUMBER: _ClassVar[int]
    acked: _containers.RepeatedScalarFieldContainer[str]
    messages: _containers.RepeatedCompositeFieldContainer[PublishedMessage]
    durable: bool
    ignored: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, acked: _Optional[_Iterable[str]] = ..., messages: _Optional[_Iterable[_Union[PublishedMessage, _Mapping]]] = ..., durable: bool = ..., ignored: _Optional[_Iterable[str]] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("queue", "ids", "key")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    queue: str
    ids: _containers.RepeatedScalarFieldContainer[str]
    key: str
    def __init__(self, queue: _Optional[str] = ..., ids: _Optional[_Iterable[str]] = ..., key: _Optional[str] = ...) -> None: ...

class RescheduleRequest(_message.Message):
    __slots__ = ("queue", "ids", "key", "deliver_at_ms", "delay_ms")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    ids: _containers.RepeatedScalarFieldContainer[str]
    key: str
    deliver_at_ms: int
    delay_ms: int
    def __init__(self, queue: _Optional[str] = ..., ids: _Optional[_Iterable[str]] = ..., key: _Optional[str] = ..., deliver_at_ms: _Optional[int] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class ItemResult(_message.Message):
    __slots__ = ("id", "status")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    id: str
    status: str
    def __init__(self, id: _Optional[str] = ..., status: _Optional[str] = ...) -> None: ...

class CancelReply(_message.Message):
    __slots__ = ("cancelled", "results")
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    cancelled: int
    results: _containers.RepeatedCompositeFieldContainer[ItemResult]
    def __init__(self, cancelled: _Optional[int] = ..., results: _Optional[_Iterable[_Union[ItemResult, _Mapping]]] = ...) -> None: ...

class RescheduleReply(_message.Message):
    __slots__ = ("rescheduled", "results")
    RESCHEDULED_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    rescheduled: int
    results: _containers.RepeatedCompositeFieldContainer[ItemResult]
    def __init__(self, rescheduled: _Optional[int] = ..., results: _Optional[_Iterable[_Union[ItemResult, _Mapping]]] = ...) -> None: ...

class PutGroupRequest(_message.Message):
    __slots__ = ("queue", "group", "start", "offsets")
    class OffsetsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    group: str
    start: str
    offsets: _containers.ScalarMap[str, int]
    def __init__(self, queue: _Optional[str] = ..., group: _Optional[str] = ..., start: _Optional[str] = ..., offsets: _Optional[_Mapping[str, int]] = ...) -> None: ...

class PutGroupReply(_message.Message):
    __slots__ = ("queue", "group", "created", "offsets")
    class OffsetsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    group: str
    created: bool
    offsets: _containers.ScalarMap[str, int]
    def __init__(self, queue: _Optional[str] = ..., group: _Optional[str] = ..., created: bool = ..., offsets: _Optional[_Mapping[str, int]] = ...) -> None: ...

class SeekGroupRequest(_message.Message):
    __slots__ = ("queue", "group", "to", "offsets", "dry_run")
    class OffsetsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    queue: str
    group: str
    to: str
    offsets: _containers.ScalarMap[str, int]
    dry_run: bool
    def __init__(self, queue: _Optional[str] = ..., group: _Optional[str] = ..., to: _Optional[str] = ..., offsets: _Optional[_Mapping[str, int]] = ..., dry_run: bool = ...) -> None: ...

class PartitionSeek(_message.Message):
    __slots__ = ("partition", "to_offset", "again", "skipped", "leased")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TO_OFFSET_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    partition: int
    to_offset: int
    again: int
    skipped: int
    leased: int
    def __init__(self, partition: _Optional[int] = ..., to_offset: _Optional[int] = ..., again: _Optional[int] = ..., skipped: _Optional[int] = ..., leased: _Optional[int] = ...) -> None: ...

class SeekGroupReply(_message.Message):
    __slots__ = ("queue", "group", "dry_run", "again", "skipped", "leased", "partitions")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    group: str
    dry_run: bool
    again: int
    skipped: int
    leased: int
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionSeek]
    def __init__(self, queue: _Optional[str] = ..., group: _Optional[str] = ..., dry_run: bool = ..., again: _Optional[int] = ..., skipped: _Optional[int] = ..., leased: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[PartitionSeek, _Mapping]]] = ...) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("queue", "group", "confirm")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    queue: str
    group: str
    confirm: str
    def __init__(self, queue: _Optional[str] = ..., group: _Optional[str] = ..., confirm: _Optional[str] = ...) -> None: ...

class DeleteGroupReply(_message.Message):
    __slots__ = ("queue", "group", "deleted", "lost")
    class LostEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    queue: str
    group: str
    deleted: bool
    lost: _containers.ScalarMap[str, int]
    def __init__(self, queue: _Optional[str] = ..., group: _Optional[str] = ..., deleted: bool = ..., lost: _Optional[_Mapping[str, int]] = ...) -> None: ...

class JoinGroupRequest(_message.Message):
    __slots__ = ("queue", "group", "member", "session_ms", "drain_ms")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    SESSION_MS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_MS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    group: str
    member: str
    session_ms: int
    drain_ms: int
    def __init__(self, queue: _Optional[str] = ..., group: _Optional[str] = ..., member: _Optional[str] = ..., session_ms: _Optional[int] = ..., drain_ms: _Optional[int] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("queue", "member", "generation", "group", "released")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    queue: str
    member: str
    generation: int
    group: str
    released: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, queue: _Optional[str] = ..., member: _Optional[str] = ..., generation: _Optional[int] = ..., group: _Optional[str] = ..., released: _Optional[_Iterable[int]] = ...) -> None: ...

class LeaveGroupRequest(_message.Message):
    __slots__ = ("queue", "member", "group", "generation")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    queue: str
    member: str
    group: str
    generation: int
    def __init__(self, queue: _Optional[str] = ..., member: _Optional[str] = ..., group: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class ShareReply(_message.Message):
    __slots__ = ("member", "generation", "assigned", "awaited", "giving_up", "session_ms", "heartbeat_ms")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    AWAITED_FIELD_NUMBER: _ClassVar[int]
    GIVING_UP_FIELD_NUMBER: _ClassVar[int]
    SESSION_MS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    member: str
    generation: int
    assigned: _containers.RepeatedScalarFieldContainer[int]
    awaited: _containers.RepeatedScalarFieldContainer[int]
    giving_up: _containers.RepeatedScalarFieldContainer[int]
    session_ms: int
    heartbeat_ms: int
    def __init__(self, member: _Optional[str] = ..., generation: _Optional[int] = ..., assigned: _Optional[_Iterable[int]] = ..., awaited: _Optional[_Iterable[int]] = ..., giving_up: _Optional[_Iterable[int]] = ..., session_ms: _Optional[int] = ..., heartbeat_ms: _Optional[int] = ...) -> None: ...

class LeaveGroupReply(_message.Message):
    __slots__ = ("left",)
    LEFT_FIELD_NUMBER: _ClassVar[int]
    left: bool
    def __init__(self, left: bool = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("queue", "partition", "offset", "max", "wait_ms", "client_id", "form", "until", "max_bytes", "uuid")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    queue: str
    partition: int
    offset: str
    max: int
    wait_ms: int
    client_id: str
    form: Form
    until: int
    max_bytes: int
    uuid: str
    def __init__(self, queue: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[str] = ..., max: _Optional[int] = ..., wait_ms: _Optional[int] = ..., client_id: _Optional[str] = ..., form: _Optional[_Union[Form, str]] = ..., until: _Optional[int] = ..., max_bytes: _Optional[int] = ..., uuid: _Optional[str] = ...) -> None: ...

class ReadStreamRequest(_message.Message):
    __slots__ = ("queue", "partition", "offset", "max", "client_id", "form", "uuid")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    queue: str
    partition: int
    offset: str
    max: int
    client_id: str
    form: Form
    uuid: str
    def __init__(self, queue: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[str] = ..., max: _Optional[int] = ..., client_id: _Optional[str] = ..., form: _Optional[_Union[Form, str]] = ..., uuid: _Optional[str] = ...) -> None: ...

class ReadReply(_message.Message):
    __slots__ = ("messages", "runs", "next_offset", "end_offset", "start_offset", "skipped")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    runs: _containers.RepeatedCompositeFieldContainer[Run]
    next_offset: int
    end_offset: int
    start_offset: int
    skipped: int
    def __init__(self, messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., runs: _Optional[_Iterable[_Union[Run, _Mapping]]] = ..., next_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., start_offset: _Optional[int] = ..., skipped: _Optional[int] = ...) -> None: ...

class KeepOffsetsRequest(_message.Message):
    __slots__ = ("queue", "client_id", "offsets")
    class OffsetsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    client_id: str
    offsets: _containers.ScalarMap[str, int]
    def __init__(self, queue: _Optional[str] = ..., client_id: _Optional[str] = ..., offsets: _Optional[_Mapping[str, int]] = ...) -> None: ...

class OffsetsRequest(_message.Message):
    __slots__ = ("queue", "client_id")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    queue: str
    client_id: str
    def __init__(self, queue: _Optional[str] = ..., client_id: _Optional[str] = ...) -> None: ...

class OffsetsReply(_message.Message):
    __slots__ = ("queue", "client_id", "offsets", "used_at_ms")
    class OffsetsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    USED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    client_id: str
    offsets: _containers.ScalarMap[str, int]
    used_at_ms: int
    def __init__(self, queue: _Optional[str] = ..., client_id: _Optional[str] = ..., offsets: _Optional[_Mapping[str, int]] = ..., used_at_ms: _Optional[int] = ...) -> None: ...

class PeekRequest(_message.Message):
    __slots__ = ("queue", "max", "group")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    queue: str
    max: int
    group: str
    def __init__(self, queue: _Optional[str] = ..., max: _Optional[int] = ..., group: _Optional[str] = ...) -> None: ...

class PeekReply(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    def __init__(self, messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ...) -> None: ...

class ScheduledRequest(_message.Message):
    __slots__ = ("queue", "limit", "after")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    queue: str
    limit: int
    after: str
    def __init__(self, queue: _Optional[str] = ..., limit: _Optional[int] = ..., after: _Optional[str] = ...) -> None: ...

class ScheduledEntry(_message.Message):
    __slots__ = ("id", "partition", "offset", "due_at_ms", "published_at_ms", "key", "client_id")
    ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DUE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    partition: int
    offset: int
    due_at_ms: int
    published_at_ms: int
    key: str
    client_id: str
    def __init__(self, id: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., due_at_ms: _Optional[int] = ..., published_at_ms: _Optional[int] = ..., key: _Optional[str] = ..., client_id: _Optional[str] = ...) -> None: ...

class ScheduledReply(_message.Message):
    __slots__ = ("queue", "messages", "total", "next")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    queue: str
    messages: _containers.RepeatedCompositeFieldContainer[ScheduledEntry]
    total: int
    next: str
    def __init__(self, queue: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[ScheduledEntry, _Mapping]]] = ..., total: _Optional[int] = ..., next: _Optional[str] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("queue", "id", "group")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    queue: str
    id: str
    group: str
    def __init__(self, queue: _Optional[str] = ..., id: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class ExplainedMessage(_message.Message):
    __slots__ = ("id", "partition", "offset", "published_at_ms", "state", "attempts", "deliverable", "reasons", "text")
    ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    DELIVERABLE_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    id: str
    partition: int
    offset: int
    published_at_ms: int
    state: str
    attempts: int
    deliverable: bool
    reasons: _containers.RepeatedCompositeFieldContainer[_struct_pb2.Struct]
    text: str
    def __init__(self, id: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., published_at_ms: _Optional[int] = ..., state: _Optional[str] = ..., attempts: _Optional[int] = ..., deliverable: bool = ..., reasons: _Optional[_Iterable[_Union[_struct_pb2.Struct, _Mapping]]] = ..., text: _Optional[str] = ...) -> None: ...

class Holder(_message.Message):
    __slots__ = ("group", "held", "lag", "oldest_unacked_at_ms", "last_asked_at_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    OLDEST_UNACKED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_ASKED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    held: int
    lag: int
    oldest_unacked_at_ms: int
    last_asked_at_ms: int
    def __init__(self, group: _Optional[str] = ..., held: _Optional[int] = ..., lag: _Optional[int] = ..., oldest_unacked_at_ms: _Optional[int] = ..., last_asked_at_ms: _Optional[int] = ...) -> None: ...

class ExplainReply(_message.Message):
    __slots__ = ("queue", "group", "at_ms", "waiting_consumers", "last_asked_at_ms", "messages", "held_by")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    WAITING_CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    LAST_ASKED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    HELD_BY_FIELD_NUMBER: _ClassVar[int]
    queue: str
    group: str
    at_ms: int
    waiting_consumers: int
    last_asked_at_ms: int
    messages: _containers.RepeatedCompositeFieldContainer[ExplainedMessage]
    held_by: _containers.RepeatedCompositeFieldContainer[Holder]
    def __init__(self, queue: _Optional[str] = ..., group: _Optional[str] = ..., at_ms: _Optional[int] = ..., waiting_consumers: _Optional[int] = ..., last_asked_at_ms: _Optional[int] = ..., messages: _Optional[_Iterable[_Union[ExplainedMessage, _Mapping]]] = ..., held_by: _Optional[_Iterable[_Union[Holder, _Mapping]]] = ...) -> None: ...

class HistoryRequest(_message.Message):
    __slots__ = ("queue", "id")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    queue: str
    id: str
    def __init__(self, queue: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class HistoryEvent(_message.Message):
    __slots__ = ("kind", "at_ms", "group", "consumer", "lease", "attempt", "reason", "error", "due_at_ms", "deadline_at_ms")
    KIND_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DUE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    at_ms: int
    group: str
    consumer: str
    lease: int
    attempt: int
    reason: str
    error: str
    due_at_ms: int
    deadline_at_ms: int
    def __init__(self, kind: _Optional[str] = ..., at_ms: _Optional[int] = ..., group: _Optional[str] = ..., consumer: _Optional[str] = ..., lease: _Optional[int] = ..., attempt: _Optional[int] = ..., reason: _Optional[str] = ..., error: _Optional[str] = ..., due_at_ms: _Optional[int] = ..., deadline_at_ms: _Optional[int] = ...) -> None: ...

class HistoryReply(_message.Message):
    __slots__ = ("queue", "id", "partition", "offset", "complete", "events")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    id: str
    partition: int
    offset: int
    complete: bool
    events: _containers.RepeatedCompositeFieldContainer[HistoryEvent]
    def __init__(self, queue: _Optional[str] = ..., id: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., complete: bool = ..., events: _Optional[_Iterable[_Union[HistoryEvent, _Mapping]]] = ...) -> None: ...

class AutoscaleRequest(_message.Message):
    __slots__ = ("queue", "group", "target_drain_s", "min_workers", "max_workers")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TARGET_DRAIN_S_FIELD_NUMBER: _ClassVar[int]
    MIN_WORKERS_FIELD_NUMBER: _ClassVar[int]
    MAX_WORKERS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    group: str
    target_drain_s: float
    min_workers: int
    max_workers: int
    def __init__(self, queue: _Optional[str] = ..., group: _Optional[str] = ..., target_drain_s: _Optional[float] = ..., min_workers: _Optional[int] = ..., max_workers: _Optional[int] = ...) -> None: ...

class AutoscaleReply(_message.Message):
    __slots__ = ("queue", "group", "at_ms", "window_s", "arrival_rate", "service_rate", "service_rate_per_worker", "mean_service_time_s", "ready", "in_flight", "backlog", "busy_workers", "waiting_consumers", "time_to_drain_s", "target_drain_s", "suggested_workers")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_S_FIELD_NUMBER: _ClassVar[int]
    ARRIVAL_RATE_FIELD_NUMBER: _ClassVar[int]
    SERVICE_RATE_FIELD_NUMBER: _ClassVar[int]
    SERVICE_RATE_PER_WORKER_FIELD_NUMBER: _ClassVar[int]
    MEAN_SERVICE_TIME_S_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_FIELD_NUMBER: _ClassVar[int]
    BUSY_WORKERS_FIELD_NUMBER: _ClassVar[int]
    WAITING_CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    TIME_TO_DRAIN_S_FIELD_NUMBER: _ClassVar[int]
    TARGET_DRAIN_S_FIELD_NUMBER: _ClassVar[int]
    SUGGESTED_WORKERS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    group: str
    at_ms: int
    window_s: float
    arrival_rate: float
    service_rate: float
    service_rate_per_worker: float
    mean_service_time_s: float
    ready: int
    in_flight: int
    backlog: int
    busy_workers: int
    waiting_consumers: int
    time_to_drain_s: float
    target_drain_s: float
    suggested_workers: int
    def __init__(self, queue: _Optional[str] = ..., group: _Optional[str] = ..., at_ms: _Optional[int] = ..., window_s: _Optional[float] = ..., arrival_rate: _Optional[float] = ..., service_rate: _Optional[float] = ..., service_rate_per_worker: _Optional[float] = ..., mean_service_time_s: _Optional[float] = ..., ready: _Optional[int] = ..., in_flight: _Optional[int] = ..., backlog: _Optional[int] = ..., busy_workers: _Optional[int] = ..., waiting_consumers: _Optional[int] = ..., time_to_drain_s: _Optional[float] = ..., target_drain_s: _Optional[float] = ..., suggested_workers: _Optional[int] = ...) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class PartitionStats(_message.Message):
    __slots__ = ("partition", "start_offset", "end_offset", "depth", "scheduled", "dead")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    partition: int
    start_offset: int
    end_offset: int
    depth: int
    scheduled: int
    dead: int
    def __init__(self, partition: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., depth: _Optional[int] = ..., scheduled: _Optional[int] = ..., dead: _Optional[int] = ...) -> None: ...

class DeadLetterAlarmState(_message.Message):
    __slots__ = ("since_at_ms", "why")
    SINCE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    since_at_ms: int
    why: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, since_at_ms: _Optional[int] = ..., why: _Optional[_Iterable[str]] = ...) -> None: ...

class StatsReply(_message.Message):
    __slots__ = ("queue", "depth", "ready", "scheduled", "leased", "waiting_for_retry", "dead", "dead_letter_alarm", "oldest_age_ms", "window_opens_at_ms", "totals", "rates", "partitions", "groups", "uuid")
    class TotalsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class RatesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_RETRY_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_ALARM_FIELD_NUMBER: _ClassVar[int]
    OLDEST_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_OPENS_AT_MS_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    RATES_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    queue: str
    depth: int
    ready: int
    scheduled: int
    leased: int
    waiting_for_retry: int
    dead: int
    dead_letter_alarm: DeadLetterAlarmState
    oldest_age_ms: int
    window_opens_at_ms: int
    totals: _containers.ScalarMap[str, int]
    rates: _containers.ScalarMap[str, float]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionStats]
    groups: _containers.RepeatedCompositeFieldContainer[GroupEntry]
    uuid: str
    def __init__(self, queue: _Optional[str] = ..., depth: _Optional[int] = ..., ready: _Optional[int] = ..., scheduled: _Optional[int] = ..., leased: _Optional[int] = ..., waiting_for_retry: _Optional[int] = ..., dead: _Optional[int] = ..., dead_letter_alarm: _Optional[_Union[DeadLetterAlarmState, _Mapping]] = ..., oldest_age_ms: _Optional[int] = ..., window_opens_at_ms: _Optional[int] = ..., totals: _Optional[_Mapping[str, int]] = ..., rates: _Optional[_Mapping[str, float]] = ..., partitions: _Optional[_Iterable[_Union[PartitionStats, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[GroupEntry, _Mapping]]] = ..., uuid: _Optional[str] = ...) -> None: ...

class SummaryRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SummaryReply(_message.Message):
    __slots__ = ("queues", "namespaces", "depth", "scheduled", "leased", "dead", "dead_letter_alarms", "waiting_consumers", "holds", "holds_lost", "held_bytes", "broker")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_ALARMS_FIELD_NUMBER: _ClassVar[int]
    WAITING_CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    HOLDS_LOST_FIELD_NUMBER: _ClassVar[int]
    HELD_BYTES_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    queues: int
    namespaces: int
    depth: int
    scheduled: int
    leased: int
    dead: int
    dead_letter_alarms: _containers.RepeatedScalarFieldContainer[str]
    waiting_consumers: int
    holds: int
    holds_lost: int
    held_bytes: int
    broker: str
    def __init__(self, queues: _Optional[int] = ..., namespaces: _Optional[int] = ..., depth: _Optional[int] = ..., scheduled: _Optional[int] = ..., leased: _Optional[int] = ..., dead: _Optional[int] = ..., dead_letter_alarms: _Optional[_Iterable[str]] = ..., waiting_consumers: _Optional[int] = ..., holds: _Optional[int] = ..., holds_lost: _Optional[int] = ..., held_bytes: _Optional[int] = ..., broker: _Optional[str] = ...) -> None: ...

class GroupsRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class MemberEntry(_message.Message):
    __slots__ = ("member", "generation", "partitions", "awaited", "giving_up", "session_ms", "drain_ms", "heard_at_ms")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    AWAITED_FIELD_NUMBER: _ClassVar[int]
    GIVING_UP_FIELD_NUMBER: _ClassVar[int]
    SESSION_MS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_MS_FIELD_NUMBER: _ClassVar[int]
    HEARD_AT_MS_FIELD_NUMBER: _ClassVar[int]
    member: str
    generation: int
    partitions: _containers.RepeatedScalarFieldContainer[int]
    awaited: _containers.RepeatedScalarFieldContainer[int]
    giving_up: _containers.RepeatedScalarFieldContainer[int]
    session_ms: int
    drain_ms: int
    heard_at_ms: int
    def __init__(self, member: _Optional[str] = ..., generation: _Optional[int] = ..., partitions: _Optional[_Iterable[int]] = ..., awaited: _Optional[_Iterable[int]] = ..., giving_up: _Optional[_Iterable[int]] = ..., session_ms: _Optional[int] = ..., drain_ms: _Optional[int] = ..., heard_at_ms: _Optional[int] = ...) -> None: ...

class OffsetRange(_message.Message):
    __slots__ = ("first", "stop")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    first: int
    stop: int
    def __init__(self, first: _Optional[int] = ..., stop: _Optional[int] = ...) -> None: ...

class GroupPartition(_message.Message):
    __slots__ = ("partition", "owner", "lag", "next_offset", "floor", "acked_ranges")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    ACKED_RANGES_FIELD_NUMBER: _ClassVar[int]
    partition: int
    owner: str
    lag: int
    next_offset: int
    floor: int
    acked_ranges: _containers.RepeatedCompositeFieldContainer[OffsetRange]
    def __init__(self, partition: _Optional[int] = ..., owner: _Optional[str] = ..., lag: _Optional[int] = ..., next_offset: _Optional[int] = ..., floor: _Optional[int] = ..., acked_ranges: _Optional[_Iterable[_Union[OffsetRange, _Mapping]]] = ...) -> None: ...

class GroupEntry(_message.Message):
    __slots__ = ("group", "kind", "generation", "members", "lag", "ready", "scheduled", "leased", "waiting_for_retry", "busy_workers", "finished", "service_s", "blocked_keys", "tenants_waiting", "partitions", "held", "oldest_unacked_at_ms", "last_asked_at_ms", "waiting_consumers")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_RETRY_FIELD_NUMBER: _ClassVar[int]
    BUSY_WORKERS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    SERVICE_S_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_KEYS_FIELD_NUMBER: _ClassVar[int]
    TENANTS_WAITING_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    OLDEST_UNACKED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_ASKED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    WAITING_CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    group: str
    kind: str
    generation: int
    members: _containers.RepeatedCompositeFieldContainer[MemberEntry]
    lag: int
    ready: int
    scheduled: int
    leased: int
    waiting_for_retry: int
    busy_workers: int
    finished: int
    service_s: float
    blocked_keys: int
    tenants_waiting: int
    partitions: _containers.RepeatedCompositeFieldContainer[GroupPartition]
    held: int
    oldest_unacked_at_ms: int
    last_asked_at_ms: int
    waiting_consumers: int
    def __init__(self, group: _Optional[str] = ..., kind: _Optional[str] = ..., generation: _Optional[int] = ..., members: _Optional[_Iterable[_Union[MemberEntry, _Mapping]]] = ..., lag: _Optional[int] = ..., ready: _Optional[int] = ..., scheduled: _Optional[int] = ..., leased: _Optional[int] = ..., waiting_for_retry: _Optional[int] = ..., busy_workers: _Optional[int] = ..., finished: _Optional[int] = ..., service_s: _Optional[float] = ..., blocked_keys: _Optional[int] = ..., tenants_waiting: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[GroupPartition, _Mapping]]] = ..., held: _Optional[int] = ..., oldest_unacked_at_ms: _Optional[int] = ..., last_asked_at_ms: _Optional[int] = ..., waiting_consumers: _Optional[int] = ...) -> None: ...

class GroupsReply(_message.Message):
    __slots__ = ("queue", "groups")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    groups: _containers.RepeatedCompositeFieldContainer[GroupEntry]
    def __init__(self, queue: _Optional[str] = ..., groups: _Optional[_Iterable[_Union[GroupEntry, _Mapping]]] = ...) -> None: ...

class ListQueuesRequest(_message.Message):
    __slots__ = ("prefix", "page", "limit")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    page: int
    limit: int
    def __init__(self, prefix: _Optional[str] = ..., page: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ListQueuesReply(_message.Message):
    __slots__ = ("queues", "total", "page", "limit")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[QueueReply]
    total: int
    page: int
    limit: int
    def __init__(self, queues: _Optional[_Iterable[_Union[QueueReply, _Mapping]]] = ..., total: _Optional[int] = ..., page: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class GetQueueRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class PutQueueRequest(_message.Message):
    __slots__ = ("queue", "config", "reset", "confirm")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    queue: str
    config: QueueConfig
    reset: _containers.RepeatedScalarFieldContainer[str]
    confirm: str
    def __init__(self, queue: _Optional[str] = ..., config: _Optional[_Union[QueueConfig, _Mapping]] = ..., reset: _Optional[_Iterable[str]] = ..., confirm: _Optional[str] = ...) -> None: ...

class PatchQueueRequest(_message.Message):
    __slots__ = ("queue", "config", "reset", "confirm")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    queue: str
    config: QueueConfig
    reset: _containers.RepeatedScalarFieldContainer[str]
    confirm: str
    def __init__(self, queue: _Optional[str] = ..., config: _Optional[_Union[QueueConfig, _Mapping]] = ..., reset: _Optional[_Iterable[str]] = ..., confirm: _Optional[str] = ...) -> None: ...

class Backoff(_message.Message):
    __slots__ = ("kind", "base_ms", "factor", "cap_ms", "jitter", "steps_ms")
    KIND_FIELD_NUMBER: _ClassVar[int]
    BASE_MS_FIELD_NUMBER: _ClassVar[int]
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    CAP_MS_FIELD_NUMBER: _ClassVar[int]
    JITTER_FIELD_NUMBER: _ClassVar[int]
    STEPS_MS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    base_ms: int
    factor: float
    cap_ms: int
    jitter: float
    steps_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, kind: _Optional[str] = ..., base_ms: _Optional[int] = ..., factor: _Optional[float] = ..., cap_ms: _Optional[int] = ..., jitter: _Optional[float] = ..., steps_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class Retention(_message.Message):
    __slots__ = ("mode", "ms", "bytes")
    MODE_FIELD_NUMBER: _ClassVar[int]
    MS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    mode: str
    ms: int
    bytes: int
    def __init__(self, mode: _Optional[str] = ..., ms: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class FairShare(_message.Message):
    __slots__ = ("enabled", "weights", "max_in_flight")
    class WeightsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    MAX_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    weights: _containers.ScalarMap[str, int]
    max_in_flight: int
    def __init__(self, enabled: bool = ..., weights: _Optional[_Mapping[str, int]] = ..., max_in_flight: _Optional[int] = ...) -> None: ...

class DeadLetterAlarm(_message.Message):
    __slots__ = ("count", "per_minute")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    PER_MINUTE_FIELD_NUMBER: _ClassVar[int]
    count: int
    per_minute: int
    def __init__(self, count: _Optional[int] = ..., per_minute: _Optional[int] = ...) -> None: ...

class QueueConfig(_message.Message):
    __slots__ = ("partitions", "order", "lane_weights", "heap_mode", "top_k", "ordered_keys", "park_dead_keys", "fair_share", "queue_priority", "lease_ms", "max_retries", "backoff", "dead_letter", "dead_letter_ttl_ms", "dead_letter_max", "dead_letter_alarm", "delay_ms", "window_ms", "window_max_wait_ms", "ttl_ms", "max_messages", "max_payload_bytes", "delivery", "retention", "durability", "compression", "encryption", "strict_leases", "exclusive", "placement", "spread")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    LANE_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    HEAP_MODE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    ORDERED_KEYS_FIELD_NUMBER: _ClassVar[int]
    PARK_DEAD_KEYS_FIELD_NUMBER: _ClassVar[int]
    FAIR_SHARE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRIES_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_TTL_MS_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_MAX_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_ALARM_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    ENCRYPTION_FIELD_NUMBER: _ClassVar[int]
    STRICT_LEASES_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    SPREAD_FIELD_NUMBER: _ClassVar[int]
    partitions: int
    order: str
    lane_weights: _containers.RepeatedScalarFieldContainer[int]
    heap_mode: str
    top_k: int
    ordered_keys: bool
    park_dead_keys: bool
    fair_share: FairShare
    queue_priority: int
    lease_ms: int
    max_retries: int
    backoff: Backoff
    dead_letter: bool
    dead_letter_ttl_ms: int
    dead_letter_max: int
    dead_letter_alarm: DeadLetterAlarm
    delay_ms: int
    window_ms: int
    window_max_wait_ms: int
    ttl_ms: int
    max_messages: int
    max_payload_bytes: int
    delivery: str
    retention: Retention
    durability: str
    compression: str
    encryption: bool
    strict_leases: bool
    exclusive: bool
    placement: str
    spread: int
    def __init__(self, partitions: _Optional[int] = ..., order: _Optional[str] = ..., lane_weights: _Optional[_Iterable[int]] = ..., heap_mode: _Optional[str] = ..., top_k: _Optional[int] = ..., ordered_keys: bool = ..., park_dead_keys: bool = ..., fair_share: _Optional[_Union[FairShare, _Mapping]] = ..., queue_priority: _Optional[int] = ..., lease_ms: _Optional[int] = ..., max_retries: _Optional[int] = ..., backoff: _Optional[_Union[Backoff, _Mapping]] = ..., dead_letter: bool = ..., dead_letter_ttl_ms: _Optional[int] = ..., dead_letter_max: _Optional[int] = ..., dead_letter_alarm: _Optional[_Union[DeadLetterAlarm, _Mapping]] = ..., delay_ms: _Optional[int] = ..., window_ms: _Optional[int] = ..., window_max_wait_ms: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., max_messages: _Optional[int] = ..., max_payload_bytes: _Optional[int] = ..., delivery: _Optional[str] = ..., retention: _Optional[_Union[Retention, _Mapping]] = ..., durability: _Optional[str] = ..., compression: _Optional[str] = ..., encryption: bool = ..., strict_leases: bool = ..., exclusive: bool = ..., placement: _Optional[str] = ..., spread: _Optional[int] = ...) -> None: ...

class QueueReply(_message.Message):
    __slots__ = ("queue", "config", "depth", "uuid", "ready", "scheduled", "leased", "dead", "rates")
    class RatesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    RATES_FIELD_NUMBER: _ClassVar[int]
    queue: str
    config: QueueConfig
    depth: int
    uuid: str
    ready: int
    scheduled: int
    leased: int
    dead: int
    rates: _containers.ScalarMap[str, float]
    def __init__(self, queue: _Optional[str] = ..., config: _Optional[_Union[QueueConfig, _Mapping]] = ..., depth: _Optional[int] = ..., uuid: _Optional[str] = ..., ready: _Optional[int] = ..., scheduled: _Optional[int] = ..., leased: _Optional[int] = ..., dead: _Optional[int] = ..., rates: _Optional[_Mapping[str, float]] = ...) -> None: ...

class DestroyRequest(_message.Message):
    __slots__ = ("queue", "confirm")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    queue: str
    confirm: str
    def __init__(self, queue: _Optional[str] = ..., confirm: _Optional[str] = ...) -> None: ...

class DestroyedReply(_message.Message):
    __slots__ = ("queue", "lost", "deleted", "purged")
    class LostEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    PURGED_FIELD_NUMBER: _ClassVar[int]
    queue: str
    lost: _containers.ScalarMap[str, int]
    deleted: bool
    purged: bool
    def __init__(self, queue: _Optional[str] = ..., lost: _Optional[_Mapping[str, int]] = ..., deleted: bool = ..., purged: bool = ...) -> None: ...

class DeadLettersRequest(_message.Message):
    __slots__ = ("queue", "group", "filter", "page", "limit", "after")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    queue: str
    group: str
    filter: str
    page: int
    limit: int
    after: str
    def __init__(self, queue: _Optional[str] = ..., group: _Optional[str] = ..., filter: _Optional[str] = ..., page: _Optional[int] = ..., limit: _Optional[int] = ..., after: _Optional[str] = ...) -> None: ...

class DeadLetter(_message.Message):
    __slots__ = ("message", "group", "reason", "error", "consumer", "first_at_ms", "last_at_ms", "dead_at_ms", "redriven")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    FIRST_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DEAD_AT_MS_FIELD_NUMBER: _ClassVar[int]
    REDRIVEN_FIELD_NUMBER: _ClassVar[int]
    message: Message
    group: str
    reason: str
    error: str
    consumer: str
    first_at_ms: int
    last_at_ms: int
    dead_at_ms: int
    redriven: int
    def __init__(self, message: _Optional[_Union[Message, _Mapping]] = ..., group: _Optional[str] = ..., reason: _Optional[str] = ..., error: _Optional[str] = ..., consumer: _Optional[str] = ..., first_at_ms: _Optional[int] = ..., last_at_ms: _Optional[int] = ..., dead_at_ms: _Optional[int] = ..., redriven: _Optional[int] = ...) -> None: ...

class DeadLettersReply(_message.Message):
    __slots__ = ("messages", "total", "page", "limit", "next")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    total: int
    page: int
    limit: int
    next: str
    def __init__(self, messages: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ..., total: _Optional[int] = ..., page: _Optional[int] = ..., limit: _Optional[int] = ..., next: _Optional[str] = ...) -> None: ...

class RedriveRequest(_message.Message):
    __slots__ = ("queue", "group", "filter", "ids", "target", "delay_ms", "priority", "rate_per_s", "dry_run", "redrive_id")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    RATE_PER_S_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    REDRIVE_ID_FIELD_NUMBER: _ClassVar[int]
    queue: str
    group: str
    filter: str
    ids: _containers.RepeatedScalarFieldContainer[str]
    target: str
    delay_ms: int
    priority: int
    rate_per_s: int
    dry_run: bool
    redrive_id: str
    def __init__(self, queue: _Optional[str] = ..., group: _Optional[str] = ..., filter: _Optional[str] = ..., ids: _Optional[_Iterable[str]] = ..., target: _Optional[str] = ..., delay_ms: _Optional[int] = ..., priority: _Optional[int] = ..., rate_per_s: _Optional[int] = ..., dry_run: bool = ..., redrive_id: _Optional[str] = ...) -> None: ...

class RedriveReply(_message.Message):
    __slots__ = ("redrive_id", "queue", "dry_run", "count", "sample", "status")
    REDRIVE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    redrive_id: str
    queue: str
    dry_run: bool
    count: int
    sample: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    status: RedriveStatus
    def __init__(self, redrive_id: _Optional[str] = ..., queue: _Optional[str] = ..., dry_run: bool = ..., count: _Optional[int] = ..., sample: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ..., status: _Optional[_Union[RedriveStatus, _Mapping]] = ...) -> None: ...

class RedriveStatus(_message.Message):
    __slots__ = ("redrive_id", "queue", "status", "redriven", "skipped", "error", "group", "filter", "target", "delay_ms", "priority", "rate_per_s", "started_at_ms", "ended_at_ms")
    REDRIVE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REDRIVEN_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    RATE_PER_S_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    redrive_id: str
    queue: str
    status: str
    redriven: int
    skipped: int
    error: str
    group: str
    filter: str
    target: str
    delay_ms: int
    priority: int
    rate_per_s: int
    started_at_ms: int
    ended_at_ms: int
    def __init__(self, redrive_id: _Optional[str] = ..., queue: _Optional[str] = ..., status: _Optional[str] = ..., redriven: _Optional[int] = ..., skipped: _Optional[int] = ..., error: _Optional[str] = ..., group: _Optional[str] = ..., filter: _Optional[str] = ..., target: _Optional[str] = ..., delay_ms: _Optional[int] = ..., priority: _Optional[int] = ..., rate_per_s: _Optional[int] = ..., started_at_ms: _Optional[int] = ..., ended_at_ms: _Optional[int] = ...) -> None: ...

class RedrivesRequest(_message.Message):
    __slots__ = ("queue", "redrive_id")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    REDRIVE_ID_FIELD_NUMBER: _ClassVar[int]
    queue: str
    redrive_id: str
    def __init__(self, queue: _Optional[str] = ..., redrive_id: _Optional[str] = ...) -> None: ...

class RedrivesReply(_message.Message):
    __slots__ = ("redrives",)
    REDRIVES_FIELD_NUMBER: _ClassVar[int]
    redrives: _containers.RepeatedCompositeFieldContainer[RedriveStatus]
    def __init__(self, redrives: _Optional[_Iterable[_Union[RedriveStatus, _Mapping]]] = ...) -> None: ...

class StopRedriveRequest(_message.Message):
    __slots__ = ("queue", "redrive_id")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    REDRIVE_ID_FIELD_NUMBER: _ClassVar[int]
    queue: str
    redrive_id: str
    def __init__(self, queue: _Optional[str] = ..., redrive_id: _Optional[str] = ...) -> None: ...

class DeleteDeadLettersRequest(_message.Message):
    __slots__ = ("queue", "group", "filter", "ids", "confirm")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    queue: str
    group: str
    filter: str
    ids: _containers.RepeatedScalarFieldContainer[str]
    confirm: str
    def __init__(self, queue: _Optional[str] = ..., group: _Optional[str] = ..., filter: _Optional[str] = ..., ids: _Optional[_Iterable[str]] = ..., confirm: _Optional[str] = ...) -> None: ...

class DeleteDeadLettersReply(_message.Message):
    __slots__ = ("queue", "deleted")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    queue: str
    deleted: int
    def __init__(self, queue: _Optional[str] = ..., deleted: _Optional[int] = ...) -> None: ...

class ListSchedulesRequest(_message.Message):
    __slots__ = ("prefix", "page", "limit")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    page: int
    limit: int
    def __init__(self, prefix: _Optional[str] = ..., page: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ListSchedulesReply(_message.Message):
    __slots__ = ("schedules", "total", "page", "limit")
    SCHEDULES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    schedules: _containers.RepeatedCompositeFieldContainer[ScheduleReply]
    total: int
    page: int
    limit: int
    def __init__(self, schedules: _Optional[_Iterable[_Union[ScheduleReply, _Mapping]]] = ..., total: _Optional[int] = ..., page: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ScheduleNameRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ScheduleMessage(_message.Message):
    __slots__ = ("payload", "json", "key", "priority", "ttl_ms", "headers", "max_retries", "tenant")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRIES_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    json: str
    key: str
    priority: int
    ttl_ms: int
    headers: _containers.ScalarMap[str, str]
    max_retries: int
    tenant: str
    def __init__(self, payload: _Optional[bytes] = ..., json: _Optional[str] = ..., key: _Optional[str] = ..., priority: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., headers: _Optional[_Mapping[str, str]] = ..., max_retries: _Optional[int] = ..., tenant: _Optional[str] = ...) -> None: ...

class PutScheduleRequest(_message.Message):
    __slots__ = ("name", "queue", "cron", "message", "timezone", "catch_up", "starts_at_ms", "ends_at_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TIMEZONE_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_FIELD_NUMBER: _ClassVar[int]
    STARTS_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ENDS_AT_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    queue: str
    cron: str
    message: ScheduleMessage
    timezone: str
    catch_up: str
    starts_at_ms: int
    ends_at_ms: int
    def __init__(self, name: _Optional[str] = ..., queue: _Optional[str] = ..., cron: _Optional[str] = ..., message: _Optional[_Union[ScheduleMessage, _Mapping]] = ..., timezone: _Optional[str] = ..., catch_up: _Optional[str] = ..., starts_at_ms: _Optional[int] = ..., ends_at_ms: _Optional[int] = ...) -> None: ...

class SkippedFires(_message.Message):
    __slots__ = ("from_ms", "until_ms")
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    from_ms: int
    until_ms: int
    def __init__(self, from_ms: _Optional[int] = ..., until_ms: _Optional[int] = ...) -> None: ...

class ScheduleError(_message.Message):
    __slots__ = ("code", "message", "since_at_ms", "retry_at_ms")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SINCE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    RETRY_AT_MS_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    since_at_ms: int
    retry_at_ms: int
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., since_at_ms: _Optional[int] = ..., retry_at_ms: _Optional[int] = ...) -> None: ...

class ScheduleReply(_message.Message):
    __slots__ = ("name", "queue", "cron", "timezone", "catch_up", "starts_at_ms", "ends_at_ms", "message", "state", "next", "last_fire_at_ms", "fired", "skipped", "error", "created_at_ms", "changed_at_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    TIMEZONE_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_FIELD_NUMBER: _ClassVar[int]
    STARTS_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ENDS_AT_MS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    LAST_FIRE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    FIRED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    queue: str
    cron: str
    timezone: str
    catch_up: str
    starts_at_ms: int
    ends_at_ms: int
    message: ScheduleMessage
    state: str
    next: _containers.RepeatedScalarFieldContainer[int]
    last_fire_at_ms: int
    fired: int
    skipped: SkippedFires
    error: ScheduleError
    created_at_ms: int
    changed_at_ms: int
    def __init__(self, name: _Optional[str] = ..., queue: _Optional[str] = ..., cron: _Optional[str] = ..., timezone: _Optional[str] = ..., catch_up: _Optional[str] = ..., starts_at_ms: _Optional[int] = ..., ends_at_ms: _Optional[int] = ..., message: _Optional[_Union[ScheduleMessage, _Mapping]] = ..., state: _Optional[str] = ..., next: _Optional[_Iterable[int]] = ..., last_fire_at_ms: _Optional[int] = ..., fired: _Optional[int] = ..., skipped: _Optional[_Union[SkippedFires, _Mapping]] = ..., error: _Optional[_Union[ScheduleError, _Mapping]] = ..., created_at_ms: _Optional[int] = ..., changed_at_ms: _Optional[int] = ...) -> None: ...

class DeleteScheduleReply(_message.Message):
    __slots__ = ("name", "deleted")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    name: str
    deleted: bool
    def __init__(self, name: _Optional[str] = ..., deleted: bool = ...) -> None: ...

class ListWebhooksRequest(_message.Message):
    __slots__ = ("queue", "page", "limit")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    queue: str
    page: int
    limit: int
    def __init__(self, queue: _Optional[str] = ..., page: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ListWebhooksReply(_message.Message):
    __slots__ = ("webhooks", "total", "page", "limit")
    WEBHOOKS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    webhooks: _containers.RepeatedCompositeFieldContainer[WebhookReply]
    total: int
    page: int
    limit: int
    def __init__(self, webhooks: _Optional[_Iterable[_Union[WebhookReply, _Mapping]]] = ..., total: _Optional[int] = ..., page: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class RetryDelays(_message.Message):
    __slots__ = ("ms",)
    MS_FIELD_NUMBER: _ClassVar[int]
    ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ms: _Optional[_Iterable[int]] = ...) -> None: ...

class CreateWebhookRequest(_message.Message):
    __slots__ = ("queue", "url", "group", "format", "retry_delays_ms", "timeout_ms", "concurrency", "description", "paused")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    RETRY_DELAYS_MS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    queue: str
    url: str
    group: str
    format: str
    retry_delays_ms: RetryDelays
    timeout_ms: int
    concurrency: int
    description: str
    paused: bool
    def __init__(self, queue: _Optional[str] = ..., url: _Optional[str] = ..., group: _Optional[str] = ..., format: _Optional[str] = ..., retry_delays_ms: _Optional[_Union[RetryDelays, _Mapping]] = ..., timeout_ms: _Optional[int] = ..., concurrency: _Optional[int] = ..., description: _Optional[str] = ..., paused: bool = ...) -> None: ...

class WebhookIdRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ChangeWebhookRequest(_message.Message):
    __slots__ = ("id", "url", "format", "retry_delays_ms", "timeout_ms", "concurrency", "description")
    ID_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    RETRY_DELAYS_MS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    id: str
    url: str
    format: str
    retry_delays_ms: RetryDelays
    timeout_ms: int
    concurrency: int
    description: str
    def __init__(self, id: _Optional[str] = ..., url: _Optional[str] = ..., format: _Optional[str] = ..., retry_delays_ms: _Optional[_Union[RetryDelays, _Mapping]] = ..., timeout_ms: _Optional[int] = ..., concurrency: _Optional[int] = ..., description: _Optional[str] = ...) -> None: ...

class RotateWebhookRequest(_message.Message):
    __slots__ = ("id", "overlap_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    overlap_ms: int
    def __init__(self, id: _Optional[str] = ..., overlap_ms: _Optional[int] = ...) -> None: ...

class WebhookAttempt(_message.Message):
    __slots__ = ("at_ms", "message_id", "attempt", "outcome", "status", "error", "duration_ms", "retry_at_ms")
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    RETRY_AT_MS_FIELD_NUMBER: _ClassVar[int]
    at_ms: int
    message_id: str
    attempt: int
    outcome: str
    status: int
    error: str
    duration_ms: int
    retry_at_ms: int
    def __init__(self, at_ms: _Optional[int] = ..., message_id: _Optional[str] = ..., attempt: _Optional[int] = ..., outcome: _Optional[str] = ..., status: _Optional[int] = ..., error: _Optional[str] = ..., duration_ms: _Optional[int] = ..., retry_at_ms: _Optional[int] = ...) -> None: ...

class DeliveryStatus(_message.Message):
    __slots__ = ("in_flight", "delivered", "failed", "circuit", "next_at_ms", "last", "trouble")
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    CIRCUIT_FIELD_NUMBER: _ClassVar[int]
    NEXT_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    in_flight: int
    delivered: int
    failed: int
    circuit: str
    next_at_ms: int
    last: WebhookAttempt
    trouble: str
    def __init__(self, in_flight: _Optional[int] = ..., delivered: _Optional[int] = ..., failed: _Optional[int] = ..., circuit: _Optional[str] = ..., next_at_ms: _Optional[int] = ..., last: _Optional[_Union[WebhookAttempt, _Mapping]] = ..., trouble: _Optional[str] = ...) -> None: ...

class WebhookReply(_message.Message):
    __slots__ = ("id", "queue", "group", "url", "format", "retry_delays_ms", "timeout_ms", "concurrency", "description", "state", "reason", "secrets", "created_at_ms", "changed_at_ms", "delivery", "secret")
    ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    RETRY_DELAYS_MS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    id: str
    queue: str
    group: str
    url: str
    format: str
    retry_delays_ms: _containers.RepeatedScalarFieldContainer[int]
    timeout_ms: int
    concurrency: int
    description: str
    state: str
    reason: str
    secrets: int
    created_at_ms: int
    changed_at_ms: int
    delivery: DeliveryStatus
    secret: str
    def __init__(self, id: _Optional[str] = ..., queue: _Optional[str] = ..., group: _Optional[str] = ..., url: _Optional[str] = ..., format: _Optional[str] = ..., retry_delays_ms: _Optional[_Iterable[int]] = ..., timeout_ms: _Optional[int] = ..., concurrency: _Optional[int] = ..., description: _Optional[str] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., secrets: _Optional[int] = ..., created_at_ms: _Optional[int] = ..., changed_at_ms: _Optional[int] = ..., delivery: _Optional[_Union[DeliveryStatus, _Mapping]] = ..., secret: _Optional[str] = ...) -> None: ...

class DeleteWebhookReply(_message.Message):
    __slots__ = ("id", "deleted")
    ID_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    id: str
    deleted: bool
    def __init__(self, id: _Optional[str] = ..., deleted: bool = ...) -> None: ...

class TestWebhookReply(_message.Message):
    __slots__ = ("id", "message_id", "outcome", "status", "error", "duration_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    message_id: str
    outcome: str
    status: int
    error: str
    duration_ms: int
    def __init__(self, id: _Optional[str] = ..., message_id: _Optional[str] = ..., outcome: _Optional[str] = ..., status: _Optional[int] = ..., error: _Optional[str] = ..., duration_ms: _Optional[int] = ...) -> None: ...

class WebhookAttemptsRequest(_message.Message):
    __slots__ = ("id", "limit")
    ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    id: str
    limit: int
    def __init__(self, id: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class WebhookAttemptsReply(_message.Message):
    __slots__ = ("id", "attempts")
    ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    attempts: _containers.RepeatedCompositeFieldContainer[WebhookAttempt]
    def __init__(self, id: _Optional[str] = ..., attempts: _Optional[_Iterable[_Union[WebhookAttempt, _Mapping]]] = ...) -> None: ...

class ExtentRequest(_message.Message):
    __slots__ = ("queue", "at")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    queue: str
    at: str
    def __init__(self, queue: _Optional[str] = ..., at: _Optional[str] = ...) -> None: ...

class PartitionExtent(_message.Message):
    __slots__ = ("partition", "start_offset", "end_offset", "offset", "bytes")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    partition: int
    start_offset: int
    end_offset: int
    offset: int
    bytes: int
    def __init__(self, partition: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., offset: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class ExtentReply(_message.Message):
    __slots__ = ("queue", "partitions", "uuid", "broker")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    queue: str
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionExtent]
    uuid: str
    broker: str
    def __init__(self, queue: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[PartitionExtent, _Mapping]]] = ..., uuid: _Optional[str] = ..., broker: _Optional[str] = ...) -> None: ...

class EventsRequest(_message.Message):
    __slots__ = ("shard", "after", "until", "queue", "max", "max_bytes")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    shard: int
    after: str
    until: int
    queue: str
    max: int
    max_bytes: int
    def __init__(self, shard: _Optional[int] = ..., after: _Optional[str] = ..., until: _Optional[int] = ..., queue: _Optional[str] = ..., max: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("position", "kind", "at_ms", "queue", "queue_id", "partition", "offset", "count", "id", "group", "consumer", "lease", "attempt", "reason", "error", "due_at_ms", "deadline_at_ms", "until_offset")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DUE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    position: str
    kind: str
    at_ms: int
    queue: str
    queue_id: int
    partition: int
    offset: int
    count: int
    id: str
    group: str
    consumer: str
    lease: int
    attempt: int
    reason: str
    error: str
    due_at_ms: int
    deadline_at_ms: int
    until_offset: int
    def __init__(self, position: _Optional[str] = ..., kind: _Optional[str] = ..., at_ms: _Optional[int] = ..., queue: _Optional[str] = ..., queue_id: _Optional[int] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., count: _Optional[int] = ..., id: _Optional[str] = ..., group: _Optional[str] = ..., consumer: _Optional[str] = ..., lease: _Optional[int] = ..., attempt: _Optional[int] = ..., reason: _Optional[str] = ..., error: _Optional[str] = ..., due_at_ms: _Optional[int] = ..., deadline_at_ms: _Optional[int] = ..., until_offset: _Optional[int] = ...) -> None: ...

class MissingFrames(_message.Message):
    __slots__ = ("first", "last", "frames")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    frames: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ..., frames: _Optional[int] = ...) -> None: ...

class EventsReply(_message.Message):
    __slots__ = ("shard", "events", "next", "start", "end", "missing")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    shard: int
    events: _containers.RepeatedCompositeFieldContainer[Event]
    next: str
    start: int
    end: int
    missing: MissingFrames
    def __init__(self, shard: _Optional[int] = ..., events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., next: _Optional[str] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., missing: _Optional[_Union[MissingFrames, _Mapping]] = ...) -> None: ...

class EventRangesRequest(_message.Message):
    __slots__ = ("shard", "after", "until", "each", "max", "max_bytes")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    EACH_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    shard: int
    after: str
    until: int
    each: int
    max: int
    max_bytes: int
    def __init__(self, shard: _Optional[int] = ..., after: _Optional[str] = ..., until: _Optional[int] = ..., each: _Optional[int] = ..., max: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class EventRange(_message.Message):
    __slots__ = ("after", "until", "rows", "bytes")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    after: int
    until: int
    rows: int
    bytes: int
    def __init__(self, after: _Optional[int] = ..., until: _Optional[int] = ..., rows: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class EventRangesReply(_message.Message):
    __slots__ = ("shard", "ranges", "next", "start", "end", "missing", "broker")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    shard: int
    ranges: _containers.RepeatedCompositeFieldContainer[EventRange]
    next: int
    start: int
    end: int
    missing: MissingFrames
    broker: str
    def __init__(self, shard: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[EventRange, _Mapping]]] = ..., next: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., missing: _Optional[_Union[MissingFrames, _Mapping]] = ..., broker: _Optional[str] = ...) -> None: ...

class ListHoldsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListHoldsReply(_message.Message):
    __slots__ = ("holds",)
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    holds: _containers.RepeatedCompositeFieldContainer[HoldReply]
    def __init__(self, holds: _Optional[_Iterable[_Union[HoldReply, _Mapping]]] = ...) -> None: ...

class HoldNameRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class HeldOffsets(_message.Message):
    __slots__ = ("offsets",)
    class OffsetsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.ScalarMap[str, int]
    def __init__(self, offsets: _Optional[_Mapping[str, int]] = ...) -> None: ...

class PutHoldRequest(_message.Message):
    __slots__ = ("name", "events", "queues", "max_bytes", "uuids", "shards")
    class QueuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: HeldOffsets
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[HeldOffsets, _Mapping]] = ...) -> None: ...
    class UuidsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ShardsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    UUIDS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    events: int
    queues: _containers.MessageMap[str, HeldOffsets]
    max_bytes: int
    uuids: _containers.ScalarMap[str, str]
    shards: _containers.ScalarMap[str, int]
    def __init__(self, name: _Optional[str] = ..., events: _Optional[int] = ..., queues: _Optional[_Mapping[str, HeldOffsets]] = ..., max_bytes: _Optional[int] = ..., uuids: _Optional[_Mapping[str, str]] = ..., shards: _Optional[_Mapping[str, int]] = ...) -> None: ...

class HoldReply(_message.Message):
    __slots__ = ("name", "events", "queues", "max_bytes", "spanned_bytes", "set_at_ms", "lost_at_ms", "uuids", "shards")
    class QueuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: HeldOffsets
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[HeldOffsets, _Mapping]] = ...) -> None: ...
    class UuidsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ShardsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    SPANNED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SET_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LOST_AT_MS_FIELD_NUMBER: _ClassVar[int]
    UUIDS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    events: int
    queues: _containers.MessageMap[str, HeldOffsets]
    max_bytes: int
    spanned_bytes: int
    set_at_ms: int
    lost_at_ms: int
    uuids: _containers.ScalarMap[str, str]
    shards: _containers.ScalarMap[str, int]
    def __init__(self, name: _Optional[str] = ..., events: _Optional[int] = ..., queues: _Optional[_Mapping[str, HeldOffsets]] = ..., max_bytes: _Optional[int] = ..., spanned_bytes: _Optional[int] = ..., set_at_ms: _Optional[int] = ..., lost_at_ms: _Optional[int] = ..., uuids: _Optional[_Mapping[str, str]] = ..., shards: _Optional[_Mapping[str, int]] = ...) -> None: ...

class DeleteHoldReply(_message.Message):
    __slots__ = ("name", "removed")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    name: str
    removed: bool
    def __init__(self, name: _Optional[str] = ..., removed: bool = ...) -> None: ...

class AnalyticsQueuesRequest(_message.Message):
    __slots__ = ("prefix", "from_ms", "to_ms", "page", "limit")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    TO_MS_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    from_ms: int
    to_ms: int
    page: int
    limit: int
    def __init__(self, prefix: _Optional[str] = ..., from_ms: _Optional[int] = ..., to_ms: _Optional[int] = ..., page: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class AnalyticsQueueRequest(_message.Message):
    __slots__ = ("queue", "from_ms", "to_ms", "step_ms")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    TO_MS_FIELD_NUMBER: _ClassVar[int]
    STEP_MS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    from_ms: int
    to_ms: int
    step_ms: int
    def __init__(self, queue: _Optional[str] = ..., from_ms: _Optional[int] = ..., to_ms: _Optional[int] = ..., step_ms: _Optional[int] = ...) -> None: ...

class AnalyticsNamespaceRequest(_message.Message):
    __slots__ = ("namespace", "from_ms", "to_ms", "step_ms")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    TO_MS_FIELD_NUMBER: _ClassVar[int]
    STEP_MS_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    from_ms: int
    to_ms: int
    step_ms: int
    def __init__(self, namespace: _Optional[str] = ..., from_ms: _Optional[int] = ..., to_ms: _Optional[int] = ..., step_ms: _Optional[int] = ...) -> None: ...

class AnalyticsTaskRequest(_message.Message):
    __slots__ = ("namespace", "task", "from_ms", "to_ms", "step_ms")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    TO_MS_FIELD_NUMBER: _ClassVar[int]
    STEP_MS_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    task: str
    from_ms: int
    to_ms: int
    step_ms: int
    def __init__(self, namespace: _Optional[str] = ..., task: _Optional[str] = ..., from_ms: _Optional[int] = ..., to_ms: _Optional[int] = ..., step_ms: _Optional[int] = ...) -> None: ...

class AnalyticsSeriesRequest(_message.Message):
    __slots__ = ("queue", "from_ms", "to_ms", "step_ms")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    TO_MS_FIELD_NUMBER: _ClassVar[int]
    STEP_MS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    from_ms: int
    to_ms: int
    step_ms: int
    def __init__(self, queue: _Optional[str] = ..., from_ms: _Optional[int] = ..., to_ms: _Optional[int] = ..., step_ms: _Optional[int] = ...) -> None: ...

class AnalyticsTiming(_message.Message):
    __slots__ = ("count", "p50_ms", "p95_ms", "p99_ms", "max_ms")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    P50_MS_FIELD_NUMBER: _ClassVar[int]
    P95_MS_FIELD_NUMBER: _ClassVar[int]
    P99_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MS_FIELD_NUMBER: _ClassVar[int]
    count: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    def __init__(self, count: _Optional[int] = ..., p50_ms: _Optional[float] = ..., p95_ms: _Optional[float] = ..., p99_ms: _Optional[float] = ..., max_ms: _Optional[float] = ...) -> None: ...

class AnalyticsCounts(_message.Message):
    __slots__ = ("published", "delivered", "redelivered", "acked", "retried", "lease_expired", "released", "dead_lettered", "redriven", "removed", "expired", "cancelled", "trimmed", "purged", "deleted")
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    RETRIED_FIELD_NUMBER: _ClassVar[int]
    LEASE_EXPIRED_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERED_FIELD_NUMBER: _ClassVar[int]
    REDRIVEN_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_FIELD_NUMBER: _ClassVar[int]
    PURGED_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    published: int
    delivered: int
    redelivered: int
    acked: int
    retried: int
    lease_expired: int
    released: int
    dead_lettered: int
    redriven: int
    removed: int
    expired: int
    cancelled: int
    trimmed: int
    purged: int
    deleted: int
    def __init__(self, published: _Optional[int] = ..., delivered: _Optional[int] = ..., redelivered: _Optional[int] = ..., acked: _Optional[int] = ..., retried: _Optional[int] = ..., lease_expired: _Optional[int] = ..., released: _Optional[int] = ..., dead_lettered: _Optional[int] = ..., redriven: _Optional[int] = ..., removed: _Optional[int] = ..., expired: _Optional[int] = ..., cancelled: _Optional[int] = ..., trimmed: _Optional[int] = ..., purged: _Optional[int] = ..., deleted: _Optional[int] = ...) -> None: ...

class AnalyticsPoint(_message.Message):
    __slots__ = ("at_ms", "counts", "wait", "processing", "end_to_end", "depth", "dead")
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    PROCESSING_FIELD_NUMBER: _ClassVar[int]
    END_TO_END_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    at_ms: int
    counts: AnalyticsCounts
    wait: AnalyticsTiming
    processing: AnalyticsTiming
    end_to_end: AnalyticsTiming
    depth: int
    dead: int
    def __init__(self, at_ms: _Optional[int] = ..., counts: _Optional[_Union[AnalyticsCounts, _Mapping]] = ..., wait: _Optional[_Union[AnalyticsTiming, _Mapping]] = ..., processing: _Optional[_Union[AnalyticsTiming, _Mapping]] = ..., end_to_end: _Optional[_Union[AnalyticsTiming, _Mapping]] = ..., depth: _Optional[int] = ..., dead: _Optional[int] = ...) -> None: ...

class AnalyticsGroup(_message.Message):
    __slots__ = ("queue", "group", "counts", "wait", "processing", "end_to_end", "depth", "dead")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    PROCESSING_FIELD_NUMBER: _ClassVar[int]
    END_TO_END_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    queue: str
    group: str
    counts: AnalyticsCounts
    wait: AnalyticsTiming
    processing: AnalyticsTiming
    end_to_end: AnalyticsTiming
    depth: int
    dead: int
    def __init__(self, queue: _Optional[str] = ..., group: _Optional[str] = ..., counts: _Optional[_Union[AnalyticsCounts, _Mapping]] = ..., wait: _Optional[_Union[AnalyticsTiming, _Mapping]] = ..., processing: _Optional[_Union[AnalyticsTiming, _Mapping]] = ..., end_to_end: _Optional[_Union[AnalyticsTiming, _Mapping]] = ..., depth: _Optional[int] = ..., dead: _Optional[int] = ...) -> None: ...

class AnalyticsConsumer(_message.Message):
    __slots__ = ("queue", "group", "consumer", "delivered", "acked", "failed", "lost", "per_s", "error_rate", "mean_processing_ms")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    PER_S_FIELD_NUMBER: _ClassVar[int]
    ERROR_RATE_FIELD_NUMBER: _ClassVar[int]
    MEAN_PROCESSING_MS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    group: str
    consumer: str
    delivered: int
    acked: int
    failed: int
    lost: int
    per_s: float
    error_rate: float
    mean_processing_ms: float
    def __init__(self, queue: _Optional[str] = ..., group: _Optional[str] = ..., consumer: _Optional[str] = ..., delivered: _Optional[int] = ..., acked: _Optional[int] = ..., failed: _Optional[int] = ..., lost: _Optional[int] = ..., per_s: _Optional[float] = ..., error_rate: _Optional[float] = ..., mean_processing_ms: _Optional[float] = ...) -> None: ...

class AnalyticsFailure(_message.Message):
    __slots__ = ("queue", "group", "fingerprint", "pattern", "reason", "messages", "error", "partition", "offset")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    queue: str
    group: str
    fingerprint: str
    pattern: str
    reason: str
    messages: int
    error: str
    partition: int
    offset: int
    def __init__(self, queue: _Optional[str] = ..., group: _Optional[str] = ..., fingerprint: _Optional[str] = ..., pattern: _Optional[str] = ..., reason: _Optional[str] = ..., messages: _Optional[int] = ..., error: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class AnalyticsNow(_message.Message):
    __slots__ = ("queue", "depth", "ready", "scheduled", "leased", "waiting_for_retry", "dead", "published_per_s", "delivered_per_s", "acked_per_s")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_RETRY_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_PER_S_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_PER_S_FIELD_NUMBER: _ClassVar[int]
    ACKED_PER_S_FIELD_NUMBER: _ClassVar[int]
    queue: str
    depth: int
    ready: int
    scheduled: int
    leased: int
    waiting_for_retry: int
    dead: int
    published_per_s: float
    delivered_per_s: float
    acked_per_s: float
    def __init__(self, queue: _Optional[str] = ..., depth: _Optional[int] = ..., ready: _Optional[int] = ..., scheduled: _Optional[int] = ..., leased: _Optional[int] = ..., waiting_for_retry: _Optional[int] = ..., dead: _Optional[int] = ..., published_per_s: _Optional[float] = ..., delivered_per_s: _Optional[float] = ..., acked_per_s: _Optional[float] = ...) -> None: ...

class AnalyticsQueue(_message.Message):
    __slots__ = ("queue", "counts", "wait", "processing", "end_to_end", "depth", "dead", "now")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    PROCESSING_FIELD_NUMBER: _ClassVar[int]
    END_TO_END_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    queue: str
    counts: AnalyticsCounts
    wait: AnalyticsTiming
    processing: AnalyticsTiming
    end_to_end: AnalyticsTiming
    depth: int
    dead: int
    now: AnalyticsNow
    def __init__(self, queue: _Optional[str] = ..., counts: _Optional[_Union[AnalyticsCounts, _Mapping]] = ..., wait: _Optional[_Union[AnalyticsTiming, _Mapping]] = ..., processing: _Optional[_Union[AnalyticsTiming, _Mapping]] = ..., end_to_end: _Optional[_Union[AnalyticsTiming, _Mapping]] = ..., depth: _Optional[int] = ..., dead: _Optional[int] = ..., now: _Optional[_Union[AnalyticsNow, _Mapping]] = ...) -> None: ...

class AnalyticsQueuesReply(_message.Message):
    __slots__ = ("from_ms", "to_ms", "analysed_until_ms", "queues", "total", "page", "limit")
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    TO_MS_FIELD_NUMBER: _ClassVar[int]
    ANALYSED_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    from_ms: int
    to_ms: int
    analysed_until_ms: int
    queues: _containers.RepeatedCompositeFieldContainer[AnalyticsQueue]
    total: int
    page: int
    limit: int
    def __init__(self, from_ms: _Optional[int] = ..., to_ms: _Optional[int] = ..., analysed_until_ms: _Optional[int] = ..., queues: _Optional[_Iterable[_Union[AnalyticsQueue, _Mapping]]] = ..., total: _Optional[int] = ..., page: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class AnalyticsReply(_message.Message):
    __slots__ = ("from_ms", "to_ms", "step_ms", "analysed_until_ms", "counts", "wait", "processing", "end_to_end", "points", "groups", "consumers", "failures", "now", "depth", "dead")
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    TO_MS_FIELD_NUMBER: _ClassVar[int]
    STEP_MS_FIELD_NUMBER: _ClassVar[int]
    ANALYSED_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    PROCESSING_FIELD_NUMBER: _ClassVar[int]
    END_TO_END_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    from_ms: int
    to_ms: int
    step_ms: int
    analysed_until_ms: int
    counts: AnalyticsCounts
    wait: AnalyticsTiming
    processing: AnalyticsTiming
    end_to_end: AnalyticsTiming
    points: _containers.RepeatedCompositeFieldContainer[AnalyticsPoint]
    groups: _containers.RepeatedCompositeFieldContainer[AnalyticsGroup]
    consumers: _containers.RepeatedCompositeFieldContainer[AnalyticsConsumer]
    failures: _containers.RepeatedCompositeFieldContainer[AnalyticsFailure]
    now: _containers.RepeatedCompositeFieldContainer[AnalyticsNow]
    depth: int
    dead: int
    def __init__(self, from_ms: _Optional[int] = ..., to_ms: _Optional[int] = ..., step_ms: _Optional[int] = ..., analysed_until_ms: _Optional[int] = ..., counts: _Optional[_Union[AnalyticsCounts, _Mapping]] = ..., wait: _Optional[_Union[AnalyticsTiming, _Mapping]] = ..., processing: _Optional[_Union[AnalyticsTiming, _Mapping]] = ..., end_to_end: _Optional[_Union[AnalyticsTiming, _Mapping]] = ..., points: _Optional[_Iterable[_Union[AnalyticsPoint, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[AnalyticsGroup, _Mapping]]] = ..., consumers: _Optional[_Iterable[_Union[AnalyticsConsumer, _Mapping]]] = ..., failures: _Optional[_Iterable[_Union[AnalyticsFailure, _Mapping]]] = ..., now: _Optional[_Iterable[_Union[AnalyticsNow, _Mapping]]] = ..., depth: _Optional[int] = ..., dead: _Optional[int] = ...) -> None: ...

class AnalyticsDepthPoint(_message.Message):
    __slots__ = ("at_ms", "depth", "dead")
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    at_ms: int
    depth: int
    dead: int
    def __init__(self, at_ms: _Optional[int] = ..., depth: _Optional[int] = ..., dead: _Optional[int] = ...) -> None: ...

class AnalyticsDepthsReply(_message.Message):
    __slots__ = ("from_ms", "to_ms", "step_ms", "analysed_until_ms", "points", "now")
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    TO_MS_FIELD_NUMBER: _ClassVar[int]
    STEP_MS_FIELD_NUMBER: _ClassVar[int]
    ANALYSED_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    from_ms: int
    to_ms: int
    step_ms: int
    analysed_until_ms: int
    points: _containers.RepeatedCompositeFieldContainer[AnalyticsDepthPoint]
    now: _containers.RepeatedCompositeFieldContainer[AnalyticsNow]
    def __init__(self, from_ms: _Optional[int] = ..., to_ms: _Optional[int] = ..., step_ms: _Optional[int] = ..., analysed_until_ms: _Optional[int] = ..., points: _Optional[_Iterable[_Union[AnalyticsDepthPoint, _Mapping]]] = ..., now: _Optional[_Iterable[_Union[AnalyticsNow, _Mapping]]] = ...) -> None: ...

class AnalyticsThroughputPoint(_message.Message):
    __slots__ = ("at_ms", "published_per_s", "delivered_per_s", "acked_per_s", "retried_per_s", "dead_lettered_per_s")
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_PER_S_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_PER_S_FIELD_NUMBER: _ClassVar[int]
    ACKED_PER_S_FIELD_NUMBER: _ClassVar[int]
    RETRIED_PER_S_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERED_PER_S_FIELD_NUMBER: _ClassVar[int]
    at_ms: int
    published_per_s: float
    delivered_per_s: float
    acked_per_s: float
    retried_per_s: float
    dead_lettered_per_s: float
    def __init__(self, at_ms: _Optional[int] = ..., published_per_s: _Optional[float] = ..., delivered_per_s: _Optional[float] = ..., acked_per_s: _Optional[float] = ..., retried_per_s: _Optional[float] = ..., dead_lettered_per_s: _Optional[float] = ...) -> None: ...

class AnalyticsThroughputReply(_message.Message):
    __slots__ = ("from_ms", "to_ms", "step_ms", "analysed_until_ms", "points", "now")
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    TO_MS_FIELD_NUMBER: _ClassVar[int]
    STEP_MS_FIELD_NUMBER: _ClassVar[int]
    ANALYSED_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    from_ms: int
    to_ms: int
    step_ms: int
    analysed_until_ms: int
    points: _containers.RepeatedCompositeFieldContainer[AnalyticsThroughputPoint]
    now: _containers.RepeatedCompositeFieldContainer[AnalyticsNow]
    def __init__(self, from_ms: _Optional[int] = ..., to_ms: _Optional[int] = ..., step_ms: _Optional[int] = ..., analysed_until_ms: _Optional[int] = ..., points: _Optional[_Iterable[_Union[AnalyticsThroughputPoint, _Mapping]]] = ..., now: _Optional[_Iterable[_Union[AnalyticsNow, _Mapping]]] = ...) -> None: ...

class AnalyticsLatencyPoint(_message.Message):
    __slots__ = ("at_ms", "wait", "processing", "end_to_end")
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    PROCESSING_FIELD_NUMBER: _ClassVar[int]
    END_TO_END_FIELD_NUMBER: _ClassVar[int]
    at_ms: int
    wait: AnalyticsTiming
    processing: AnalyticsTiming
    end_to_end: AnalyticsTiming
    def __init__(self, at_ms: _Optional[int] = ..., wait: _Optional[_Union[AnalyticsTiming, _Mapping]] = ..., processing: _Optional[_Union[AnalyticsTiming, _Mapping]] = ..., end_to_end: _Optional[_Union[AnalyticsTiming, _Mapping]] = ...) -> None: ...

class AnalyticsLatencyReply(_message.Message):
    __slots__ = ("from_ms", "to_ms", "step_ms", "analysed_until_ms", "points")
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    TO_MS_FIELD_NUMBER: _ClassVar[int]
    STEP_MS_FIELD_NUMBER: _ClassVar[int]
    ANALYSED_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    from_ms: int
    to_ms: int
    step_ms: int
    analysed_until_ms: int
    points: _containers.RepeatedCompositeFieldContainer[AnalyticsLatencyPoint]
    def __init__(self, from_ms: _Optional[int] = ..., to_ms: _Optional[int] = ..., step_ms: _Optional[int] = ..., analysed_until_ms: _Optional[int] = ..., points: _Optional[_Iterable[_Union[AnalyticsLatencyPoint, _Mapping]]] = ...) -> None: ...

class CallRequest(_message.Message):
    __slots__ = ("method", "target", "content_type", "accept", "body")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    method: str
    target: str
    content_type: str
    accept: str
    body: bytes
    def __init__(self, method: _Optional[str] = ..., target: _Optional[str] = ..., content_type: _Optional[str] = ..., accept: _Optional[str] = ..., body: _Optional[bytes] = ...) -> None: ...

class CallReply(_message.Message):
    __slots__ = ("status", "body", "retry_after_s")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    status: int
    body: bytes
    retry_after_s: int
    def __init__(self, status: _Optional[int] = ..., body: _Optional[bytes] = ..., retry_after_s: _Optional[int] = ...) -> None: ...

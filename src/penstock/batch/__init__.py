"""The columnar batch frame, used by the SDK, the server, the journal and Spark. Format: docs/formats/batch.md."""

from penstock.batch.codec import BadBatch, Batch, Buffer, build, offsets_of

__all__ = ["BadBatch", "Batch", "Buffer", "build", "offsets_of"]

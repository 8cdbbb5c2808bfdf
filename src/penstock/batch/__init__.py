"""The columnar batch: the unit from the client to the disk to Spark. Format: docs/formats/batch.md."""

from penstock.batch.codec import BadBatch, Batch, Buffer, build, offsets_of

__all__ = ["BadBatch", "Batch", "Buffer", "build", "offsets_of"]

"""The encoding of records, frames and blobs, and the port that every storage engine implements."""

"""Shards that other processes serve: calls of the facade over a link between two processes of one store."""

"""Encryption of stored messages: keys of keys, the keyring of a shard, and the cipher of its records.

Format: docs/formats/encryption.md.
"""

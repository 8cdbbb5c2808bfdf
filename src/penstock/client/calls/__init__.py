"""Calls of the API without I/O: `call` for any operation, `delivery` for those that move messages."""

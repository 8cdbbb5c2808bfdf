"""Consumers: lease ahead, ack along the way, renew what is held.

session     one consumer at work; `fetch` is a lease call under way
settling    the calls that settle, and acks until they are answered
renewal     extends the leases of everything that is held
membership  the place in a group with assigned partitions
messages    messages and batches under a lease, as users see them
consumers   the iterators of users; a queue and a scope are sources of messages
"""

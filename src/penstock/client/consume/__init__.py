"""Consumers: lease ahead, ack along the way, renew what is held.

session       one consumer at work; `fetch` is a lease call under way, `settle_calls` the calls that settle
acks          acks until they are answered
renewal       extends the leases of everything that is held
membership    the place in a group with assigned partitions; `group_member` joins and sends heartbeats
settling      messages and batches under a lease; `messages` are those that users see
consumers     the iterators of users; `scope` consumes from many queues
"""

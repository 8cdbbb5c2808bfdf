"""Webhooks: an ordinary consumer inside the server that sends what it leases to somebody's URL.

courier    all webhooks: who is registered, start and stop, what people can see of it
endpoint   one webhook: leases, attempts side by side, settles; what a failure means
breaker    when to leave an endpoint alone
envelope   a message as a request: its body and headers
signing    Standard Webhooks signatures
sender     one request and what came of it
guard      which addresses may be sent to at all
network    the guard's rules where names become addresses and addresses become connections
settling   verdicts, told to the broker in batches
"""

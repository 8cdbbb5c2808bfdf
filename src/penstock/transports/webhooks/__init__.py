"""Webhooks: a consumer inside the server that leases messages and posts them to registered URLs.

deliverer        all webhooks: start and stop, status and attempts
endpoint         one webhook: leases, concurrent attempts, settling, retries
breaker          the circuit breaker of an endpoint
envelope         a message as an HTTP request: body and headers
signing          Standard Webhooks signatures
sender           one HTTP request and its result
lazy_sender      a sender that loads its HTTP client on first use
send_result      the result of a request: outcome, status, Retry-After
guard            the URLs and addresses that requests may go to
network          the resolver and the connector that ask the guard
settle_batcher   acks, nacks, rejects and releases, sent to the broker in batches
"""

"""Messages as views of the frames in which they came. Without I/O.

`stored` is for every message, `leased` for runs under a lease, `spans` for ranges of receipts.
"""

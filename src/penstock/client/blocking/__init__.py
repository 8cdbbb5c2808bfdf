"""The client without asyncio: the same coroutines, run to their end in the calling thread.

runtime      the lock, the waiting and the timers that replace an event loop
socket_pool  HTTP over sockets; `transport` has the other schemes, in an event loop of another thread
lane         publishing, one request per call
methods      makes a blocking method of a coroutine; `messages` and `client` are lists of such methods
calls        single calls without a client
"""

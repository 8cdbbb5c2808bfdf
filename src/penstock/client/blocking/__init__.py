"""The client without asyncio: the same coroutines, run to their end in the calling thread.

runtime    the lock, the waiting and the timers that replace an event loop; makes blocking methods of coroutines
transport  HTTP over sockets; other schemes in an event loop of another thread
messages   lists of such methods, for what a consumer hands out; `client` has the others, and single calls
"""

"""Publishing: values become frames, frames are stored in order and once.

frames        values and options to frames
lane          one queue: collects and numbers messages, one frame in flight; `send_buffer` bounds what is under way
published     the results
transactions  messages that are published when others are acked
"""

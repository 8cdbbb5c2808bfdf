"""Publishing: values become frames, frames are stored in order and once.

frames        values and options to frames
lane          one queue: collects single messages, one frame in flight; `send_buffer` bounds what is under way
sequences     the numbers by which the server recognises a repetition
published     the results
transactions  messages that are published when others are acked
"""

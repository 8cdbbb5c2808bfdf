"""Fuzzing: any bytes either parse or raise the one documented error. `python -m fuzz --list`."""

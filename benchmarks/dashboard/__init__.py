"""Figures of the dashboard, of the minute series and of tracing: `python -m benchmarks.dashboard`."""

"""A campaign against the real broker on a real file system: `make torture`. See docs/simulation.md."""

"""The deterministic simulator: the real broker on a virtual machine that fails. See docs/simulation.md."""

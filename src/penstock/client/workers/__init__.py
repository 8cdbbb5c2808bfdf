"""Functions instead of loops: `handler` calls a function, `worker` consumes for it, `runner` runs all of a client."""

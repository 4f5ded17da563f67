"""One step of a training run, replayed and judged whole."""

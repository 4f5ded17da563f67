"""A training run's steps, replayed bit for bit and judged."""

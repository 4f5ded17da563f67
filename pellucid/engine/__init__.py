"""The fast engine: the specification's computation in PyTorch, with the same names."""

"""The fast engine: the specification's computation in PyTorch, decoding in C (cpu/) and Triton (gpu/)."""

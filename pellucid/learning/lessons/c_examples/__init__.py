"""Part C, the six examples: a transformer small enough to compute by hand, from one product to training."""

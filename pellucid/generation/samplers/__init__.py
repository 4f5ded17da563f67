"""The samplers of `parts/samplers/` in a chain, and the choice of a token from what they leave."""

"""Where a number comes from: traces, addresses, derivations; and what a model is made of."""

"""The origin of a number: traces, addresses, derivations; and what a model is made of."""

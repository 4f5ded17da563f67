"""The origin of a number: traces, addresses, derivations; and a model's conventions and choices."""

"""Every choice of a model, built once and computed in every way: the claims about it read that."""

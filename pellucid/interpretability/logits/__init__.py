"""Where a logit comes from: the lens, tuned or not, direct attribution, and the search for the largest."""

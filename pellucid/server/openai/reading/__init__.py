"""From the body of a request to values, settings and token ids."""

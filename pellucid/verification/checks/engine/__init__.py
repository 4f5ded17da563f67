"""The fast engine on every path that people run, against the specification."""

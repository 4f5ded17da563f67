"""Views of a model's inside: logit lens, attribution, patching, probes, heads; each has its formula.

A `Runner` runs either engine, records named values as float64 arrays and replaces some of them; everything
else here is NumPy on what it returns, so that the numbers of the specification and of the fast engine are
computed by the same lines.
"""

"""Views of a trace: the derivation of a number, its formula, tables, the overview, and the trace file."""

"""Views of a trace: where a number came from, what the file says, where two runs part."""

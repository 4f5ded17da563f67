"""Charts: one description, written as terminal text, SVG or PNG."""

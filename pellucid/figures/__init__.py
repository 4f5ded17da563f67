"""Charts: one description (`chart`), written as terminal text, SVG, PNG or an HTML page."""

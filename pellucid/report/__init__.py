"""Charts and diagrams: one description, written as terminal text, SVG, PNG or an HTML page."""

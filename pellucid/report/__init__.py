"""Charts, tables and pages: one description of a result, for a terminal, as SVG, PNG, HTML or JSON."""

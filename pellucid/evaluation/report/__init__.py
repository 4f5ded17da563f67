"""An evaluation for people: a table on the terminal, and one HTML page with plots and passages."""

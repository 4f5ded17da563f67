"""What a look found: tables, plots and data, as text, as a page and in files."""

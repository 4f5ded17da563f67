"""The ledger: how each token of a text was chosen, as a record, a file, a table and a page."""

"""The explorer: questions about the numbers of a trace, and the page that lays out the answers."""

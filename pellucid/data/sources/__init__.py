"""Where rows to learn from come from: text, token files, stories and tasks made on the way, conversations."""

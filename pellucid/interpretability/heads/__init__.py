"""What the heads of a model attend to, and the loss without them."""

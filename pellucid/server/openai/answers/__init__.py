"""From the pieces that the engine sends to an answer, whole or streamed, and to its explanation."""

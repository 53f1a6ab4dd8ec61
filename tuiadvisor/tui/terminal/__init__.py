"""The way to the terminal: only what changed."""

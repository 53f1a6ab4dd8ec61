"""A job that no longer moves: since when, in which collective, and who is missing."""

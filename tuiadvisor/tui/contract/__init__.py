"""What pages, navigator and application know of each other, of a run and of what lies beside it."""

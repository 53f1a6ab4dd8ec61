"""Two runs side by side: the same work or not, faster or slower, and what limits each."""

"""Stacks that were sampled: shares of lines, and whether two ranks differ beyond sampling noise."""

"""Documents for people and scripts, made from a RunView."""

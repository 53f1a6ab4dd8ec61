"""Evidence, findings, goodput, hang and verdict: what is said of a run."""

"""Latencies of a serving process from what its histograms can tell, and goodput against objectives."""

"""Series of numbers: change points, drift, intervals, bootstrap, what-if."""

"""One per node: finds ranks, injects, drains their rings, sends frames."""

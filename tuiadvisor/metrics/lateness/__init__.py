"""Who is late to the gradient barrier, in which phase, and what it costs all."""

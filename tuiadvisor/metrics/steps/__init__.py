"""The steps of all ranks as arrays: the table, the gradient barrier, accounting, and statistics all metrics share."""

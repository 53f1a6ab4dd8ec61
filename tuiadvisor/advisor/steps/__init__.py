"""The steps of every rank on one job axis, bounded in memory."""

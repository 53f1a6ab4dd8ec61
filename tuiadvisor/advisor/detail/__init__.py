"""What bursts of detail and devices tell: buckets, collectives, pipeline chunks, device times; bounded in memory."""

"""What was measured, judged and heard, put together for a RunView."""

"""What commands and screens drive: live sessions, recordings, the guided session, a comparison."""

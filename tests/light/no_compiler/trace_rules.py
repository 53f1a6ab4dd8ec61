"""What a process group tells the compiler when it ends."""


def clear_lru_cache() -> None:
    """Nothing is kept."""

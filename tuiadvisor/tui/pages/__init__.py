"""One screen a file: from frozen pictures to lines."""

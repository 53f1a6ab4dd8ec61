"""`python -m tuiadvisor.cli`: the same as the console script."""

import sys

from tuiadvisor.cli import main

if __name__ == "__main__":
    sys.exit(main())

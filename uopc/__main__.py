"""`python -m uopc`: the command line."""

import sys

from uopc.cli import main

if __name__ == "__main__":
    sys.exit(main())

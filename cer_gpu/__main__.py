"""``python -m cer_gpu``: the command line."""

import sys

from cer_gpu.cli import main

if __name__ == "__main__":
    sys.exit(main())

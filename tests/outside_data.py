"""Data that the project does not hold: files beside the checkout, or in the folder that CER_GPU_DATA names.

Tests that need one are skipped where it is not there.
"""

import os
from pathlib import Path

FOLDER = Path(os.environ.get("CER_GPU_DATA", Path(__file__).parents[2] / "shared" / "data"))


def folder_of(name):
    """Return the folder that holds a file; None: there is none."""
    return FOLDER if (FOLDER / name).exists() else None

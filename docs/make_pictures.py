"""Make the pictures of the page of explore, by a browser (Debian: chromium and chromium-driver).

.venv/bin/python docs/make_pictures.py          # writes docs/pictures/explore.png and explore_dark.png
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from report.browser import Browser, driver  # noqa: E402

from cer_gpu.exploring.app import serving  # noqa: E402
from cer_gpu.exploring.samples import ExploredEvents  # noqa: E402
from cer_gpu.exploring.session import Session  # noqa: E402

QUERY = """SELECT * FROM flights
WHERE LANDED AS late ; DEPARTED AS again ; LANDED AS last
FILTER late[delay > 60] AND again[delay > 60] AND last[delay > 120]
PARTITION BY [tailnum]
WITHIN 12 HOURS"""


def main(folder: Path = ROOT / "docs" / "pictures") -> None:
    """Write the pictures."""
    explored = ExploredEvents(str(ROOT / "examples" / "data" / "flights.parquet"))
    explored.load()
    with (
        serving(lambda send: Session(explored, send, query=QUERY), "flights.parquet") as address,
        driver() as url,
    ):
        for name, is_dark in (("explore.png", False), ("explore_dark.png", True)):
            browser = Browser(url, width=1360, height=1180, dark=is_dark)
            browser.open(address)
            for _ in range(2):  # the first evaluation compiles loops
                browser.until("return !document.getElementById('run').disabled")
                browser.run("document.getElementById('run').click()")
                for _ in range(1200):
                    if browser.run("return document.getElementById('stop').disabled"):
                        break
                    time.sleep(0.1)
            time.sleep(0.5)
            browser.picture(folder / name)
            browser.close()


if __name__ == "__main__":
    main()

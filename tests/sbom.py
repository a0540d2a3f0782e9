"""Write a bill of materials of a release, in CycloneDX: `dist/cer_gpu-VERSION.cdx.json` (`make sbom`).

It lists the package and all that its extras for users bring, as they are in a fresh environment with the pinned
versions.  CycloneDX's own tool writes it, from an environment beside that one, and validates it by its schema.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from wheel_check import CONSTRAINTS, DIST, ROOT, build, environment, run

EXTRAS = "delta,iceberg,lsp,plot,sigma,spark"


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="cer-gpu-sbom-") as temporary:
        folder = Path(temporary)
        wheel = next(iter(DIST.glob("*-py3-none-any.whl")), None) or build()
        version = wheel.name.split("-")[1]
        release = environment(folder / "release", [f"{wheel}[{EXTRAS}]", "setuptools"])  # one of them needs it
        tool = str(Path(environment(folder / "tool", ["cyclonedx-bom"])).with_name("cyclonedx-py"))
        written = DIST / f"cer_gpu-{version}.cdx.json"
        options = ["--mc-type", "library", "--output-reproducible", "--validate"]
        options += ["--pyproject", str(ROOT / "pyproject.toml"), "--output-file", str(written)]
        run([tool, "environment", *options, release], folder)
    told = {each["name"]: each["version"] for each in finish(written, version)}
    pinned = re.findall(r"^([\w.-]+)==(\S+)$", CONSTRAINTS.read_text(encoding="utf-8"), re.MULTILINE)
    wrong = {name: told[name] for name, at in pinned if told.get(name, at) != at}
    assert not wrong, wrong
    print(f"{written.relative_to(ROOT)}: {len(told)} components")
    return 0


def finish(written: Path, version: str) -> list[dict[str, Any]]:
    """Add the version, which the tool does not read from the code, and drop pip, which comes with each environment."""
    bill = json.loads(written.read_text(encoding="utf-8"))
    bill["metadata"]["component"] |= {"version": version, "purl": f"pkg:pypi/cer-gpu@{version}"}
    dropped = {each["bom-ref"] for each in bill["components"] if each["name"] == "pip"}
    bill["components"] = [each for each in bill["components"] if each["bom-ref"] not in dropped]
    bill["dependencies"] = [each for each in bill["dependencies"] if each["ref"] not in dropped]
    written.write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")
    return list(bill["components"])


if __name__ == "__main__":
    sys.exit(main())

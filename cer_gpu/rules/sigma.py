"""Rules of Sigma in YAML; correlations refer to rules in other files, so that all files are read together.

YAML without a rule (workflows, rule tests) is passed over; `cer_gpu.sigma.load` tells it from rules, and for want of
pySigma a word of the text does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cer_gpu.ceql.query_file import read_query_file
from cer_gpu.errors import CerError, OptionError
from cer_gpu.rules.found import FieldColumns, RuleFile, RulesFound
from cer_gpu.sigma.loaded import silenced_notes
from cer_gpu.sigma.loading import PYSIGMA_MISSING, load

OTHER_YAML = "YAML without a detection"
_LIKE_A_RULE = re.compile(r"""^[ \t{]*["']?(?:detection|correlation)["']?[ \t]*:""", re.MULTILINE)


def read_sigma(files: Sequence[RuleFile], fields: FieldColumns) -> RulesFound:
    """Read the rules in all files."""
    if not files:
        return RulesFound()
    try:
        found = load(
            [file.path for file in files], fields.pipelines, fields.columns, nocase_groups=fields.nocase_groups
        )
    except OptionError as error:
        if str(error) != PYSIGMA_MISSING:
            raise
        return _without_pysigma(files, error)
    over = [kind for kind, n in found.skipped_files.items() for _ in range(n)]
    errors = [(each.file or each.name, each.error) for each in found._refused]
    notes = list(silenced_notes(found.silenced))
    return RulesFound(list(found.rules.values()), over, errors, notes, found.log_sources)


def _without_pysigma(files: Sequence[RuleFile], missing: OptionError) -> RulesFound:
    """Return what is known of files that cannot be read: an error for the rules among them."""
    errors: list[tuple[str, CerError]] = []
    rules = []
    for file in files:
        try:
            if _LIKE_A_RULE.search(read_query_file(file.path)):
                rules.append(str(file.path))
        except OptionError as error:
            errors.append((str(file.path), error))
    over = [OTHER_YAML] * (len(files) - len(rules) - len(errors))
    if rules:
        more = f" and {len(rules) - 1:,} more" if len(rules) > 1 else ""
        errors.append((rules[0], OptionError(f"{rules[0]}{more}: {missing}")))
    return RulesFound((), over, errors)

"""Sigma: `load` converts rules to CEQL, for which it needs pySigma (the extra ``sigma``); the queries need nothing."""

from cer_gpu.sigma.loaded import SigmaRules
from cer_gpu.sigma.loading import load

__all__ = ["SigmaRules", "load"]

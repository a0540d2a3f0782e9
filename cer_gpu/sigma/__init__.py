"""Sigma: rules become texts of CEQL by `load`, which needs pySigma (the extra ``sigma``); the texts need nothing."""

from cer_gpu.sigma.loaded import SigmaRules
from cer_gpu.sigma.loading import load

__all__ = ["SigmaRules", "load"]

"""Sigma: rules become texts of CEQL by `load`, which needs pySigma (the extra ``sigma``); the texts need nothing."""

from cer_gpu.sigma.loading import SigmaRules, load

__all__ = ["SigmaRules", "load"]

"""The back end ``cer_gpu`` for the plugins of pySigma."""

from cer_gpu.sigma.backend import CerGpuBackend

__all__ = ["CerGpuBackend"]

"""Sigma: rules become texts of CEQL by `load`, which needs pySigma (the extra ``sigma``); the texts need nothing."""

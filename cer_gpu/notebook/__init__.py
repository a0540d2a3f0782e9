"""Queries in the cells of notebooks: the magic ``%%ceql``, by ``%load_ext cer_gpu``."""

"""Evaluation of guards over whole columns: typed terms, their interpreter, and the code generated from them."""

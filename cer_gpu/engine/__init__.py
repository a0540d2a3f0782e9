"""Evaluation of a stream batch by batch: blocks, the pipeline of stages, the evaluator, checkpoints."""

"""Benchmarks: the costs of fedsim as ratios to a reference that is measured in the same run, on the same machine."""

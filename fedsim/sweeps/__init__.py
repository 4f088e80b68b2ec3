"""Sweeps: their files, hyper-parameter search, published numbers, and running the cells."""

"""Loaded by every Python process that the tests start: tests/conftest.py puts this folder on PYTHONPATH.

Most of these processes load torch, flwr or ray, work for a moment and end. The garbage collector would go through everything
they have loaded dozens of times, and once more when they end: a third of the processor time of such a process.
"""

import atexit
import gc

gc.set_threshold(100_000, 50, 50)
atexit.register(gc.freeze)

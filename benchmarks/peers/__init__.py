"""The same work in other frameworks: one module each, run by the Python of its own environment under .venv-peers.

`python -m benchmarks.peers.NAME W1 DATA.npz ROUNDS` prints {"seconds": [...]}, one number per round, as its last line.
"""

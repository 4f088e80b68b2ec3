"""The live page: follows runs while they are written, and serves what is new to a browser."""

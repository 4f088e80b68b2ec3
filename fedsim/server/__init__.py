"""The server side of a run: the roll call, the loop, paces, clocks, straggler models."""

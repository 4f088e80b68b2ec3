"""Messages between server and clients over any Flower grid: format, sending and receiving, liveness of the nodes."""

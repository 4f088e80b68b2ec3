"""Real federations: an inventory of machines, keys and certificates, and the processes on them."""

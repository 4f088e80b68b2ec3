"""Real federations: many machines, TLS, keys."""

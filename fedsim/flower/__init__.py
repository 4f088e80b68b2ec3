"""Everything that relies on parts of Flower outside its public API, and the adapter to Flower's Strategy.

Public are `flwr.app`, `flwr.serverapp`, `flwr.serverapp.strategy`, `flwr.clientapp` and `flwr.simulation`. Imports from any
other Flower module stand in this package only; tests/flower/test_private_api.py checks each of them against the installed
Flower, so that an upgrade that breaks one fails there.
"""

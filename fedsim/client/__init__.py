"""The client side of a run: the ClientApp, the state a node keeps on disk, the card of a personal model."""

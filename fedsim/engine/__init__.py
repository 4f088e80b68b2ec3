"""Where clients run. `inline` and `ray` are Flower grids of our own; under Flower's runtime the grid is Flower's."""

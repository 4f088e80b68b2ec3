"""Where clients run. `inline` and `ray` are Flower grids of fedsim; under Flower's runtime the grid is Flower's."""

ENGINES = ("ray", "inline")

"""How vectors of several clients become one: the run's `aggregator`, for every algorithm that averages.

A name stands for a class with `params` (a dataclass, set as `aggregator.KEY`) that is called with vectors, their weights
and optional scales, and returns one vector.
"""

from fedsim.aggregators.base import Aggregator, PublicAggregator, aggregator_of
from fedsim.aggregators.coordinates import Mean, Median

AGGREGATORS = {
    "mean": "fedsim.aggregators:Mean",
    "median": "fedsim.aggregators:Median",
    "trimmed-mean": "fedsim.aggregators.coordinates:TrimmedMean",
    "krum": "fedsim.aggregators.krum:Krum",
    "multi-krum": "fedsim.aggregators.krum:MultiKrum",
    "bulyan": "fedsim.aggregators.krum:Bulyan",
    "rfa": "fedsim.aggregators.geometric_median:GeometricMedian",
    "centered-clip": "fedsim.aggregators.clipping:CenteredClip",
    "norm-clip": "fedsim.aggregators.clipping:NormClip",
    "zeno": "fedsim.aggregators.zeno:Zeno",
}

__all__ = ["AGGREGATORS", "Aggregator", "Mean", "Median", "PublicAggregator", "aggregator_of"]

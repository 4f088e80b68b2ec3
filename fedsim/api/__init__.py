"""The Python API: the commands of `fedsim` as functions, with their results as objects.

import fedsim

result = fedsim.run(algorithm="spfl", dataset="digits", rounds=30)
result.accuracy("personal")        # a DataFrame: rounds x clients
result.plot()
result.model(client=3)             # a torch module
"""

from fedsim.api.callbacks import EarlyStopping, Step
from fedsim.api.functions import load, resume, run, sweep
from fedsim.api.result import Result

__all__ = ["EarlyStopping", "Result", "Step", "load", "resume", "run", "sweep"]

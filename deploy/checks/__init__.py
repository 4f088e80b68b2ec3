"""The checks of `fedsim doctor`, one module per subject. A check never raises; it returns what it found."""

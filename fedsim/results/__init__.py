"""The run folder: its lock, records, accuracy curves, checkpoints and matrices; and how a run's progress is shown."""

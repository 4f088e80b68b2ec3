"""What fedsim costs, always beside a reference measured in the same run: ratios survive a noisy machine, seconds do not."""

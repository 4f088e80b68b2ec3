"""The commands of `fedsim`: each module has `add(subparsers)` and `run(args) -> exit code`."""

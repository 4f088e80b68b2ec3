"""What `fedsim doctor` looks at: one file per kind of thing. A check never raises, it tells."""

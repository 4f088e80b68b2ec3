"""The documentation site: pages made from code, beside those in docs/. `make docs` builds it; no part of fedsim."""

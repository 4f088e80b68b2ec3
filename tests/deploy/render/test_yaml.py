"""YAML is read back as what was written, whatever it looks like."""

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from deploy.render.yaml import dump

TEXT = st.text(st.characters(categories=["L", "N", "P", "S"], include_characters=" \n"), max_size=20)
TREES = st.recursive(
    TEXT | st.integers() | st.booleans() | st.none() | st.sampled_from(["no", "~", "1e3", "0x1", "2026-01-01", "a: b"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
)


@given(TREES)
def test_yaml_says_what_was_meant(tree: Any) -> None:
    assert yaml.safe_load(dump(tree)) == tree

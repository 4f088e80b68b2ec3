"""YAML is read back as what was written, in the same order, and can be read by people."""

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from fedsim.deploy.render.yaml_text import to_yaml

TEXT = st.text(st.characters(categories=["L", "N", "P", "S"], include_characters=" \n"), max_size=20)
TREES = st.recursive(
    TEXT
    | st.integers()
    | st.booleans()
    | st.none()
    | st.sampled_from(["no", "y", "~", "1e3", "0x1", "2026-01-01", "a: b"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
)


@given(TREES)
def test_yaml_says_what_was_meant(tree: Any) -> None:
    assert yaml.safe_load(to_yaml(tree)) == tree


def test_order_blocks_and_quotes() -> None:
    shared = {"image": "fedsim:0.1.0"}
    text = to_yaml({"kind": "Pod", "args": ["no", "y", "1e3"], "file": "first\n second\n", "b": shared, "a": shared})
    assert (
        text
        == """\
kind: Pod
args:
  - 'no'
  - "y"
  - "1e3"
file: |
  first
   second
b:
  image: "fedsim:0.1.0"
a:
  image: "fedsim:0.1.0"
"""
    )


def test_several_documents() -> None:
    assert to_yaml({"one": 1}, {"two": 2}) == "one: 1\n---\ntwo: 2\n"

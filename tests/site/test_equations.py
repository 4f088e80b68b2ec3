"""Equations of docstrings as HTML, and the parts of a docstring."""

import re
from importlib import import_module

import pytest

from docsite import docstrings
from docsite.equations import typeset
from fedsim.strategies import ALGORITHMS


def plain(html: str) -> str:
    """Without the tags for italics, which make expectations hard to read."""
    return html.replace("<i>", "").replace("</i>", "")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("w <- w + sum_{k in S} n_k * delta_k", "w ← w + ∑<sub>k ∈ S</sub> n<sub>k</sub> · δ<sub>k</sub>"),
        ("(mu/2) ||x - w||^2", "(μ/2) ‖x \N{MINUS SIGN} w‖<sup>2</sup>"),
        ("th^{t-1}", "θ<sup>t\N{MINUS SIGN}1</sup>"),
        ("(1 + u)^(-1/2)", "(1 + u)<sup>\N{MINUS SIGN}1/2</sup>"),
        ("e^{w_kc . s_kc}", "e<sup>w<sub>kc</sub> · s<sub>kc</sub></sup>"),
        ("<g, c_j> < 1", "⟨g, c<sub>j</sub>⟩ &lt; 1"),
        ("grad F_k(w~)", "∇ F<sub>k</sub>(w\N{COMBINING TILDE})"),
        ("max(1.5, r)^|p_ij|", "max(1.5, r)<sup>|p<sub>ij</sub>|</sup>"),
        ("`uplink.weights[\"a_b\"]`", "<code>uplink.weights[&quot;a_b&quot;]</code>"),
        ("a mini-batch of the client's server_lr", "a mini-batch of the client's server_lr"),
    ],
)  # fmt: skip
def test_equations(text: str, shown: str) -> None:
    assert plain(typeset(text)) == shown


def test_symbols_are_italic_and_words_are_not() -> None:
    assert typeset("a mean of w, in A = a/2") == "a mean of <i>w</i>, in <i>A</i> = <i>a</i>/2"


def test_an_open_bracket_is_an_error() -> None:
    with pytest.raises(ValueError, match="not closed"):
        typeset("w_{k")


def test_a_docstring_is_cut_into_equations_symbols_and_prose() -> None:
    equation = "Server (1):  w <- w_k\n             at last"
    text = f"Mean: an average (A 2000).\n\n{equation}\n\n| symbol |\n| --- |\n| w |\n\nAs `a.b`."
    found = docstrings.read(text, {"a.b": "b.md"})
    assert (found.title, found.about) == ("Mean", "an average (A 2000).")
    equations, table, prose = found.body.splitlines()
    assert "<dt>Server (1)</dt>" in equations
    assert "<dd>at last</dd>" in equations
    assert "<th>symbol</th>" in table
    assert prose == '<p>As <a href="b.md"><code>a.b</code></a>.</p>'


@pytest.mark.parametrize("module", sorted({place.partition(":")[0] for place in ALGORITHMS.values()}))
def test_every_strategy_has_equations_without_leftovers(module: str) -> None:
    """Nothing of the plain text's notation is left outside of code."""
    body = docstrings.read(import_module(module).__doc__ or "", {}).body
    assert '<dl class="equations">' in body
    text = re.sub("<code>.*?</code>", "", body)
    for leftover in ("_{", "^{", "<-", "||", "}^", " * "):
        assert leftover not in text

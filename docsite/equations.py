"""The plain text equations of docstrings as HTML: Greek letters, subscripts, superscripts and operators.

`w <- w + sum_{k in S} n_k / n_S * delta_k` becomes letters and signs that every browser shows, without fonts or scripts.
"""
# ruff: noqa: RUF001  Greek letters and mathematical signs are what this is about

import html
import re

GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "eps": "ε", "eta": "η", "theta": "θ", "th": "θ",
    "lambda": "λ", "mu": "μ", "xi": "ξ", "pi": "π", "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "φ", "psi": "ψ",
    "omega": "ω", "Gamma": "Γ", "Pi": "Π",
}  # fmt: skip
OPERATORS = {"sum": "∑", "grad": "∇", "sqrt": "√", "min": "min", "max": "max", "argmin": "argmin", "argmax": "argmax"}
FUNCTIONS = ("softmax", "decay", "base", "mean")  # names of several letters that carry subscripts or superscripts
SIGNS = {
    "||": "‖", "<-": "←", "->": "→", ">=": "≥", "<=": "≤", "!=": "≠",
    " * ": " · ", " . ": " · ", " - ": " − ", " \\ ": " ∖ ",
}  # fmt: skip
BRACKETS = {"(": ")", "{": "}", "|": "|", "[": "]"}
INNER = re.compile(r"<([^<>=-][^<>]*,[^<>]*)>")  # <a, b>, an inner product
GAP = re.compile(r" {2,}")  # between two equations on a line
PART_OF_A_WORD = re.compile(
    r"([A-Za-z_']|\w[-.'])$"
)  # what stands before a letter that is no symbol: mini-batch, paper's
WORD = re.compile(r"[A-Za-z]+")
ACCENTS = {"~": "\N{COMBINING TILDE}"}


def typeset(text: str, inside: bool = False) -> str:
    """HTML of a text with equations; what stands between backticks is code. `inside`: of a sub- or superscript."""
    parts = text.split("`")
    return "".join(
        f"<code>{html.escape(part)}</code>"
        if at % 2
        else _equation(GAP.sub("\N{EM SPACE}", INNER.sub(r"⟨\1⟩", part)), inside)
        for at, part in enumerate(parts)
    )


def _equation(text: str, inside: bool) -> str:
    text = GAP.sub("\N{EM SPACE}", INNER.sub(r"⟨\1⟩", text))
    out, at = "", 0
    while at < len(text):
        word = WORD.match(text, at)
        if sign := next((sign for sign in SIGNS if text.startswith(sign, at)), None):
            shown, at = SIGNS[sign], at + len(sign)
        elif word and not PART_OF_A_WORD.search(text[:at]):
            shown, at = _name(text, word, inside)
        else:
            shown, at = html.escape(text[at], quote=False), at + 1
        scripts, at = _scripts(text, at)
        out += shown + scripts
    return out


def _name(text: str, word: "re.Match[str]", inside: bool) -> tuple[str, int]:
    """A word of letters at its place: a symbol, an operator, or a word as it is; and where it ends."""
    name, end = word[0], word.end()
    follows = text[end : end + 1]
    scripted = follows in ("_", "^") and text[end + 1 : end + 2] not in ("", " ")
    if name in GREEK and follows not in ("-", "="):
        return f"<i>{GREEK[name]}</i>", end
    if name in OPERATORS and (scripted or name == "grad" or (name == "sqrt" and follows == "(")):
        return OPERATORS[name], end
    if inside and name == "in":
        return "∈", end
    if follows in ACCENTS and len(name) == 1:
        return f"<i>{name}{ACCENTS[follows]}</i>", end + 1
    if name == "wbar":
        return "<i>w\N{COMBINING MACRON}</i>", end
    if follows.isdigit():
        return name, end
    if (inside and len(name) <= 2) or (len(name) == 1 and (name not in "aAI" or scripted or _is_symbol(text, word))):
        return f"<i>{name}</i>", end
    if scripted and not (len(name) <= 2 or name in FUNCTIONS) and follows == "_":
        whole = re.compile(r"\w+").match(text, word.start())  # a name of the code
        assert whole
        return html.escape(whole[0]), whole.end()
    return name, end


def _is_symbol(text: str, word: "re.Match[str]") -> bool:
    """Whether an `a` is a symbol and not the article."""
    return text == word[0] or text[: word.start()].endswith("/") or bool(re.match(r"[/)^]| [*=] ", text[word.end() :]))


def _scripts(text: str, at: int) -> tuple[str, int]:
    """The sub- and superscripts that begin here, and where they end."""
    out = ""
    while at + 1 < len(text) and text[at] in "_^" and text[at - 1] != " " and text[at + 1] != " ":
        tag = "sub" if text[at] == "_" else "sup"
        inner, at = _script(text, at + 1)
        out += f"<{tag}>{typeset(inner, inside=True)}</{tag}>"
    return out, at


def _script(text: str, at: int) -> tuple[str, int]:
    """What belongs into the script that starts at `at`, without its braces, and where it ends."""
    sign = ""
    if text[at] == "-":
        sign, at = "−", at + 1
    if text[at] in BRACKETS:
        end = _closing(text, at)
        inner = text[at : end + 1] if text[at] == "|" else text[at + 1 : end]
        return sign + inner.replace("-", "−"), end + 1
    found = re.compile(r"[A-Za-z0-9]+|\S").match(text, at)
    assert found
    return sign + found[0], found.end()


def _closing(text: str, at: int) -> int:
    """Where the bracket at this place is closed."""
    opening, closing = text[at], BRACKETS[text[at]]
    if opening == closing:
        return text.index(closing, at + 1)
    depth = 0
    for place in range(at, len(text)):
        depth += (text[place] == opening) - (text[place] == closing)
        if not depth:
            return place
    raise ValueError(f"{opening!r} is not closed in {text!r}")

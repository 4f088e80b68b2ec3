"""Damaged and nonsensical variants of a valid input, determined by a random generator."""

from collections.abc import Callable, Sequence
from random import Random

NUMBERS = (
    b"0",
    b"-1",
    b"1e999",
    b"nan",
    b"-inf",
    b"99999999999999999999999",
    b"0.5",
    b"1e-320",
    b"true",
    b'""',
    b"null",
)
WORDS = (
    b"\0",
    b"\n",
    b"\r",
    b'"',
    b"'",
    b",",
    b"=",
    b".",
    b"[",
    b"]",
    b"{",
    b"}",
    b"#",
    b"\\",
    b"\xff\xfe",
    "ß\u2028\U0001d538".encode(),
)


def mutated(inputs: Sequence[bytes], rng: Random) -> bytes:
    """One of the inputs with one to four changes, which differs from all of them."""
    content = rng.choice(inputs)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        content = rng.choice(CHANGES)(content, inputs, rng)
    return mutated(inputs, rng) if content in inputs else content


def _flip(content: bytes, inputs: Sequence[bytes], rng: Random) -> bytes:
    if not content:
        return content
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 3, 20))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(content: bytes, inputs: Sequence[bytes], rng: Random) -> bytes:
    start, end = _span(content, rng)
    return rng.choice((content[:start], content[start:], content[:start] + content[end:]))


def _insert(content: bytes, inputs: Sequence[bytes], rng: Random) -> bytes:
    place, _ = _span(content, rng)
    return (
        content[:place] + rng.choice((*WORDS, *NUMBERS, rng.randbytes(8))) * rng.choice((1, 1, 1, 50)) + content[place:]
    )


def _overwrite(content: bytes, inputs: Sequence[bytes], rng: Random) -> bytes:
    start, end = _span(content, rng)
    return content[:start] + rng.choice((bytes(end - start), rng.randbytes(end - start))) + content[end:]


def _repeat(content: bytes, inputs: Sequence[bytes], rng: Random) -> bytes:
    start, end = _span(content, rng)
    return content[:end] + content[start:end] * rng.choice((1, 2, 10)) + content[end:]


def _splice(content: bytes, inputs: Sequence[bytes], rng: Random) -> bytes:
    start, _ = _span(content, rng)
    other = rng.choice(inputs)
    return content[:start] + other[_span(other, rng)[0] :]


def _number(content: bytes, inputs: Sequence[bytes], rng: Random) -> bytes:
    """Another number in the place of one."""
    places = [place for place, byte in enumerate(content) if 48 <= byte <= 57]
    if not places:
        return content
    start = end = rng.choice(places)
    while end < len(content) and (48 <= content[end] <= 57 or content[end] in b".-+e"):
        end += 1
    return content[:start] + rng.choice(NUMBERS) + content[end:]


def _span(content: bytes, rng: Random) -> tuple[int, int]:
    start = rng.randint(0, len(content))
    return start, min(len(content), start + rng.choice((1, 4, 16, 200)))


CHANGES: tuple[Callable[[bytes, Sequence[bytes], Random], bytes], ...] = (
    _flip,
    _cut,
    _insert,
    _overwrite,
    _repeat,
    _splice,
    _number,
)

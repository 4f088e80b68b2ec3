import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.errors import ConfigError
from fedsim.layout import Layout, Tensor
from fedsim.similarity import cosines, gram
from fedsim.weights import BLOCK, Weights, fingerprint, mix, weighted_mean, weighted_sum

LAYOUT = Layout(
    parameters=(
        Tensor("base.weight", (2, 3), "base"),
        Tensor("head.weight", (2,), "head"),
        Tensor("base.bias", (2,), "base"),
    ),
    buffers=(Tensor("norm.mean", (4,), "norm", "batch-norm"),),
)


def model(layout: Layout = LAYOUT) -> Weights:
    """Entries that say where they lie: 0, 1, ... for parameters, 100, 101, ... for buffers."""
    return Weights(np.arange(layout.size, dtype=np.float32), 100 + np.arange(layout.buffer_size, dtype=np.float32))


def test_tensors_lie_in_order() -> None:
    assert (LAYOUT.size, LAYOUT.buffer_size) == (10, 4)
    assert LAYOUT.slices == {"base.weight": slice(0, 6), "head.weight": slice(6, 8), "base.bias": slice(8, 10)}


def test_a_stage_is_the_runs_it_covers() -> None:
    assert LAYOUT.stages == {"base": (slice(0, 6), slice(8, 10)), "head": (slice(6, 8),)}


def test_neighbours_of_one_stage_are_one_run() -> None:
    layout = Layout((Tensor("a.w", (3,), "a"), Tensor("a.b", (1,), "a"), Tensor("b.w", (2,), "b")))
    assert layout.stages == {"a": (slice(0, 4),), "b": (slice(4, 6),)}


def test_split_gives_views() -> None:
    vector = np.arange(10, dtype=np.float32)
    parts = {tensor.name: values for tensor, values in LAYOUT.split(vector)}
    assert parts["base.weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
    parts["head.weight"][:] = -1
    assert vector[6:8].tolist() == [-1, -1]


def test_a_model_by_name_has_its_buffers() -> None:
    two = Layout(LAYOUT.parameters, (*LAYOUT.buffers, Tensor("norm.var", (2, 1), "norm")))
    named = two.named(model(two))
    assert list(named) == ["base.weight", "head.weight", "base.bias", "norm.mean", "norm.var"]
    assert named["base.bias"].tolist() == [8, 9]
    assert named["norm.mean"].tolist() == [100, 101, 102, 103]
    assert named["norm.var"].tolist() == [[104], [105]]


def test_layout_survives_json() -> None:
    assert Layout.from_json(LAYOUT.to_json()) == LAYOUT


NORMED = Layout(
    parameters=(
        Tensor("base.0.weight", (2,), "base"),
        Tensor("base.1.weight", (1,), "base", "batch-norm"),
        Tensor("base.2.weight", (1,), "base", "norm"),
        Tensor("head.weight", (2, 1), "head"),
        Tensor("head.bias", (2,), "head"),
    ),
    buffers=(Tensor("base.1.running_mean", (1,), "base", "batch-norm"),),
)


@pytest.mark.parametrize(
    ("names", "parameters", "buffers"),
    [
        (["head"], [4, 5, 6, 7], []),
        (["base"], [0, 1, 2, 3], [100]),
        (["batch-norm"], [2], [100]),
        (["norm"], [2, 3], [100]),
        (["all"], list(range(8)), [100]),
        (["batch-norm", "head"], [2, 4, 5, 6, 7], [100]),
        ([], [], []),
    ],
)
def test_parts_of_a_model(names: list[str], parameters: list[int], buffers: list[int]) -> None:
    part, whole = NORMED.part(*names), model(NORMED)
    chosen, rest = whole.only(part), whole.only(~part)
    assert (chosen.parameters.tolist(), chosen.buffers.tolist()) == (parameters, buffers)
    assert (part.size, part.buffer_size) == (len(parameters), len(buffers))
    assert sorted(chosen.parameters.tolist() + rest.parameters.tolist()) == list(range(8))
    changed = whole.with_part(part, Weights(-chosen.parameters, -chosen.buffers))
    assert np.array_equal(changed.only(part).parameters, -chosen.parameters)
    assert np.array_equal(changed.only(~part).parameters, rest.parameters)
    assert np.array_equal(changed.only(~part).buffers, rest.buffers)
    assert whole.parameters.tolist() == list(range(8)), "the original is not changed"


def test_the_last_stage_is_the_head_if_none_is_called_so() -> None:
    layout = Layout((Tensor("a.w", (3,), "a"), Tensor("b.w", (2,), "b")))
    assert layout.part("head").parameters.tolist() == [False, False, False, True, True]


def test_unknown_parts_and_heads_that_are_not_linear_are_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"part of the model 'neck'\. .*Choices: all, base, base\.0, base\.1, base\.2, batch-norm, buffers, head, norm",
    ):
        NORMED.part("neck")
    assert NORMED.features == 1
    with pytest.raises(ConfigError, match="not one linear layer"):
        _ = LAYOUT.features


def test_an_update_has_the_difference_of_parameters_and_the_new_buffers() -> None:
    received, local = model(), Weights(np.full(10, 7, np.float32), np.full(4, 9, np.float32))
    delta = local.delta(received)
    assert delta.parameters.tolist() == [7 - i for i in range(10)]
    assert delta.buffers.tolist() == [9, 9, 9, 9]
    assert local.nbytes == 14 * 4


def test_weighted_mean_by_hand() -> None:
    vectors = [np.array([1, 2], np.float32), np.array([5, 10], np.float32)]
    assert weighted_mean(vectors, [3, 1]).tolist() == [2, 4]
    assert weighted_sum(vectors, [1, -1]).tolist() == [-4, -8]


@given(st.integers(1, 4), st.sampled_from([1, BLOCK - 1, BLOCK, BLOCK + 1]), st.integers(0, 2**32 - 1))
def test_blocks_do_not_show(count: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = [rng.standard_normal(size, dtype=np.float32) for _ in range(count)]
    weights = rng.uniform(0.1, 1, count)
    whole = weights @ np.array(vectors, np.float64)
    np.testing.assert_allclose(weighted_sum(vectors, weights.tolist()), whole, rtol=1e-6, atol=1e-7)


@given(st.integers(1, 4), st.sampled_from([1, BLOCK - 1, BLOCK + 1]), st.integers(0, 2**32 - 1))
def test_gram_and_mix_over_parts(count: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((count, size + 9), dtype=np.float32)
    parts, weights = (slice(0, size), slice(size + 5, size + 9)), rng.uniform(-1, 1, (3, count))
    chosen = np.delete(vectors, np.s_[size : size + 5], axis=1).astype(np.float64)
    # nearly orthogonal rows: what is lost to rounding is relative to their lengths
    np.testing.assert_allclose(gram(list(vectors), parts), chosen @ chosen.T, rtol=1e-12, atol=1e-9)
    mixed = np.full((3, size + 9), np.nan)
    for block, values in mix(weights, list(vectors), parts):
        mixed[:, block] = values
    assert np.isnan(mixed[:, size : size + 5]).all()
    np.testing.assert_allclose(np.delete(mixed, np.s_[size : size + 5], axis=1), weights @ chosen, atol=1e-5)


def test_cosines_by_hand() -> None:
    products = gram([np.array(v, np.float32) for v in ([3, 4], [6, 8], [-4, 3], [0, 0])], [slice(0, 2)])
    assert cosines(products).tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


@pytest.mark.parametrize("change", ["value", "name"])
def test_fingerprint_sees_every_bit(change: str) -> None:
    vector = np.zeros(3, np.float32)
    before = fingerprint({"a": vector})
    other = {"a": np.nextafter(vector, np.float32(1))} if change == "value" else {"b": vector}
    assert fingerprint(other) != before
    assert fingerprint({"a": vector.copy()}) == before

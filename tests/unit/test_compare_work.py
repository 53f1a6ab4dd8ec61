"""What two runs' steps worked on: another length of a sample is other work, and what differs is not vouched for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tuiadvisor.advisor.compare.comparable import Terms, terms
from tuiadvisor.views.comparison import WorkUnit

IMAGES = WorkUnit(2, 64.0, None, 1000, 1, 1, 250, "32x3x224x224")
TEXTS = replace(IMAGES, tokens_per_step=64 * 2048.0, input_shape="32x2048")
UNCOUNTED = replace(IMAGES, samples_per_step=None)
LOOP = replace(UNCOUNTED, input_shape="64x512")


def of(before: WorkUnit, after: WorkUnit, *, same_work: bool = False) -> Terms:
    """Both ways round they compare in the same terms."""
    found = terms(before, after, same_work=same_work)
    assert found.basis == terms(after, before, same_work=same_work).basis
    return found


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            IMAGES,
            replace(IMAGES, input_shape="32x3x112x112"),
            "the model's input 32x3x224x224 before, 32x3x112x112 after",
        ),
        (
            TEXTS,
            replace(TEXTS, tokens_per_step=64 * 512.0, input_shape="32x512"),
            "tokens a sample 2,048 before, 512 after",
        ),
        (  # twice the batch of a quarter of the length: no throughput in samples either
            TEXTS,
            replace(TEXTS, samples_per_step=128.0, tokens_per_step=128 * 512.0),
            "tokens a sample 2,048 before, 512 after",
        ),
    ],
)
def test_a_sample_of_another_size_is_other_work(before: WorkUnit, after: WorkUnit, words: str) -> None:
    """As many samples passed as the same step, whatever their size."""
    found = of(before, after)
    assert found.basis is None
    assert not found.is_other_model
    assert found.reasons == (f"{words}: neither a step nor a sample is the same work",)
    vouched = of(before, after, same_work=True)
    assert vouched.basis == "samples"
    assert words in vouched.cautions[0]


def test_another_batch_of_the_same_samples_is_compared_by_throughput() -> None:
    twice = replace(TEXTS, samples_per_step=128.0, tokens_per_step=128 * 2048.0, input_shape="64x2048")
    found = of(TEXTS, twice)
    assert found.basis == "samples"
    assert "tokens" not in found.cautions[0]
    images = replace(IMAGES, samples_per_step=128.0, input_shape="64x3x224x224")
    assert of(IMAGES, images).basis == "samples"


def test_batches_padded_to_their_longest_are_the_same_work() -> None:
    """Their mean length differs by a little from run to run, and the one call that was seen by much."""
    other = replace(TEXTS, tokens_per_step=64 * 2048.0 * 1.01, input_shape="32x1871")
    assert of(TEXTS, other).basis == "step"


@pytest.mark.parametrize("shape", ["32x2048", "", "32x512"])
def test_other_tokens_decide_where_samples_are_unknown(shape: str) -> None:
    """A first call of the same shape passed a quarter of the tokens as the same work."""
    before = replace(UNCOUNTED, tokens_per_step=131_072.0, input_shape=shape)
    found = of(before, replace(before, tokens_per_step=32_768.0))
    assert found.basis is None
    assert found.reasons[0] == "tokens a step 131,072 before, 32,768 after"


@pytest.mark.parametrize("unknown", [(None, 1), (None, None)])
def test_how_often_the_model_is_called_has_to_be_known(unknown: tuple[int | None, int | None]) -> None:
    """Where its input alone tells of a step's work."""
    before, after = (replace(LOOP, micro_steps=one) for one in unknown)
    found = of(before, after)
    assert found.basis is None
    (said,) = found.reasons
    assert said.startswith("unknown: samples a step, backward passes a step; if a step does the same work")
    assert said.endswith("say so with --same-work")
    assert of(before, after, same_work=True).basis == "step"


def test_a_comparison_by_the_models_input_says_what_it_rests_on() -> None:
    assert of(LOOP, LOOP).cautions == (
        "samples a step are unknown; the model is called with 64x512 in both, taken to be as often",
    )


@pytest.mark.parametrize("same_work", [False, True])
def test_nobody_is_asked_to_vouch_for_what_surely_differs(same_work: bool) -> None:
    """It offered --same-work beside an input four times as large, and again to whoever had given it."""
    found = of(replace(LOOP, input_shape="8x64"), replace(LOOP, input_shape="32x64"), same_work=same_work)
    assert found.basis is None
    assert found.reasons == (
        "the model's input 8x64 before, 32x64 after",
        "unknown: samples a step; where each is recorded with --samples-per-step they are compared by samples",
    )
    told = (
        replace(LOOP, input_shape="8x64", samples_per_step=8.0),
        replace(LOOP, input_shape="32x64", samples_per_step=32.0),
    )
    assert of(*told).basis == "samples", "what it says to do leads to a comparison"

"""Programs that a search is given are brought into the range of weights of its method."""

from __future__ import annotations

import pytest

from movlr_jax.evolution.vet import rescaled

PROGRAM = 'WEIGHTS = {weights}\n\n\ndef reward(state, action):\n    return {{"a": 1.0, "b": state.time}}\n'


@pytest.mark.parametrize(
    ("weights", "limits", "expected"),
    [
        ('{"a": 200.0, "b": 50.0}', (0.0, 1.0), '{"a": 1, "b": 0.25}'),
        ('{"a": 0.5, "b": 1.0}', (0.0, 1.0), '{"a": 0.5, "b": 1.0}'),  # as it was written
        ('{"a": 200.0, "b": 50.0}', None, '{"a": 200.0, "b": 50.0}'),
        ('{"a": -4.0, "b": 1.0}', (0.0, 2.0), '{"a": -2, "b": 0.5}'),  # no scale makes it positive
    ],
)
def test_a_given_program_keeps_the_ratios_of_its_weights(weights: str, limits, expected: str):
    assert rescaled(PROGRAM.format(weights=weights), limits) == PROGRAM.format(weights=expected)


def test_a_given_program_that_is_not_python_is_left_to_vetting():
    assert rescaled("x = = 1", (0.0, 1.0)) == "x = = 1"

"""Settings that an earlier version recorded are read with their present names and classes."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from movlr_jax._util.settings import plain
from movlr_jax.config.compose import compose
from movlr_jax.config.schema import recorded_config
from movlr_jax.errors import UserError


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    """Settings as the version before parts with settings of their own recorded them."""
    values = plain(compose(["+task=bottle_pour", "method=motionvl", "optimizer.muscle.law=torque", "tuned=false"]))
    o = values["optimizer"]
    o |= {"options": {}, "race": False, "value": {"use": False}}
    o["mppi"] |= {"rule": "best", "strategy": "CMA_ES", "anneal_updates": 0.5, "anneal_knots": 0.9}
    o["muscle"] |= {"product_gain": 1e4}
    o["ppo"] |= {"curriculum": False}
    o["pd"] |= {"about": "start", "feed_forward": False}
    values["method"]["full"] = values["method"].pop("final_training")
    return values | {"judge": "auto", "critic": "auto", "proposer": "auto"}


def test_a_record_of_an_earlier_version_is_read(recorded: dict[str, Any]):
    config = recorded_config(recorded)
    given = ["+task=bottle_pour", "method=motionvl", "optimizer.muscle.law=torque", "tuned=false"]
    assert config == compose([*given, "optimizer.mppi.rule=predictive_sampling"])
    assert config.method.final_training == 3.33


@pytest.mark.parametrize(
    ("group", "name", "value", "sentence"),
    [
        ("ppo", "curriculum", True, r"no optimizer\.ppo\.curriculum=true"),
        ("pd", "about", "present", r"no optimizer\.pd\.about=present"),
        ("mppi", "anneal_knobs", 0.5, r"there is no setting 'optimizer\.mppi\.anneal_knobs'"),
    ],
)
def test_a_record_with_a_part_that_is_gone_is_refused(
    recorded: dict[str, Any], group: str, name: str, value: Any, sentence: str
):
    values = copy.deepcopy(recorded)
    values["optimizer"][group][name] = value
    with pytest.raises(UserError, match=sentence):
        recorded_config(values)


def test_settings_of_an_optimizer_of_ones_own_were_options_before(recorded: dict[str, Any]):
    values = copy.deepcopy(recorded)
    values["optimizer"] = {"name": "mppi", "options": {"horizon_s": 0.2}}
    assert recorded_config(values).optimizer.horizon_s == 0.2  # pyright: ignore[reportAttributeAccessIssue]

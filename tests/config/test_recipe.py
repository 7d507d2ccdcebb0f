"""Recipes: the package's compose, the user's are checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from movlr_jax._util.resources import resource_dir
from movlr_jax.config.compose import compose
from movlr_jax.config.recipe import STEPS, read_recipe
from movlr_jax.errors import UserError

RECIPES = sorted(path.stem for path in (resource_dir("conf") / "recipe").glob("*.yaml"))


@pytest.mark.parametrize("name", RECIPES)
def test_every_stage_has_settings_that_exist(name: str):
    """Of stages that set the same, one is composed; of one that sets less than another, none."""
    recipe = read_recipe(name)
    kinds = {frozenset(stage.settings): stage for stage in recipe.stages}
    for stage in [stage for names, stage in kinds.items() if not any(names < more for more in kinds)]:
        config = compose(recipe.overrides(stage, None, []))
        assert config.optimizer.ppo.env_steps == stage.steps
    acting = compose(recipe.evaluation(Path("policy.npz"), ["optimizer.ppo.envs=8", f"{STEPS}=64"])).optimizer.ppo
    assert (acting.env_steps, acting.envs, acting.init) == (0, 8, "policy.npz")


def test_later_stage_begins_with_policy_of_one_before():
    recipe = read_recipe("flat_walk_legs")
    first, second = (
        recipe.overrides(stage, policy, ["optimizer.ppo.envs=4"])
        for stage, policy in zip(recipe.stages, (None, Path("a/policy_k00.npz")), strict=False)
    )
    assert not any(word.startswith("optimizer.ppo.init") for word in first)
    assert "optimizer.ppo.init=a/policy_k00.npz" in second
    assert second[-1] == "optimizer.ppo.envs=4"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must contain lines"),
        ("stages: []", "must contain settings"),
        ("stages: [{name: a}]", "stage a must set optimizer.ppo.env_steps to 1 or more"),
        ("stages: [{optimizer.ppo.env_steps: true}]", "stage 0 must set"),
        ("stages: [7]", "stage 0 must set"),
        ("stages: [{optimizer.ppo.env_steps: 1e3}]", "to 1 or more, not '1e3'; write an integer in digits"),
        ("settings: [a, b]\nstages: [{optimizer.ppo.env_steps: 5}]", r"settings is \['a', 'b'\], expected a group"),
        ("acting: 3\nstages: [{optimizer.ppo.env_steps: 5}]", "acting is 3, expected a group"),
        ("extends: ./base.yaml\nstages: [{optimizer.ppo.env_steps: 5}]", r"mine.yaml extends .*base.yaml: .* read"),
        ("stages: [{optimizer.ppo.env_steps: 5}]\nsetings: {}", "did you mean 'settings'"),
        ("a: &x 1\nb: *x", "alias"),
        ("extends: flat_walk_leg\nstages: [{optimizer.ppo.env_steps: 5}]", "did you mean 'flat_walk_legs'"),
    ],
)
def test_recipe_that_is_wrong_is_told(text: str, message: str, tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        read_recipe(str(path))


def test_recipe_takes_over_settings_of_another(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text("extends: flat_walk_legs\nsettings: {task: slope_walk}\nstages: [{optimizer.ppo.env_steps: 5}]")
    mine, base = read_recipe(str(path)), read_recipe("flat_walk_legs")
    assert {name for name in base.settings if base.settings[name] != mine.settings[name]} == {"task"}
    assert (mine.acting, mine.settings["task"], len(mine.stages)) == (base.acting, "slope_walk", 1)


def test_groups_written_as_mappings_hold_what_they_do_not_set(tmp_path: Path):
    stages = "stages: [{name: a, optimizer: {ppo: {env_steps: 5, discount: 0.9}}}]"
    (tmp_path / "base.yaml").write_text(
        "settings: {task: {name: stand}, optimizer: {name: ppo, ppo: {envs: 64, noise: 0.2}}}\n"
        f"acting: {{optimizer: {{ppo: {{noise: 0.1}}}}}}\n{stages}"
    )
    (tmp_path / "mine.yaml").write_text(
        "extends: base.yaml\nsettings: {optimizer: {ppo: {envs: 32}}, task: bottle_pour}\n"
        f"acting: {{optimizer: {{ppo: {{envs: 1}}}}}}\n{stages}"
    )
    base, mine = (read_recipe(str(tmp_path / f"{name}.yaml")) for name in ("base", "mine"))
    learned = ["optimizer.ppo.env_steps=5", "optimizer.ppo.discount=0.9"]
    first = ["+task=stand", "optimizer=ppo", "optimizer.ppo.envs=64", "optimizer.ppo.noise=0.2", *learned]
    assert base.overrides(base.stages[0], None, []) == first
    noise, envs = "optimizer.ppo.noise=0.2", "optimizer.ppo.envs=32"
    words = mine.overrides(mine.stages[0], None, [])
    assert words == ["optimizer=ppo", noise, envs, "+task=bottle_pour", *learned]
    config = compose(words).optimizer
    update = config.ppo.update
    assert (config.name, config.ppo.envs, update.noise, update.discount) == ("ppo", 32, 0.2, 0.9)
    assert {"optimizer=ppo", "optimizer.ppo.noise=0.1", "optimizer.ppo.envs=1"} < set(
        mine.evaluation(Path("policy.npz"), [])
    )

"""Tasks as Gymnasium environments, `gymnasium.make("movlr_jax/flat_walk-v0", model=...)` (extra `gym`).

`import movlr_jax.gym` registers them; so does the name `movlr_jax.gym:movlr_jax/flat_walk-v0` in `gymnasium.make`.
Nothing is built before an environment is made.
"""

from __future__ import annotations

from movlr_jax._util.resources import resource_dir
from movlr_jax.errors import needed
from movlr_jax.tasks.registry import ENVIRONMENTS

NAMESPACE, VERSION = "movlr_jax", 0
ANY = "task"  # the environment whose task is an argument


def task_names() -> list[str]:
    """Return the tasks of the package that need no further argument."""
    files = (resource_dir("conf") / "task").glob("*.yaml")
    return sorted({path.stem for path in files} - {"own", *ENVIRONMENTS})


def environment_id(task: str) -> str:
    """Return the id of the environment of a task."""
    return f"{NAMESPACE}/{task}-v{VERSION}"


def register_envs() -> None:
    """Register an environment for each task, and `movlr_jax/task-v0`, which takes `task=`, a name or a file."""
    with needed("movlr_jax.gym", "gym"):
        import gymnasium

    for name in (*task_names(), ANY):
        if environment_id(name) not in gymnasium.registry:
            given = {} if name == ANY else {"task": name}
            gymnasium.register(environment_id(name), entry_point="movlr_jax.gym.environment:TaskEnv", kwargs=given)


register_envs()

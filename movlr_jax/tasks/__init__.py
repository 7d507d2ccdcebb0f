"""Tasks: scene, goal, start states, success measure, camera and initial rewards."""

from movlr_jax.tasks.base import Task
from movlr_jax.tasks.registry import TASKS, TaskEntry, build_task
from movlr_jax.tasks.simple import simple_task

__all__ = ["TASKS", "Task", "TaskEntry", "build_task", "simple_task"]

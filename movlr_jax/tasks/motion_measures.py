"""Measures, score and diagnosis of a motion that was read from a task description."""

from __future__ import annotations

import numpy as np

from movlr_jax.tasks.aims import aim_metrics
from movlr_jax.tasks.base import Metrics, Motion
from movlr_jax.tasks.needs import HOLD_S, Need
from movlr_jax.tasks.readout import Readout

_TILTED = 0.5  # cosine of a tilt from the start that counts as a fall: 60 degrees
_DRIFT = 0.3  # m, a distance from the start that a diagnosis names
_OFF = 0.2  # rad, an error of the heading that a diagnosis names


def motion_metrics(motion: Motion, read: Readout, fell: bool = False) -> Metrics:
    """Measure how far the body moves as requested in an episode [T]; motion after a fall does not count.

    fell: Whether the episode ends in a fall that the task itself has noticed.
    """
    height, up = read.height(motion.subject), read.upright
    pos, rot, time = up.pos(motion.subject), up.rot(motion.subject), read.time
    level = np.einsum("tij,ij->ti", rot, rot[0])[:, 2]  # cosine of the tilt from the start
    fallen = (height < motion.lowest * height[0]) | (level < _TILTED)
    down = np.flatnonzero(fallen) if motion.upright else []
    last, seconds = int(down[0]) if len(down) else len(pos) - 1, max(float(time[-1] - time[0]), 1e-6)
    fell |= len(down) > 0
    metrics = {"upright_fraction": float((time[last] - time[0]) / seconds)} if motion.upright else {}
    if motion.way:
        distance = float((pos[last] - pos[0]) @ read.layout.world.frame @ np.asarray(motion.way))
        metrics |= {"distance_m": distance, "progress_m_s": distance / seconds}
    if motion.jump:
        risen = np.minimum(
            pos[:, 2] - pos[0, 2], height - height[0]
        )  # not by walking uphill, nor off a ledge
        metrics["rise_m"] = float(risen[: last + 1].max())
    held = time > time[-1] - HOLD_S
    if motion.rise:
        metrics["raised_m"] = float(height[held].min() - height[0])
    if motion.depth:
        deep, stays = height[0] - height.min(), height[0] - height[held].max()
        depth = min(deep, height[held].min() - height.min()) if motion.returns else stays
        metrics["down_and_up_m" if motion.returns else "down_m"] = 0.0 if fell else float(depth)
    if motion.turn:
        turned = np.unwrap(np.arctan2(rot[:, 1, 0], rot[:, 0, 0]))
        angle = motion.turn * float(turned[last] - turned[0])
        if motion.angle is None:
            metrics["turned_rad"] = angle
        else:
            metrics["heading_error_rad"] = abs(angle - motion.angle)
    metrics |= aim_metrics(motion.aims, read, fell)
    if motion.stays:
        metrics["drift_error_m"] = float(np.linalg.norm((pos - pos[0])[:, :2], axis=-1).max())
    return metrics


def motion_score(motion: Motion, metrics: Metrics) -> float:
    """Return a score: 10 for staying upright, 10 per m/s, m of height (of a part 20) or Hz of waves,
    2 per rad turned.
    """
    speed = metrics.get("progress_m_s", 0.0)
    score = 10.0 * (
        metrics.get("upright_fraction", 0.0) + metrics.get("rise_m", 0.0) + metrics.get("raised_m", 0.0)
    )
    score += 2.0 * metrics.get("turned_rad", 0.0)
    score += 20.0 * min(metrics.get("down_m", metrics.get("down_and_up_m", 0.0)), motion.depth)
    score += sum(aim.score(metrics.get(aim.metric, 0.0)) for aim in motion.aims)
    return score + 10.0 * (min(speed, 2 * motion.speed - speed) if motion.exact else speed)


def achieved(motion: Motion | None, metrics: Metrics) -> float | None:
    """Return the success of an episode; without that measure, 1 if it lacks nothing of the motion, else 0.

    None if neither is measured.
    """
    if "success" in metrics:
        return metrics["success"]
    return float(not motion_needs(motion, metrics)) if motion and (motion.moves or motion.still) else None


def motion_needs(motion: Motion, metrics: Metrics) -> list[Need]:
    """Return what an episode lacks of the requested motion, the most general first."""
    needs = []
    if metrics.get("upright_fraction", 1.0) < 1.0:
        fallen = f"it falls after {metrics['upright_fraction']:.0%} of the episode"
        needs += [Need(fallen, kind) for kind in ("height", "upright")]
    speed = metrics.get("progress_m_s", 0.0)
    if motion.way and (speed < 0.9 * motion.speed or (motion.exact and speed > 1.1 * motion.speed)):
        means = f"it moves at {speed:.2f} m/s, but the description means {motion.speed:g} m/s"
        needs.append(Need(means, "forward"))
    if (drift := metrics.get("drift_error_m", 0.0)) > _DRIFT:
        needs.append(Need(f"it leaves its place by {100 * drift:.0f} cm", "steady"))
    if motion.jump and metrics.get("rise_m", 0.0) < 0.1:
        needs.append(Need("it does not leave the ground", "jump"))
    if motion.rise and metrics.get("raised_m", 0.0) < 0.1:
        needs.append(Need("it does not get up", "up"))
    if motion.depth and metrics.get("down_m", metrics.get("down_and_up_m", 0.0)) < 0.7 * motion.depth:
        back = " and come up again" if motion.returns else ""
        needs.append(Need(f"it does not go down by {100 * motion.depth:.0f} cm{back}", "down"))
    if motion.turn and motion.angle is None and metrics.get("turned_rad", 0.0) < 1.0:
        needs.append(Need("it does not turn", "turning"))
    if (error := metrics.get("heading_error_rad", 0.0)) > _OFF:
        needs.append(
            Need(f"it ends {np.rad2deg(error):.0f} degrees from the heading that is asked for", "turning")
        )
    aims = (aim.need(metrics[aim.metric]) for aim in motion.aims if aim.metric in metrics)
    return needs + [need for need in aims if need]

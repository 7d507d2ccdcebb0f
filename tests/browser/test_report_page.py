"""The report in Chromium: it loads fast, fits every width, follows the film, turns in 3-D, and is accessible."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import mujoco
import numpy as np
import pytest
from PIL import Image
from voted_run import moving_bar

import movlr_jax as mj
from movlr_jax.report import page as report
from movlr_jax.storage.archive import Archive
from movlr_jax.storage.layout import candidate_path
from movlr_jax.tasks import Task
from movlr_jax.tasks.simple import simple_task

pytestmark = pytest.mark.slow
BY_BROWSER = ("GPU stall due to ReadPixels",)  # Chromium on how it brings WebGL to the screen without a GPU
HOSTILE = "<img src=x onerror=alert(1)> <b>bold</b> </script>"
SECONDS = 2.0


def states(task: Task) -> bytes:
    """An episode of C MuJoCo: muscles contract in turn."""
    model, data = task.model, mujoco.MjData(task.model)
    qpos, qvel, act = task.start(np.random.default_rng(0), 1)
    data.qpos[:], data.qvel[:], data.act[:] = qpos[0], qvel[0], act[0]
    kept: dict[str, list[np.ndarray]] = {name: [] for name in ("time", "qpos", "qvel", "act", "ctrl")}
    while data.time < SECONDS:
        data.ctrl[:] = np.clip(0.25 + 0.35 * np.sin(4.4 * data.time + np.arange(model.nu)), 0, 1)
        mujoco.mj_step(model, data, nstep=round(0.02 / model.opt.timestep))
        for name, values in kept.items():
            values.append(np.array(getattr(data, name), np.float32))
    buffer = io.BytesIO()
    arrays = {name: np.array(values) for name, values in kept.items()}
    empty = {"touch": np.zeros((len(arrays["time"]), 0)), "touch_names": np.array([], str)}
    np.savez_compressed(buffer, **arrays, **empty)
    return buffer.getvalue()


def make_report(root: Path, task: Task) -> Path:
    """A run of two generations of three programs with films, comparisons and messages, without a simulation."""
    episode, t = states(task), np.linspace(0.02, SECONDS, 100)
    with Archive.create(root, "{}\n") as archive:
        settings = {"task.name": task.name, "model": task.adapter.name, "seed": 0, "optimizer.name": "mpc2"}
        about = {"task": task.name, "description": "bring the hand to the mark", "model": task.adapter.name}
        archive.record("run", about | {"settings": settings, "models_used": "some model as judge"})
        for g in range(2):
            for k in range(3):
                path = candidate_path(g, k, ".mp4")
                archive.put(path, moving_bar(3 * g + k, views=1, seconds=SECONDS))
                archive.put(candidate_path(g, k, ".npz"), episode)
                weights = {"near": 2.0 + g, HOSTILE: 1.0}
                terms = {n: {"mean": 0.2, "curve": (w * np.sin((k + 1) * t)).tolist()} for n, w in weights.items()}
                data = {
                    "name": f"g{g:02d}k{k:02d}", "generation": g, "candidate": k, "reason": None, "film": path,
                    "source": f'"""Come near. {HOSTILE}"""\n\nWEIGHTS = {weights}\n', "weights": weights,
                    "terms": terms,
                    "metrics": {"success": float(g), "object_position_error_m": 0.3 / (1 + 2 * g + k)},
                    "series": {"speed_m_s": np.abs(np.sin(t)).tolist()}, "curve_time": t.tolist(),
                    "parent": "g00k01" if g else None,
                }  # fmt: skip
                archive.record("evaluated", data, g, k)
            names = [f"g{g:02d}k{k:02d}" for k in range(3)]
            pairs = [{"first": names[0], "second": names[1], "winner": "second", "reason": HOSTILE}]
            ranked = {
                "names": names,
                "strengths": [0.1, 1.0, -1.0],
                "deviation": [0.3] * 3,
                "p_best": [0.2, 0.7, 0.1],
            }
            archive.record("ranked", ranked | {"flip_rate": 0.0, "best": names[1], "comparisons": pairs}, g)
        message = {"purpose": "judge", "provider": "x", "model": "y", "answer": HOSTILE}
        archive.log_call("a", "answered", message | {"messages": [{"role": "user", "parts": [HOSTILE]}]})
        tried = {}
        for n, distance in enumerate([0.5, 2.5, 2.5, 0.1]):
            stem = f"confirmation/g01k01_{n:02d}"
            archive.put(f"{stem}.mp4", moving_bar(n, views=1, seconds=1.0))
            metrics = {"distance_m": distance, "success": float(distance > 2), "fell": float(n == 3)}
            tried[str(n)] = {"seed": 100 + n, "stem": stem, "reason": None, "metrics": metrics}
        archive.record("trials", {"programs": {"g01k01": tried}}, -1)
        claims = {"g01k01": {"n": 4, "successes": 2, "failed": 0, "metrics": {"distance_m": 1.4}}}
        archive.record("confirmed", {"champion": "g01k01", "first": "g00k00", "claims": claims, "verdict": HOSTILE})
        archive.record("finished", {"best": "g01k01", "generations": 2, "interrupted": False})
        return report.write_report(archive, task)


@pytest.fixture(scope="module")
def arm_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_report(tmp_path_factory.mktemp("arm") / "run", mj.load_task("bottle_pour"))


class Shown:
    """A report in a tab, and what the browser complained of."""

    def __init__(self, browser, path: Path, width: int = 1200, scheme: str = "light"):
        size = {"width": width, "height": 900}
        # Firefox needs a graphics driver for the 3-D view
        self.webgl = browser.browser_type.name == "chromium"
        self.context = browser.new_context(viewport=size, color_scheme=scheme, accept_downloads=True)
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.page.on("console", self.hear)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        self.page.goto(path.as_uri())

    def hear(self, message) -> None:
        if message.type in ("error", "warning") and not any(text in message.text for text in BY_BROWSER):
            self.problems.append(message.text)

    def look_around(self) -> None:
        """Scroll through the page, so that everything is drawn."""
        height = self.page.evaluate("document.documentElement.scrollHeight")
        for y in range(0, height, 600):
            self.page.evaluate(f"scrollTo({{top: {y}, behavior: 'instant'}})")
            self.page.wait_for_timeout(60)
        self.at("space")
        if self.webgl:
            self.page.wait_for_selector("[data-ready]", timeout=60_000)

    def at(self, section: str) -> None:
        self.page.evaluate(f"document.querySelector('#{section}').scrollIntoView({{behavior: 'instant'}})")


@pytest.fixture
def show(browser, arm_report: Path) -> Iterator[Callable[..., Shown]]:
    opened: list[Shown] = []

    def new(**settings) -> Shown:
        opened.append(Shown(browser, arm_report, **settings))
        return opened[-1]

    yield new
    for shown in opened:
        shown.context.close()
        assert shown.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200, 2000])
def test_the_page_fits_and_is_accessible(show, findings, width: int, scheme: str):
    shown = show(width=width, scheme=scheme)
    shown.look_around()
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
    assert findings(shown.page) == []
    box = shown.page.locator("#trials").bounding_box()
    dots = [dot.bounding_box() for dot in shown.page.locator("#trials .track .dot").all()]
    assert len(dots) == 4 * shown.page.locator("#trials th.axis").count()
    for i, a in enumerate(dots):
        assert box["x"] <= a["x"] <= a["x"] + a["width"] <= box["x"] + box["width"]
        for b in dots[:i]:
            apart = abs(a["x"] - b["x"]) >= a["width"] - 1 or abs(a["y"] - b["y"]) >= a["height"] - 1
            assert apart, "a dot hides another"


def test_a_dot_opens_the_film_of_its_trial(show):
    page = show().page
    page.locator('#trials a.dot[title*="seed 102"]').first.click()
    assert page.locator("dialog video").count() == 1
    assert "trial 3, seed 102: success" in page.locator("dialog figcaption").inner_text()
    page.wait_for_function("document.querySelector('dialog video').readyState >= 1")


def test_every_section_is_reached_and_hostile_text_stays_text(show):
    shown = show()
    page = shown.page
    shown.look_around()
    for link in page.query_selector_all("nav.top a"):
        target = link.get_attribute("href")
        link.click()
        page.wait_for_function(
            "id => Math.abs(document.querySelector(id).getBoundingClientRect().top) < innerHeight", arg=target
        )
    assert page.evaluate("document.querySelectorAll('img:not(.still)').length") == 0
    assert page.evaluate("[...document.querySelectorAll('b')].filter((b) => b.textContent === 'bold').length") == 0
    assert HOSTILE in (page.text_content("#comparisons") or "")
    assert HOSTILE in (page.text_content("#time .u-legend") or ""), "in the legend of a chart"
    assert HOSTILE in (page.text_content("#messages") or "")


def test_charts_and_films_follow_one_clock(show):
    shown = show()
    page = shown.page
    page.wait_for_function("() => document.querySelector('#films video').currentTime > 0.3")
    page.evaluate("report.pause()")
    shown.at("time")
    page.wait_for_selector("#time .playhead")
    plot = page.locator("#time .plot .u-over").first
    box = plot.bounding_box()
    assert box
    page.mouse.click(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
    film = "document.querySelector('.watch video')"
    page.wait_for_function(f"() => Math.abs({film}.currentTime - {SECONDS / 2}) < 0.08")
    page.wait_for_function(f"() => Math.abs(report.time - {film}.currentTime) < 0.1")
    at = page.evaluate("new DOMMatrix(getComputedStyle(document.querySelector('#time .plot .playhead')).transform).e")
    assert at == pytest.approx(0.5 * box["width"], abs=0.05 * box["width"])
    bar = page.locator(".watch .transport input")
    bar.focus()
    bar.fill("0.5")
    page.wait_for_function(f"() => Math.abs({film}.currentTime - 0.5) < 0.05")
    page.locator(".watch .transport .play").click()
    page.wait_for_function("() => report.time > 0.8")
    page.evaluate("report.pause()")
    page.evaluate("scrollTo({top: 0, behavior: 'instant'})")
    page.wait_for_function("() => Math.abs(document.querySelector('#films video').currentTime - report.time) < 0.05")


@pytest.mark.parametrize("browser", ["chromium"], indirect=True)  # what writes a PDF
def test_paper_is_light_and_shows_a_picture_of_every_film(show, tmp_path: Path):
    page = show(scheme="dark").page
    page.wait_for_function("() => document.querySelector('#films video').currentTime > 0")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("report.colour('ink')") in ("#000", "rgb(0, 0, 0)")
    light = "(e) => Math.min(...getComputedStyle(e).backgroundColor.match(/[0-9]+/g).slice(0, 3)) > 200"
    for selector in ("pre.code", ".chip", ".diff .add", ".node", ".card"):
        assert page.locator(selector).first.evaluate(light), selector
    pictures = page.locator(".node img.still, .hero img.still, .ranking img.still")
    assert pictures.count() == 6 + 6 + 2, "in the family tree, in the generations, at the top"
    page.evaluate("document.querySelectorAll('details').forEach((box) => { box.open = true; })")
    shown = "(all) => all.filter((i) => i.clientWidth > 40 && i.naturalWidth === 480).length"
    assert pictures.evaluate_all(shown) == 14
    assert page.evaluate(
        "[...document.querySelectorAll('video')].every((film) => !film.clientWidth || film.closest('.watch'))"
    )
    assert page.evaluate("document.querySelector('.tree .canvas').getBoundingClientRect().width") <= 680
    page.emulate_media(media="screen")
    closed = "document.querySelectorAll('details:not([open])').length"
    page.evaluate("document.querySelectorAll('#comparisons details').forEach((box) => { box.open = false; })")
    before = page.evaluate(closed)
    page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert (tmp_path / "report.pdf").stat().st_size > 100_000
    assert page.evaluate(closed) == before, "what was opened for the paper is closed again"


def picture(page) -> bytes:
    page.wait_for_timeout(300)
    return page.locator(".viewer canvas").screenshot()


@pytest.mark.parametrize("browser", ["chromium"], indirect=True)
def test_the_scene_turns_compares_and_names_joints_and_muscles(show):
    shown = show()
    page = shown.page
    page.wait_for_function("() => document.querySelector('#films video').currentTime > 0")
    page.evaluate("report.pause()")
    shown.at("space")
    page.wait_for_selector("[data-ready]", timeout=60_000)
    page.evaluate("report.seek(0.5)")
    first = picture(page)
    page.locator(".viewer canvas").focus()
    page.keyboard.press("ArrowLeft")
    turned = picture(page)
    assert turned != first
    page.keyboard.press("0")
    page.locator(".viewer .muscles").uncheck()
    without = picture(page)
    assert without != first
    page.locator(".viewer .muscles").check()
    page.locator(".viewer .ghost").select_option("1")
    page.evaluate("report.seek(1.5)")
    assert picture(page) != first
    page.locator(".viewer .now summary").click()
    page.wait_for_selector(".viewer .now dd")
    assert "°" in (page.text_content(".viewer .now dd") or "")
    box = page.locator(".viewer canvas").bounding_box()
    assert box
    tips: list[str] = []
    for x in np.linspace(0.3, 0.7, 14):
        for y in np.linspace(0.3, 0.8, 8):
            page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
            page.wait_for_timeout(110)
            tips.append(page.text_content(".viewer .tip") or "")
    assert any("activation 0." in tip for tip in tips), set(tips)
    assert any("°" in tip for tip in tips), set(tips)


@pytest.mark.parametrize("size", [0.002, 1.0, 300.0])
def test_a_model_of_any_size_is_drawn(chromium, tmp_path: Path, size: float):
    xml = f"""<mujoco>
      <statistic extent="{size}"/>
      <worldbody><geom type="plane" size="1 1 1"/><body name="box" pos="0 0 {size / 2}">
        <joint name="hinge" axis="0 1 0"/>
        <geom type="box" size="{size / 2} {size / 4} {size / 4}" rgba="1 0 0 1" mass="1"/>
        <site name="a" pos="0 0 {size}"/></body><site name="b" pos="{size} 0 {size}"/></worldbody>
      <tendon><spatial name="cord"><site site="a"/><site site="b"/></spatial></tendon>
      <actuator><motor name="motor" joint="hinge"/></actuator></mujoco>"""
    (tmp_path / "box.xml").write_text(xml)
    task = simple_task(name="box", model=str(tmp_path / "box.xml"), description="turn the box", episode_s=1.0)
    shown = Shown(chromium, make_report(tmp_path / "run", task))
    shown.at("space")
    shown.page.wait_for_selector("[data-ready]", timeout=60_000)
    red, green, blue = np.moveaxis(np.array(Image.open(io.BytesIO(picture(shown.page))).convert("RGB"), int), 2, 0)
    lines = shown.page.evaluate("report.view.lines.geometry.attributes.position.count / 2")
    thick = shown.page.evaluate("report.view.thickness(report.view.head.tendons[0].radius)")
    shown.context.close()
    share = np.mean((red > green + 60) & (red > blue + 60))
    assert 0.02 < share < 0.5
    assert 8 <= lines < 200
    assert 2e-4 < thick / task.view.cameras[0].distance < 0.02

"use strict";
// The page is whole without this but for its charts: it plays films together, ties charts to them, copies and opens.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;

  // --- films that load when they are in sight; another place of the page may have their data
  const source = (name) => document.querySelector(`video[data-name="${CSS.escape(name)}"]`)?.src ?? "";
  const arrive = new IntersectionObserver((changes) => {
    for (const { target, isIntersecting } of changes) {
      if (!isIntersecting) continue;
      arrive.unobserve(target);
      target.preload = "metadata";
      const from = target.dataset.film && source(target.dataset.film);
      if (from) target.src = from;
    }
  }, { rootMargin: "200px" });
  for (const film of all("video[preload=none], video[data-film]")) arrive.observe(film);

  // on paper, a picture is in the place of a film
  for (const picture of all("img[data-still]")) {
    const from = document.querySelector(`video[data-name="${CSS.escape(picture.dataset.still)}"] + img.still`)?.src;
    if (from) picture.src = from;
  }

  // A late picture says more than the first one.
  function still(film) {
    let untouched = true;
    const seek = () => { if (untouched) film.currentTime = 0.7 * film.duration; };
    film.readyState ? seek() : film.addEventListener("loadedmetadata", seek, { once: true });
    film.addEventListener("play", () => { if (untouched) film.currentTime = 0; untouched = false; });
  }

  // --- the clock: the time of the best film, which the charts, the other films and the 3-D view follow
  const lead = document.querySelector("#films video");
  const followers = [...all("#films video").slice(1), ...all(".watch video")];
  const axes = report.plots.filter((p) => p.spec.clock).map((p) => p.spec.x.at(-1));
  const clock = report.clock = {
    time: 0, playing: false, rate: 1,
    end: Math.max(0, ...axes, Number(document.querySelector("[data-episode-s]")?.dataset.episodeS ?? 0)),
  };
  let before = 0;

  const bars = all(".transport").map((bar) => ({
    bar, range: bar.querySelector("input"), output: bar.querySelector("output"), play: bar.querySelector(".play"), seen: false,
  }));
  const watchingBars = new IntersectionObserver((changes) => {
    for (const { target, isIntersecting } of changes) {
      const entry = bars.find((b) => b.bar === target);
      entry.seen = isIntersecting;
      if (isIntersecting) show(entry);
    }
  });
  for (const { bar } of bars) watchingBars.observe(bar);
  function show({ range, output, play }) {
    const text = `${clock.time.toFixed(2)} s`;
    range.max = clock.end;
    range.value = clock.time;
    range.setAttribute("aria-valuetext", text);
    output.textContent = text;
    play.textContent = clock.playing ? "❚❚" : "▶";
  }
  let shown = 0;
  function tell() {
    report.time = clock.time;
    for (const f of report.onClock) f(clock.time);
    const now = performance.now();
    if (clock.playing && now - shown < 90) return; // numbers change often enough
    shown = now;
    for (const entry of bars) if (entry.seen) show(entry);
  }
  const usable = (film) => film && film.readyState >= 1 && film.duration > 0;
  // films out of sight stand still: decoding them takes time from the rest
  const sight = new WeakMap();
  const watching = new IntersectionObserver((changes) => {
    for (const { target, isIntersecting } of changes) {
      sight.set(target, isIntersecting);
      align(target, isIntersecting);
    }
  });
  function align(film, force) {
    if (!usable(film)) return;
    if (sight.get(film) === false) {
      if (!film.paused) film.pause();
      return;
    }
    const wanted = Math.min(clock.time, film.duration - 0.001);
    if (force || Math.abs(film.currentTime - wanted) > 0.2) film.currentTime = wanted;
    if (film.playbackRate !== clock.rate) film.playbackRate = clock.rate;
    if (clock.playing && film.paused && clock.time < film.duration) film.play().catch(() => {});
    if (!clock.playing && !film.paused) film.pause();
  }
  function tick(now) {
    if (!clock.playing) return;
    const led = usable(lead) && !lead.paused && sight.get(lead);
    if (led) clock.time = lead.currentTime;
    else clock.time += clock.rate * Math.min(0.1, (now - before) / 1000);
    before = now;
    if (clock.time > clock.end) clock.time = led ? clock.end : 0;
    for (const film of followers) align(film, false);
    if (!led) align(lead, false);
    tell();
    requestAnimationFrame(tick);
  }
  report.play = () => {
    if (clock.playing) return;
    clock.playing = true;
    before = performance.now();
    align(lead, true);
    followers.forEach((film) => align(film, true));
    requestAnimationFrame(tick);
  };
  report.pause = () => {
    clock.playing = false;
    align(lead, false);
    followers.forEach((film) => align(film, true));
    tell();
  };
  report.seek = (time) => {
    clock.time = Math.min(clock.end, Math.max(0, time));
    align(lead, true);
    followers.forEach((film) => align(film, true));
    tell();
  };
  for (const film of lead ? [lead, ...followers] : []) watching.observe(film);
  for (const film of followers) film.addEventListener("loadedmetadata", () => align(film, true));
  if (lead) {
    const length = () => {
      if (lead.videoHeight) document.querySelector("#films").style.setProperty("--aspect", lead.videoWidth / lead.videoHeight);
      clock.end = Math.max(clock.end, lead.duration || 0);
      tell();
    };
    lead.readyState ? length() : lead.addEventListener("loadedmetadata", length, { once: true });
    lead.addEventListener("play", () => report.play());
    lead.addEventListener("pause", () => { if (clock.playing && sight.get(lead) && !lead.ended && !lead.seeking) report.pause(); });
    lead.addEventListener("seeked", () => {
      if (clock.playing || Math.abs(lead.currentTime - clock.time) < 0.02 || clock.time >= lead.duration) return;
      clock.time = lead.currentTime;
      followers.forEach((film) => align(film, true));
      tell();
    });
    lead.addEventListener("ratechange", () => { clock.rate = lead.playbackRate; });
    for (const film of all("#films video").slice(1)) film.controls = false;
  }
  for (const bar of all(".transport")) {
    bar.querySelector(".play").addEventListener("click", () => (clock.playing ? report.pause() : report.play()));
    bar.querySelector("input").addEventListener("input", (event) => {
      if (clock.playing) report.pause();
      report.seek(Number(event.target.value));
    });
    bar.querySelector("select").addEventListener("change", (event) => {
      clock.rate = Number(event.target.value);
      for (const other of all(".transport select")) other.value = event.target.value;
      align(lead, false);
    });
  }
  tell();
  if (!calm && lead) lead.play().catch(() => {});

  // --- films of the generations and of the family tree
  for (const film of all(".ranking video")) {
    still(film);
    film.controls = false;
    film.tabIndex = 0;
    for (const event of ["pointerenter", "focus"]) film.addEventListener(event, () => { film.controls = true; });
    film.addEventListener("pointerleave", () => { film.controls = false; });
  }
  for (const node of all(".node")) {
    const film = node.querySelector("video");
    if (!film) continue;
    still(film);
    const play = () => { if (!film.src) film.src = source(film.dataset.film); film.play().catch(() => {}); };
    for (const event of ["pointerenter", "focus"]) node.addEventListener(event, play);
    for (const event of ["pointerleave", "blur"]) node.addEventListener(event, () => film.pause());
  }
  for (const button of all("[data-play]")) {
    const films = () => all(`#${CSS.escape(button.dataset.play)} video`);
    button.hidden = !films().length;
    button.addEventListener("click", () => {
      const begin = films().every((film) => film.paused);
      for (const film of films()) {
        if (!begin) film.pause();
        else { film.currentTime = 0; film.play().catch(() => {}); }
      }
      button.textContent = begin ? "Stop all films" : "Play all films";
    });
  }

  // --- two films that were compared
  const dialog = document.querySelector("#pair");
  function watch(films) { // [name, caption] of each
    dialog.querySelector(".pair").replaceChildren(...films.map(([name, told]) => {
      const figure = document.createElement("figure"), caption = document.createElement("figcaption");
      const film = document.createElement("video");
      Object.assign(film, { src: source(name), muted: true, loop: true, controls: true, playsInline: true });
      film.setAttribute("aria-label", `film of ${told}`);
      caption.textContent = told;
      figure.append(film, caption);
      return figure;
    }));
    dialog.showModal();
    for (const film of all("video", dialog)) film.play().catch(() => {});
  }
  for (const button of all("[data-pair]")) {
    const names = button.dataset.pair.split(" ");
    if (!names.every(source)) continue;
    button.hidden = false;
    button.addEventListener("click", () => watch(names.map((name) => [name, name])));
  }
  for (const link of all("[data-watch]")) {
    link.addEventListener("click", (event) => {
      if (!source(link.dataset.watch)) return;
      event.preventDefault();
      watch([[link.dataset.watch, link.title || link.textContent]]);
    });
  }
  dialog.addEventListener("close", () => dialog.querySelector(".pair").replaceChildren());

  // --- copying and downloads
  function copies(button, text) {
    button.hidden = !navigator.clipboard;
    const name = button.textContent;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = name; }, 1500);
    });
  }
  for (const button of all("[data-copy-next]")) copies(button, () => button.nextElementSibling.textContent);
  for (const button of all("[data-copy-text]")) copies(button, () => button.dataset.copyText);
  for (const link of all("[data-download]")) {
    const from = source(link.dataset.download);
    if (from) { link.href = from; link.hidden = false; }
  }

  // --- activations of muscles as a picture: a row for each muscle
  for (const box of all("[data-heat]")) heat(box, JSON.parse(box.dataset.heat));
  function heat(box, { names, rows, times, values }) {
    const bytes = Uint8Array.from(atob(values), (c) => c.charCodeAt(0));
    const n = names.length, t = times.length, few = 24;
    const labels = document.createElement("div"), frame = document.createElement("div");
    const canvas = document.createElement("canvas"), line = document.createElement("div");
    labels.className = "names"; frame.className = "frame"; line.className = "playhead";
    frame.append(canvas, line);
    box.append(labels, frame);
    let shown = Math.min(n, few);
    const paint = () => {
      Object.assign(canvas, { width: t, height: shown });
      canvas.style.height = `${16 * shown}px`;
      labels.replaceChildren(...names.slice(0, shown).map((name) => {
        const label = document.createElement("span");
        label.textContent = label.title = name;
        return label;
      }));
      const context = canvas.getContext("2d"), picture = context.createImageData(t, shown);
      for (let i = 0; i < shown * t; i++) {
        const [r, g, b] = report.activation(bytes[i] / 255);
        picture.data.set([r, g, b, 255], 4 * i);
      }
      context.putImageData(picture, 0, 0);
    };
    const at = (event) => times[Math.min(t - 1, Math.max(0, Math.floor((t * event.offsetX) / canvas.clientWidth)))];
    canvas.addEventListener("click", (event) => report.seek(at(event)));
    canvas.addEventListener("mousemove", (event) => {
      const row = Math.floor(event.offsetY / 16), column = times.indexOf(at(event));
      if (names[row]) canvas.title = `${names[row]}: ${(bytes[row * t + column] / 255).toFixed(2)} at ${at(event).toFixed(2)} s`;
    });
    report.onClock.push((time) => {
      const share = (time - times[0]) / (times[t - 1] - times[0] || 1);
      line.style.transform = `translateX(${Math.min(1, Math.max(0, share)) * canvas.clientWidth}px)`;
    });
    if (n > few) {
      const more = document.createElement("button");
      more.type = "button";
      more.textContent = `Show all ${n} muscles`;
      more.addEventListener("click", () => { shown = n; paint(); more.remove(); });
      box.nextElementSibling.append(more); // in the line of the scale
    }
    paint();
  }

  // --- links into closed parts
  function reveal() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let box = target?.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
    target?.scrollIntoView();
  }
  addEventListener("hashchange", reveal);
  if (location.hash) reveal();
})();

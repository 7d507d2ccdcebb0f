"use strict";
// Charts of a page, drawn by uPlot from the data in `data-chart`, in the colours of the page. Others use `report`.
const report = { plots: [], onClock: [] };

(() => {
  const style = () => getComputedStyle(document.documentElement);
  report.colour = (name, css = style()) => css.getPropertyValue(`--${name}`).trim();
  const DASHES = [[], [7, 4], [2, 3]];
  const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";

  // activation 0 to 1 -> [r, g, b], as in films: blue-grey at rest, red when active
  const REST = [107, 135, 184], ACTIVE = [235, 10, 10];
  report.activation = (a) => REST.map((low, k) => low + Math.min(1, Math.max(0, a)) * (ACTIVE[k] - low));

  function number(value) {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size >= 1e5 || size < 1e-3)) return value.toExponential(1).replace("-", "−");
    return String(Number(value.toPrecision(3))).replace("-", "−");
  }

  // numbers of an axis, with the digits that the step between them needs
  function ticks(values, step) {
    const [digits, power] = Number(step.toPrecision(6)).toExponential().split("e");
    const last = power - (digits.split(".")[1] ?? "").length; // power of ten of the last digit
    const most = Math.max(...values.map(Math.abs));
    const short = most < 1e-3 || (most >= 1e5 && Math.log10(most) - last < 4);
    return values.map((value) => {
      const shown = Number(value.toFixed(Math.max(0, -last)));
      return (short && shown !== 0 ? shown.toExponential() : String(shown)).replaceAll("-", "−");
    });
  }

  // the range of a vertical axis; values that are all the same lie in its middle
  function limits(spec, low, high) {
    if (spec.zero) return uPlot.rangeNum(0, high || 1, { min: { pad: 0, mode: 0, soft: 0 }, max: { pad: 0.1, mode: 0 } });
    if (low === null || low < high) return uPlot.rangeNum(low, high, 0.1, true);
    return [low - 0.1 * Math.abs(low), high + 0.1 * Math.abs(high)];
  }

  // space that the widest number of an axis needs
  function axisWidth(self, values, axisIndex, cycle) {
    const axis = self.axes[axisIndex];
    if (cycle > 1) return axis._size;
    const longest = (values ?? []).reduce((a, b) => (b.length > a.length ? b : a), "");
    return Math.ceil((axis.ticks.size ?? 0) + 12 + 7 * longest.length);
  }

  function draw(box, spec, ready) {
    const css = style(), colour = (name) => report.colour(name, css);
    const width = Math.max(200, box.clientWidth);
    const series = [{ label: spec.xlabel, value: (_, v) => number(v) }];
    const data = [spec.x];
    for (const line of spec.lines) {
      const points = line.points;
      const failed = points && line.colour === "bad";
      series.push({
        label: line.name,
        stroke: colour(line.colour),
        width: points ? 0 : line.width,
        dash: DASHES[line.dash],
        spanGaps: spec.xlabel === "generation",
        scale: failed ? "failed" : "y",
        paths: points ? () => null : undefined,
        points: { show: points || spec.x.length < 2, size: points ? 9 : 6, fill: colour(line.colour) },
        value: (_, v) => (failed ? (v === null ? "–" : "failed") : number(v)),
      });
      data.push(line.y);
    }
    const bands = [];
    for (const band of spec.bands) {
      const fill = `color-mix(in srgb, ${colour(band.colour)} 24%, transparent)`;
      for (const values of [band.high, band.low]) {
        series.push({ label: "", width: 0, stroke: "transparent", points: { show: false }, class: "u-hidden" });
        data.push(values);
      }
      bands.push({ series: [series.length - 2, series.length - 1], fill });
    }
    const written = (_, values, axisIndex, space, step) => ticks(values, step);
    const axis = { stroke: colour("muted"), font: FONT, labelFont: FONT, ticks: { show: false } };
    const options = {
      width,
      height: spec.height,
      series,
      bands,
      scales: {
        x: { time: false, range: spec.range ? () => spec.range : undefined },
        y: { range: (_, low, high) => limits(spec, low, high) },
        failed: { range: [0, 1] },
      },
      axes: [
        { ...axis, grid: { show: false }, label: spec.xlabel, labelSize: 18, size: 26, values: written,
          ...(spec.xlabel === "generation" ? { incrs: [1, 2, 5, 10, 20, 50, 100] } : {}) },
        { ...axis, grid: { stroke: colour("line"), width: 1 }, label: spec.unit || undefined, labelSize: 18, size: axisWidth,
          values: written },
      ],
      cursor: { drag: { x: false, y: false }, points: { size: 7 } },
      legend: { live: true },
      hooks: { init: [(plot) => linked(plot, spec)], ready: [ready] },
    };
    return new uPlot(options, data, box);
  }

  // A click goes to the nearest program, or moves the film to that time.
  function linked(plot, spec) {
    plot.over.addEventListener("click", () => {
      const { idx, left } = plot.cursor;
      if (spec.clock && report.seek && left >= 0) report.seek(plot.posToVal(left, "x"));
      else if (spec.names && idx !== null && spec.names[idx]) location.hash = spec.names[idx];
    });
    if (spec.names) {
      plot.over.addEventListener("mousemove", () => {
        const tip = spec.tips[plot.cursor.idx] ?? "";
        if (plot.over.title !== tip) plot.over.title = tip;
      });
    }
  }

  function make(entry) {
    if (entry.plot) return;
    if (!entry.box.clientWidth) return; // inside a closed part of the page
    entry.idx = -1;
    entry.plot = draw(entry.box, entry.spec, () => requestAnimationFrame(() => place(entry, report.time ?? 0)));
    entry.box.style.minHeight = "";
    if (entry.spec.clock) {
      entry.line = document.createElement("div");
      entry.line.className = "playhead";
      entry.plot.over.append(entry.line);
    }
  }

  function remake(entry) {
    entry.plot?.destroy();
    entry.plot = null;
    make(entry);
  }

  function place(entry, time) {
    const { plot, line } = entry;
    if (!plot || !line) return;
    const at = plot.valToPos(time, "x");
    line.style.transform = `translateX(${at}px)`;
    // the legend shows the values at the time of the film, unless a pointer is in the chart
    const idx = plot.posToIdx(at);
    if (idx === entry.idx || plot.over.matches(":hover")) return;
    entry.idx = idx;
    plot.setLegend({ idx }, false);
  }
  report.onClock.push((time) => {
    for (const entry of report.plots) if (entry.visible) place(entry, time);
  });

  const seen = new IntersectionObserver((changes) => {
    for (const { target, isIntersecting } of changes) {
      const entry = report.plots.find((p) => p.box === target);
      entry.visible = isIntersecting;
      if (isIntersecting) {
        make(entry);
        place(entry, report.time ?? 0);
      }
    }
  }, { rootMargin: "300px" });

  const sized = new ResizeObserver((changes) => {
    for (const { target } of changes) {
      const entry = report.plots.find((p) => p.box === target);
      const width = target.clientWidth;
      if (entry.plot && width && Math.abs(entry.plot.width - width) > 1) {
        entry.plot.setSize({ width, height: entry.spec.height });
        place(entry, report.time ?? 0);
      } else if (!entry.plot && entry.visible) make(entry);
    }
  });

  for (const box of document.querySelectorAll("[data-chart]")) {
    report.plots.push({ box, spec: JSON.parse(box.dataset.chart), plot: null, visible: false });
    seen.observe(box);
    sized.observe(box);
  }
  const again = () => report.plots.forEach((entry) => entry.plot && remake(entry));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  matchMedia("print").addEventListener("change", again);
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")].filter((box) => !box.closest("#messages, .generation .inside, .used"));
    for (const box of opened) box.open = true;
    report.plots.forEach(make);
  });
  addEventListener("afterprint", () => {
    for (const box of opened) box.open = false;
  });
})();

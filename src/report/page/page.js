// SPDX-License-Identifier: Apache-2.0
//
// The plots of a report: curves and bars by Chart.js (3 or 4), the timeline by timeline.js, the bars of a comparison by
// grid.js, and the theme. Of a comparison one group of runs is drawn at a time. Everything
// stands in the tables as well; this adds nothing that was not measured. What comes from the runs is put in as text
// only.
(function () {
  "use strict";
  const all = JSON.parse(document.getElementById("data").textContent).runs;
  let runs = all;  // those that are drawn
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
  const byId = (id) => document.getElementById(id);
  let charts = [], axis = "s";

  function figure(place, title, about) {
    const made = document.createElement("figure"), caption = document.createElement("figcaption");
    const plot = document.createElement("div"), canvas = document.createElement("canvas");
    caption.textContent = title;
    caption.title = about;
    plot.className = "plot";
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", title);
    plot.append(canvas);
    made.append(caption, plot);
    byId(place).append(made);
    return canvas;
  }

  const AXES = { s: "seconds of training", samples: "samples of all workers", step: "steps" };
  const label = (run) => `${run.name} (${run.result})`;
  const scale = (title, more) => ({
    title: { display: true, text: title, color: colour("soft") }, ticks: { color: colour("soft") },
    grid: { color: colour("line") }, ...more });

  // Faults stand as lines over the whole height, and as points that say what happened.
  const marks = {
    id: "marks",
    beforeDatasetsDraw(chart) {
      const { ctx, chartArea: area, scales: { x } } = chart;
      for (const set of chart.data.datasets) {
        if (!set.changes) continue;
        ctx.save();
        ctx.setLineDash([4, 4]);
        for (const point of set.data) {
          const at = x.getPixelForValue(point.x);
          if (at < area.left || at > area.right) continue;
          ctx.strokeStyle = point.change.lost ? colour("lost") : colour("joined");
          ctx.beginPath();
          ctx.moveTo(at, area.top);
          ctx.lineTo(at, area.bottom);
          ctx.stroke();
        }
        ctx.restore();
      }
    },
  };

  const told = (c) => `${c.lost ? c.lost + " lost" : ""}${c.lost && c.joined ? ", " : ""}${c.joined ? c.joined + " joined" : ""}` +
                      `: ${c.why}; ${c.workers} went on after ${c.recovery_ms.toFixed(0)} ms`;

  function changesOf(run, index, points) {
    const height = (x) => {  // of the curve
      const after = points.findIndex((p) => p.x >= x), last = points[points.length - 1];
      if (after <= 0) return (after < 0 ? last : points[0]).y;
      const a = points[after - 1], b = points[after];
      return a.y + ((b.y - a.y) * (x - a.x)) / (b.x - a.x || 1);
    };
    return { label: `${run.name}: faults`, changes: true, showLine: false, pointStyle: "triangle", pointRadius: 6,
             borderColor: colour("run" + (index % 8)),
             backgroundColor: run.changes.map((c) => colour(c.lost ? "lost" : "joined")),
             data: run.changes.map((c) => ({ x: c[axis], y: height(c[axis]), change: c })) };
  }

  function curves(canvas, key, title, show) {
    const datasets = [];
    runs.forEach((run, index) => {
      if (!show(run)) return;
      const points = run[key].map((p) => ({ x: p[axis], y: p.y }));
      const ink = colour("run" + (index % 8));
      datasets.push({ label: label(run), data: points, borderColor: ink, backgroundColor: ink, borderWidth: 2,
                      pointRadius: key === "losses" ? 0 : 3, pointHitRadius: 8, tension: 0, spanGaps: true });
      if (run.changes.length) datasets.push(changesOf(run, index, points));
    });
    return new Chart(canvas, {
      type: "line", data: { datasets }, plugins: [marks],
      options: {
        animation: false, responsive: true, maintainAspectRatio: false, parsing: false, normalized: true,
        interaction: { mode: "nearest", axis: "x", intersect: false },
        scales: { x: scale(AXES[axis], { type: "linear", min: 0 }), y: scale(title) },
        plugins: {
          legend: { position: "bottom", labels: { color: colour("ink"), boxWidth: 10, boxHeight: 10,
                                                  filter: (item, data) => !data.datasets[item.datasetIndex].changes } },
          tooltip: { callbacks: {
            title: (items) => (items.length ? `${AXES[axis]}: ${+items[0].parsed.x.toFixed(2)}` : ""),
            label: (item) => (item.raw.change ? told(item.raw.change)
                                              : `${item.dataset.label}: ${+item.parsed.y.toPrecision(4)}`) } },
        },
      },
    });
  }

  function bars(canvas, title, sets, unit) {
    canvas.parentNode.style.height = 90 + 34 * runs.length + "px";
    return new Chart(canvas, {
      type: "bar",
      data: { labels: runs.map(label),
              datasets: sets.map((s) => ({ label: s.name, data: s.values, backgroundColor: colour(s.ink), maxBarThickness: 22 })) },
      options: {
        indexAxis: "y", animation: false, responsive: true, maintainAspectRatio: false,
        interaction: { mode: "index", axis: "y", intersect: false },
        scales: { x: scale(title, { stacked: true, beginAtZero: true }),
                  y: scale("", { stacked: true, title: { display: false },
                                 ticks: { color: colour("ink"), callback(value) {
                                   const text = this.getLabelForValue(value), most = canvas.clientWidth < 500 ? 18 : 40;
                                   return text.length > most ? text.slice(0, most - 1) + "…" : text;
                                 } } }) },
        plugins: { legend: { display: sets.length > 1, position: "bottom", labels: { color: colour("ink"), boxWidth: 12 } },
                   tooltip: { callbacks: { label: (item) => `${item.dataset.label}: ${+item.parsed.x.toPrecision(4)} ${unit}` } } },
      },
    });
  }

  const PHASES = ["compute", "update", "encode", "waiting"];
  const METRICS = { test_accuracy: ["Test accuracy", "Share of the test set that is classified rightly"],
                    test_loss: ["Test loss", "Mean loss on the test set"] };
  const plots = [];
  if (all.some((r) => r.losses.length)) {
    const canvas = figure("curves", "Training loss", "Mean over all ranks, and over equally many steps for each of at most 100 points");
    plots.push(() => curves(canvas, "losses", "loss", (run) => run.losses.length));
  }
  for (const [metric, [title, about]] of Object.entries(METRICS)) {
    const has = (run) => run.metric === metric && run.evaluations.length;
    if (!all.some(has)) continue;
    const canvas = figure("curves", title, about);
    plots.push(() => curves(canvas, "evaluations", title.toLowerCase(), has));
  }
  if (all.some((r) => PHASES.some((p) => r.phases[p] > 0))) {
    const canvas = figure("bars", "Mean milliseconds per step, and the result of each run", "Over all ranks, without the first five steps");
    plots.push(() => bars(canvas, "ms per step",
                          PHASES.map((p) => ({ name: p, ink: p, values: runs.map((r) => r.phases[p]) })), "ms"));
  }
  const bytes = figure("bars", "Megabytes that a worker sends per step, and the result of each run", "Mean over all steps");
  plots.push(() => bars(bytes, "MB per step", [{ name: "sent", ink: "wire", values: runs.map((r) => r.bytes_sent / 1e6) }], "MB"));

  let traced = [];  // of the runs that are drawn
  const timeline = all.some((run) => run.timeline)
      ? makeTimeline(byId("timeline-canvas"), byId("timeline-tip"), colour) : null;
  const gridPlots = makeGrid(JSON.parse(byId("grid-data").textContent), figure, scale, colour);

  function draw() {
    for (const chart of charts) chart.destroy();
    charts = [...plots, ...gridPlots].map((plot) => plot());
    if (timeline) timeline.draw();
  }

  const select = byId("timeline-run");
  const choose = () => { if (traced.length) timeline.show(traced[select.value].timeline); };
  function showGroup(group) {
    runs = all.filter((run) => run.group === group);
    traced = runs.filter((run) => run.timeline);
    select.replaceChildren(...traced.map((run, i) => new Option(label(run), i)));
    byId("timeline").hidden = !traced.length;
    if (timeline) choose();
  }

  byId("plots").hidden = false;
  const groups = [...new Set(all.map((run) => run.group))];
  byId("groups").hidden = groups.length < 2;
  byId("group").replaceChildren(...groups.map((name) => new Option(name, name)));
  byId("group").addEventListener("change", () => { showGroup(byId("group").value); draw(); });
  showGroup(groups[0]);
  if (timeline) {
    select.addEventListener("change", choose);
    byId("zoom-in").addEventListener("click", timeline.zoomIn);
    byId("zoom-out").addEventListener("click", timeline.zoomOut);
    byId("zoom-all").addEventListener("click", timeline.all);
    for (const [kind, text] of [...PHASES.map((p) => [p, p]), ["wire", "on the wire"], ["background", "on the wire, in the background"]]) {
      const item = document.createElement("span"), key = document.createElement("b");
      key.className = "key " + kind;
      item.append(key, text);
      byId("timeline-legend").append(item);
    }
  }
  for (const input of document.querySelectorAll("input[name=axis]")) {
    input.addEventListener("change", () => { axis = input.value; draw(); });
  }

  const button = byId("theme"), isDark = () => (root.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
  const name = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.hidden = false;
  button.title = "Switch between light and dark";
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    name();
    draw();
  });
  dark.addEventListener("change", () => { name(); draw(); });
  name();
  draw();
})();

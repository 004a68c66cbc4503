// SPDX-License-Identifier: Apache-2.0
//
// The plots of a report: curves and bars by Chart.js (3 or 4), the timeline by timeline.js, the bars of a comparison by
// grid.js, and the theme. In a comparison one group of runs is drawn at a time. Everything is in the tables as well;
// this adds nothing that was not measured. Data from the runs is inserted as text only; tables of a live page arrive as
// the same HTML that the page itself was made of.
(function () {
  "use strict";
  let data = JSON.parse(document.getElementById("data").textContent);
  let group = data.runs.length ? data.runs[0].group : "", runs = [];  // those of the group, which are drawn
  const showGroup = () => { runs = data.runs.filter((run) => run.group === group); };
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
  const byId = (id) => document.getElementById(id);
  const figures = new Map();  // by place and title: canvas and chart
  let axis = "s";

  function figure(place, title, about) {
    const key = `${place} ${title}`;
    if (figures.has(key)) return figures.get(key);
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
    figures.set(key, { canvas, chart: null });
    return figures.get(key);
  }

  // A chart that is there already keeps what the reader points at.
  function plot(at, config) {
    if (!at.chart) at.chart = new Chart(at.canvas, config);
    at.chart.data = config.data;
    at.chart.options = config.options;
    at.chart.update("none");
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

  function curves(at, key, title, show) {
    const datasets = [];
    runs.forEach((run, index) => {
      if (!show(run)) return;
      const points = run[key].map((p) => ({ x: p[axis], y: p.y }));
      const ink = colour("run" + (index % 8));
      datasets.push({ label: label(run), data: points, borderColor: ink, backgroundColor: ink, borderWidth: 2,
                      pointRadius: key === "losses" ? 0 : 3, pointHitRadius: 8, tension: 0, spanGaps: true });
      if (run.changes.length) datasets.push(changesOf(run, index, points));
    });
    plot(at, {
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

  function bars(at, title, sets, unit) {
    const canvas = at.canvas;
    canvas.parentNode.style.height = 90 + 34 * runs.length + "px";
    plot(at, {
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
  const grid = JSON.parse(byId("grid-data").textContent);
  function drawPlots() {
    if (!data.runs.length) return;  // a plan, or a comparison in which all runs failed
    if (data.runs.some((r) => r.losses.length)) {
      curves(figure("curves", "Training loss", `${data.live ? "Of rank 0" : "Mean over all ranks"}; each of at most 100 points is the mean of equally many steps`),
             "losses", "loss", (run) => run.losses.length);
    }
    for (const [metric, [title, about]] of Object.entries(METRICS)) {
      const has = (run) => run.metric === metric && run.evaluations.length;
      if (data.runs.some(has)) curves(figure("curves", title, about), "evaluations", title.toLowerCase(), has);
    }
    if (!grid && data.runs.length > 1 && data.runs.some((r) => r.speedup !== null)) {
      bars(figure("bars", "Speed-up over ssgd, and the result of each run",
                  "Samples per second over those of the first ssgd run with the same task, model, network, workers and batch; no bar where there is none"),
           "× the samples per second of ssgd", [{ name: "speed-up", ink: "accent", values: runs.map((r) => r.speedup) }], "×");
    }
    if (data.runs.some((r) => PHASES.some((p) => r.phases[p] > 0))) {
      bars(figure("bars", "Mean milliseconds per step, and the result of each run",
                  `${data.live ? "Of rank 0" : "Over all ranks"}, without the first five steps`),
           "ms per step", PHASES.map((p) => ({ name: p, ink: p, values: runs.map((r) => r.phases[p]) })), "ms");
    }
    bars(figure("bars", "Megabytes that a worker sends per step, and the result of each run", "Mean over all steps"),
         "MB per step", [{ name: "sent", ink: "wire", values: runs.map((r) => r.bytes_sent / 1e6) }], "MB");
  }

  // What the timeline shows, made when the first trace is there.
  let timeline = null, shown = null;  // and the group it is of
  const KINDS = [["forward", "forward", "Reading the batch and the forward pass"],
                 ["backward", "backward", "The backward pass, cut where the gradients of a bucket of layers became ready"],
                 ["update", "update", "Moving the weights: the optimizer"],
                 ["encode", "encode", "The strategy's own work: selecting, compressing, adding up"],
                 ["waiting", "waiting", "Blocked until an operation on the wire is done"],
                 ["wire", "on the wire", "An operation is under way"],
                 ["background", "on the wire, in the background", "The same, on the lane that all others overtake"]];

  function drawTimeline() {
    const traced = runs.filter((run) => run.timeline), select = byId("timeline-run"), canvas = byId("timeline-canvas");
    byId("timeline").hidden = !traced.length;
    if (!traced.length) return;
    if (!timeline) makeTimelineTools(canvas, select);
    if (shown !== group) {
      shown = group;
      select.replaceChildren(...traced.map((run, i) => new Option(data.live ? run.name : label(run), i)));
      timeline.show(traced[0].timeline);
    } else if (data.live && !canvas.matches(":hover")) {  // not while the reader points at it
      timeline.show(traced[0].timeline, true);
    }
    timeline.draw();
  }

  function makeTimelineTools(canvas, select) {
    timeline = makeTimeline(canvas, byId("timeline-tip"), colour);
    select.addEventListener("change", () => timeline.show(runs.filter((run) => run.timeline)[select.value].timeline));
    byId("zoom-in").addEventListener("click", timeline.zoomIn);
    byId("zoom-out").addEventListener("click", timeline.zoomOut);
    byId("zoom-all").addEventListener("click", timeline.all);
    for (const [kind, text, about] of KINDS) {
      const item = document.createElement("span"), key = document.createElement("b");
      key.className = "key " + kind;
      item.title = about;
      item.append(key, text);
      byId("timeline-legend").append(item);
    }
  }

  function draw() {
    drawPlots();
    for (const plotOfGrid of gridPlots) plotOfGrid();
    drawTimeline();
  }

  byId("plots").hidden = !data.runs.length;
  const gridPlots = makeGrid(grid, figure, plot, scale, colour);
  const groups = [...new Set(data.runs.map((run) => run.group))];
  byId("groups").hidden = groups.length < 2;
  byId("group").replaceChildren(...groups.map((name) => new Option(name, name)));
  byId("group").addEventListener("change", () => { group = byId("group").value; showGroup(); draw(); });
  showGroup();
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

  // A live page. Tables are put in their places where they changed; what was scrolled or opened stays so.
  function putTables(tables) {
    for (const place of document.querySelectorAll("[data-table]")) {
      const html = tables[place.dataset.table];
      if (place.made === html) continue;
      const scrolled = [...place.querySelectorAll(".scroll")].map((e) => e.scrollLeft);
      const opened = [...place.querySelectorAll("details")].map((e) => e.open);
      place.innerHTML = place.made = html;
      place.querySelectorAll(".scroll").forEach((e, i) => { e.scrollLeft = scrolled[i] || 0; });
      place.querySelectorAll("details").forEach((e, i) => { if (i in opened) e.open = opened[i]; });
    }
  }

  const EVERY_MS = 1000, MOST_MISSES = 3;
  function live() {
    const status = byId("live");
    let misses = 0;
    const say = (text, over) => {
      status.textContent = text;
      status.classList.toggle("over", over);
    };
    const ask = async () => {
      if (!document.hidden) {
        try {
          const answer = await fetch("data.json", { cache: "no-store" });
          if (!answer.ok) throw new Error(answer.status);
          data = await answer.json();
          showGroup();
          misses = 0;
          putTables(data.tables);
          draw();
          say(`Live: ${runs[0].steps} steps, as rank 0 sees them. The report of all ranks comes after the end (--out).`, false);
        } catch (error) {
          if (++misses === MOST_MISSES) {
            return say("The process has ended or cannot be reached: this is the last that it told.", true);
          }
        }
      }
      setTimeout(ask, EVERY_MS);
    };
    status.hidden = false;
    say("Live", false);
    ask();
  }
  if (data.live) live();
})();

// SPDX-License-Identifier: Apache-2.0
//
// The zoomable timeline of a report, on one canvas: for each rank a row of what its worker did, and below it the rows of
// the wire. Draws what page_data.cc made of trace.json and measures nothing. Where the view stands, in milliseconds, can
// be read from the canvas (data-from, data-to).
"use strict";
function makeTimeline(canvas, tip, colour) {
  const GUTTER = 64, AXIS = 40, WORKER = 24, GAP = 12;
  let ranks = [], names = [], end = 1, from = 0, to = 1, boxes = [], height = 100;

  const wireHeight = (count) => (count <= 4 ? 14 : count <= 10 ? 9 : count <= 20 ? 6 : count <= 40 ? 4 : 2);

  // Rows by rank: steps, what the worker did (disjoint, so on one row), the wire.
  // `stay`: where the reader looks stays as it is.
  function show(timeline, stay) {
    names = timeline.names;
    end = 1;
    ranks = timeline.ranks.map((rank) => {
      const kinds = { compute: [], forward: [], backward: [], update: [], encode: [], waits: [], steps: [] };
      const wires = [];
      for (const row of rank.rows) {
        if (kinds[row.name]) kinds[row.name] = row.spans;
        else wires.push(row.spans);
      }
      for (const span of kinds.steps) end = Math.max(end, span[0] + span[1]);
      return { name: rank.name, kinds, wires };
    });
    const steps = ranks.length ? ranks[0].kinds.steps : [];
    const third = steps[Math.min(2, steps.length - 1)];
    height = AXIS + ranks.reduce((sum, r) => sum + WORKER + 3 + r.wires.length * (wireHeight(r.wires.length) + 1) + GAP, 0);
    canvas.style.height = height + "px";
    stay ? look(from, to) : look(0, third ? third[0] + third[1] : end);
  }

  function look(a, b) {
    const span = Math.min(Math.max(b - a, 0.05), end);
    from = Math.min(Math.max(a, 0), end - span);
    to = from + span;
    canvas.dataset.from = from.toFixed(4);
    canvas.dataset.to = to.toFixed(4);
    draw();
  }

  const plotWidth = () => canvas.clientWidth - GUTTER;
  const at = (ms) => GUTTER + ((ms - from) / (to - from)) * plotWidth();

  function zoom(factor, x) {
    const anchor = from + ((x - GUTTER) / plotWidth()) * (to - from);
    look(anchor - (anchor - from) * factor, anchor + (to - anchor) * factor);
  }

  function draw() {
    if (!canvas.clientWidth) return;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(canvas.clientWidth * ratio);
    canvas.height = Math.round(height * ratio);
    const c = canvas.getContext("2d");
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, canvas.clientWidth, height);
    c.font = "12px system-ui, sans-serif";
    c.textBaseline = "middle";
    boxes = [];
    axis(c);
    let y = AXIS;
    for (const rank of ranks) y = drawRank(c, rank, y) + GAP;
    c.clearRect(0, AXIS, GUTTER - 4, height);  // what reaches under the names
    y = AXIS;
    for (const rank of ranks) {
      c.fillStyle = colour("ink");
      c.fillText(rank.name, 8, y + WORKER / 2);
      c.fillStyle = colour("soft");
      const wires = rank.wires.length * (wireHeight(rank.wires.length) + 1);
      if (wires) c.fillText("wire", 8, y + WORKER + 3 + Math.max(7, wires / 2));
      y += WORKER + 3 + wires + GAP;
    }
  }

  function axis(c) {
    const rough = (to - from) / Math.max(2, plotWidth() / 90);
    const power = Math.pow(10, Math.floor(Math.log10(rough)));
    const tick = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    c.fillStyle = colour("soft");
    for (let ms = Math.ceil(from / tick) * tick; ms < to; ms += tick) {
      c.fillRect(at(ms), 4, 1, 12);
      c.fillText(+ms.toFixed(3) + " ms", at(ms) + 4, 10);
    }
    let free = GUTTER;  // names stand where the last one ended
    for (const step of ranks.length ? ranks[0].kinds.steps : []) {
      const x = at(step[0]), name = names[step[2]];
      if (step[0] + step[1] < from || step[0] > to || Math.max(x, GUTTER) < free) continue;
      c.fillStyle = colour("ink");
      c.fillText(name, Math.max(x, GUTTER) + 4, 28);
      free = Math.max(x, GUTTER) + c.measureText(name).width + 16;
    }
  }

  function drawRank(c, rank, top) {
    const wire = wireHeight(rank.wires.length);
    const bottom = top + WORKER + 3 + rank.wires.length * (wire + 1);
    for (const wait of rank.kinds.waits) {
      if (wait[0] + wait[1] < from || wait[0] > to) continue;
      c.fillStyle = colour("shade");
      c.fillRect(at(wait[0]), top, Math.max(1, at(wait[0] + wait[1]) - at(wait[0])), bottom - top);
    }
    for (const kind of ["compute", "forward", "backward", "update", "encode", "waits"]) {
      for (const span of rank.kinds[kind]) box(c, span, top, WORKER, ...(kind === "waits" ? ["waiting", "waiting"] : [kind, kind]));
    }
    rank.wires.forEach((spans, i) => {
      for (const span of spans) {
        box(c, span, top + WORKER + 3 + i * (wire + 1), wire, span[3] ? "background" : "wire",
            span[3] ? "on the wire, in the background" : "on the wire");
      }
    });
    c.fillStyle = colour("soft");
    for (const step of rank.kinds.steps) {
      if (step[0] < from || step[0] > to) continue;
      c.fillRect(at(step[0]), top - 3, 1, bottom - top + 6);
    }
    return bottom;
  }

  function box(c, span, y, h, shade, kind) {
    if (span[0] + span[1] < from || span[0] > to) return;
    const x = Math.max(at(span[0]), GUTTER), w = Math.max(1, Math.min(at(span[0] + span[1]), canvas.clientWidth) - x);
    c.fillStyle = colour(shade);
    c.fillRect(x, y, w > 3 ? w - 0.5 : w, h);
    boxes.push([x, y, w, h, span, kind]);
    if (h < 12 || w < 40) return;
    c.save();
    c.beginPath();
    c.rect(x, y, w - 4, h);
    c.clip();
    c.fillStyle = colour("card");
    c.fillText(names[span[2]], x + 4, y + h / 2 + 0.5);
    c.restore();
  }

  function explain(event) {
    const area = canvas.getBoundingClientRect(), x = event.clientX - area.left, y = event.clientY - area.top;
    const hit = boxes.findLast((b) => x >= b[0] - 1 && x <= b[0] + b[2] + 1 && y >= b[1] && y <= b[1] + b[3] + 1);
    tip.hidden = !hit;
    if (!hit) return;
    const [, , , , span, kind] = hit;
    tip.textContent = `${names[span[2]]}: ${kind}, ${span[1].toFixed(3)} ms, from ${span[0].toFixed(3)} ms`;
    tip.style.left = Math.min(x + 12, Math.max(0, area.width - tip.offsetWidth - 4)) + "px";
    tip.style.top = y + 16 + "px";
  }

  let dragged = null;
  canvas.addEventListener("wheel", (event) => {
    if (event.deltaY > 0 && to - from >= end) return;  // all is shown: the page may scroll
    event.preventDefault();
    zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 400))), event.clientX - canvas.getBoundingClientRect().left);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    dragged = { x: event.clientX, from, to };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!dragged) return explain(event);
    const moved = ((event.clientX - dragged.x) / plotWidth()) * (dragged.to - dragged.from);
    look(dragged.from - moved, dragged.to - moved);
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { dragged = null; });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  const middle = () => GUTTER + plotWidth() / 2;
  const all = () => look(0, end);
  canvas.addEventListener("keydown", (event) => {
    const tenth = (to - from) / 10;
    const does = { ArrowLeft: () => look(from - tenth, to - tenth), ArrowRight: () => look(from + tenth, to + tenth),
                   "+": () => zoom(0.6, middle()), "-": () => zoom(1 / 0.6, middle()), 0: all }[event.key];
    if (!does) return;
    event.preventDefault();
    does();
  });
  new ResizeObserver(draw).observe(canvas);
  return { show, draw, all, zoomIn: () => zoom(0.6, middle()), zoomOut: () => zoom(1 / 0.6, middle()) };
}

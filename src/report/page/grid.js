// SPDX-License-Identifier: Apache-2.0
//
// The bars of a comparison or a plan: a figure for each scenario and quantity, a bar for each contender, with a line from the least
// to the largest value of its seeds and repeats. Everything stands in the tables as well. `grid` is null in a report of
// runs that are no comparison.
//
// Returns functions that draw one chart each; page.js calls them again when colours change.
function makeGrid(grid, figure, plot, scale, colour) {
  "use strict";
  if (!grid) return [];

  // From the least to the largest value; a bar that does not begin at 0 would lie, so results are points.
  const whiskers = {
    id: "whiskers",
    afterDatasetsDraw(chart) {
      const { ctx, scales: { x }, data } = chart;
      ctx.save();
      ctx.strokeStyle = colour("ink");
      ctx.lineWidth = 1.5;
      chart.getDatasetMeta(0).data.forEach((bar, i) => {
        const spread = data.datasets[0].spreads[i];
        if (!spread || spread[0] === spread[2]) return;
        const from = x.getPixelForValue(spread[1]), to = x.getPixelForValue(spread[2]);
        ctx.beginPath();
        ctx.moveTo(from, bar.y);
        ctx.lineTo(to, bar.y);
        for (const end of [from, to]) {
          ctx.moveTo(end, bar.y - 5);
          ctx.lineTo(end, bar.y + 5);
        }
        ctx.stroke();
      });
      ctx.restore();
    },
  };

  function chart(at, rows, quantity) {
    const canvas = at.canvas;
    const shown = rows.filter((row) => row[quantity.key]);
    const spreads = shown.map((row) => row[quantity.key]);
    const point = quantity.key === "score";
    canvas.parentNode.style.height = 84 + 30 * shown.length + "px";
    const least = Math.min(...spreads.map((s) => s[1])), most = Math.max(...spreads.map((s) => s[2]));
    const room = Math.max(0.15 * (most - least), 0.01 * Math.abs(most));  // noise must not look like a difference
    plot(at, {
      type: point ? "line" : "bar", plugins: [whiskers],
      data: { labels: shown.map((row) => row.contender),
              datasets: [{ label: quantity.title, data: spreads.map((s) => s[0]), spreads, showLine: false,
                           pointRadius: 5, pointHoverRadius: 6, borderColor: colour("accent"), maxBarThickness: 20,
                           backgroundColor: shown.map((row) => colour(row.peer ? "run7" : "accent")),
                           pointBackgroundColor: shown.map((row) => colour(row.peer ? "run7" : "accent")) }] },
      options: {
        indexAxis: "y", animation: false, responsive: true, maintainAspectRatio: false,
        interaction: { mode: "index", axis: "y", intersect: false },
        scales: { x: scale(quantity.unit, point ? { min: least - room, max: most + room } : { beginAtZero: true }),
                  y: scale("", { title: { display: false }, offset: true, ticks: { color: colour("ink"), autoSkip: false,
                    callback(value) {
                      const text = this.getLabelForValue(value), limit = canvas.clientWidth < 500 ? 18 : 34;
                      return text.length > limit ? text.slice(0, limit - 1) + "…" : text;
                    } } }) },
        plugins: { legend: { display: false },
                   tooltip: { callbacks: { label: (item) => {
                     const [middle, from, to] = spreads[item.dataIndex].map((v) => +v.toPrecision(4));
                     return `${middle} ${quantity.unit}` + (from === to ? "" : `, from ${from} to ${to}`) +
                            (point || !shown[item.dataIndex].result ? "" : `; result ${shown[item.dataIndex].result}`);
                   } } } },
      },
    });
  }

  const plots = [];
  grid.forEach((scenario, index) => {
    for (const quantity of scenario.quantities) {
      if (!scenario.rows.some((row) => row[quantity.key])) continue;
      const at = figure("grid-figures-" + index, quantity.title, quantity.about);
      plots.push(() => chart(at, scenario.rows, quantity));
    }
  });
  return plots;
}

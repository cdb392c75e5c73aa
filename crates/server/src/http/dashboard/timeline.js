// The time line: one line for each table, over the samples that the server keeps.

const CHART_HEIGHT = 210;
const SERIES_COLORS = 6;
const LINES_SHOWN = 6;

/** What the lines can show: a value for each table between two rows. */
const MEASURES = {
  requests: {
    unit: "/s",
    of: (from, to, table, seconds) => samples.tableBetween(from, to, table, "requests") / seconds,
  },
  round_trips: {
    unit: "/s",
    of: (from, to, table, seconds) => {
      // The round trips of memory tables are the syncs of the log, shown with the first of them.
      const growth = table === 0 ? samples.between(from, to, "log_syncs")
        : samples.tableBetween(from, to, table, "round_trips");
      return growth / seconds;
    },
  },
  batch: {
    unit: " in a batch",
    of: (from, to, table) => {
      const [items, batches] = table === 0
        ? ["tx_items", "tx_batches"].map((column) => samples.between(from, to, column))
        : ["entries", "batches"].map((column) => samples.tableBetween(from, to, table, column));
      return ratio(items, batches);
    },
  },
  waiting: {
    unit: " waiting",
    of: (from, to, table) => to.tables[table][samples.tableColumn("waiting")],
  },
};

const timeline = {
  measure: "requests",
  moment: null,

  start() {
    for (const radio of document.querySelectorAll("input[name=measure]")) {
      radio.addEventListener("change", () => {
        this.measure = radio.value;
        this.draw();
      });
    }
    const range = byId("moment");
    range.addEventListener("input", () => {
      this.moment = Number(range.value);
      this.draw();
    });
    byId("chart").addEventListener("pointermove", (event) => {
      const {left, width} = byId("chart").getBoundingClientRect();
      const last = Number(range.max);
      range.value = String(Math.round((event.clientX - left) / width * last));
      this.moment = Number(range.value);
      this.draw();
    });
    byId("chart").addEventListener("pointerleave", () => {
      range.value = range.max;
      this.moment = null;
      this.draw();
    });
  },

  draw() {
    const chart = byId("chart");
    const width = Math.floor(chart.getBoundingClientRect().width);
    if (width === 0 || samples.rows.length < 2) return;
    const lines = this.lines();
    const end = samples.lastMs(), span = 300000;
    // The moment is a second between five minutes ago and now.
    const slot = this.moment === null ? Number(byId("moment").max) : this.moment;
    const at = end - (Number(byId("moment").max) - slot) * 1000;
    const top = niceMax(Math.max(0, ...lines.flatMap(({points}) =>
      points.map(([, value]) => value ?? 0))));
    const plotTop = 8, plotBottom = CHART_HEIGHT - 22;
    const x = (ms) => width - (end - ms) / span * width;
    const y = (value) => plotBottom - value / top * (plotBottom - plotTop);
    const {unit} = MEASURES[this.measure];
    const parts = [];
    for (const share of [0, 0.5, 1]) {
      const height = y(top * share);
      parts.push(shape("line", {class: "axis", x1: 0, x2: width, y1: height, y2: height}));
      if (share !== 0) parts.push(label(2, height + 13, compact(top * share) + unit, "dim",
        "start"));
    }
    const every = width < NARROW ? 2.5 : 1;
    for (let minutes = 0; minutes <= 5; minutes += every) {
      const anchor = minutes === 0 ? "end" : minutes === 5 ? "start" : "middle";
      const text = minutes === 0 ? "now" : `-${minutes} min`;
      parts.push(label(x(end - minutes * 60000), CHART_HEIGHT - 6, text, "dim", anchor));
    }
    for (const {color, points} of lines) {
      const path = pathOf(points.map(([ms, value]) => [x(ms), value === null ? null : y(value)]));
      parts.push(shape("path", {class: "series", d: path, stroke: color}));
    }
    parts.push(shape("line", {class: "cursor", x1: x(at), x2: x(at), y1: plotTop, y2: plotBottom}));
    chart.setAttribute("viewBox", `0 0 ${width} ${CHART_HEIGHT}`);
    chart.replaceChildren(...parts);
    this.describe(lines, at, end, unit);
  },

  /** The tables with most of what is shown, each with its points. */
  lines() {
    const {of} = MEASURES[this.measure];
    const lines = samples.tables.map((name, table) => {
      const points = samples.rows.slice(1).map((to, index) => {
        const from = samples.rows[index];
        return [to.at_ms, of(from, to, table, (to.at_ms - from.at_ms) / 1000)];
      });
      const most = Math.max(0, ...points.map(([, value]) => value ?? 0));
      return {name, points, most, color: `var(--series-${table % SERIES_COLORS})`};
    });
    const chosen = [...lines].sort((a, b) => b.most - a.most).slice(0, LINES_SHOWN);
    return lines.filter((line) => chosen.includes(line));
  },

  /** Writes the values of the moment, which are also the legend. */
  describe(lines, at, end, unit) {
    const ago = Math.round((end - at) / 1000);
    const values = lines.map(({name, points, color}) => {
      const [, value] = points.findLast(([ms]) => ms <= at + 500) ?? [0, null];
      const key = shape("svg", {class: "key", viewBox: "0 0 14 4"},
        shape("rect", {width: 14, height: 4, fill: color}));
      const text = value === null ? "-" : compact(value) + unit;
      return element("span", {}, key, `${name}: ${text}`);
    });
    const when = ago === 0 ? "now" : `${ago} s ago`;
    byId("moment-values").replaceChildren(element("b", {}, when), ...values);
    byId("moment").setAttribute("aria-valuetext", when);
    const text = lines.map(({name, points}) =>
      `${name} ${compact(points.at(-1)?.[1] ?? 0)}${unit}`);
    byId("chart").setAttribute("aria-label", "Time line of five minutes. Now: " + text.join(", "));
  },
};

/** The least of 1, 2, 3, 5, 7, 10, ... that is not below. */
function niceMax(value) {
  if (value <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 3, 5, 7, 10].map((factor) => factor * power).find((step) => value <= step);
}

/** A path through the points, with gaps where there is no value. */
function pathOf(points) {
  let path = "", pen = "M";
  for (const [x, y] of points) {
    if (y === null) { pen = "M"; continue; }
    path += `${pen}${x.toFixed(1)},${y.toFixed(1)}`;
    pen = "L";
  }
  return path;
}

// The pipeline as a picture: stages in a row, sources below them; on a phone all in a column.

const NARROW = 720;
const LINE_HEIGHT = 17;
const SOURCES_SHOWN = 12;

/** A stage, a source or an end of the pipeline: a name, one large number, and lines below it. */
function stageNodes(stats, second) {
  const rate = (column) => (second === null ? 0 : second.rate(column));
  const sources = new Set(stats.tables.filter((table) => table.kind !== "memory")
    .map((table) => table.name));
  const mean = (what, isAbout) => duration(histograms.meanNow(what, isAbout));
  const inMemory = (subject) => !sources.has(subject);
  const calls = (column) => {
    const each = second === null ? null : ratio(second.growth(column), second.growth("net_items"));
    return each === null ? "-" : plain(each);
  };
  const failed = (subject) => stats.health.reasons
    .filter((reason) => reason.subject === subject)
    .map((reason) => reason.level)[0] ?? "";
  const log = failed("log");
  return [
    {
      name: "clients", kind: "end", value: whole(stats.connections.open), unit: "connected",
      lines: [
        ["in", bytes(rate("received_bytes")) + "/s"],
        ["out", bytes(rate("sent_bytes")) + "/s"],
        ["waiting for the log", whole(stats.connections.blocked)],
      ],
    },
    {
      name: "net", kind: "stage", value: compact(rate("net_items")), unit: "requests/s",
      lines: [
        ["receives a request", calls("receives")],
        ["sends a request", calls("sends")],
        ["request time", mean("request", () => true)],
      ],
    },
    {
      name: "tx", kind: "stage", value: compact(rate("tx_items")), unit: "requests/s",
      lines: [
        ["time in queue", mean("queue", inMemory)],
        ["time in service", mean("service", inMemory)],
        ["longest turn", duration(stats.commands.turn_max_us)],
      ],
    },
    {
      name: "log", kind: "stage " + log, value: compact(rate("log_records")), unit: "records/s",
      lines: [
        ["writes", compact(rate("log_frames")) + "/s"],
        ["syncs", compact(rate("log_syncs")) + "/s"],
        ["deferred", compact(rate("deferred")) + "/s"],
      ],
    },
    {
      name: "disk", kind: "end " + log, value: bytes(rate("log_bytes")), unit: "/s",
      lines: [
        ["a sync takes", duration(second === null ? null
          : ratio(second.growth("log_sync_us"), second.growth("log_syncs")))],
        ["log", bytes(stats.log === null ? null : stats.log.size_bytes)],
        ["not yet durable", stats.log === null ? "-"
          : whole(stats.log.written_lsn - stats.log.durable_lsn)],
      ],
    },
  ];
}

function sourceNodes(stats, second) {
  const sources = stats.tables.filter((table) => table.kind !== "memory");
  const level = (table) => stats.health.reasons
    .filter((reason) => reason.subject === "table " + table.name)
    .map((reason) => reason.level)[0] ?? "";
  return sources.slice(0, SOURCES_SHOWN).map((table) => {
    const rate = (column) => (second === null ? 0 : second.tableRate(table.name, column));
    const growth = (column) => (second === null ? 0 : second.tableGrowth(table.name, column));
    const isPostgres = table.kind === "postgres", isIt = (subject) => subject === table.name;
    return {
      name: table.name, kind: "source " + level(table), state: table.state,
      value: compact(rate("requests")), unit: "requests/s",
      batch: ratio(growth("entries"), growth("batches")),
      lines: [
        [isPostgres ? "statements" : "store reads", compact(rate("round_trips")) + "/s"],
        ["waiting, in flight", `${whole(table.waiting)}, ${whole(table.in_flight)}`],
        ["time in queue", duration(histograms.meanNow("queue", isIt))],
        ["time in service", duration(histograms.meanNow("service", isIt))],
      ],
    };
  });
}

/** Mean batches between the stages. */
function edgeBatches(second) {
  const mean = (stage) => (second === null ? null
    : ratio(second.growth(stage + "_items"), second.growth(stage + "_batches")));
  return {
    requests: mean("net"),
    executed: mean("tx"),
    commits: mean("commit"),
    frames: second === null ? null
      : ratio(second.growth("log_records"), second.growth("log_frames")),
    replies: mean("reply"),
  };
}

function drawPipeline(stats, second) {
  const picture = byId("picture");
  const width = Math.floor(picture.getBoundingClientRect().width);
  if (width === 0) return;
  const model = {
    stages: stageNodes(stats, second), sources: sourceNodes(stats, second),
    batches: edgeBatches(second),
  };
  const hidden = stats.tables.filter((table) => table.kind !== "memory").length - SOURCES_SHOWN;
  replace(picture, [model, width], () => {
    const {parts, height} = width < NARROW ? column(model, width) : rows(model, width);
    if (0 < hidden) {
      parts.push(label(width / 2, height + 14, `${hidden} more tables are listed below`, "dim"));
    }
    picture.setAttribute("viewBox", `0 0 ${width} ${height + (0 < hidden ? 22 : 0)}`);
    return parts;
  });
}

function rows(model, width) {
  const gap = 62, boxWidth = (width - 4 * gap - 4) / 5;
  const height = boxHeight(3);
  const x = (index) => 2 + index * (boxWidth + gap);
  const parts = [];
  const {requests, executed, commits, frames, replies} = model.batches;
  [requests, executed, commits, frames].forEach((batch, index) => {
    const from = x(index) + boxWidth, y = index === 0 ? 40 : height / 2;
    parts.push(arrow([[from + 2, y], [from + gap - 2, y]]), pill(from + gap / 2, y - 16, batch));
  });
  const back = x(0) + boxWidth, low = height - 24;
  parts.push(arrow([[back + gap - 2, low], [back + 2, low]]));
  parts.push(pill(back + gap / 2, low - 16, replies));
  model.stages.forEach((node, index) => parts.push(box(node, x(index), 2, boxWidth, height)));
  if (model.sources.length === 0) return {parts, height: height + 4};

  const perRow = Math.min(4, model.sources.length), sourceGap = 26;
  const sourceWidth = Math.min(300, (width - 4 - (perRow - 1) * sourceGap) / perRow);
  const sourceHeight = boxHeight(4);
  const middle = x(2) + boxWidth / 2;
  let top = height + 2;
  for (let first = 0; first < model.sources.length; first += perRow) {
    const row = model.sources.slice(first, first + perRow);
    const rowWidth = row.length * sourceWidth + (row.length - 1) * sourceGap;
    const start = Math.max(2, Math.min(middle - rowWidth / 2, width - 2 - rowWidth));
    const bus = top + 16, boxTop = top + 56;
    const centers = row.map((_, index) => start + index * (sourceWidth + sourceGap)
      + sourceWidth / 2);
    if (first === 0) parts.push(line([[middle, top], [middle, bus]]));
    parts.push(line([[Math.min(middle, ...centers), bus], [Math.max(middle, ...centers), bus]]));
    row.forEach((node, index) => {
      const center = centers[index];
      parts.push(arrow([[center, bus], [center, boxTop - 2]]));
      parts.push(pill(center + 30, bus + 18, node.batch));
      parts.push(box(node, center - sourceWidth / 2, boxTop, sourceWidth, sourceHeight));
    });
    top = boxTop + sourceHeight;
  }
  return {parts, height: top + 4};
}

/** For a phone: what tx hands on lies below it, beside one line that comes from it. */
function column(model, width) {
  const gap = 34, trunk = 16, indent = 38, parts = [];
  const {requests, executed, commits, frames} = model.batches;
  const [clients, net, tx, log, disk] = model.stages;
  let y = 2;
  const put = (node, left) => {
    const height = boxHeight(node.lines.length);
    parts.push(box(node, left, y, width - 2 - left, height));
    y += height;
  };
  const down = (batch, center) => {
    parts.push(arrow([[center, y], [center, y + gap - 2]]), pill(center + 38, y + gap / 2, batch));
    y += gap;
  };
  put(clients, 2);
  down(requests, width / 2);
  put(net, 2);
  down(executed, width / 2);
  put(tx, 2);
  const top = y;
  let end = y;
  const beside = (node, batch) => {
    y += gap;
    end = y + 30;
    parts.push(arrow([[trunk, end], [indent - 2, end]]), pill(trunk + 34, y - gap / 2, batch));
    put(node, indent);
  };
  model.sources.forEach((source) => beside(source, source.batch));
  beside(log, commits);
  parts.push(line([[trunk, top], [trunk, end]]));
  down(frames, width / 2);
  put(disk, indent);
  return {parts, height: y + 4};
}

function boxHeight(lines) {
  return 62 + lines * LINE_HEIGHT;
}

function box(node, x, y, width, height) {
  const state = node.state === undefined ? null
    : label(x + width - 12, y + 22, node.state, "dim state", "end");
  return shape("g", {class: node.kind, "data-node": node.name},
    shape("rect", {class: "box", x, y, width, height, rx: 9}),
    label(x + 12, y + 22, cut(node.name, node.state === undefined ? width - 24 : width - 90),
      "title", "start"),
    state,
    shape("text", {x: x + 12, y: y + 47},
      shape("tspan", {class: "big"}, node.value),
      shape("tspan", {class: "dim"}, " " + node.unit)),
    ...node.lines.flatMap(([name, value], index) => {
      const base = y + 67 + index * LINE_HEIGHT;
      return [
        label(x + 12, base, name, "dim", "start"),
        label(x + width - 12, base, value, "", "end"),
      ];
    }));
}

function label(x, y, text, kind, anchor = "middle") {
  return shape("text", {x, y, class: kind, "text-anchor": anchor}, text);
}

/** The name, cut to about so many pixels. */
function cut(name, width) {
  const most = Math.max(4, Math.floor(width / 8));
  return name.length <= most ? name : name.slice(0, most - 1) + "\u2026";
}

function line(points) {
  return shape("polyline", {class: "edge", points: points.map((point) => point.join()).join(" ")});
}

/** A line with a tip at its end. */
function arrow(points) {
  const [[fromX, fromY], [x, y]] = points.slice(-2);
  const angle = Math.atan2(y - fromY, x - fromX) * 180 / Math.PI;
  return shape("g", {}, line(points), shape("path", {
    class: "tip", d: "M0,0 L-8,-4.5 L-8,4.5 Z", transform: `translate(${x},${y}) rotate(${angle})`,
  }));
}

/** The mean batch on an arrow, wider the more it carries. */
function pill(x, y, batch) {
  const text = batch === null ? "\u2013" : "\u00d7" + compact(batch);
  const least = 14 + 7 * text.length;
  const width = batch === null ? 24
    : Math.min(58, Math.max(least, 32 + 3 * Math.log2(Math.max(1, batch))));
  return shape("g", {class: batch === null ? "pill idle" : "pill"},
    shape("rect", {x: x - width / 2, y: y - 9, width, height: 18, rx: 9}),
    label(x, y + 4.5, text, ""));
}

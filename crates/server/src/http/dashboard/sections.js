// Everything else: health, numbers at a glance, what is saved, histograms, tables, lists.

const HISTOGRAMS_SHOWN = 24;

function drawHealth(stats) {
  setHealth(stats.health.level, stats.health.reasons);
}

/** Shows how the server is, the worst reason largest; also without an answer of it. */
function setHealth(level, reasons) {
  const section = byId("health");
  if (section.className !== level) section.className = level;
  const [worst] = reasons;
  show("health-title", worst === undefined ? "All is well" : `${worst.subject}: ${worst.what}`);
  document.title = worst === undefined ? "busload" : `(${level}) busload`;
  replace(byId("reasons"), reasons, () => reasons.map((reason, index) =>
    element("li", {class: reason.level},
      index === 0 ? null : element("b", {}, `${reason.subject}: ${reason.what}`),
      element("p", {}, reason.why),
      element("small", {}, reason.action))));
}

function drawHeadline(stats, second) {
  const rate = second === null ? 0 : second.rate("commands");
  show("request-rate", compact(rate), rate);
  show("request-total", whole(stats.commands.executed) + " since the start, "
    + whole(stats.commands.errors) + " answered with an error", stats.commands.executed);
  const batch = second === null ? null
    : ratio(second.growth("tx_items"), second.growth("tx_batches"));
  show("batch-mean", batch === null ? "-" : compact(batch), batch ?? 0);
  const requests = sum(stats.saved, "requests"), round_trips = sum(stats.saved, "round_trips");
  // A start makes a few round trips that no request asked for.
  const share = requests <= round_trips ? null : 1 - round_trips / requests;
  show("round-trips-saved", share === null ? "-" : percent(share), share ?? 0);
  show("round-trips-saved-note", share === null ? "of statements, reads and syncs: none yet"
    : `${compact(round_trips)} round trips carried what ${compact(requests)} would have`);
  const {open, blocked, http_open} = stats.connections;
  show("connection-count", whole(open), open);
  show("connection-note", `${whole(blocked)} wait for the log, ${whole(http_open)} of HTTP`);
}

function sum(rows, field) {
  return rows.reduce((total, row) => total + row[field], 0);
}

// Prices of a million round trips, in the currency of the page.
const DEFAULT_PRICES = {currency: "$", statements: 0.001, reads: 0.4, syncs: 0.002};
const PRICES_KEY = "busload.prices";
const SAVED_TITLES = {
  statements: "Statements of Postgres", reads: "Reads of object stores", syncs: "Syncs of the log",
};
const DAYS = 30;

const saved = {
  prices: {...DEFAULT_PRICES},
  stats: null,

  start() {
    this.load();
    for (const name of ["statements", "reads", "syncs"]) {
      const price = element("input", {
        type: "number", min: 0, step: "any", inputmode: "decimal", id: "price-" + name,
        "aria-label": "Price of a million: " + SAVED_TITLES[name],
      });
      price.addEventListener("input", () => this.change(name, Number(price.value)));
      const cell = (part, text) => element("td", {id: `saved-${name}-${part}`, "data-label": text});
      const priced = element("td", {"data-label": "Price of a million"}, price);
      byId("saved-rows").append(element("tr", {},
        element("th", {scope: "row"}, SAVED_TITLES[name]),
        cell("requests", "Requests"), cell("round_trips", "Round trips"), cell("share", "Saved"),
        priced,
        cell("money", "Saved so far"), cell("month", "A month at this rate")));
    }
    byId("currency").addEventListener("input", (event) =>
      this.change("currency", event.target.value));
    byId("prices-reset").addEventListener("click", () => {
      this.prices = {...DEFAULT_PRICES};
      this.keep();
      this.fill();
      this.draw(this.stats);
    });
    this.fill();
  },

  /** Takes the prices that this browser has kept, if they are prices. */
  load() {
    try {
      const kept = JSON.parse(localStorage.getItem(PRICES_KEY)) ?? {};
      for (const [name, value] of Object.entries(DEFAULT_PRICES)) {
        const fits = typeof kept[name] === typeof value && (name === "currency"
          || (Number.isFinite(kept[name]) && 0 <= kept[name]));
        if (fits) this.prices[name] = kept[name];
      }
    } catch {
      // A browser that keeps nothing, or something else under this name.
    }
  },

  keep() {
    try {
      localStorage.setItem(PRICES_KEY, JSON.stringify(this.prices));
    } catch {
      // The prices hold until the page is left.
    }
  },

  fill() {
    byId("currency").value = this.prices.currency;
    for (const name of ["statements", "reads", "syncs"]) {
      byId("price-" + name).value = String(this.prices[name]);
    }
  },

  change(name, value) {
    if (name !== "currency" && !(Number.isFinite(value) && 0 <= value)) return;
    this.prices[name] = value;
    this.keep();
    this.draw(this.stats);
  },

  draw(stats) {
    this.stats = stats;
    if (stats === null) return;
    const minute = samples.lastMinute();
    for (const {name, requests, round_trips} of stats.saved) {
      const put = (part, text, value) => show(`saved-${name}-${part}`, text, value);
      const price = this.prices[name] / 1e6, {currency} = this.prices;
      const spared = Math.max(0, requests - round_trips);
      put("requests", compact(requests), requests);
      put("round_trips", compact(round_trips), round_trips);
      put("share", requests === 0 ? "-" : percent(spared / requests), spared);
      put("money", money(currency, spared * price), spared * price);
      const rate = minute === null ? 0 : Math.max(0, sparedIn(name, minute) / minute.seconds);
      const month = rate * 86400 * DAYS * price;
      put("month", money(currency, month), month);
    }
  },
};

/** Round trips that were saved in a window of the history. */
function sparedIn(name, window) {
  if (name === "syncs") return window.growth("log_records") - window.growth("log_syncs");
  const kind = name === "statements" ? "postgres" : "chunks";
  return saved.stats.tables.filter((table) => table.kind === kind).reduce((total, table) =>
    total + window.tableGrowth(table.name, "requests")
      - window.tableGrowth(table.name, "round_trips"), 0);
}

/** What tables of chunks and patterns of stores saved, with a sign, and the busiest stores. */
function drawSavings(stats) {
  const {savings, busiest} = stats;
  byId("buckets").hidden = savings.length === 0;
  byId("busiest").hidden = busiest.length === 0;
  const cell = (name, text) => element("td", {"data-label": name}, text);
  replace(byId("savings-rows"), savings, () => savings.map((row) =>
    element("tr", {"data-savings": row.name},
      element("th", {scope: "row"}, row.name),
      cell("GETs of clients without us", whole(row.direct_requests)),
      cell("Requests sent", whole(row.store_requests)),
      cell("Requests saved", whole(row.saved_requests)),
      cell("Bytes saved", signed(row.saved_bytes, bytes)),
      cell("Money saved", signed(row.saved_usd, (usd) => "$" + usd.toFixed(usd < 1 ? 4 : 2))))));
  replace(byId("busiest-rows"), busiest, () => busiest.map((store) =>
    element("tr", {},
      element("th", {scope: "row"}, store.name),
      cell("Chunks read", whole(store.reads)),
      cell("From memory, disk", percent(store.hits / store.reads)),
      cell("Downloads", whole(store.downloads)),
      cell("Fetched", bytes(store.store_bytes)),
      cell("Errors", whole(store.errors)))));
}

function drawHistograms(stats) {
  // Commands without a key belong to no table.
  const rank = (entry) => Number(entry.subject === "*");
  const shown = stats.latency.filter((entry) => entry.count !== 0)
    .sort((a, b) => rank(a) - rank(b)).slice(0, HISTOGRAMS_SHOWN);
  const isRecent = 2 <= histograms.kept.length;
  show("latency-window", isRecent ? "in the last minute, where there was any" : "since the start");
  const figures = shown.map((entry) => {
    const recent = histograms.recent(entry);
    const counts = recent !== null && recent.count !== 0 ? recent : entry;
    return [entry, counts];
  });
  replace(byId("histograms"), figures.map(([entry, counts]) => [seriesName(entry), counts]), () =>
    figures.length === 0 ? [element("p", {class: "note"}, "Nothing was measured yet.")]
      : figures.map(([entry, counts]) => histogram(entry, counts)));
}

/** Columns over a logarithmic axis of time, with the median and the 99th percentile. */
function histogram(entry, counts) {
  const width = 250, height = 84, base = 66;
  const position = (us) => Math.log2(Math.max(us, 0.25)) + 2;
  const bounds = counts.buckets.map(([bound]) => bound ?? entry.max_us);
  const first = Math.floor(position(Math.min(...bounds))) - 1;
  const last = Math.ceil(position(Math.max(...bounds))) + 1;
  const x = (us) => (position(us) - first) / (last - first) * width;
  const most = Math.max(...counts.buckets.map(([, count]) => count));
  const columnWidth = Math.max(2, width / (last - first) / (entry.parts_per_octave) - 1);
  const parts = counts.buckets.map(([bound, count]) => {
    const size = Math.max(1.5, count / most * (base - 6));
    return shape("rect", {
      class: "bar", x: x(bound ?? entry.max_us) - columnWidth, y: base - size, width: columnWidth,
      height: size,
    });
  });
  parts.push(shape("line", {class: "axis", x1: 0, x2: width, y1: base, y2: base}));
  const p50 = quantile(counts, 0.5), p99 = quantile(counts, 0.99);
  for (const bound of [p50, p99].filter((bound) => bound !== null)) {
    parts.push(shape("line", {class: "mark", x1: x(bound), x2: x(bound), y1: 0, y2: base}));
  }
  parts.push(label(0, height - 3, duration(2 ** (first - 2)), "dim", "start"));
  parts.push(label(width, height - 3, duration(2 ** (last - 2)), "dim", "end"));
  const name = seriesName(entry).replace("*", "no key");
  const text = `half below ${duration(p50)}, 99 % below ${duration(p99)}, `
    + `longest ${duration(entry.max_us)}; ${compact(counts.count)} of them`;
  return element("figure", {},
    shape("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": name}, ...parts),
    element("figcaption", {}, element("b", {}, name), element("br", {}), text));
}

function drawTables(stats, second) {
  replace(byId("table-rows"), [stats.tables, second === null ? 0 : samples.lastMs()], () =>
    stats.tables.map((table) => {
      const rate = (column) => (second === null ? "-"
        : compact(second.tableRate(table.name, column)));
      const isMemory = table.kind === "memory";
      const batch = second === null || isMemory ? null : ratio(
        second.tableGrowth(table.name, "entries"), second.tableGrowth(table.name, "batches"));
      const level = stats.health.reasons
        .find((reason) => reason.subject === "table " + table.name)?.level ?? null;
      const connections = table.connections === null ? ""
        : `, ${table.connections} of ${table.connections_wanted} connections`;
      const cell = (name, text, kind = null) =>
        element("td", {"data-label": name, class: kind}, text);
      return element("tr", {class: level, "data-table": table.name},
        element("th", {scope: "row"}, table.name),
        cell("State", table.state + connections, "state"),
        cell("Requests/s", rate("requests")),
        cell("Round trips/s", isMemory ? "-" : rate("round_trips")),
        cell("Keys in a batch", batch === null ? "-" : compact(batch)),
        cell("Waiting", whole(table.waiting)),
        cell("Batches in flight",
          isMemory ? "-" : `${table.in_flight} of ${table.in_flight_limit}`),
        isMemory ? cell("Answered by", "memory") : tiers(table.tiers));
    }));
}

/** Where the answers came from, as a bar and in words. */
function tiers(list) {
  const total = sum(list, "requests"), known = list.filter((tier) => tier.requests !== 0);
  let start = 0;
  const parts = list.map((tier, index) => {
    const width = total === 0 ? 0 : tier.requests / total * 100;
    const part = shape("rect", {
      x: start, width, height: 10, fill: `var(--series-${index % SERIES_COLORS})`,
    });
    start += width;
    return part;
  });
  const words = known.map((tier) => `${tier.name} ${percent(tier.requests / total)}`).join(", ");
  return element("td", {"data-label": "Answered by", class: "tiers"},
    element("div", {}, shape("svg", {
      viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true",
    }, ...parts), element("small", {}, total === 0 ? "nothing yet" : words)));
}

function drawSlow(stats) {
  const slowest = [...stats.slow].sort((a, b) => b.took_us - a.took_us);
  show("slow-note", slowest.length === 0 ? "No command was slow." : "");
  const now = nowMs(stats);
  // What is old changes its text each minute only, so that text can be selected.
  const rows = slowest.map((slow) => [slow.took_us, longTime(Math.max(0, now - slow.at_s * 1000)),
    slow.command, slow.client]);
  replace(byId("slow-rows"), rows, () => rows.map(([took, age, command, client]) =>
    element("tr", {},
      element("th", {scope: "row"}, duration(took)),
      element("td", {"data-label": "When"}, age + " ago"),
      element("td", {"data-label": "Command", class: "words"}, element("code", {}, command)),
      element("td", {"data-label": "Client"}, client))));
}

function drawLists(stats) {
  const {connections, commands, calls, memory, log, snapshots} = stats;
  const bad = (count) => (count === 0 ? "0" : [whole(count), "warning"]);
  describe("connections", [
    ["open", whole(connections.open)],
    ["accepted", whole(connections.accepted)],
    ["refused: maxclients", bad(connections.rejected)],
    ["closed: memory", bad(connections.evicted)],
    ["their memory", bytes(connections.memory_bytes)],
    ["wrong passwords", bad(commands.auth_denied)],
    ["received", bytes(calls.received_bytes)],
    ["sent", bytes(calls.sent_bytes)],
    ["calls of the system", compact(calls.polls + calls.receives + calls.sends)],
    ["at sources now", whole(commands.at_sources)],
  ]);
  describe("log", log === null ? [["state", stats.state]] : [
    ["state", stats.ready ? "written" : ["see above", "error"]],
    ["records", compact(log.records)],
    ["writes", compact(log.frames)],
    ["syncs", compact(log.syncs)],
    ["mean sync", duration(ratio(log.sync_total_us, log.syncs))],
    ["longest sync", duration(log.sync_max_us)],
    ["written", bytes(log.written_bytes)],
    ["on disk", `${bytes(log.size_bytes)} in ${whole(log.segments)} ${plural(log.segments)}`],
    ["last record", whole(log.written_lsn)],
    ["durable record", whole(log.durable_lsn)],
  ]);
  describe("snapshots", snapshots === null ? [["state", stats.state]] : [
    ["now", snapshots.running ? `making one: ${Math.round(snapshots.progress_percent)} %` : "idle"],
    ["made", whole(snapshots.made)],
    ["failed", bad(snapshots.failed)],
    ["newest", snapshots.finished_ms === null ? "before this start, or none"
      : longTime(Math.max(0, nowMs(stats) - snapshots.finished_ms)) + " ago"],
    ["took", snapshots.took_ms === null ? "-" : duration(snapshots.took_ms * 1000)],
    ["keys", whole(snapshots.entries)],
    ["size", bytes(snapshots.file_bytes)],
    ["last error", snapshots.error === null ? "none" : [snapshots.error, "warning words"]],
  ]);
  const limit = memory.max_bytes === 0 ? "no limit" : "of " + bytes(memory.max_bytes);
  describe("memory", [
    ["keys", whole(memory.keys)],
    ["with a time to live", whole(memory.keys_expiring)],
    ["used", `${bytes(memory.used_bytes)} ${limit}`],
    ["most ever", bytes(memory.peak_bytes)],
    ["still to be freed", bytes(memory.garbage_bytes)],
    ["the process", bytes(memory.resident_bytes)],
    ["expired", whole(memory.expired)],
    ["evicted", whole(memory.evicted)],
    ["lookups that found", percent(commands.hits / (commands.hits + commands.misses))],
    ["put off: log behind", whole(commands.deferred)],
  ]);
}

function plural(segments) {
  return segments === 1 ? "segment" : "segments";
}

function nowMs(stats) {
  return stats.started_ms + stats.uptime_ms;
}

function drawAbout(stats) {
  show("about", `${stats.version}, up ${longTime(stats.uptime_ms)}`);
}

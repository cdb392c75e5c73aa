// The history of the last minutes, as the server keeps it: cumulative counters, one row a second.

const samples = {
  columns: [],
  tableColumns: [],
  tables: [],
  rows: [],

  /** Adds the rows of an answer. */
  add(history) {
    this.columns = history.columns;
    this.tableColumns = history.table_columns;
    this.tables = history.tables;
    this.rows = this.rows.concat(history.samples).slice(-history.samples_max);
  },

  /** Forgets all, as the server did when it started again. */
  clear() {
    this.rows = [];
  },

  /** Uptime of the last row, from which the server continues. */
  lastMs() {
    return this.rows.length === 0 ? 0 : this.rows.at(-1).at_ms;
  },

  /** Growth of a column from one row to a later one; 0 after a reset of the counters. */
  between(from, to, column) {
    const index = this.columns.indexOf(column);
    if (index === -1) throw new Error("the history has no column " + column);
    return Math.max(0, to.values[index] - from.values[index]);
  },

  /** The same for a table, given by its position. */
  tableBetween(from, to, table, column) {
    const index = this.tableColumn(column);
    return Math.max(0, to.tables[table][index] - from.tables[table][index]);
  },

  tableColumn(column) {
    const index = this.tableColumns.indexOf(column);
    if (index === -1) throw new Error("the history has no column " + column + " of tables");
    return index;
  },

  /** The last second: functions for growths and rates; null before there are two rows. */
  lastSecond() {
    const [from, to] = this.rows.slice(-2);
    return to === undefined ? null : this.window(from, to);
  },

  /** The last minute, or as much of it as there is. */
  lastMinute() {
    const rows = this.rows.slice(-61);
    return rows.length < 2 ? null : this.window(rows[0], rows.at(-1));
  },

  window(from, to) {
    const seconds = (to.at_ms - from.at_ms) / 1000;
    const growth = (column) => this.between(from, to, column);
    const tableGrowth = (name, column) => {
      const table = this.tables.indexOf(name);
      return table === -1 ? 0 : this.tableBetween(from, to, table, column);
    };
    return {
      seconds,
      growth,
      tableGrowth,
      rate: (column) => growth(column) / seconds,
      tableRate: (name, column) => tableGrowth(name, column) / seconds,
    };
  },
};

// Histograms as they were in the last minute, to tell what is new.
const HISTOGRAMS_KEPT = 61;
const histograms = {
  kept: [],

  add(latency) {
    const byName = new Map(latency.map((entry) => [seriesName(entry), entry]));
    this.kept.push(byName);
    if (HISTOGRAMS_KEPT < this.kept.length) this.kept.shift();
  },

  /** Forgets all: what follows is of another process, or comes after a time without answers. */
  clear() {
    this.kept = [];
  },

  /** Counts of the last minute, or null if this page has not seen the counts before. */
  recent(entry) {
    if (this.kept.length < 2) return null;
    const before = this.kept[0].get(seriesName(entry));
    return before === undefined ? entry : difference(entry, before);
  },

  /** Mean in microseconds since the answer before, over all series of these subjects. */
  meanNow(what, isAbout) {
    const [before, now] = this.kept.slice(-2);
    if (now === undefined) return null;
    let count = 0, sum = 0;
    for (const [name, entry] of now) {
      if (entry.what !== what || !isAbout(entry.subject)) continue;
      const earlier = before.get(name);
      count += entry.count - (earlier === undefined ? 0 : earlier.count);
      sum += entry.sum_us - (earlier === undefined ? 0 : earlier.sum_us);
    }
    return count <= 0 ? null : Math.max(0, sum / count);
  },
};

function seriesName(entry) {
  const family = entry.family === null ? [] : [entry.family];
  return [entry.what, entry.subject, ...family].join(", ");
}

function difference(entry, before) {
  const counts = new Map(before.buckets);
  const buckets = entry.buckets.map(([bound, count]) => [bound, count - (counts.get(bound) ?? 0)]);
  if (buckets.some(([, count]) => count < 0)) return entry;
  return {
    count: entry.count - before.count,
    sum_us: entry.sum_us - before.sum_us,
    buckets: buckets.filter(([, count]) => count !== 0),
  };
}

/** The bound below which a share of all counts lies, in microseconds; null for none. */
function quantile(counts, share) {
  const rank = Math.max(1, Math.ceil(counts.count * share));
  let below = 0;
  for (const [bound, count] of counts.buckets) {
    below += count;
    if (rank <= below) return bound;
  }
  return null;
}
